//! Graphs: operations that run one after the other as one.

use super::context::Context;
use super::operation::{Operation, WORKSPACE_UNIT, Work};
use super::plugin::{UserData, infer_by};
use crate::failure::{Failure, Outcome, require};
use crate::operators::shape;
use crate::operators::tensor::{Argument, Desc, dims_to_abi};
use acl_sys::{Status, spec_atb_infer_shape_function, spec_atb_view};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Inputs, outputs and inner tensors a graph has at most, each.
const MAX_TENSORS: u32 = 256;
const MAX_NODES: usize = 1024;
const MAX_NAME: usize = 128;

fn broken(text: impl Into<String>) -> Failure {
    Failure::new(Status::ATB_ERROR_INVALID_GRAPH, text)
}

/// One step.
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) operation: Arc<Operation>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    /// None, or one for each input.
    pub(crate) views: Vec<spec_atb_view>,
}

// SAFETY: the data of views is handed to the caller's functions only, which any setup may call, as the interface says.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

/// A graph.
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    internals: usize,
    nodes: Vec<Node>,
    infer_shape: spec_atb_infer_shape_function,
    pub(super) user_data: UserData,
}

/// A node, planned.
struct NodeWork {
    work: Work,
    workspace: u64,
    /// Where its workspace begins.
    offset: u64,
    /// Descriptions of its inputs as it sees them.
    inputs: Vec<Desc>,
}

/// A graph, planned.
pub(crate) struct GraphWork {
    pub(crate) workspace: u64,
    nodes: Vec<NodeWork>,
    /// Inner tensors and where in the workspace they are.
    internals: Vec<(Desc, u64)>,
}

impl Graph {
    /// Checks what holds for every graph.
    pub(crate) fn new(
        name: String,
        (inputs, outputs, internals): (u32, u32, u32),
        nodes: Vec<Node>,
        infer_shape: spec_atb_infer_shape_function,
        user_data: UserData,
    ) -> Outcome<Self> {
        let graph = Self {
            name,
            inputs: inputs as usize,
            outputs: outputs as usize,
            internals: internals as usize,
            nodes,
            infer_shape,
            user_data,
        };
        let name_fits = graph.name.len() <= MAX_NAME
            && graph.name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
        require(name_fits, || broken(format!("`{}` is not up to 128 letters, digits and underscores", graph.name)))?;
        require([inputs, outputs, internals].iter().all(|count| *count <= MAX_TENSORS), || {
            broken(format!("{inputs} inputs, {outputs} outputs, {internals} inner tensors: 256 of each are possible"))
        })?;
        require((1..=MAX_NODES).contains(&graph.nodes.len()), || {
            broken(format!("{} nodes, and 1 to 1024 are possible", graph.nodes.len()))
        })?;
        graph.check_nodes()?;
        Ok(graph)
    }

    fn check_nodes(&self) -> Outcome {
        let total = self.inputs + self.outputs + self.internals;
        let mut written: Vec<bool> = (0..total).map(|id| id < self.inputs).collect();
        for (at, node) in self.nodes.iter().enumerate() {
            let name = node.operation.name();
            require(!node.operation.is_owned(), || broken(format!("node {at} ({name}) belongs to a graph already")))?;
            let twice = self.nodes[..at].iter().any(|other| other.handle == node.handle);
            require(!twice, || broken(format!("node {at} ({name}) is another node's operation")))?;
            require(node.operation.arity() == (node.inputs.len(), node.outputs.len()), || {
                let (inputs, outputs) = node.operation.arity();
                broken(format!("node {at} ({name}) takes {inputs} inputs and {outputs} outputs"))
            })?;
            for id in node.inputs.iter().chain(&node.outputs) {
                require(*id < total, || broken(format!("node {at} ({name}) names tensor {id} of {total}")))?;
            }
            for id in &node.inputs {
                require(written[*id], || broken(format!("node {at} ({name}) reads tensor {id} before any wrote it")))?;
            }
            for id in &node.outputs {
                written[*id] = true;
            }
        }
        let missing = written.iter().position(|written| !written);
        require(missing.is_none(), || broken(format!("no node writes tensor {}", missing.unwrap_or(0))))
    }

    pub(crate) fn node_handles(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().map(|node| node.handle)
    }

    /// Marks the nodes' operations as the graph's.
    pub(crate) fn own_nodes(&self) {
        self.nodes.iter().for_each(|node| node.operation.set_owned());
    }

    /// Descriptions of a node's inputs as it sees them.
    fn views(node: &Node, tensors: &[Option<Desc>]) -> Outcome<Vec<Desc>> {
        let see = |(at, id): (usize, &usize)| {
            let desc = tensors[*id].clone().ok_or_else(|| broken(format!("tensor {id} is not written yet")))?;
            let Some(spec_atb_view { reshape: Some(reshape), user_data }) = node.views.get(at).copied() else {
                return Ok(desc);
            };
            let (old, mut new) = (dims_to_abi(&desc.dims), dims_to_abi(&[]));
            // SAFETY: the caller gave the function with its data, and both shapes live as long as the call.
            unsafe { reshape(user_data, &old, &mut new) };
            let mut abi = desc.to_abi();
            abi.shape = new;
            let failed = |text: String| Failure::new(Status::ATB_ERROR_GRAPH_NODE_RESHAPE_FUNC_FAIL, text);
            let seen = Desc::from_abi(&abi, "a view", false).map_err(|failure| failed(failure.text))?;
            require(seen.elements() == desc.elements(), || {
                failed(format!("a view of {:?} as {:?} has another number of elements", desc.dims, seen.dims))
            })?;
            Ok(seen)
        };
        node.inputs.iter().enumerate().map(see).collect()
    }

