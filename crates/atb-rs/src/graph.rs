//! Graphs: operations that run one after the other as one, with tensors of their own inside.

use crate::context::Context;
use crate::error::{Error, Result};
use crate::operation::{Operation, Rules};
use crate::tensor::{Facts, TensorDesc};
use acl_sys::{SPEC_ATB_MAX_DIMS, spec_atb_dims, spec_atb_graph_param, spec_atb_node, spec_atb_view};
use std::any::Any;
use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Most nodes of a graph.
const MAX_NODES: usize = 1024;
/// Most inputs, outputs and inner tensors of a graph, each.
const MAX_TENSORS: usize = 256;
/// Most inputs of a node with a view.
const MAX_VIEWED_INPUTS: usize = 64;

/// A tensor of a graph, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorId(u32);

/// How a node sees an input: its shape, from the tensor's. The elements stay where they are.
pub type View = Box<dyn Fn(&[usize]) -> Vec<usize> + Send + Sync>;

/// Puts a graph together.
pub struct GraphBuilder {
    name: &'static str,
    inputs: u32,
    outputs: u32,
    internal: u32,
    nodes: Vec<NodeParts>,
}

struct NodeParts {
    operation: Operation,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    views: Vec<Option<Arc<View>>>,
}

impl std::fmt::Debug for GraphBuilder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes: Vec<_> = self.nodes.iter().map(|node| node.operation.name()).collect();
        formatter.debug_struct("GraphBuilder").field("name", &self.name).field("nodes", &nodes).finish_non_exhaustive()
    }
}

