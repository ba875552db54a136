//! Verify on the simulator against spec-core's rules, on the same choices.
#![allow(clippy::unwrap_used)]

use acl_sys::Api;
use atb_rs::parameters::Verify;
use atb_rs::{
    Context, DataType, Device, DeviceBuffer, Executor, Operation, Runtime, Stream, Tensor, TensorDesc, Verdicts,
    Workspace,
};
use half::{bf16, f16};
use spec_core::{
    AcceptanceRule, ChoiceKey, Choices, DraftTree, KeyedChoices, PathLaws, Pipeline, Proposal, Purpose, RejectionRule,
    RowSummary, SamplingParams, Scratch, Siblings,
};
use std::sync::{Mutex, PoisonError};

/// How far the module's p may be from spec-core's, relative to it, for logits up to 128 temperatures: a decision may be
/// another one only where u is as near to p / q. The logits over the temperature are rounded to f32, which is 2^-17 of
/// the probability there; the rest is room for exponentials and sums of a device.
const BOUND: f64 = 1.0 / 32_768.0;

/// One runtime at a time.
static TEST: Mutex<()> = Mutex::new(());

struct Machine {
    context: Context,
    stream: Stream,
    executor: Executor,
}

fn with_machine(config: &str, test: impl FnOnce(&Machine)) {
    let _guard = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    ascend_sim::configure(config).unwrap();
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    let api = unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let runtime = Runtime::start(api).unwrap();
    assert!(runtime.has_spec_decode());
    {
        let context = Context::new(&Device::open(&runtime, 0).unwrap()).unwrap();
        let stream = Stream::new(&context).unwrap();
        let executor = Executor::new(&stream, Workspace::new(&context, Workspace::DEFAULT_CEILING)).unwrap();
        test(&Machine { context, stream, executor });
    }
    assert_eq!(ascend_sim::violations(), Vec::<String>::new());
    runtime.shutdown().unwrap();
    ascend_sim::configure("").unwrap();
}

/// Logits as a device of this type holds them, on it and widened.
fn logits(machine: &Machine, dtype: DataType, rows: &[Vec<f32>]) -> (Tensor, Vec<Vec<f32>>) {
    let flat: Vec<f32> = rows.iter().flatten().copied().collect();
    let context = &machine.context;
    let (buffer, widened): (DeviceBuffer, Vec<f32>) = match dtype {
        DataType::F16 => {
            let halves: Vec<f16> = flat.iter().map(|value| f16::from_f32(*value)).collect();
            (DeviceBuffer::from_slice(context, &halves).unwrap(), halves.iter().map(|half| half.to_f32()).collect())
        }
        DataType::Bf16 => {
            let halves: Vec<bf16> = flat.iter().map(|value| bf16::from_f32(*value)).collect();
            (DeviceBuffer::from_slice(context, &halves).unwrap(), halves.iter().map(|half| half.to_f32()).collect())
        }
        _ => (DeviceBuffer::from_slice(context, &flat).unwrap(), flat),
    };
    let desc = TensorDesc::new(dtype, [rows.len(), rows[0].len()]);
    let widened = widened.chunks(rows[0].len()).map(<[f32]>::to_vec).collect();
    (Tensor::new(desc, &buffer).unwrap(), widened)
}

fn run(machine: &Machine, rule: Verify, inputs: Vec<Tensor>) -> Verdicts {
    let desc = *inputs[0].desc().unwrap();
    let mut verdicts = Verdicts::new(&machine.context, rule, desc.shape()[0], desc.dtype()).unwrap();
    let mut operation = Operation::new(&machine.context, rule).unwrap();
    let outputs = verdicts.tensors();
    operation.setup(&machine.executor, inputs, outputs).unwrap().execute().unwrap();
    verdicts.download(&machine.stream).unwrap();
    machine.stream.synchronize().unwrap();
    verdicts
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let bits = (self.0 ^ (self.0 >> 22)) >> 22;
        bits ^ (self.0 >> 61)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() % (1 << 40)) as f64 / (1u64 << 40) as f64
    }

    /// Near normal, with a deviation of 2, in steps that f16 and bf16 hold exactly.
    fn row(&mut self, width: usize) -> Vec<f32> {
        let mut value = || (0..4).map(|_| self.uniform()).sum::<f64>() - 2.0;
        (0..width).map(|_| (value() * 28.0).round() as f32 / 8.0).collect()
    }
}

