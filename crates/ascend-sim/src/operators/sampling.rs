//! Multinomial and TopkToppSampling: draws from rows of probabilities.

use super::sort::descending;
use super::tensor::{Argument, Desc, Type};
use super::{Bound, Operator, Plan, all_of, is, shape, trap};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{
    SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL, SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS,
    SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL, SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS, SPEC_ATB_SAMPLING_SINGLE_TOPK,
    spec_atb_multinomial_param, spec_atb_sampling_param, spec_atb_sampling_type,
};
use half::f16;
use parking_lot::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// ATB takes its numbers from libc's generator, which is one for the process.
static GENERATOR: Mutex<()> = Mutex::new(());
/// The seed that stands for the time.
const BY_TIME: u32 = u32::MAX;
const MAX_BATCH: usize = 512;
const MAX_LOG_PROBS: usize = 16_384;

/// `count` numbers from 0 to 1: `srand(seed)`, then `rand() / RAND_MAX`.
fn draws(seed: u32, count: usize) -> Vec<f32> {
    let seed = match seed {
        BY_TIME => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as u32),
        seed => seed,
    };
    let _one_at_a_time = GENERATOR.lock();
    // SAFETY: srand and rand have no preconditions; the lock keeps this sequence whole among the simulator's own calls.
    unsafe {
        libc::srand(seed);
        (0..count).map(|_| libc::rand() as f32 / libc::RAND_MAX as f32).collect()
    }
}

/// The first place whose cumulative sum, rounded to f16 at each step, is more than a number.
fn draw_in_halves(probabilities: impl Iterator<Item = f32>, number: f32) -> usize {
    let (mut sum, mut last) = (f16::ZERO, 0);
    for (at, probability) in probabilities.enumerate() {
        sum = f16::from_f32(sum.to_f32() + probability);
        last = at;
        if sum.to_f32() > number {
            return at;
        }
    }
    last
}

pub(crate) struct Multinomial {
    samples: usize,
    seed: u32,
}

impl Multinomial {
    pub(crate) fn new(param: spec_atb_multinomial_param) -> Outcome<Self> {
        require((1..=64).contains(&param.sample_count), || {
            parameter(format!("{} samples, and 1 to 64 are possible", param.sample_count))
        })?;
        Ok(Self { samples: param.sample_count as usize, seed: param.seed })
    }
}

impl Operator for Multinomial {
    fn name(&self) -> &'static str {
        "Multinomial"
    }

    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        !soc.is_310p() && is(&inputs[0], Type::F16) && is(&outputs[0], Type::I32)
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let [rows, width] = inputs[0].dims[..] else {
            return Err(shape(format!("probabilities of shape {:?}, not 2 dimensions", inputs[0].dims)));
        };
        require(self.samples <= width, || shape(format!("{} samples of {width}", self.samples)))?;
        Ok(vec![Desc::new(Type::I32, [rows, self.samples])])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let (_, width) = inputs[0].desc.rows();
        let numbers = draws(self.seed, self.samples);
        Ok(Plan::new(move |bound| {
            let probabilities = bound.inputs[0].floats();
            let sample = |row: &[f32]| -> Vec<i64> {
                numbers.iter().map(|number| draw_in_halves(row.iter().copied(), *number) as i64).collect()
            };
            let samples: Vec<i64> = probabilities.chunks(width).flat_map(sample).collect();
            bound.outputs[0].write_integers(0, &samples);
            Ok(())
        })
        .with_scratch(width * 2))
    }
}

#[derive(Clone)]
pub(crate) struct Sampling {
    kind: spec_atb_sampling_type,
    seeds: Vec<u32>,
    seed: u32,
    topk: usize,
    log_probs: usize,
}

impl Sampling {
    pub(crate) fn new(param: spec_atb_sampling_param, seeds: Vec<u32>) -> Outcome<Self> {
        require(param.type_.0 <= 4, || parameter(format!("sampling type {}", param.type_.0)))?;
        require(param.type_ != SPEC_ATB_SAMPLING_SINGLE_TOPK || param.topk > 0, || parameter("a topk of 0"))?;
        let log_probs = usize::try_from(param.log_probs_size).ok().filter(|size| *size <= MAX_LOG_PROBS);
        let log_probs = log_probs.ok_or_else(|| parameter(format!("logProbsSize is {}", param.log_probs_size)))?;
        let (kind, seed, topk) = (param.type_, param.seed, param.topk as usize);
        let sampling = Self { kind, seeds, seed, topk, log_probs };
        require(!sampling.has_log_probs() || log_probs > 0, || parameter("logProbsSize is 0"))?;
        Ok(sampling)
    }

    fn has_log_probs(&self) -> bool {
        [SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS, SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS]
            .contains(&self.kind)
    }

    fn is_exponential(&self) -> bool {
        [SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL, SPEC_ATB_SAMPLING_BATCH_EXPONENTIAL_LOGPROBS].contains(&self.kind)
    }
}

