//! Operations of ATB: made of checked parameters, set up for tensors, executed on a stream.

use crate::call::{Side, lock};
use crate::context::{Context, Handle, Remains};
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, Memory};
use crate::order::{Access, Uses};
use crate::parameters::{Check, Parameters};
use crate::stream::Stream;
use crate::tensor::{Facts, Tensor, TensorDesc};
use crate::workspace::Workspace;
use acl_sys::{spec_atb_context, spec_atb_context_param, spec_atb_operation, spec_atb_pack, spec_atb_tensor};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Where operations run: a stream with ATB's own state for it, and its workspace. It takes 96 MiB of the device by
/// itself, so that a program has one for each stream and no more.
#[derive(Debug)]
pub struct Executor {
    stream: Stream,
    raw: Handle,
    workspace: Mutex<Workspace>,
}

impl Executor {
    /// Makes one for a stream.
    ///
    /// # Errors
    /// Those of [`Runtime::atb`](crate::Runtime::atb); 26 (`ATB_ERROR_OUT_OF_DEVICE_MEMORY`) without 96 MiB to spare.
    #[doc(alias = "SetExecuteStream")]
    pub fn new(stream: &Stream, workspace: Workspace) -> Result<Self> {
        let context = stream.context();
        context.device().runtime().atb()?;
        context.enter()?;
        let param = spec_atb_context_param {
            host_tiling_blocks: 0,
            device_tiling_blocks: 0,
            allocate: None,
            deallocate: None,
            user_data: std::ptr::null_mut(),
        };
        let mut raw = std::ptr::null_mut::<spec_atb_context>();
        context.library().shim(
            "spec_atb_create_context",
            || "making a context of ATB".to_owned(),
            |api| {
                // SAFETY: both pointers are valid for the call, and the device is current.
                unsafe { api.spec_atb_create_context(&param, &mut raw) }
            },
        )?;
        // From here on a failure drops the context again.
        let executor = Self { stream: stream.clone(), raw: Handle(raw.cast()), workspace: Mutex::new(workspace) };
        let attempt = || format!("giving ATB stream {}", stream.id());
        context.library().shim("spec_atb_set_execute_stream", attempt, |api| {
            // SAFETY: both are alive, and the executor keeps the stream.
            unsafe { api.spec_atb_set_execute_stream(raw, stream.raw()) }
        })?;
        Ok(executor)
    }

    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Looks at the workspace, or changes its ceiling.
    pub fn workspace<T>(&self, with: impl FnOnce(&mut Workspace) -> T) -> T {
        with(&mut lock(&self.workspace))
    }

    fn raw(&self) -> *mut spec_atb_context {
        self.raw.0.cast()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let library = self.stream.context().library();
        // Queued kernels read their tiling from memory of ATB's context.
        if let Err(error) = self.stream.synchronize() {
            library.keep(error);
        }
        let attempt = || "destroying a context of ATB".to_owned();
        // SAFETY: the context is ours, and the stream has passed everything that was executed in it.
        library.release(Side::Shim, "spec_atb_destroy_context", attempt, |api| unsafe {
            api.spec_atb_destroy_context(self.raw())
        });
    }
}

/// An operation, single or a graph. Setup needs it exclusively: it holds the plan of one execution at a time.
#[derive(Debug)]
pub struct Operation {
    context: Context,
    raw: NonNull<spec_atb_operation>,
    name: &'static str,
    rules: Arc<dyn Rules>,
    arity: (usize, usize),
    /// What callbacks of the shim use.
    callbacks: Option<Box<dyn Any + Send + Sync>>,
    uses: Mutex<Uses>,
    /// The last inputs and outputs that passed all checks.
    checked: Option<(Vec<Facts>, Vec<Facts>)>,
    is_taken: bool,
}

// SAFETY: an operation may be used by one thread at a time, whichever: all that changes it needs `&mut`.
unsafe impl Send for Operation {}
// SAFETY: as above; what takes `&self` only asks for shapes.
unsafe impl Sync for Operation {}

/// What an operation checks before ATB sees its tensors.
pub(crate) trait Rules: std::fmt::Debug + Send + Sync {
    fn check_tensors(&self, operation: &Operation, inputs: &[Facts], outputs: &[Facts]) -> Result<()>;
}

