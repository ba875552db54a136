//! What ATB needs of its caller and does not say: each wrong use is an error here.

use crate::{executor, fake, of_type, open, tensor};
use atb_rs::parameters::{
    CacheLayout, Linear, PagedAttention, PagedMode, PrefillKernel, PrefillMask, ReshapeAndCache, RmsNorm, SelfAttention,
};
use atb_rs::{
    Context, DataType, Error, Executor, GraphBuilder, Lengths, MaskValues, Operation, Result, Tensor, Workspace, mask,
};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const SIZE: usize = 32;
const SCALE: f32 = 0.176_776_7;

fn lengths(context: &Context, executor: &Executor, values: &[i32]) -> Lengths {
    let lengths = Lengths::new(context, values.len()).unwrap();
    lengths.set(executor.stream(), values).unwrap();
    lengths
}

fn verification(context: &Context) -> Operation {
    let parameters = PagedAttention { heads: HEADS, kv_heads: KV_HEADS, scale: SCALE, mode: PagedMode::Verify };
    Operation::new(context, parameters).unwrap()
}

/// Inputs of a verification of two sequences, 3 and 1 rows, contexts 7 and 5.
fn verified(context: &Context, executor: &Executor) -> (Vec<Tensor>, Tensor, Lengths, Lengths) {
    let (contexts, rows) = (lengths(context, executor, &[7, 5]), lengths(context, executor, &[3, 1]));
    let cache = || tensor(context, [4, 16, KV_HEADS, SIZE]);
    let inputs = vec![
        tensor(context, [4, HEADS, SIZE]),
        cache(),
        cache(),
        of_type(context, DataType::I32, [2, 2]),
        Tensor::lengths(&contexts),
        tensor(context, [4, 7]).with_mask_values(PagedAttention::MASK_VALUES),
        Tensor::lengths(&rows),
    ];
    (inputs, tensor(context, [4, HEADS, SIZE]), contexts, rows)
}

fn refused(result: Result<atb_rs::Plan<'_>>, words: &str) {
    match result {
        Err(error @ Error::Tensor { .. }) => assert!(error.to_string().contains(words), "{error}"),
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn a_length_that_changed_needs_another_setup() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut operation = verification(&context);
    let (inputs, output, contexts, _rows) = verified(&context, &executor);
    let mut plan = operation.setup(&executor, inputs.clone(), vec![output.clone()]).unwrap();
    plan.execute().unwrap();
    plan.execute().unwrap();
    contexts.set(executor.stream(), &[7, 5]).unwrap();
    plan.execute().unwrap();
    contexts.set(executor.stream(), &[7, 6]).unwrap();
    let error = plan.execute().unwrap_err();
    assert!(matches!(error, Error::LengthsChanged { operation: "PagedAttention", .. }), "{error}");
    assert!(error.to_string().contains("set it up again") && error.to_string().contains("input 4"), "{error}");
    operation.setup(&executor, inputs, vec![output]).unwrap().execute().unwrap();
    // Setup reads the host's copies, as they are then.
    let seen = session.with(|state| state.lengths_at_setup.clone());
    assert_eq!(seen, [vec![7, 5], vec![3, 1], vec![7, 6], vec![3, 1]]);
}

#[test]
fn lengths_are_on_the_host_and_on_the_device() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut operation = verification(&context);
    let (inputs, output, contexts, _rows) = verified(&context, &executor);
    for at in [4, 6] {
        let mut wrong = inputs.clone();
        wrong[at] = of_type(&context, DataType::I32, [2]);
        refused(operation.setup(&executor, wrong, vec![output.clone()]), "needs its copy on the host");
    }
    // Changing them copies them to the device too.
    contexts.set(executor.stream(), &[8, 9]).unwrap();
    executor.stream().synchronize().unwrap();
    let mut seen = [0i32; 2];
    Tensor::lengths(&contexts).buffer().unwrap().read(0, &mut seen).unwrap();
    assert_eq!((seen, &contexts.get()[..]), ([8, 9], &[8, 9][..]));
    assert!(matches!(contexts.set(executor.stream(), &[1]), Err(Error::OutOfRange { .. })));
}