const VOCABULARIES: [usize; 5] = [64, 1_000, 4_096, 49_152, 151_936];
const FLOATS: [DataType; 3] = [DataType::F16, DataType::Bf16, DataType::F32];

#[test]
fn a_greedy_verdict_is_spec_cores_argmax_and_leaves_ties_to_the_row() {
    for ties in ["lowest", "highest"] {
        with_machine(&format!("delay=0;strict=fail;sort_ties={ties}"), |machine| {
            let mut random = Random(11);
            let (mut decided, mut tied, mut misled) = (0, 0, 0);
            for vocabulary in VOCABULARIES {
                for dtype in FLOATS {
                    let mut rows: Vec<Vec<f32>> = (0..4).map(|_| random.row(vocabulary)).collect();
                    // One that leads by little, and two that lead together.
                    rows[0][random.below(vocabulary)] = 9.0;
                    let (one, other) = (random.below(vocabulary / 2), vocabulary / 2 + random.below(vocabulary / 2));
                    (rows[1][one], rows[1][other]) = (9.0, 9.0);
                    let (tensor, rows) = logits(machine, dtype, &rows);
                    let verdicts = run(machine, Verify::Greedy, vec![tensor]).greedy().unwrap();
                    for (row, verdict) in rows.iter().zip(&verdicts) {
                        let expected = RowSummary::of(row, 1.0).unwrap();
                        let leaders = row.iter().filter(|logit| **logit == expected.max).count();
                        assert_eq!(verdict.logits[0], expected.max);
                        let difference = f64::from(verdict.probabilities[0]) - expected.probability(expected.max);
                        assert!(difference.abs() < 1e-2 * expected.probability(expected.max), "{verdict:?}");
                        match verdict.decided() {
                            Some(token) => {
                                assert_eq!((token, leaders), (expected.argmax, 1));
                                decided += 1;
                            }
                            None => {
                                assert!(leaders > 1);
                                tied += 1;
                                misled += usize::from(verdict.tokens[0] != expected.argmax);
                            }
                        }
                    }
                }
            }
            assert!(decided >= 15 && tied >= 15, "{decided} decided, {tied} tied");
            // The first of the two alone would have been wrong.
            assert_eq!(misled > 0, ties == "highest");
        });
    }
}

#[test]
fn a_row_without_a_law_is_left_to_the_host_which_says_why() {
    with_machine("delay=0", |machine| {
        for dtype in FLOATS {
            let mut rows = vec![vec![0.0, 1.0, 2.0, 5.0]; 5];
            rows[0][1] = f32::NAN;
            rows[1][2] = f32::INFINITY;
            rows[2] = vec![f32::NEG_INFINITY; 4];
            rows[3][1] = f32::NEG_INFINITY;
            let (tensor, rows) = logits(machine, dtype, &rows);
            let verdicts = run(machine, Verify::Greedy, vec![tensor]).greedy().unwrap();
            let decided: Vec<_> = verdicts.iter().map(atb_rs::GreedyVerdict::decided).collect();
            assert_eq!(decided, [None, None, None, Some(3), Some(3)]);
            for row in &rows[..3] {
                assert!(RowSummary::of(row, 1.0).is_err());
            }
        }
    });
}

fn rejection_inputs(machine: &Machine, logits: Tensor, tokens: &[i32], thresholds: &[f32]) -> Vec<Tensor> {
    let (tokens_on, thresholds_on) = (
        DeviceBuffer::from_slice(&machine.context, tokens).unwrap(),
        DeviceBuffer::from_slice(&machine.context, thresholds).unwrap(),
    );
    let row = |dtype| TensorDesc::new(dtype, [tokens.len()]);
    vec![
        logits,
        Tensor::new(row(DataType::I32), &tokens_on).unwrap(),
        Tensor::new(row(DataType::F32), &thresholds_on).unwrap(),
    ]
}