impl GraphBuilder {
    /// A graph with so many inputs and outputs, and no nodes yet.
    pub fn new(name: &'static str, inputs: usize, outputs: usize) -> Self {
        // Larger ones are refused when it is built.
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX / 4);
        Self { name, inputs: count(inputs), outputs: count(outputs), internal: 0, nodes: Vec::new() }
    }

    /// An input of the graph, counted from 0.
    pub fn input(&self, at: usize) -> TensorId {
        TensorId(u32::try_from(at).unwrap_or(u32::MAX))
    }

    /// An output of the graph, counted from 0.
    pub fn output(&self, at: usize) -> TensorId {
        TensorId(self.inputs.saturating_add(u32::try_from(at).unwrap_or(u32::MAX)))
    }

    /// A tensor inside, whose memory is the graph's workspace.
    pub fn internal(&mut self) -> TensorId {
        self.internal += 1;
        TensorId(self.inputs + self.outputs + self.internal - 1)
    }

    /// Adds an operation, which runs after those that were added before. An output that is an input of the same node is
    /// written in place.
    pub fn node(&mut self, operation: Operation, inputs: &[TensorId], outputs: &[TensorId]) {
        self.node_with_views(operation, inputs.iter().map(|&id| (id, None)).collect(), outputs);
    }

    /// The same with inputs that are seen in other shapes.
    pub fn node_with_views(
        &mut self,
        operation: Operation,
        inputs: Vec<(TensorId, Option<View>)>,
        outputs: &[TensorId],
    ) {
        let (inputs, views) = inputs.into_iter().map(|(id, view)| (id.0, view.map(Arc::new))).unzip();
        self.nodes.push(NodeParts { operation, inputs, outputs: outputs.iter().map(|id| id.0).collect(), views });
    }

    /// Makes the graph an operation.
    ///
    /// # Errors
    /// [`Error::Graph`] for what ATB refuses: too many of anything, a tensor that is used before it is written, one
    /// that is never written; [`Error::OtherContext`]; what ATB says besides.
    pub fn build(mut self, context: &Context) -> Result<Operation> {
        self.check()?;
        for node in &self.nodes {
            let attempt = || format!("building graph {}", self.name);
            context.require_same(node.operation.context(), node.operation.name(), attempt)?;
        }
        let name = CString::new(self.name).map_err(|_| self.refuse("its name holds a NUL"))?;
        let views: Vec<Vec<spec_atb_view>> = self.nodes.iter().map(raw_views).collect();
        let nodes: Vec<spec_atb_node> =
            self.nodes.iter().zip(&views).map(|(node, views)| raw_node(node, views)).collect();
        let param = spec_atb_graph_param {
            name: name.as_ptr(),
            nodes: nodes.as_ptr(),
            node_count: nodes.len() as u64,
            input_count: self.inputs,
            output_count: self.outputs,
            internal_count: self.internal,
            reserved: 0,
            infer_shape: None,
            user_data: std::ptr::null_mut(),
            release: None,
        };
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        let attempt = || format!("building graph {} of {} nodes", self.name, self.nodes.len());
        context.library().shim("spec_atb_create_graph", attempt, |api| {
            // SAFETY: arrays, names and operations are valid for the call; views are kept as long as the graph.
            unsafe { api.spec_atb_create_graph(&param, &mut raw) }
        })?;
        // Views of this graph, and of graphs in it.
        let mut kept: Vec<Box<dyn Any + Send + Sync>> = Vec::new();
        for node in &mut self.nodes {
            kept.extend(node.operation.set_taken());
            kept.extend(node.views.iter().flatten().map(|view| Box::new(Arc::clone(view)) as _));
        }
        let (name, rules) = (self.name, Arc::new(GraphRules { parts: self }));
        Operation::from_raw(context, raw, name, rules, Some(Box::new(kept)))
    }

    fn refuse(&self, rule: impl Into<String>) -> Error {
        Error::Graph { graph: self.name.to_owned(), rule: rule.into() }
    }

    fn check(&self) -> Result<()> {
        let is_named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if self.name.is_empty() || self.name.len() > 128 || !self.name.bytes().all(is_named) {
            return Err(self.refuse("its name has to be 1 to 128 letters, digits and underscores"));
        }
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return Err(self.refuse(format!("it has {} nodes, and 1 to {MAX_NODES} are allowed", self.nodes.len())));
        }
        for (what, count) in [("inputs", self.inputs), ("outputs", self.outputs), ("inner tensors", self.internal)] {
            if count as usize > MAX_TENSORS {
                return Err(self.refuse(format!("it has {count} {what}, and {MAX_TENSORS} is the limit")));
            }
        }
        let all = (self.inputs + self.outputs + self.internal) as usize;
        let mut is_written = vec![false; all];
        is_written[..self.inputs as usize].fill(true);
        for (at, node) in self.nodes.iter().enumerate() {
            let place = format!("node {at} ({})", node.operation.name());
            let arity = (node.inputs.len(), node.outputs.len());
            if arity != node.operation.arity() {
                let needed = node.operation.arity();
                return Err(self.refuse(format!("{place} takes {needed:?} inputs and outputs, and has {arity:?}")));
            }
            let viewed = node.views.iter().any(Option::is_some);
            if viewed && node.inputs.len() > MAX_VIEWED_INPUTS {
                return Err(self.refuse(format!("{place} has views and more than {MAX_VIEWED_INPUTS} inputs")));
            }
            for &id in &node.inputs {
                if !is_written.get(id as usize).copied().unwrap_or(false) {
                    return Err(self.refuse(format!("{place} reads tensor {id}, which nothing has written before")));
                }
            }
            for &id in &node.outputs {
                match is_written.get_mut(id as usize) {
                    // ATB lets it pass with a warning, and the earlier result is lost.
                    Some(true) if !node.inputs.contains(&id) => {
                        return Err(self.refuse(format!("{place} writes tensor {id}, which was written before")));
                    }
                    Some(written) => *written = true,
                    None => return Err(self.refuse(format!("{place} writes tensor {id}, which is not there"))),
                }
            }
        }
        match is_written.iter().position(|&written| !written) {
            Some(id) => Err(self.refuse(format!("nothing writes tensor {id}"))),
            None => Ok(()),
        }
    }
}

/// Checks each node with what the nodes before it give.
#[derive(Debug)]
struct GraphRules {
    /// The nodes' operations belong to the graph, which lives as long as these rules.
    parts: GraphBuilder,
}