#[test]
fn verification_always_takes_a_mask_even_for_one_row_each() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut operation = verification(&context);
    let (inputs, output, ..) = verified(&context, &executor);
    let mut without = inputs.clone();
    without[5] = Tensor::absent();
    refused(operation.setup(&executor, without, vec![output.clone()]), "mask (input 5)");
    // And it has a row for each query row, and a column for each position.
    for shape in [[3, 7], [4, 6]] {
        let mut wrong = inputs.clone();
        wrong[5] = tensor(&context, shape).with_mask_values(MaskValues::Additive);
        refused(
            operation.setup(&executor, wrong, vec![output.clone()]),
            "a row for each of 4 query rows, and 7 columns",
        );
    }
    assert_eq!(mask::chains(&[3, 1], &[7, 5], 7).len(), 4 * 7);
}

#[test]
fn a_mask_says_what_its_values_mean_and_each_kernel_takes_its_own() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut operation = verification(&context);
    let (inputs, output, ..) = verified(&context, &executor);
    let mut wrong = inputs.clone();
    wrong[5] = tensor(&context, [4, 7]);
    refused(operation.setup(&executor, wrong.clone(), vec![output.clone()]), "say so by Tensor::with_mask_values");
    wrong[5] = tensor(&context, [4, 7]).with_mask_values(MaskValues::Indicator);
    refused(operation.setup(&executor, wrong, vec![output]), "this kernel takes additive values");

    let prompt = lengths(&context, &executor, &[3, 2]);
    for (dtype, kernel, values) in [
        (DataType::F16, PrefillKernel::Default, MaskValues::Additive),
        (DataType::F16, PrefillKernel::HighPrecision, MaskValues::Indicator),
        (DataType::Bf16, PrefillKernel::Default, MaskValues::Indicator),
        (DataType::Bf16, PrefillKernel::HighPrecision, MaskValues::Indicator),
    ] {
        let parameters =
            SelfAttention { heads: HEADS, kv_heads: KV_HEADS, scale: SCALE, mask: PrefillMask::Triangle, kernel };
        assert_eq!(parameters.mask_values(dtype), values);
        let mut operation = Operation::new(&context, parameters).unwrap();
        let inputs = |values| {
            vec![
                of_type(&context, dtype, [5, HEADS, SIZE]),
                of_type(&context, dtype, [5, KV_HEADS, SIZE]),
                of_type(&context, dtype, [5, KV_HEADS, SIZE]),
                of_type(&context, dtype, [128, 128]).with_mask_values(values),
                Tensor::lengths(&prompt),
            ]
        };
        let output = of_type(&context, dtype, [5, HEADS, SIZE]);
        operation.setup(&executor, inputs(values), vec![output.clone()]).unwrap().execute().unwrap();
        let other = if values == MaskValues::Additive { MaskValues::Indicator } else { MaskValues::Additive };
        refused(operation.setup(&executor, inputs(other), vec![output]), "and this kernel takes");
    }
}