    /// Goes through the nodes with descriptions; `visit` sees each node with its inputs and outputs.
    fn walk(
        &self,
        inputs: &[Desc],
        mut visit: impl FnMut(&Node, Vec<Desc>, &[Desc]) -> Outcome,
    ) -> Outcome<Vec<Option<Desc>>> {
        let mut tensors: Vec<Option<Desc>> = inputs.iter().cloned().map(Some).collect();
        tensors.resize(self.inputs + self.outputs + self.internals, None);
        for (at, node) in self.nodes.iter().enumerate() {
            let seen = Self::views(node, &tensors)?;
            let inferred = node.operation.infer(&seen).map_err(|failure| {
                let text = format!("node {at} of graph {}: {}", self.name, failure.text);
                Failure::new(failure.status, text)
            })?;
            for (id, desc) in node.outputs.iter().zip(&inferred) {
                match &tensors[*id] {
                    // In place: what is there already has to be as large.
                    Some(there) => require(there.bytes() == desc.bytes(), || {
                        shape(format!("node {at} of graph {} writes {:?} over {:?}", self.name, desc.dims, there.dims))
                    })?,
                    None => tensors[*id] = Some(desc.clone()),
                }
            }
            visit(node, seen, &inferred)?;
        }
        Ok(tensors)
    }

    pub(crate) fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        if self.infer_shape.is_some() {
            return infer_by(self.infer_shape, self.user_data.pointer, inputs, self.outputs)
                .map_err(|failure| Failure::new(Status::ATB_ERROR_GRAPH_INFERSHAPE_FUNC_FAIL, failure.text));
        }
        let tensors = self.walk(inputs, |_, _, _| Ok(()))?;
        Ok(tensors[self.inputs..self.inputs + self.outputs].iter().flatten().cloned().collect())
    }

    pub(crate) fn plan(&self, inputs: &[Argument], outputs: &[Argument]) -> Outcome<GraphWork> {
        let descs: Vec<Desc> = inputs.iter().map(|input| input.desc.clone()).collect();
        for (at, (inferred, given)) in self.infer(&descs)?.iter().zip(outputs).enumerate() {
            require(inferred.dims == given.desc.dims, || {
                let given = &given.desc.dims;
                shape(format!("output {at} of graph {} has shape {:?}, not {given:?}", self.name, inferred.dims))
            })?;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let tensors = self.walk(&descs, |node, seen, inferred| {
            let argument = |(id, desc): (&usize, &Desc)| match *id {
                id if id < self.inputs => Argument { desc: desc.clone(), ..inputs[id].clone() },
                id if id < self.inputs + self.outputs => {
                    Argument { desc: desc.clone(), ..outputs[id - self.inputs].clone() }
                }
                _ => Argument::internal(desc.clone(), 0),
            };
            let node_inputs: Vec<Argument> = node.inputs.iter().zip(&seen).map(argument).collect();
            let node_outputs: Vec<Argument> = node.outputs.iter().zip(inferred).map(argument).collect();
            let (workspace, work) = node.operation.plan(&node_inputs, &node_outputs).map_err(|failure| {
                let text = format!("node {} of graph {}: {}", node.operation.name(), self.name, failure.text);
                Failure::new(failure.status, text)
            })?;
            nodes.push(NodeWork { work, workspace, offset: 0, inputs: seen });
            Ok(())
        })?;
        let mut offset = 0;
        let mut internals = Vec::with_capacity(self.internals);
        for desc in tensors[self.inputs + self.outputs..].iter().flatten() {
            internals.push((desc.clone(), offset));
            offset += (desc.bytes() as u64).next_multiple_of(WORKSPACE_UNIT);
        }
        // A stream's order keeps its operations' workspaces apart, and nothing keeps those of two streams apart.
        let mut by_stream = BTreeMap::<u32, u64>::new();
        for (node, planned) in self.nodes.iter().zip(&nodes) {
            let largest = by_stream.entry(node.operation.stream_id.load(Ordering::SeqCst)).or_default();
            *largest = (*largest).max(planned.workspace.next_multiple_of(WORKSPACE_UNIT));
        }
        let mut starts = BTreeMap::new();
        for (stream, size) in by_stream {
            starts.insert(stream, offset);
            offset += size;
        }
        for (node, planned) in self.nodes.iter().zip(&mut nodes) {
            planned.offset = starts[&node.operation.stream_id.load(Ordering::SeqCst)];
        }
        Ok(GraphWork { workspace: offset, nodes, internals })
    }

    pub(crate) fn launch(
        &self,
        work: &GraphWork,
        inputs: &[Argument],
        outputs: &[Argument],
        workspace: usize,
        (context, id): (&Context, u32),
    ) -> Outcome {
        let internals: Vec<Argument> = work
            .internals
            .iter()
            .map(|(desc, offset)| Argument::internal(desc.clone(), workspace + *offset as usize))
            .collect();
        let tensor = |id: usize| match id {
            id if id < self.inputs => &inputs[id],
            id if id < self.inputs + self.outputs => &outputs[id - self.inputs],
            id => &internals[id - self.inputs - self.outputs],
        };
        for (node, planned) in self.nodes.iter().zip(&work.nodes) {
            let seen = |(id, desc): (&usize, &Desc)| Argument { desc: desc.clone(), ..tensor(*id).clone() };
            let node_inputs: Vec<Argument> = node.inputs.iter().zip(&planned.inputs).map(seen).collect();
            let node_outputs: Vec<Argument> = node.outputs.iter().map(|id| tensor(*id).clone()).collect();
            let slice = (workspace + planned.offset as usize, planned.workspace);
            node.operation.launch(&planned.work, &node_inputs, &node_outputs, slice, (context, id))?;
        }
        Ok(())
    }
}