#[test]
fn a_rejection_verdict_differs_only_where_the_choice_is_within_the_bound() {
    with_machine("delay=0;strict=fail", |machine| {
        let mut random = Random(5);
        let (mut decisions, mut near, mut different, mut worst) = (0, 0, 0, 0.0f64);
        for (dtype, temperature) in [
            (DataType::F16, 1.0f32),
            (DataType::F16, 0.7),
            (DataType::Bf16, 1.3),
            (DataType::F32, 1.0),
            (DataType::F32, 0.7),
        ] {
            for vocabulary in VOCABULARIES {
                let count = if vocabulary > 10_000 { 8 } else { 64 };
                let mut rows: Vec<Vec<f32>> = (0..count).map(|_| random.row(vocabulary)).collect();
                let tokens: Vec<i32> = rows
                    .iter_mut()
                    .map(|row| {
                        let token = random.below(vocabulary);
                        // As a drafter's token is: likely, more or less.
                        row[token] = 6.0 + random.uniform() as f32 * 12.0;
                        token as i32
                    })
                    .collect();
                let (tensor, rows) = logits(machine, dtype, &rows);
                let inverse = 1.0 / f64::from(temperature);
                let ratios: Vec<(f64, f64, f64)> = rows
                    .iter()
                    .zip(&tokens)
                    .enumerate()
                    .map(|(at, (row, token))| {
                        let p = RowSummary::of(row, inverse).unwrap().probability(row[*token as usize]);
                        let q = p + (1.0 - p) * random.uniform();
                        // Half of the choices are as near to the ratio as 10^-2 to 10^-8 of it, on either side.
                        let off = 10f64.powi(-2 - (random.below(7) as i32)) * if at % 4 < 2 { 1.0 } else { -1.0 };
                        let u = if at % 2 == 0 { random.uniform() } else { p / q * (1.0 + off) };
                        (u, p, q)
                    })
                    .collect();
                let thresholds: Vec<f32> = ratios.iter().map(|(u, _, q)| (u * q) as f32).collect();
                let rule = Verify::Rejection { inverse_temperature: inverse as f32 };
                let inputs = rejection_inputs(machine, tensor, &tokens, &thresholds);
                for (verdict, (u, p, q)) in run(machine, rule, inputs).rejection().unwrap().iter().zip(ratios) {
                    worst = worst.max((f64::from(verdict.probability) / p - 1.0).abs());
                    let is_near = (u - p / q).abs() <= BOUND * p / q;
                    decisions += 1;
                    near += usize::from(is_near);
                    if verdict.accepted != (u < p / q) {
                        assert!(is_near, "u {u}, p {p}, q {q}, {verdict:?}");
                        different += 1;
                    }
                }
            }
        }
        println!("{decisions} decisions, {near} within the bound, {different} of them different; p within {worst:.1e}");
        assert!(worst < BOUND, "p is {worst:.1e} off");
        assert!(near > 50 && decisions > 500);
    });
}

/// The device's decisions in the place of chance, where a token has to be drawn as ever.
struct Decided<'a> {
    accepted: &'a [bool],
    keyed: KeyedChoices,
}

impl Choices for Decided<'_> {
    fn accept(&mut self, key: ChoiceKey, _: f64) -> bool {
        self.accepted[key.node.unwrap().index()]
    }

    fn draw(&mut self, key: ChoiceKey, weights: &[f64]) -> Option<usize> {
        self.keyed.draw(key, weights)
    }

    fn number(&self, key: ChoiceKey) -> Option<f64> {
        self.keyed.number(key)
    }
}

/// Tokens before the draft, and tokens drafted.
const BASE: usize = 10;
const DEPTH: usize = 5;