#[test]
fn caches_are_written_where_they_are() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let parameters = ReshapeAndCache { layout: CacheLayout::Nd };
    let mut operation = Operation::new(&context, parameters).unwrap();
    let cache = || tensor(&context, [4, 16, KV_HEADS, SIZE]);
    let (keys, values) = (cache(), cache());
    let inputs = vec![
        tensor(&context, [3, KV_HEADS, SIZE]),
        tensor(&context, [3, KV_HEADS, SIZE]),
        keys.clone(),
        values.clone(),
        of_type(&context, DataType::I32, [3]),
    ];
    operation.setup(&executor, inputs.clone(), vec![keys.clone(), values.clone()]).unwrap().execute().unwrap();
    refused(operation.setup(&executor, inputs.clone(), vec![keys.clone(), cache()]), "value cache");
    refused(operation.setup(&executor, inputs.clone(), vec![values.clone(), keys.clone()]), "is written in place");
    // In a graph, by the tensors' numbers.
    let in_graph = |outputs: [usize; 2]| {
        let mut graph = GraphBuilder::new("write", 5, 2);
        let ids: Vec<_> = (0..5).map(|at| graph.input(at)).collect();
        let new = [graph.output(0), graph.output(1)];
        let targets: Vec<_> = outputs.iter().map(|&at| if at < 5 { ids[at] } else { new[at - 5] }).collect();
        graph.node(Operation::new(&context, parameters).unwrap(), &ids, &targets);
        graph.build(&context)
    };
    // Outputs of their own are something else, even when the caller passes the same memory for both.
    let mut apart = in_graph([5, 6]).unwrap();
    apart.setup(&executor, inputs.clone(), vec![keys, values]).unwrap().execute().unwrap();
    refused(apart.setup(&executor, inputs, vec![cache(), cache()]), "is written in place");
}

#[test]
fn a_context_counts_the_rows_of_this_step() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut operation = verification(&context);
    let (inputs, output, contexts, rows) = verified(&context, &executor);
    contexts.set(executor.stream(), &[2, 5]).unwrap();
    refused(operation.setup(&executor, inputs.clone(), vec![output.clone()]), "was it not raised?");
    contexts.set(executor.stream(), &[7, 33]).unwrap();
    refused(operation.setup(&executor, inputs.clone(), vec![output.clone()]), "has to be 0 to 32");
    contexts.set(executor.stream(), &[7, 5]).unwrap();
    rows.set(executor.stream(), &[2, 1]).unwrap();
    refused(operation.setup(&executor, inputs.clone(), vec![output.clone()]), "all together 4");
    rows.set(executor.stream(), &[4, 0]).unwrap();
    refused(operation.setup(&executor, inputs, vec![output]), "each has to be 1 at least");
}

#[test]
fn outputs_are_what_atb_infers() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    let mut linear = Operation::new(&context, Linear::new(false)).unwrap();
    let inputs = vec![tensor(&context, [2, 32]), tensor(&context, [48, 32])];
    let wrong = tensor(&context, [2, 32]);
    refused(linear.setup(&executor, inputs.clone(), vec![wrong]), "has to be f16 [2, 48]");
    refused(linear.setup(&executor, inputs, vec![]), "it has 2 and 1");
}

#[test]
fn a_workspace_has_the_ceiling_of_the_shim_or_the_usual_one() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    // The fake is a shim that cannot say.
    let ceiling = Workspace::with_default_ceiling(&context).unwrap().ceiling();
    assert_eq!(ceiling, Workspace::DEFAULT_CEILING);
}

#[test]
fn a_workspace_grows_to_its_ceiling_and_is_refused_past_it() {
    let session = fake::start();
    let (_runtime, context) = open(&session);
    let executor = executor(&context);
    executor.workspace(|workspace| workspace.set_ceiling(511));
    let mut norm = Operation::new(&context, RmsNorm::new(1e-5)).unwrap();
    let inputs = vec![tensor(&context, [2, 16]), tensor(&context, [16])];
    let mut plan = norm.setup(&executor, inputs, vec![tensor(&context, [2, 16])]).unwrap();
    assert_eq!(plan.workspace_size(), 512);
    let error = plan.execute().unwrap_err();
    assert!(matches!(error, Error::WorkspaceCeiling { needed: 512, ceiling: 511, .. }), "{error}");
    executor.workspace(|workspace| workspace.set_ceiling(Workspace::DEFAULT_CEILING));
    plan.execute().unwrap();
    assert_eq!(executor.workspace(|workspace| workspace.len()), 512);
}
