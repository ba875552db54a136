//! Operations: checked and planned by setup, put on a stream by execute.

use super::context::Context;
use super::graph::{Graph, GraphWork};
use super::plugin::Plugin;
use crate::config::Rounding;
use crate::failure::{Failure, Outcome, parameter, require};
use crate::memory::POISON;
use crate::operators::tensor::{Argument, Desc, Tensor, Type};
use crate::operators::{Bound, Operator, Plan, shape, trap};
use crate::order::{Access, Usage};
use crate::stream::Task;
use crate::world::world;
use acl_sys::{SPEC_ATB_EVENT_RECORD, Status, spec_atb_event_action};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What workspaces are rounded up to.
pub(crate) const WORKSPACE_UNIT: u64 = 512;

/// What an operation is.
pub(crate) enum Body {
    Single(RwLock<Arc<dyn Operator>>),
    Event { event: usize, action: spec_atb_event_action },
    Graph(Graph),
    Plugin(Plugin),
}

/// What is to be launched.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Arc<dyn Operator>, Plan),
    Event,
    Graph(Arc<GraphWork>),
    Plugin,
}

/// A successful setup.
pub(crate) struct Prepared {
    pub(crate) context: usize,
    pub(crate) inputs: Vec<Desc>,
    pub(crate) outputs: Vec<Desc>,
    pub(crate) workspace: u64,
    pub(crate) work: Work,
    /// What a prelaunch was given.
    pub(crate) prelaunched: Option<(Vec<Argument>, Vec<Argument>, usize)>,
}

/// An `atb::Operation`.
pub(crate) struct Operation {
    pub(crate) body: Body,
    /// Locked by whoever uses the operation; a second user is an error.
    pub(crate) state: Mutex<Option<Prepared>>,
    /// Shapes that graph launch mode has captured.
    pub(crate) captured: Mutex<Option<(Vec<Desc>, Vec<Desc>)>>,
    pub(crate) stream_id: AtomicU32,
    owned: AtomicBool,
}

