//! Verify: the spec-decode module's judgement of rows of logits.

use super::tensor::{Argument, Desc, Tensor, Type};
use super::{Bound, Operator, Plan, all_of, is, shape, trap};
use crate::config::{Soc, Ties, Verification};
use crate::failure::{Outcome, parameter, require};
use crate::world::world;
use acl_sys::{SPEC_ATB_VERIFY_GREEDY, SPEC_ATB_VERIFY_REJECTION, spec_atb_verify_param};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verify {
    Greedy,
    Rejection { inverse_temperature: f32 },
}

const FLOATS: &[Type] = &[Type::F16, Type::Bf16, Type::F32];
const HALVES: &[Type] = &[Type::F16, Type::Bf16];

impl Verify {
    pub(crate) fn new(param: spec_atb_verify_param) -> Outcome<Self> {
        let factor = param.inverse_temperature;
        match param.rule {
            SPEC_ATB_VERIFY_GREEDY => {
                require(factor == 1.0, || {
                    parameter(format!("inverse_temperature {factor} of a greedy Verify, not 1"))
                })?;
                Ok(Self::Greedy)
            }
            SPEC_ATB_VERIFY_REJECTION => {
                require(factor > 0.0 && factor.is_finite(), || parameter(format!("inverse_temperature {factor}")))?;
                Ok(Self::Rejection { inverse_temperature: factor })
            }
            other => Err(parameter(format!("verification rule {}", other.0))),
        }
    }

    /// What the module's composition launches for logits of a type, and the bytes that go through memory on the way.
    fn composition(self, logits: &Desc) -> (u32, f64) {
        let (elements, size) = (logits.elements() as f64, logits.dtype.size() as f64);
        match self {
            // Softmax reads and writes, Sort reads, Gather takes two of a row.
            Self::Greedy => (3, 3.0 * size * elements),
            Self::Rejection { inverse_temperature } => {
                let cast = logits.dtype != Type::F32;
                let scale = inverse_temperature != 1.0;
                // Softmax, Gather and LESS, after what brings the row to f32 and to the temperature.
                let launches = 3 + u32::from(cast) + u32::from(scale);
                let moved = 8.0 + if cast { size + 4.0 } else { 0.0 } + if scale { 8.0 } else { 0.0 };
                (launches, moved * elements)
            }
        }
    }
}

impl Operator for Verify {
    fn name(&self) -> &'static str {
        "Verify"
    }

    fn arity(&self) -> (usize, usize) {
        match self {
            Self::Greedy => (1, 3),
            Self::Rejection { .. } => (3, 2),
        }
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        match self {
            Self::Greedy => {
                let types = if soc.is_310p() { HALVES } else { FLOATS };
                is(&outputs[0], Type::I32) && all_of([&inputs[0], &outputs[1], &outputs[2]], types)
            }
            Self::Rejection { .. } => {
                let given = all_of([&inputs[0]], FLOATS) && is(&inputs[1], Type::I32) && is(&inputs[2], Type::F32);
                given && is(&outputs[0], Type::I8) && is(&outputs[1], Type::F32)
            }
        }
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let dims = &inputs[0].dims;
        require(dims.len() == 2 && dims[1] >= 2, || {
            shape(format!("logits have shape {dims:?}, and [rows, 2 or more tokens] is needed"))
        })?;
        let rows = dims[0];
        match self {
            Self::Greedy => {
                let two = inputs[0].with([rows, 2]);
                Ok(vec![two.of_type(Type::I32), two.clone(), two])
            }
            Self::Rejection { .. } => {
                for (at, what) in [(1, "drafted tokens"), (2, "u * q")] {
                    let found = &inputs[at].dims;
                    require(*found == [rows], || shape(format!("{what} have shape {found:?}, not [{rows}]")))?;
                }
                Ok(vec![Desc::new(Type::I8, [rows]), Desc::new(Type::F32, [rows])])
            }
        }
    }

    fn plan(&self, inputs: &[Argument], outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let operator = *self;
        let config = world().config();
        let ties = config.sort_ties;
        let small: usize = inputs[1..].iter().chain(outputs).map(|argument| argument.desc.bytes()).sum();
        let logits = &inputs[0].desc;
        let plan = Plan::new(move |bound| match operator {
            Verify::Greedy => {
                greedy(bound, ties);
                Ok(())
            }
            Verify::Rejection { inverse_temperature } => rejection(bound, inverse_temperature),
        });
        Ok(match config.verify {
            Verification::Composed => {
                let (launches, bytes) = self.composition(logits);
                // Probabilities of all tokens, and what Sort needs beside them.
                let scratch =
                    logits.elements() * if matches!(self, Verify::Greedy) { logits.dtype.size() + 8 } else { 8 };
                plan.with_launches(launches).with_bytes(bytes + small as f64).with_scratch(scratch)
            }
            // Each row is read once, and what is kept of it fits the core.
            Verification::Kernel => plan.with_bytes((logits.bytes() + small) as f64),
        })
    }

    fn sums(&self) -> bool {
        false
    }
}

