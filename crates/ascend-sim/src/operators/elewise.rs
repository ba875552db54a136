//! Elewise: functions of one or two elements, with broadcasting, casts and quantisation.

use super::rms_norm::quantise;
use super::tensor::{Argument, Desc, Type};
use super::{Bound, Operator, Plan, all_of, is, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use Type::{Bf16, F16, F32, I8, I32, I64};
use acl_sys::{
    SPEC_ATB_ELEWISE_ADD, SPEC_ATB_ELEWISE_CAST, SPEC_ATB_ELEWISE_COS, SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL,
    SPEC_ATB_ELEWISE_DYNAMIC_QUANT, SPEC_ATB_ELEWISE_EQUAL, SPEC_ATB_ELEWISE_GREATER, SPEC_ATB_ELEWISE_LESS,
    SPEC_ATB_ELEWISE_LOGICAL_AND, SPEC_ATB_ELEWISE_LOGICAL_NOT, SPEC_ATB_ELEWISE_LOGICAL_OR, SPEC_ATB_ELEWISE_MUL,
    SPEC_ATB_ELEWISE_MULS, SPEC_ATB_ELEWISE_NEG, SPEC_ATB_ELEWISE_QUANT, SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL,
    SPEC_ATB_ELEWISE_REALDIV, SPEC_ATB_ELEWISE_SIN, SPEC_ATB_ELEWISE_SUB, SPEC_ATB_ELEWISE_TANH,
    spec_atb_elewise_param, spec_atb_elewise_type,
};

#[derive(Clone, Copy)]
pub(crate) struct Elewise {
    param: spec_atb_elewise_param,
    target: Option<Type>,
}

/// Types of the inputs, for what has one or two of one type: the rest is in `has_kernel`.
fn types(kind: spec_atb_elewise_type) -> &'static [Type] {
    match kind {
        SPEC_ATB_ELEWISE_MULS | SPEC_ATB_ELEWISE_COS | SPEC_ATB_ELEWISE_SIN => &[F16, F32, Bf16],
        SPEC_ATB_ELEWISE_NEG | SPEC_ATB_ELEWISE_TANH | SPEC_ATB_ELEWISE_MUL => &[F16, Bf16],
        SPEC_ATB_ELEWISE_LOGICAL_NOT | SPEC_ATB_ELEWISE_LOGICAL_AND | SPEC_ATB_ELEWISE_LOGICAL_OR => &[I8],
        SPEC_ATB_ELEWISE_ADD => &[F16, F32, Bf16, I32, I64],
        SPEC_ATB_ELEWISE_REALDIV | SPEC_ATB_ELEWISE_EQUAL => &[F16, F32, Bf16],
        SPEC_ATB_ELEWISE_LESS | SPEC_ATB_ELEWISE_GREATER => &[I64, F16, F32, Bf16],
        SPEC_ATB_ELEWISE_SUB => &[F16, I64, Bf16],
        _ => &[],
    }
}

const CASTS: &[(Type, Type)] = &[(F16, F32), (F32, F16), (Bf16, F32), (F32, Bf16), (I32, I64), (I64, I32)];

impl Elewise {
    pub(crate) fn new(param: spec_atb_elewise_param) -> Outcome<Self> {
        require((1..=20).contains(&param.type_.0), || parameter(format!("elewise type {}", param.type_.0)))?;
        let is_cast = param.type_ == SPEC_ATB_ELEWISE_CAST;
        require(!is_cast || param.out_data_type != -1, || parameter("a cast needs an out_data_type"))?;
        require(param.type_ != SPEC_ATB_ELEWISE_QUANT || param.quant_scale != 0.0, || parameter("a scale of 0"))?;
        require(!(param.type_ == SPEC_ATB_ELEWISE_DYNAMIC_QUANT && param.quant_asymmetric != 0), || {
            parameter("dynamic quantisation is symmetric only")
        })?;
        Ok(Self { param, target: is_cast.then(|| Type::from_acl(param.out_data_type)) })
    }

    fn kind(&self) -> spec_atb_elewise_type {
        self.param.type_
    }

    /// Type of the first output.
    fn result(&self, input: Type) -> Type {
        match self.kind() {
            SPEC_ATB_ELEWISE_CAST => self.target.unwrap_or(input),
            SPEC_ATB_ELEWISE_LESS | SPEC_ATB_ELEWISE_GREATER | SPEC_ATB_ELEWISE_EQUAL => I8,
            SPEC_ATB_ELEWISE_QUANT | SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL | SPEC_ATB_ELEWISE_DYNAMIC_QUANT => I8,
            SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL => F16,
            _ => input,
        }
    }
}