impl Operation {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            state: Mutex::new(None),
            captured: Mutex::new(None),
            stream_id: AtomicU32::new(0),
            owned: AtomicBool::new(false),
        }
    }

    /// Whether a graph has taken it.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned.load(Ordering::SeqCst)
    }

    pub(crate) fn set_owned(&self) {
        self.owned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn name(&self) -> String {
        match &self.body {
            Body::Single(operator) => format!("{}Operation", operator.read().name()),
            Body::Event { .. } => "EventOperation".to_owned(),
            Body::Graph(graph) => graph.name.clone(),
            Body::Plugin(plugin) => plugin.name.clone(),
        }
    }

    pub(crate) fn arity(&self) -> (usize, usize) {
        match &self.body {
            Body::Single(operator) => operator.read().arity(),
            Body::Event { .. } => (0, 0),
            Body::Graph(graph) => (graph.inputs, graph.outputs),
            Body::Plugin(plugin) => plugin.arity,
        }
    }

    pub(crate) fn is_optional(&self, input: usize) -> bool {
        match &self.body {
            Body::Single(operator) => operator.read().is_optional(input),
            // A graph hands them on, and its nodes know.
            Body::Graph(_) | Body::Plugin(_) => true,
            Body::Event { .. } => false,
        }
    }

    fn check_counts(&self, inputs: usize, outputs: usize) -> Outcome {
        let arity = self.arity();
        require(arity == (inputs, outputs), || {
            let text =
                format!("{} takes {} inputs and {} outputs, not {inputs} and {outputs}", self.name(), arity.0, arity.1);
            Failure::new(Status::ATB_ERROR_INVALID_IN_TENSOR_NUM, text)
        })
    }

    pub(crate) fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        self.check_counts(inputs.len(), self.arity().1)?;
        match &self.body {
            Body::Single(operator) => operator.read().infer(inputs),
            Body::Event { .. } => Ok(Vec::new()),
            Body::Graph(graph) => graph.infer(inputs),
            Body::Plugin(plugin) => plugin.infer(inputs),
        }
    }

    /// Checks and plans; returns the bytes of workspace too.
    pub(crate) fn plan(&self, inputs: &[Argument], outputs: &[Argument]) -> Outcome<(u64, Work)> {
        self.check_counts(inputs.len(), outputs.len())?;
        match &self.body {
            Body::Single(operator) => {
                let operator = operator.read().clone();
                let plan = plan_single(&*operator, inputs, outputs)?;
                Ok((plan.scratch.next_multiple_of(WORKSPACE_UNIT), Work::Kernel(operator, plan)))
            }
            Body::Event { .. } => Ok((0, Work::Event)),
            Body::Graph(graph) => {
                let work = graph.plan(inputs, outputs)?;
                Ok((work.workspace, Work::Graph(Arc::new(work))))
            }
            Body::Plugin(plugin) => Ok((plugin.setup(inputs, outputs)?, Work::Plugin)),
        }
    }

    /// Puts planned work on streams. `id` is that of the graph around, for operations that have none.
    pub(crate) fn launch(
        &self,
        work: &Work,
        inputs: &[Argument],
        outputs: &[Argument],
        (workspace, size): (usize, u64),
        (context, id): (&Context, u32),
    ) -> Outcome {
        let own = self.stream_id.load(Ordering::SeqCst);
        let id = if own == 0 { id } else { own };
        match (&self.body, work) {
            (Body::Single(_), Work::Kernel(operator, plan)) => {
                let task = kernel_task(operator, plan, inputs, outputs, workspace);
                queue(context, id, task)?;
                // One task stands for all of its kernels: the host queues the others while the first runs.
                crate::host::clock(world().config().cost.call * f64::from(plan.launches - 1));
                Ok(())
            }
            (Body::Event { event, action }, _) => {
                let stream = context.stream(id)?;
                if *action == SPEC_ATB_EVENT_RECORD {
                    crate::acl::stream::record(*event, stream)
                } else {
                    crate::acl::stream::wait_and_reset(*event, stream)
                }
            }
            (Body::Graph(graph), Work::Graph(work)) => graph.launch(work, inputs, outputs, workspace, (context, id)),
            (Body::Plugin(plugin), _) => plugin.execute(inputs, outputs, (workspace, size), context.stream(id)?),
            _ => Err(Failure::new(Status::ATB_ERROR_INTERNAL_ERROR, "the plan is another operation's")),
        }
    }
}

fn queue(context: &Context, id: u32, task: Task) -> Outcome {
    let stream = world().own_stream(context.stream(id)?)?;
    stream.queue(task)
}

fn plan_single(operator: &dyn Operator, inputs: &[Argument], outputs: &[Argument]) -> Outcome<Plan> {
    let soc = world().config().soc;
    let descs = |arguments: &[Argument]| arguments.iter().map(|argument| argument.desc.clone()).collect::<Vec<_>>();
    let (input_descs, output_descs) = (descs(inputs), descs(outputs));
    require(operator.has_kernel(&input_descs, &output_descs, soc), || {
        let list = |descs: &[Desc]| {
            descs.iter().map(|d| format!("{:?} {:?}", d.dtype, d.format)).collect::<Vec<_>>().join(", ")
        };
        let text = format!("{} has no kernel for {} -> {}", operator.name(), list(&input_descs), list(&output_descs));
        Failure::new(Status::ATB_ERROR_INVALID_TENSOR_INI_MATCH, text)
    })?;
    let any_bf16 = input_descs.iter().chain(&output_descs).any(|desc| desc.dtype == Type::Bf16);
    require(!(soc.is_310p() && any_bf16), || {
        Failure::new(Status::ATB_ERROR_INVALID_TENSOR_DTYPE, "this chip has no bf16")
    })?;
    for (at, (inferred, given)) in operator.infer(&input_descs)?.iter().zip(&output_descs).enumerate() {
        require(inferred.dims == given.dims, || {
            shape(format!("output {at} of {} has shape {:?}, not {:?}", operator.name(), inferred.dims, given.dims))
        })?;
    }
    operator.plan(inputs, outputs, soc)
}

