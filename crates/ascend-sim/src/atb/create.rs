//! Making operations.

use super::graph::{Graph, Node};
use super::operation::{Body, Operation};
use super::plugin::{Plugin, UserData};
use super::{OPERATIONS, operation};
use crate::exports::{In, Out, exports};
use crate::failure::{Failure, Outcome, argument, parameter, require};
use crate::operators::{
    Operator, activation::Activation, cache::ReshapeAndCache, elewise::Elewise, gather::Gather, linear::Linear,
    paged_attention::PagedAttention, reduce::Reduce, rms_norm::RmsNorm, rope::Rope, sampling::Multinomial,
    sampling::Sampling, self_attention::SelfAttention, softmax::Softmax, sort::Sort, split::Split,
    transdata::Transdata, verify::Verify,
};
use crate::world::{Kind, world};
use acl_sys::*;
use parking_lot::RwLock;
use std::sync::Arc;

type Handle = usize;

fn publish(made: Out<Handle>, body: Body) -> Outcome {
    made.required()?;
    let handle = world().handle(Kind::Operation);
    OPERATIONS.lock().insert(handle, Arc::new(Operation::new(body)));
    made.set(handle)
}

fn single(made: Out<Handle>, operator: impl Operator + 'static) -> Outcome {
    publish(made, Body::Single(RwLock::new(Arc::new(operator))))
}

/// Replaces the parameter of an operation that is of the same kind.
fn update(handle: Handle, operator: impl Operator + 'static) -> Outcome {
    let target = operation(handle)?;
    match &target.body {
        Body::Single(current) if current.read().name() == operator.name() => {
            *current.write() = Arc::new(operator);
            *target.state.lock() = None;
            Ok(())
        }
        _ => Err(parameter(format!("{} is no {}", target.name(), operator.name()))),
    }
}

/// Elements of an array of the caller's.
fn elements<T: Copy>(start: *const T, count: u64, what: &str) -> Outcome<Vec<T>> {
    require(count == 0 || !start.is_null(), || argument(format!("{what} are null")))?;
    let count = usize::try_from(count).map_err(|_| argument(format!("{count} {what}")))?;
    // SAFETY: there are `count` of them by the caller's contract.
    Ok((0..count).map(|at| unsafe { start.add(at).read() }).collect())
}