impl Operator for Sampling {
    fn name(&self) -> &'static str {
        "TopkToppSampling"
    }

    fn arity(&self) -> (usize, usize) {
        let inputs = match self.kind {
            SPEC_ATB_SAMPLING_SINGLE_TOPK => 2,
            SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL => 3,
            _ => 4,
        };
        (inputs, 2 + usize::from(self.has_log_probs()))
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let types: &[Type] = if soc.is_310p() { &[Type::F16] } else { &[Type::F16, Type::Bf16] };
        let dtype = inputs[0].dtype;
        let inputs = match self.kind {
            SPEC_ATB_SAMPLING_SINGLE_TOPK => is(&inputs[1], dtype),
            SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL => is(&inputs[1], Type::I32) && is(&inputs[2], dtype),
            SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS => {
                is(&inputs[1], Type::I32) && is(&inputs[2], dtype) && is(&inputs[3], Type::F32)
            }
            _ => is(&inputs[1], Type::I32) && is(&inputs[2], dtype) && is(&inputs[3], dtype),
        };
        inputs
            && all_of([&outputs[1]], types)
            && is(&outputs[0], Type::I32)
            && is(&outputs[1], dtype)
            && outputs.get(2).is_none_or(|log_probs| is(log_probs, Type::F32))
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let [rows, width] = inputs[0].dims[..] else {
            return Err(shape(format!("probabilities of shape {:?}, not 2 dimensions", inputs[0].dims)));
        };
        require(rows <= MAX_BATCH, || shape(format!("{rows} rows, and {MAX_BATCH} are possible")))?;
        let column = |at: usize, what: &str| {
            require(inputs[at].dims == [rows, 1], || {
                shape(format!("{what} has shape {:?}, not [{rows}, 1]", inputs[at].dims))
            })
        };
        if self.kind == SPEC_ATB_SAMPLING_SINGLE_TOPK {
            require(inputs[1].dims == [rows, 1] || inputs[1].dims == [1, 1], || {
                shape(format!("topp has shape {:?}, not [{rows}, 1] or [1, 1]", inputs[1].dims))
            })?;
            require(self.topk <= width, || parameter(format!("a topk of {} of {width}", self.topk)))?;
        } else {
            column(1, "topk")?;
            column(2, "topp")?;
        }
        match self.kind {
            SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL => {
                require(self.seeds.len() == rows, || parameter(format!("{} seeds for {rows} rows", self.seeds.len())))?
            }
            SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL_LOGPROBS => column(3, "the numbers drawn")?,
            _ if self.is_exponential() => require(inputs[3].dims == inputs[0].dims, || {
                shape(format!("the noise has shape {:?}, and the probabilities {:?}", inputs[3].dims, inputs[0].dims))
            })?,
            _ => {}
        }
        require(self.log_probs <= width, || parameter(format!("{} log-probabilities of {width}", self.log_probs)))?;
        let mut outputs = vec![Desc::new(Type::I32, [rows, 1]), inputs[0].with([rows, 1])];
        if self.has_log_probs() {
            outputs.push(Desc::new(Type::F32, [rows, self.log_probs]));
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let (rows, width) = inputs[0].desc.rows();
        let numbers = match self.kind {
            SPEC_ATB_SAMPLING_SINGLE_TOPK => draws(self.seed, rows),
            SPEC_ATB_SAMPLING_BATCH_MULTINOMIAL => self.seeds.iter().flat_map(|seed| draws(*seed, 1)).collect(),
            _ => Vec::new(),
        };
        let sampling = self.clone();
        let scratch = rows * width * 8;
        Ok(Plan::new(move |bound| sampling.run(bound, &numbers, width)).with_scratch(scratch))
    }
}

impl Sampling {
    fn run(&self, bound: &Bound, numbers: &[f32], width: usize) -> Outcome {
        let probabilities = bound.inputs[0].floats();
        let single = self.kind == SPEC_ATB_SAMPLING_SINGLE_TOPK;
        let (topks, topps) = if single {
            (Vec::new(), bound.inputs[1].floats())
        } else {
            (bound.inputs[1].integers(), bound.inputs[2].floats())
        };
        let given = bound.inputs.get(3).map(super::tensor::Tensor::floats);
        let (mut tokens, mut chosen, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        for (at, row) in probabilities.chunks(width).enumerate() {
            let order = descending(row);
            let kept = if single {
                self.topk
            } else {
                // The tensor holds an index of the sorted row: what is smaller than the element there goes.
                let index = usize::try_from(topks[at]).ok().filter(|index| *index < width);
                let index = index.ok_or_else(|| trap(format!("topk index {} of {width} probabilities", topks[at])))?;
                order.iter().take_while(|place| row[**place] >= row[order[index]]).count()
            };
            let topp = topps[at % topps.len()];
            let mut sum = 0.0;
            // A place is kept while what is before it has not reached topp; the first always is.
            let nucleus = order[..kept].iter().take_while(|place| {
                let before = sum;
                sum += row[**place];
                before < topp || before == 0.0
            });
            let nucleus: Vec<usize> = nucleus.copied().collect();
            let total: f32 = nucleus.iter().map(|place| row[*place]).sum();
            let pick = match &given {
                Some(noise) if self.is_exponential() => {
                    let score = |place: usize| row[place] / noise[at * width + place];
                    nucleus.iter().copied().reduce(|best, place| if score(place) > score(best) { place } else { best })
                }
                _ => {
                    let number = given.as_ref().map_or_else(|| numbers[at], |given| given[at]) * total;
                    let mut sum = 0.0;
                    let reached = |place: &&usize| {
                        sum += row[**place];
                        sum > number
                    };
                    nucleus.iter().find(reached).or(nucleus.last()).copied()
                }
            };
            let pick = pick.unwrap_or(order[0]);
            tokens.push(pick as i64);
            chosen.push(row[pick]);
            logs.extend(
                (0..self.log_probs)
                    .map(|place| nucleus.get(place).map_or(f32::NEG_INFINITY, |place| (row[*place] / total).ln())),
            );
        }
        bound.outputs[0].write_integers(0, &tokens);
        bound.outputs[1].write_floats(0, &chosen);
        if let Some(output) = bound.outputs.get(2) {
            output.write_floats(0, &logs);
        }
        Ok(())
    }
}