#[test]
fn a_chain_ends_where_the_rule_ends_it_and_one_row_finishes_it() {
    with_machine("delay=0;strict=fail", |machine| {
        let params = SamplingParams { temperature: 0.8, ..SamplingParams::default() };
        let rule = RejectionRule::default();
        let mut lengths = [0; DEPTH + 1];
        for (trial, vocabulary) in (0..120u64).map(|trial| (trial, if trial % 4 == 0 { 4_096 } else { 64 })) {
            let mut random = Random(trial * 977 + 3);
            let mut pipeline = Pipeline::new(params.clone(), vocabulary).unwrap();
            (0..BASE).for_each(|_| pipeline.push(1));
            let mut choices = KeyedChoices::new(trial, BASE);

            // A drafter that is the target with some noise.
            let mut rows: Vec<Vec<f32>> = (0..=DEPTH).map(|_| random.row(vocabulary)).collect();
            rows.iter_mut().for_each(|row| (0..4).for_each(|_| row[random.below(vocabulary)] += 7.0));
            let (tensor, rows) = logits(machine, DataType::F16, &rows);
            let (mut tree, mut parent) = (DraftTree::new(), None);
            let (mut tokens, mut thresholds, mut near) = (Vec::new(), Vec::new(), Vec::new());
            for (depth, target) in rows[..DEPTH].iter().enumerate() {
                let own: Vec<f32> = target.iter().zip(random.row(vocabulary)).map(|(a, b)| a + b / 4.0).collect();
                let mut scratch = Scratch::default();
                let law = pipeline.law(&own, None, &mut scratch).unwrap();
                let position = BASE + depth;
                let proposal = Proposal::Sampled(Siblings::Distinct);
                let node = proposal.propose(&mut tree, parent, &law, 1, position, &mut choices).unwrap()[0];
                let token = tree.node(node).token;
                // The first draw below its parent.
                let key = ChoiceKey { position, node: Some(node), purpose: Purpose::Accept, draw: 1 };
                let u = (choices.bits(key) >> 11) as f64 / (1u64 << 53) as f64;
                let q = law.probability(token);
                let p = RowSummary::of(target, 1.0 / f64::from(params.temperature)).unwrap();
                let ratio = p.probability(target[token as usize]) / q;
                tokens.push(token as i32);
                thresholds.push((u * q) as f32);
                near.push((u - ratio).abs() <= BOUND * ratio);
                parent = Some(node);
            }
            tokens.push(0);
            thresholds.push(Verify::NO_DRAFT);
            let verify = Verify::Rejection { inverse_temperature: 1.0 / params.temperature };
            let verdicts =
                run(machine, verify, rejection_inputs(machine, tensor, &tokens, &thresholds)).rejection().unwrap();
            let accepted: Vec<bool> = verdicts.iter().map(|verdict| verdict.accepted).collect();
            let length = accepted.iter().position(|accepted| !accepted).unwrap();

            let judge = |pipeline: &mut Pipeline, rows: &Vec<Vec<f32>>, choices: &mut dyn Choices| {
                rule.verify(&tree, &mut PathLaws::new(&tree, rows, pipeline, BASE, None), choices).unwrap()
            };
            let expected = judge(&mut pipeline, &rows, &mut choices.clone());
            if near[..=length.min(DEPTH - 1)].contains(&true) {
                continue;
            }
            assert_eq!(length, expected.accepted.len(), "trial {trial}");
            // The other rows never leave the device: what stands in their place is not looked at.
            let mut one = vec![vec![0.0; vocabulary]; DEPTH + 1];
            one[length].clone_from(&rows[length]);
            let finished = judge(&mut pipeline, &one, &mut Decided { accepted: &accepted, keyed: choices.clone() });
            assert_eq!(finished, expected, "trial {trial}");
            lengths[length] += 1;
        }
        println!("chains by accepted length: {lengths:?}");
        assert!(lengths.iter().all(|count| *count > 0), "{lengths:?}");
    });
}

#[test]
fn limits_are_refused_before_the_device_is_asked() {
    with_machine("delay=0", |machine| {
        let context = &machine.context;
        for factor in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let error = Operation::new(context, Verify::Rejection { inverse_temperature: factor }).unwrap_err();
            assert!(error.to_string().contains("inverse_temperature"), "{error}");
        }
        let tensor = |desc| Tensor::allocate(context, desc).unwrap();
        let refuse = |rule: Verify, inputs: Vec<TensorDesc>, words: &str| {
            let verdicts = Verdicts::new(context, rule, 3, DataType::F16).unwrap();
            let mut operation = Operation::new(context, rule).unwrap();
            let inputs = inputs.into_iter().map(tensor).collect();
            let error = operation.setup(&machine.executor, inputs, verdicts.tensors()).unwrap_err().to_string();
            assert!(error.contains(words), "no {words:?} in {error}");
        };
        let half = |shape: [usize; 2]| TensorDesc::new(DataType::F16, shape);
        refuse(Verify::Greedy, vec![TensorDesc::new(DataType::I32, [3, 8])], "has to be f16 or");
        refuse(Verify::Greedy, vec![half([3, 1])], "2 tokens or more");
        refuse(Verify::Greedy, vec![half([4, 8])], "output 0");
        refuse(Verify::Greedy, vec![half([3, 8]), half([3, 8])], "2 inputs");
        let rule = Verify::Rejection { inverse_temperature: 1.0 };
        let row = |dtype, rows| TensorDesc::new(dtype, [rows]);
        refuse(rule, vec![half([3, 8]), row(DataType::I32, 2), row(DataType::F32, 3)], "[3]");
        refuse(rule, vec![half([3, 8]), row(DataType::I64, 3), row(DataType::F32, 3)], "drafted tokens");
        refuse(rule, vec![half([3, 8]), row(DataType::I32, 3), row(DataType::F16, 3)], "u * q");

        let verdicts = Verdicts::new(context, rule, 3, DataType::F16).unwrap();
        assert!(verdicts.greedy().unwrap_err().to_string().contains("Rejection"));
    });
}