#[derive(Debug)]
struct SingleRules<P>(P);

impl<P: Parameters> Rules for SingleRules<P> {
    fn check_tensors(&self, operation: &Operation, inputs: &[Facts], outputs: &[Facts]) -> Result<()> {
        let chip = operation.context.device().runtime().chip();
        self.0.check_tensors(&Check::new(self.0.name(), chip, inputs, outputs)?)
    }
}

impl Operation {
    /// Makes an operation, after its parameters have been compared with ATB's limits for the chip.
    ///
    /// # Errors
    /// [`Error::Parameter`]; those of [`Runtime::atb`](crate::Runtime::atb); what ATB says to the parameters.
    pub fn new<P: Parameters>(context: &Context, parameters: P) -> Result<Self> {
        let runtime = context.device().runtime();
        parameters.check(runtime.chip())?;
        runtime.atb()?;
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        let attempt = || format!("making {parameters:?}");
        context.library().shim(parameters.function(), attempt, |api| {
            // SAFETY: the pointer is valid for the call.
            unsafe { parameters.create(api, &mut raw) }
        })?;
        let name = parameters.name();
        Self::from_raw(context, raw, name, Arc::new(SingleRules(parameters)), None)
    }

    pub(crate) fn from_raw(
        context: &Context,
        raw: *mut spec_atb_operation,
        name: &'static str,
        rules: Arc<dyn Rules>,
        callbacks: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| Error::Call {
            function: "spec_atb_create",
            attempt: format!("making {name}"),
            status: acl_sys::Status::SPEC_ATB_ERROR_NULL,
            detail: String::new(),
        })?;
        let mut operation = Self {
            context: context.clone(),
            raw,
            name,
            rules,
            arity: (0, 0),
            callbacks,
            uses: Mutex::default(),
            checked: None,
            is_taken: false,
        };
        let (mut inputs, mut outputs) = (0, 0);
        let attempt = || format!("asking {name} for its numbers of tensors");
        context.library().shim("spec_atb_operation_arity", attempt, |api| {
            // SAFETY: the operation is alive, and both pointers are valid for the call.
            unsafe { api.spec_atb_operation_arity(raw.as_ptr(), &mut inputs, &mut outputs) }
        })?;
        operation.arity = (inputs as usize, outputs as usize);
        Ok(operation)
    }

    /// What it is called in errors.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many inputs and outputs it has.
    pub fn arity(&self) -> (usize, usize) {
        self.arity
    }

    /// Descriptions of the outputs for given inputs; `None` stands for an optional tensor that is left out.
    ///
    /// # Errors
    /// What ATB says to the inputs; a description that this crate has no words for.
    pub fn infer(&self, inputs: &[Option<TensorDesc>]) -> Result<Vec<TensorDesc>> {
        let raw_inputs: Vec<_> = inputs.iter().map(|desc| TensorDesc::raw(desc.as_ref())).collect();
        let mut raw_outputs = vec![TensorDesc::raw(None); self.arity.1];
        let attempt = || format!("asking {} for its outputs of {}", self.name, listed(inputs));
        self.context.library().shim("spec_atb_infer_shape", attempt, |api| {
            let (from, from_count) = (raw_inputs.as_ptr(), raw_inputs.len() as u64);
            let (to, to_count) = (raw_outputs.as_mut_ptr(), raw_outputs.len() as u64);
            // SAFETY: the operation is alive, and both arrays are as long as is said.
            unsafe { api.spec_atb_infer_shape(self.raw.as_ptr(), from, from_count, to, to_count) }
        })?;
        let read = |(at, raw)| {
            TensorDesc::from_raw(raw).ok_or_else(|| Error::Tensor {
                operation: self.name,
                tensor: format!("output {at}"),
                rule: "has an element type or a format that atb-rs does not know".to_owned(),
            })
        };
        raw_outputs.iter().enumerate().map(read).collect()
    }

    /// Checks tensors and plans their execution. A plan is good for these tensors and for the lengths of sequences as
    /// they are now.
    ///
    /// # Errors
    /// [`Error::Tensor`] for what the operation does not take; what ATB says.
    pub fn setup<'a>(
        &'a mut self,
        executor: &'a Executor,
        inputs: Vec<Tensor>,
        outputs: Vec<Tensor>,
    ) -> Result<Plan<'a>> {
        let attempt = || format!("setting {} up", self.name);
        self.context.require_same(executor.stream.context(), "the executor", attempt)?;
        self.check(&inputs, &outputs)?;
        let tensors = Bound::new(inputs, outputs);
        let mut workspace = 0;
        // ATB's context is one thread's at a time.
        let _turn = lock(&executor.workspace);
        self.context.enter()?;
        let attempt = || format!("setting {} up for {} to {}", self.name, tensors.inputs(), tensors.outputs());
        self.context.library().shim("spec_atb_setup", attempt, |api| {
            let (raw, pack) = (self.raw.as_ptr(), tensors.pack());
            // SAFETY: all are alive, and host copies of lengths are kept by `tensors`.
            unsafe { api.spec_atb_setup(raw, &pack, &mut workspace, executor.raw()) }
        })?;
        Ok(Plan { operation: self, executor, tensors, workspace })
    }

    fn check(&mut self, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
        let facts = |tensors: &[Tensor]| tensors.iter().map(Tensor::facts).collect::<Vec<_>>();
        let now = (facts(inputs), facts(outputs));
        if self.checked.as_ref() == Some(&now) {
            return Ok(());
        }
        let (expected_inputs, expected_outputs) = self.arity;
        if (inputs.len(), outputs.len()) != self.arity {
            return Err(Error::Tensor {
                operation: self.name,
                tensor: format!("{} inputs and {} outputs", inputs.len(), outputs.len()),
                rule: format!("were given, and it has {expected_inputs} and {expected_outputs}"),
            });
        }
        self.rules.check_tensors(self, &now.0, &now.1)?;
        let descs: Vec<_> = now.0.iter().map(|facts| facts.desc).collect();
        for (at, (inferred, given)) in self.infer(&descs)?.iter().zip(&now.1).enumerate() {
            if given.desc.as_ref() != Some(inferred) {
                let given = given.desc.map_or("left out".to_owned(), |desc| desc.to_string());
                return Err(Error::Tensor {
                    operation: self.name,
                    tensor: format!("output {at}"),
                    rule: format!("is {given}, and has to be {inferred}"),
                });
            }
        }
        self.checked = Some(now);
        Ok(())
    }

    pub(crate) fn rules(&self) -> &Arc<dyn Rules> {
        &self.rules
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn raw(&self) -> *mut spec_atb_operation {
        self.raw.as_ptr()
    }

    /// A graph owns the shim's operation from now on, and has to keep what its callbacks use.
    pub(crate) fn set_taken(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.is_taken = true;
        self.callbacks.take()
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let callbacks = self.callbacks.take().unwrap_or_else(|| Box::new(()));
        let uses = std::mem::take(&mut *lock(&self.uses));
        self.context.discard(Remains::Operation(self.raw, callbacks), uses);
    }
}