fn kernel_task(
    operator: &Arc<dyn Operator>,
    plan: &Plan,
    inputs: &[Argument],
    outputs: &[Argument],
    workspace: usize,
) -> Task {
    let config = world().config();
    let scratch = plan.scratch.next_multiple_of(WORKSPACE_UNIT) as usize;
    let mut accesses = Vec::new();
    for (is_input, arguments) in [(true, inputs), (false, outputs)] {
        for (index, argument) in arguments.iter().enumerate().filter(|(_, argument)| argument.device != 0) {
            let access = |usage| Access { address: argument.device, len: argument.desc.bytes(), usage };
            accesses.extend(operator.usage(is_input, index).map(access));
        }
    }
    if scratch > 0 {
        accesses.push(Access { address: workspace, len: scratch, usage: Usage::Write });
    }
    let moved = inputs.iter().chain(outputs).map(|argument| argument.desc.bytes() as f64).sum();
    let cost = config.cost.kernel(plan.bytes.unwrap_or(moved), plan.multiply_adds)
        + config.cost.launch * f64::from(plan.launches - 1);
    let rows = inputs.first().map_or(0, |input| input.desc.rows().0);
    let by_shape = config.rounding == Rounding::ByShape && operator.sums();
    let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
    let (kernel, name) = (plan.kernel.clone(), operator.name());
    let action = move |_: &mut crate::stream::Progress<'_>| {
        let bound = Bound { inputs: bind(&inputs, "input")?, outputs: bind(&outputs, "output")? };
        // What an operation leaves in its workspace is nobody's to read.
        let scratch = match scratch {
            0 => None,
            size => Some(world().memory.view(workspace, size).map_err(|text| trap(format!("workspace: {text}")))?),
        };
        if let Some(scratch) = &scratch {
            scratch.fill(POISON);
        }
        kernel(&bound)?;
        if by_shape {
            bound.outputs.iter().for_each(|output| output.perturb(name, rows));
        }
        Ok(())
    };
    Task { name: name.to_owned(), accesses, cost, action: Arc::new(action) }
}

/// Finds the memory of tensors, where the device would find it: when the kernel runs.
fn bind(arguments: &[Argument], what: &str) -> Outcome<Vec<Tensor>> {
    let bind = |(at, argument): (usize, &Argument)| {
        let desc = argument.desc.clone();
        if desc.is_empty() {
            return Ok(Tensor { desc, view: None });
        }
        let view = world().memory.view(argument.device, desc.bytes());
        let view = view.map_err(|text| trap(format!("{what} {at}: {text}")))?;
        require(view.pointer().align_offset(desc.dtype.size().max(1)) == 0, || {
            trap(format!("{what} {at} is at {:#x}, which its element type does not allow", argument.device))
        })?;
        Ok(Tensor { desc, view: Some(view) })
    };
    arguments.iter().enumerate().map(bind).collect()
}

/// Checks of execute that do not look at the work.
pub(crate) fn check_arguments(arguments: &[Argument], planned: &[Desc], what: &str) -> Outcome {
    require(arguments.len() == planned.len(), || {
        parameter(format!("{} {what}s, and setup saw {}", arguments.len(), planned.len()))
    })?;
    for (at, (argument, planned)) in arguments.iter().zip(planned).enumerate() {
        let size = planned.bytes() as u64;
        require(argument.size == size, || {
            parameter(format!("{what} {at} has {} bytes, and by setup's description {size}", argument.size))
        })?;
        require(planned.is_empty() || argument.has_data(), || parameter(format!("{what} {at} has no memory")))?;
    }
    Ok(())
}
