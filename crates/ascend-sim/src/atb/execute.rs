//! What is done with operations.

use super::context::execute_type;
use super::operation::{Body, Operation, Prepared, check_arguments};
use super::{OPERATIONS, context, operation};
use crate::exports::{In, Out, exports};
use crate::failure::{Failure, Outcome, argument, parameter, require};
use crate::operators::shape;
use crate::operators::tensor::{Argument, Desc};
use crate::world::world;
use acl_sys::{
    SPEC_ATB_EXECUTE_LAUNCH, SPEC_ATB_EXECUTE_PRELAUNCH, SPEC_ATB_LAUNCH_GRAPH, Status, spec_atb_pack, spec_atb_tensor,
    spec_atb_tensor_desc,
};
use parking_lot::MutexGuard;
use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;

type Handle = usize;

/// Elements of an array of the caller's.
fn elements<T: Copy>(start: *const T, count: u64, what: &str) -> Outcome<Vec<T>> {
    let count = usize::try_from(count).map_err(|_| argument(format!("{count} {what}")))?;
    require(count == 0 || !start.is_null(), || argument(format!("{what} are null")))?;
    // SAFETY: there are `count` of them by the caller's contract.
    Ok((0..count).map(|at| unsafe { start.add(at).read() }).collect())
}

fn arguments(operation: &Operation, pack: &spec_atb_pack) -> Outcome<(Vec<Argument>, Vec<Argument>)> {
    let (inputs, outputs) = operation.arity();
    require((inputs as u64, outputs as u64) == (pack.input_count, pack.output_count), || {
        let text = format!(
            "{} takes {inputs} inputs and {outputs} outputs, not {} and {}",
            operation.name(),
            pack.input_count,
            pack.output_count
        );
        Failure::new(Status::ATB_ERROR_INVALID_IN_TENSOR_NUM, text)
    })?;
    let inputs = elements::<spec_atb_tensor>(pack.inputs, pack.input_count, "inputs")?;
    let outputs = elements::<spec_atb_tensor>(pack.outputs, pack.output_count, "outputs")?;
    let convert = |(at, tensor): (usize, &spec_atb_tensor), what: &str, optional: bool| {
        Argument::from_abi(tensor, &format!("{what} {at} of {}", operation.name()), optional)
    };
    let inputs = inputs.iter().enumerate().map(|at| convert(at, "input", operation.is_optional(at.0)));
    let inputs = inputs.collect::<Outcome<_>>()?;
    let outputs = outputs.iter().enumerate().map(|at| convert(at, "output", false));
    Ok((inputs, outputs.collect::<Outcome<_>>()?))
}

/// The operation's state; a second thread that wants it meanwhile is refused.
fn state(operation: &Operation) -> Outcome<MutexGuard<'_, Option<Prepared>>> {
    match operation.state.try_lock() {
        Some(state) => Ok(state),
        None => {
            let text = format!("{} is used by two threads at once", operation.name());
            world().violation(text.clone())?;
            Err(parameter(text))
        }
    }
}

fn descs(arguments: &[Argument]) -> Vec<Desc> {
    arguments.iter().map(|argument| argument.desc.clone()).collect()
}