/// An operation that is set up for its tensors. Executing needs one, and it keeps the operation from being set up for
/// others meanwhile:
///
/// ```compile_fail,E0499
/// # use atb_rs::{Executor, Operation, Result, Tensor};
/// # fn twice(operation: &mut Operation, executor: &Executor, x: Vec<Tensor>, y: Vec<Tensor>) -> Result<()> {
/// let mut first = operation.setup(executor, x.clone(), y.clone())?;
/// let mut second = operation.setup(executor, x, y)?;
/// first.execute()?;
/// second.execute()
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a plan does nothing until it is executed"]
pub struct Plan<'a> {
    operation: &'a mut Operation,
    executor: &'a Executor,
    tensors: Bound,
    workspace: u64,
}

impl Plan<'_> {
    /// Bytes of workspace that the execution takes.
    pub fn workspace_size(&self) -> u64 {
        self.workspace
    }

    /// Queues the operation on the executor's stream. May be repeated, on the same tensors with other contents, as
    /// long as no length of a sequence changes.
    ///
    /// # Errors
    /// [`Error::LengthsChanged`]; [`Error::WorkspaceCeiling`]; [`Error::Unordered`] when other streams may still be
    /// using a tensor; [`Error::OtherContext`]; what ATB says.
    pub fn execute(&mut self) -> Result<()> {
        let (operation, executor) = (&*self.operation, self.executor);
        if let Some(at) = self.tensors.changed() {
            return Err(Error::LengthsChanged { operation: operation.name, tensor: format!("input {at}") });
        }
        let mut workspace = lock(&executor.workspace);
        let scratch = workspace.reserve(operation.name, self.workspace)?;
        let mut uses: Vec<(&Memory, Access)> = self.tensors.uses().collect();
        uses.extend(scratch.iter().map(|buffer| (buffer.memory(), Access::Write)));
        let attempt = || format!("executing {} on stream {}", operation.name, executor.stream.id());
        executor.stream.enqueue_noted(&uses, attempt, |point| {
            lock(&operation.uses).note(Access::Write, point);
            operation.context.library().shim("spec_atb_execute", attempt, |api| {
                let (raw, pack) = (operation.raw.as_ptr(), self.tensors.pack());
                let pointer = scratch.as_ref().map_or(std::ptr::null_mut(), |buffer| buffer.memory().pointer());
                // SAFETY: the operation was set up in this context for these tensors; tensors and workspace are alive,
                // are not touched by others, and are freed only after the stream has passed this.
                unsafe { api.spec_atb_execute(raw, &pack, pointer, self.workspace, executor.raw()) }
            })
        })
    }
}