/// The shape that two broadcast to, as in numpy.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |own| dims[own]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (one, other) if one == other || other == 1 => Some(one),
            (1, other) => Some(other),
            _ => None,
        })
        .collect()
}

/// For each element of a result, the element of an operand.
fn places(operand: &[usize], result: &[usize]) -> Vec<usize> {
    let mut places = vec![0];
    let skip = result.len() - operand.len();
    for (axis, length) in result.iter().enumerate() {
        let own = axis.checked_sub(skip).map_or(1, |own| operand[own]);
        let step =
            |place: &usize| (0..*length).map(move |at| place * own + if own == 1 { 0 } else { at }).collect::<Vec<_>>();
        places = places.iter().flat_map(step).collect();
    }
    places
}

impl Operator for Elewise {
    fn name(&self) -> &'static str {
        "Elewise"
    }

    fn arity(&self) -> (usize, usize) {
        match self.kind() {
            SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL | SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL => (3, 1),
            SPEC_ATB_ELEWISE_DYNAMIC_QUANT => (1, 2),
            SPEC_ATB_ELEWISE_ADD
            | SPEC_ATB_ELEWISE_MUL
            | SPEC_ATB_ELEWISE_REALDIV
            | SPEC_ATB_ELEWISE_SUB
            | SPEC_ATB_ELEWISE_LESS
            | SPEC_ATB_ELEWISE_GREATER
            | SPEC_ATB_ELEWISE_EQUAL
            | SPEC_ATB_ELEWISE_LOGICAL_AND
            | SPEC_ATB_ELEWISE_LOGICAL_OR => (2, 1),
            _ => (1, 1),
        }
    }

    fn is_optional(&self, input: usize) -> bool {
        input == 2
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let x = inputs[0].dtype;
        let a2 = !soc.is_310p();
        let kernel = match self.kind() {
            SPEC_ATB_ELEWISE_CAST => CASTS.contains(&(x, outputs[0].dtype)) && self.target == Some(outputs[0].dtype),
            SPEC_ATB_ELEWISE_QUANT => a2 && x == F16,
            SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL => {
                a2 && all_of(&inputs[..2], &[F16, Bf16]) && (inputs[2].is_empty() || is(&inputs[2], I8))
            }
            SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL => {
                a2 && x == I8 && is(&inputs[1], F16) && (inputs[2].is_empty() || is(&inputs[2], I8))
            }
            SPEC_ATB_ELEWISE_DYNAMIC_QUANT => matches!(x, F16 | Bf16) && is(&outputs[1], F32),
            kind => all_of(inputs, types(kind)),
        };
        kernel && is(&inputs[0], x) && is(&outputs[0], self.result(x))
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let x = &inputs[0];
        let (_, width) = x.rows();
        let dims = match self.kind() {
            SPEC_ATB_ELEWISE_QUANT => {
                require(width % 32 == 0, || {
                    shape(format!("the last dimension of {:?} is not a multiple of 32", x.dims))
                })?;
                x.dims.clone()
            }
            _ if self.arity().0 >= 2 => {
                let dims = broadcast(&x.dims, &inputs[1].dims);
                dims.ok_or_else(|| shape(format!("{:?} and {:?} do not broadcast", x.dims, inputs[1].dims)))?
            }
            _ => x.dims.clone(),
        };
        let mut outputs = vec![Desc::new(self.result(x.dtype), dims)];
        if self.kind() == SPEC_ATB_ELEWISE_DYNAMIC_QUANT {
            outputs.push(Desc::new(F32, &x.dims[..x.dims.len() - 1]));
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], soc: Soc) -> Outcome<Plan> {
        if self.kind() == SPEC_ATB_ELEWISE_DYNAMIC_QUANT {
            let (_, width) = inputs[0].desc.rows();
            let most = match inputs[0].desc.dtype {
                _ if soc.is_310p() => 4096,
                F16 => 26_624,
                _ => 7552,
            };
            require(width <= most, || shape(format!("{width} columns, and {most} can be quantised")))?;
        }
        let operator = *self;
        Ok(Plan::new(move |bound| {
            operator.run(bound);
            Ok(())
        }))
    }
}