exports! {
    /// Name of an operation.
    fn spec_atb_operation_name(handle: Handle, buffer: *mut c_char, size: u64) {
        let name = operation(handle)?.name();
        require(!buffer.is_null() && size > 0, || argument("the buffer is null or empty"))?;
        let count = name.len().min(usize::try_from(size).unwrap_or(usize::MAX) - 1);
        // SAFETY: the buffer has `size` bytes by the caller's contract, and count + 1 are at most that.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr(), buffer.cast::<u8>(), count);
            buffer.add(count).write(0);
        }
        Ok(())
    }

    /// Inputs and outputs of an operation.
    fn spec_atb_operation_arity(handle: Handle, inputs: Out<u32>, outputs: Out<u32>) {
        let (in_count, out_count) = operation(handle)?.arity();
        inputs.required()?;
        outputs.set(u32::try_from(out_count).unwrap_or(u32::MAX))?;
        inputs.set(u32::try_from(in_count).unwrap_or(u32::MAX))
    }

    /// Descriptions of the outputs.
    fn spec_atb_infer_shape(handle: Handle, inputs: *const spec_atb_tensor_desc, input_count: u64, outputs: *mut spec_atb_tensor_desc, output_count: u64) {
        let operation = operation(handle)?;
        let counts = operation.arity();
        require((counts.0 as u64, counts.1 as u64) == (input_count, output_count), || {
            let text = format!("{} takes {} inputs and {} outputs", operation.name(), counts.0, counts.1);
            Failure::new(Status::ATB_ERROR_INVALID_IN_TENSOR_NUM, text)
        })?;
        require(output_count == 0 || !outputs.is_null(), || argument("outputs are null"))?;
        let inputs = elements(inputs, input_count, "inputs")?;
        let convert = |(at, desc): (usize, &spec_atb_tensor_desc)| {
            Desc::from_abi(desc, &format!("input {at} of {}", operation.name()), operation.is_optional(at))
        };
        let inputs = inputs.iter().enumerate().map(convert).collect::<Outcome<Vec<_>>>()?;
        for (at, desc) in operation.infer(&inputs)?.iter().enumerate() {
            // SAFETY: there are as many outputs as the operation has, checked above and by the caller's contract.
            unsafe { outputs.add(at).write(desc.to_abi()) };
        }
        Ok(())
    }

    /// Checks and plans.
    fn spec_atb_setup(handle: Handle, pack: In<spec_atb_pack>, workspace_size: Out<u64>, context_handle: Handle) {
        let operation = operation(handle)?;
        workspace_size.required()?;
        let pack = pack.get()?;
        let mut state = state(&operation)?;
        *state = None;
        let (inputs, outputs) = arguments(&operation, &pack)?;
        let (workspace, work) = operation.plan(&inputs, &outputs)?;
        require(context_handle != 0, || parameter("the context is null"))?;
        let context = context(context_handle)?;
        let (inputs, outputs) = (descs(&inputs), descs(&outputs));
        if *context.launch_mode.lock() == SPEC_ATB_LAUNCH_GRAPH && matches!(operation.body, Body::Graph(_)) {
            let captured = operation.captured.lock();
            let same = captured.as_ref().is_none_or(|(ins, outs)| (ins, outs) == (&inputs, &outputs));
            require(same, || shape("shapes of a graph may not change once graph launch mode has captured it"))?;
        }
        *state = Some(Prepared { context: context_handle, inputs, outputs, workspace, work, prelaunched: None });
        workspace_size.set(workspace)
    }

    /// Queues what was planned.
    fn spec_atb_execute(handle: Handle, pack: In<spec_atb_pack>, workspace: *mut c_void, workspace_size: u64, context_handle: Handle) {
        let operation = operation(handle)?;
        let mut state = state(&operation)?;
        let prepared = state.as_mut().ok_or_else(|| parameter(format!("{} was not set up", operation.name())))?;
        require(context_handle != 0, || parameter("the context is null"))?;
        require(prepared.context == context_handle, || parameter("setup had another context"))?;
        let context = context(context_handle)?;
        context.stream(operation.stream_id.load(Ordering::SeqCst))?;
        if execute_type() == SPEC_ATB_EXECUTE_LAUNCH {
            let prelaunched = prepared.prelaunched.take().ok_or_else(|| parameter("launch without a prelaunch"))?;
            let (inputs, outputs, workspace) = prelaunched;
            let workspace = (workspace, prepared.workspace);
            return operation.launch(&prepared.work, &inputs, &outputs, workspace, (&context, 0));
        }
        let (inputs, outputs) = arguments(&operation, &pack.get()?)?;
        check_arguments(&inputs, &prepared.inputs, "input")?;
        check_arguments(&outputs, &prepared.outputs, "output")?;
        require(workspace_size >= prepared.workspace, || {
            parameter(format!("a workspace of {workspace_size} bytes, and setup asked for {}", prepared.workspace))
        })?;
        require(prepared.workspace == 0 || !workspace.is_null(), || parameter("the workspace is null"))?;
        let workspace = workspace as usize;
        if execute_type() == SPEC_ATB_EXECUTE_PRELAUNCH {
            prepared.prelaunched = Some((inputs, outputs, workspace));
            return Ok(());
        }
        operation.launch(&prepared.work, &inputs, &outputs, (workspace, workspace_size), (&context, 0))?;
        if *context.launch_mode.lock() == SPEC_ATB_LAUNCH_GRAPH && matches!(operation.body, Body::Graph(_)) {
            *operation.captured.lock() = Some((prepared.inputs.clone(), prepared.outputs.clone()));
        }
        Ok(())
    }

    /// Which of the context's streams an operation goes to.
    fn spec_atb_set_stream_id(handle: Handle, id: u32) {
        operation(handle)?.stream_id.store(id, Ordering::SeqCst);
        Ok(())
    }

    /// Destroys an operation, and with a graph its nodes.
    fn spec_atb_destroy_operation(handle: Handle) {
        let target = operation(handle)?;
        require(!target.is_owned(), || {
            let text = "the operation belongs to a graph, which destroys it";
            Failure::new(Status::ATB_ERROR_INVALID_OPERATION_ADDR, text)
        })?;
        let mut handles = vec![handle];
        while let Some(handle) = handles.pop() {
            let removed = OPERATIONS.lock().remove(&handle);
            if let Some(Body::Graph(graph)) = removed.as_ref().map(|removed| &removed.body) {
                handles.extend(graph.node_handles());
            }
        }
        Ok(())
    }
}