/// What is behind a name that a structure holds.
fn text(name: *const std::ffi::c_char, what: &str) -> Outcome<String> {
    require(!name.is_null(), || argument(format!("the name of a {what} is null")))?;
    // SAFETY: not null, so that it is NUL-terminated by the caller's contract.
    Ok(unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

fn node(node: &spec_atb_node) -> Outcome<Node> {
    let handle = node.operation as usize;
    let ids = |start, count, what| {
        Ok::<_, Failure>(elements::<u32>(start, count, what)?.into_iter().map(|id| id as usize).collect::<Vec<_>>())
    };
    let inputs = ids(node.inputs, node.input_count, "a node's inputs")?;
    let views = if node.views.is_null() { 0 } else { node.input_count };
    Ok(Node {
        handle,
        operation: operation(handle)?,
        inputs,
        outputs: ids(node.outputs, node.output_count, "a node's outputs")?,
        views: elements(node.views, views, "views")?,
    })
}

exports! {
    /// Gather.
    fn spec_atb_create_gather(param: In<spec_atb_gather_param>, made: Out<Handle>) {
        single(made, Gather::new(param.get()?)?)
    }

    /// RmsNorm.
    fn spec_atb_create_rms_norm(param: In<spec_atb_rms_norm_param>, made: Out<Handle>) {
        single(made, RmsNorm::new(param.get()?)?)
    }

    /// Linear.
    fn spec_atb_create_linear(param: In<spec_atb_linear_param>, made: Out<Handle>) {
        single(made, Linear::new(param.get()?, world().config().soc)?)
    }

    /// Rope.
    fn spec_atb_create_rope(param: In<spec_atb_rope_param>, made: Out<Handle>) {
        single(made, Rope::new(param.get()?)?)
    }

    /// ReshapeAndCache.
    fn spec_atb_create_reshape_and_cache(param: In<spec_atb_reshape_and_cache_param>, made: Out<Handle>) {
        single(made, ReshapeAndCache::new(param.get()?, world().config().soc)?)
    }

    /// SelfAttention.
    fn spec_atb_create_self_attention(param: In<spec_atb_self_attention_param>, made: Out<Handle>) {
        single(made, SelfAttention::new(param.get()?)?)
    }

    /// PagedAttention.
    fn spec_atb_create_paged_attention(param: In<spec_atb_paged_attention_param>, made: Out<Handle>) {
        single(made, PagedAttention::new(param.get()?, world().config().soc)?)
    }

    /// Activation.
    fn spec_atb_create_activation(param: In<spec_atb_activation_param>, made: Out<Handle>) {
        single(made, Activation::new(param.get()?)?)
    }

    /// Elewise.
    fn spec_atb_create_elewise(param: In<spec_atb_elewise_param>, made: Out<Handle>) {
        single(made, Elewise::new(param.get()?)?)
    }

    /// Softmax.
    fn spec_atb_create_softmax(param: In<spec_atb_softmax_param>, made: Out<Handle>) {
        single(made, Softmax::new(param.get()?)?)
    }

    /// Sort.
    fn spec_atb_create_sort(param: In<spec_atb_sort_param>, made: Out<Handle>) {
        single(made, Sort::new(param.get()?)?)
    }

    /// Reduce.
    fn spec_atb_create_reduce(param: In<spec_atb_reduce_param>, made: Out<Handle>) {
        single(made, Reduce::new(param.get()?)?)
    }

    /// Multinomial.
    fn spec_atb_create_multinomial(param: In<spec_atb_multinomial_param>, made: Out<Handle>) {
        single(made, Multinomial::new(param.get()?)?)
    }

    /// TopkToppSampling.
    fn spec_atb_create_sampling(param: In<spec_atb_sampling_param>, made: Out<Handle>) {
        let param = param.get()?;
        let seeds = elements(param.seeds, param.seed_count, "seeds")?;
        single(made, Sampling::new(param, seeds)?)
    }

    /// Split.
    fn spec_atb_create_split(param: In<spec_atb_split_param>, made: Out<Handle>) {
        single(made, Split::new(param.get()?)?)
    }

    /// Transdata.
    fn spec_atb_create_transdata(param: In<spec_atb_transdata_param>, made: Out<Handle>) {
        single(made, Transdata::new(param.get()?)?)
    }

    /// Verify, of the spec-decode module.
    fn spec_atb_create_verify(param: In<spec_atb_verify_param>, made: Out<Handle>) {
        single(made, Verify::new(param.get()?)?)
    }

    /// An event's record or wait.
    fn spec_atb_create_event(param: In<spec_atb_event_param>, made: Out<Handle>) {
        let param = param.get()?;
        require(param.reserved == 0, || parameter("a reserved field is not 0"))?;
        require(!param.event.is_null(), || parameter("the event is null"))?;
        let known = matches!(param.action, SPEC_ATB_EVENT_RECORD | SPEC_ATB_EVENT_WAIT);
        require(known, || parameter(format!("event action {}", param.action.0)))?;
        publish(made, Body::Event { event: param.event as usize, action: param.action })
    }

    /// Changes a Sort.
    fn spec_atb_update_sort(handle: Handle, param: In<spec_atb_sort_param>) {
        update(handle, Sort::new(param.get()?)?)
    }

    /// Changes a sampling operation.
    fn spec_atb_update_sampling(handle: Handle, param: In<spec_atb_sampling_param>) {
        let param = param.get()?;
        let seeds = elements(param.seeds, param.seed_count, "seeds")?;
        update(handle, Sampling::new(param, seeds)?)
    }

    /// A graph.
    fn spec_atb_create_graph(param: In<spec_atb_graph_param>, made: Out<Handle>) {
        made.required()?;
        let param = param.get()?;
        require(param.reserved == 0, || parameter("a reserved field is not 0"))?;
        let nodes = elements(param.nodes, param.node_count, "nodes")?;
        let nodes = nodes.iter().map(node).collect::<Outcome<Vec<_>>>()?;
        let counts = (param.input_count, param.output_count, param.internal_count);
        let data = UserData::new(param.user_data, None);
        let mut graph = Graph::new(text(param.name, "graph")?, counts, nodes, param.infer_shape, data)?;
        // Nothing is released when creating fails, so that only a graph that was made gets the function.
        graph.user_data = UserData::new(param.user_data, param.release);
        graph.own_nodes();
        publish(made, Body::Graph(graph))
    }

    /// An operation of the caller's.
    fn spec_atb_create_plugin(param: In<spec_atb_plugin_param>, made: Out<Handle>) {
        made.required()?;
        let param = param.get()?;
        publish(made, Body::Plugin(Plugin::new(text(param.name, "plugin")?, param)?))
    }
}