impl Elewise {
    fn run(&self, bound: &Bound) {
        let (x, out) = (&bound.inputs[0], &bound.outputs[0]);
        let is_integer = |dtype| matches!(dtype, I8 | I32 | I64);
        match self.kind() {
            SPEC_ATB_ELEWISE_CAST if is_integer(x.desc.dtype) => out.write_integers(0, &x.integers()),
            SPEC_ATB_ELEWISE_CAST => out.write_floats(0, &x.floats()),
            SPEC_ATB_ELEWISE_LOGICAL_NOT => {
                out.write_integers(0, &x.integers().iter().map(|x| i64::from(*x == 0)).collect::<Vec<_>>());
            }
            SPEC_ATB_ELEWISE_QUANT => {
                let offset = if self.param.quant_asymmetric != 0 { self.param.quant_offset as f32 } else { 0.0 };
                let quantised =
                    x.floats().iter().map(|x| quantise(x / self.param.quant_scale + offset)).collect::<Vec<_>>();
                out.write_floats(0, &quantised);
            }
            SPEC_ATB_ELEWISE_DYNAMIC_QUANT => {
                let (_, width) = x.desc.rows();
                let (mut values, mut scales) = (x.floats(), Vec::new());
                for row in values.chunks_mut(width) {
                    let scale = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / 127.0;
                    scales.push(scale);
                    row.iter_mut().for_each(|x| *x = if scale > 0.0 { quantise(*x / scale) } else { 0.0 });
                }
                out.write_floats(0, &values);
                bound.outputs[1].write_floats(0, &scales);
            }
            SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL | SPEC_ATB_ELEWISE_DEQUANT_PER_CHANNEL => self.per_channel(bound),
            _ if self.arity().0 == 1 => {
                let y: Vec<f32> = x.floats().iter().map(|x| self.one(*x)).collect();
                out.write_floats(0, &y);
            }
            _ if is_integer(x.desc.dtype) => {
                let (a, b) = (x.integers(), bound.inputs[1].integers());
                let y: Vec<i64> = self.pairs(bound).map(|(at, other)| self.two_integers(a[at], b[other])).collect();
                out.write_integers(0, &y);
            }
            _ => {
                let (a, b) = (x.floats(), bound.inputs[1].floats());
                let y: Vec<f32> = self.pairs(bound).map(|(at, other)| self.two(a[at], b[other])).collect();
                out.write_floats(0, &y);
            }
        }
    }

    /// Elements of both operands, for each of the result.
    fn pairs(&self, bound: &Bound) -> impl Iterator<Item = (usize, usize)> {
        let result = &bound.outputs[0].desc.dims;
        let (a, b) = (places(&bound.inputs[0].desc.dims, result), places(&bound.inputs[1].desc.dims, result));
        a.into_iter().zip(b)
    }

    fn per_channel(&self, bound: &Bound) {
        let (x, scale) = (bound.inputs[0].floats(), bound.inputs[1].floats());
        let offset = if bound.inputs[2].desc.is_empty() { vec![0.0] } else { bound.inputs[2].floats() };
        let quantising = self.kind() == SPEC_ATB_ELEWISE_QUANT_PER_CHANNEL;
        let y: Vec<f32> = self
            .pairs(bound)
            .map(|(at, channel)| {
                let (scale, offset) = (scale[channel], offset[channel % offset.len()]);
                if quantising { quantise(x[at] / scale + offset) } else { (x[at] - offset) * scale }
            })
            .collect();
        bound.outputs[0].write_floats(0, &y);
    }

    fn one(&self, x: f32) -> f32 {
        match self.kind() {
            SPEC_ATB_ELEWISE_MULS => x * self.param.factor,
            SPEC_ATB_ELEWISE_COS => x.cos(),
            SPEC_ATB_ELEWISE_SIN => x.sin(),
            SPEC_ATB_ELEWISE_NEG => -x,
            _ => x.tanh(),
        }
    }

    fn two(&self, a: f32, b: f32) -> f32 {
        let truth = |holds: bool| f32::from(u8::from(holds));
        match self.kind() {
            SPEC_ATB_ELEWISE_ADD => a + b,
            SPEC_ATB_ELEWISE_SUB => a - b,
            SPEC_ATB_ELEWISE_MUL => a * b,
            SPEC_ATB_ELEWISE_REALDIV => a / b,
            SPEC_ATB_ELEWISE_LESS => truth(a < b),
            SPEC_ATB_ELEWISE_GREATER => truth(a > b),
            _ => truth(a == b),
        }
    }

    fn two_integers(&self, a: i64, b: i64) -> i64 {
        match self.kind() {
            SPEC_ATB_ELEWISE_ADD => a.wrapping_add(b),
            SPEC_ATB_ELEWISE_SUB => a.wrapping_sub(b),
            SPEC_ATB_ELEWISE_LESS => i64::from(a < b),
            SPEC_ATB_ELEWISE_GREATER => i64::from(a > b),
            SPEC_ATB_ELEWISE_LOGICAL_AND => i64::from(a != 0 && b != 0),
            _ => i64::from(a != 0 || b != 0),
        }
    }
}