impl Rules for GraphRules {
    fn check_tensors(&self, _: &Operation, inputs: &[Facts], outputs: &[Facts]) -> Result<()> {
        let parts = &self.parts;
        let all = (parts.inputs + parts.outputs + parts.internal) as usize;
        let mut tensors: Vec<Facts> = inputs.iter().chain(outputs).cloned().collect();
        tensors.resize(all, Facts::default());
        // Inside, the number stands for the address: none is at so low a one.
        for (id, facts) in tensors.iter_mut().enumerate() {
            facts.address.get_or_insert(id + 1);
        }
        for node in &parts.nodes {
            let mut seen = Vec::with_capacity(node.inputs.len());
            for (&id, view) in node.inputs.iter().zip(&node.views) {
                let mut facts = tensors[id as usize].clone();
                if let (Some(desc), Some(view)) = (facts.desc, view) {
                    facts.desc = Some(self.view(&desc, view)?);
                }
                seen.push(facts);
            }
            let descs: Vec<_> = seen.iter().map(|facts| facts.desc).collect();
            let mut given = Vec::with_capacity(node.outputs.len());
            for (&id, desc) in node.outputs.iter().zip(node.operation.infer(&descs)?) {
                tensors[id as usize].desc = Some(desc);
                given.push(tensors[id as usize].clone());
            }
            node.operation.rules().check_tensors(&node.operation, &seen, &given)?;
        }
        Ok(())
    }
}

impl GraphRules {
    fn view(&self, desc: &TensorDesc, view: &View) -> Result<TensorDesc> {
        let shape = view(desc.shape());
        match desc.with_shape(&shape) {
            Some(viewed) if viewed.len() == desc.len() => Ok(viewed),
            _ => Err(self.parts.refuse(format!("a view makes {shape:?} of {desc}, with other elements"))),
        }
    }
}

fn raw_views(node: &NodeParts) -> Vec<spec_atb_view> {
    if node.views.iter().all(Option::is_none) {
        return Vec::new();
    }
    let raw = |view: &Option<Arc<View>>| match view {
        Some(view) => {
            spec_atb_view { reshape: Some(reshape), user_data: Arc::as_ptr(view).cast_mut().cast::<c_void>() }
        }
        None => spec_atb_view { reshape: None, user_data: std::ptr::null_mut() },
    };
    node.views.iter().map(raw).collect()
}

fn raw_node(node: &NodeParts, views: &[spec_atb_view]) -> spec_atb_node {
    spec_atb_node {
        operation: node.operation.raw(),
        inputs: node.inputs.as_ptr(),
        input_count: node.inputs.len() as u64,
        outputs: node.outputs.as_ptr(),
        output_count: node.outputs.len() as u64,
        views: if views.is_empty() { std::ptr::null() } else { views.as_ptr() },
    }
}

/// The shim calls this for a view. A panic, or a shape that is none, leaves an empty one, which ATB refuses.
///
/// # Safety
/// `user_data` is a view's address that `raw_views` gave, while its graph lives; the shapes are valid.
unsafe extern "C" fn reshape(user_data: *mut c_void, old_shape: *const spec_atb_dims, new_shape: *mut spec_atb_dims) {
    // SAFETY: the shim passes what `raw_views` gave, which the graph keeps, and two valid pointers.
    let (view, old, new) = unsafe { (&*user_data.cast_const().cast::<View>(), &*old_shape, &mut *new_shape) };
    let rank = old.dim_num.min(u64::from(SPEC_ATB_MAX_DIMS)) as usize;
    let from: Vec<usize> = old.dims[..rank].iter().map(|&length| usize::try_from(length).unwrap_or(0)).collect();
    *new = spec_atb_dims { dims: [0; 8], dim_num: 0 };
    let Ok(shape) = catch_unwind(AssertUnwindSafe(|| view(&from))) else { return };
    if shape.len() > new.dims.len() {
        return;
    }
    for (to, from) in new.dims.iter_mut().zip(&shape) {
        *to = i64::try_from(*from).unwrap_or(0);
    }
    new.dim_num = shape.len() as u64;
}