/// The softmax of a row, for those of its elements that are asked for.
struct Softmax {
    factor: f32,
    greatest: f64,
    total: f64,
}

impl Softmax {
    /// NaN and plus infinity make the total NaN, and with it every probability.
    fn of(row: &[f32], factor: f32) -> Self {
        let greatest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max) * factor);
        let total = row.iter().map(|x| (f64::from(x * factor) - greatest).exp()).sum();
        Self { factor, greatest, total }
    }

    fn probability(&self, logit: f32) -> f32 {
        ((f64::from(logit * self.factor) - self.greatest).exp() / self.total) as f32
    }
}

/// The two greatest of a row with their places, in one pass; NaN is below all numbers.
fn two_greatest(row: &[f32], ties: Ties) -> [(usize, f32); 2] {
    let beats = |x: f32, other: f32| match ties {
        Ties::Lowest => x > other,
        Ties::Highest => x >= other,
    };
    let rank = |x: f32| if x.is_nan() { f32::NEG_INFINITY } else { x };
    let (mut first, mut second): (Option<usize>, Option<usize>) = (None, None);
    for (at, logit) in row.iter().enumerate() {
        let leads = |place: Option<usize>| place.is_none_or(|place| beats(rank(*logit), rank(row[place])));
        if leads(first) {
            second = first.replace(at);
        } else if leads(second) {
            second = Some(at);
        }
    }
    [first, second].map(|place| place.map_or((0, f32::NAN), |place| (place, row[place])))
}

fn rows(logits: &Tensor) -> impl Iterator<Item = Vec<f32>> + '_ {
    let (count, width) = logits.desc.rows();
    (0..count).map(move |row| {
        let mut values = vec![0.0; width];
        logits.read_floats(row * width, &mut values);
        values
    })
}

fn greedy(bound: &Bound, ties: Ties) {
    for (at, row) in rows(&bound.inputs[0]).enumerate() {
        let (two, softmax) = (two_greatest(&row, ties), Softmax::of(&row, 1.0));
        bound.outputs[0].write_integers(2 * at, &two.map(|(place, _)| place as i64));
        bound.outputs[1].write_floats(2 * at, &two.map(|(_, value)| value));
        bound.outputs[2].write_floats(2 * at, &two.map(|(_, value)| softmax.probability(value)));
    }
}

fn rejection(bound: &Bound, factor: f32) -> Outcome {
    let (tokens, thresholds) = (bound.inputs[1].integers(), bound.inputs[2].floats());
    for (at, row) in rows(&bound.inputs[0]).enumerate() {
        let token = usize::try_from(tokens[at]).ok().and_then(|token| row.get(token));
        let logit = token.ok_or_else(|| trap(format!("token {} of {}", tokens[at], row.len())))?;
        let p = Softmax::of(&row, factor).probability(*logit);
        bound.outputs[0].write_integers(at, &[i64::from(thresholds[at] < p)]);
        bound.outputs[1].write_floats(at, &[p]);
    }
    Ok(())
}