/// The tensors of a plan, with the host copies of lengths as setup saw them.
#[derive(Debug)]
struct Bound {
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    host: Vec<Option<Arc<[i32]>>>,
    raw: RawTensors,
}

/// Tensors as the shim takes them; their pointers are into what `Bound` keeps.
#[derive(Debug)]
struct RawTensors(Vec<spec_atb_tensor>, Vec<spec_atb_tensor>);

// SAFETY: pointers into memory that `Bound` owns or keeps alive, which belongs to no thread.
unsafe impl Send for RawTensors {}
// SAFETY: as above; they are only read.
unsafe impl Sync for RawTensors {}

impl Bound {
    fn new(inputs: Vec<Tensor>, outputs: Vec<Tensor>) -> Self {
        let host: Vec<_> = inputs.iter().map(|tensor| tensor.facts().lengths).collect();
        let raw_inputs = inputs.iter().zip(&host).map(|(tensor, host)| tensor.raw(host.as_ref())).collect();
        let raw_outputs = outputs.iter().map(|tensor| tensor.raw(None)).collect();
        Self { inputs, outputs, host, raw: RawTensors(raw_inputs, raw_outputs) }
    }

    fn pack(&self) -> spec_atb_pack {
        spec_atb_pack {
            inputs: self.raw.0.as_ptr(),
            input_count: self.raw.0.len() as u64,
            outputs: self.raw.1.as_ptr(),
            output_count: self.raw.1.len() as u64,
        }
    }

    /// The first input whose lengths are no longer those that setup saw.
    fn changed(&self) -> Option<usize> {
        self.inputs.iter().zip(&self.host).position(|(tensor, seen)| tensor.facts().lengths != *seen)
    }

    fn uses(&self) -> impl Iterator<Item = (&Memory, Access)> {
        let reads = self.inputs.iter().filter_map(Tensor::buffer).map(|buffer| (buffer, Access::Read));
        let writes = self.outputs.iter().filter_map(Tensor::buffer).map(|buffer| (buffer, Access::Write));
        reads.chain(writes).map(|(buffer, access): (&DeviceBuffer, Access)| (buffer.memory(), access))
    }

    fn inputs(&self) -> String {
        let descs: Vec<_> = self.inputs.iter().map(|tensor| tensor.desc().copied()).collect();
        listed(&descs)
    }

    fn outputs(&self) -> String {
        let descs: Vec<_> = self.outputs.iter().map(|tensor| tensor.desc().copied()).collect();
        listed(&descs)
    }
}

fn listed(descs: &[Option<TensorDesc>]) -> String {
    let words: Vec<_> = descs.iter().map(|desc| desc.map_or("nothing".to_owned(), |desc| desc.to_string())).collect();
    words.join(", ")
}
