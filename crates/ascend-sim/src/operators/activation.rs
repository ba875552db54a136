//! Activation: functions of each element, and SwiGLU.

use super::attention::unsupported;
use super::tensor::{Argument, Desc, Type};
use super::{Operator, Plan, all_of, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{
    SPEC_ATB_ACTIVATION_FAST_GELU, SPEC_ATB_ACTIVATION_FASTER_GELU_FORWARD, SPEC_ATB_ACTIVATION_GELU,
    SPEC_ATB_ACTIVATION_LOG, SPEC_ATB_ACTIVATION_RELU, SPEC_ATB_ACTIVATION_SIGMOID,
    SPEC_ATB_ACTIVATION_SWIGLU_BACKWARD, SPEC_ATB_ACTIVATION_SWIGLU_FORWARD, SPEC_ATB_ACTIVATION_SWISH,
    spec_atb_activation_param,
};

#[derive(Clone, Copy)]
pub(crate) struct Activation {
    param: spec_atb_activation_param,
}

impl Activation {
    pub(crate) fn new(param: spec_atb_activation_param) -> Outcome<Self> {
        require((1..=9).contains(&param.type_.0), || parameter(format!("activation type {}", param.type_.0)))?;
        require(param.type_ != SPEC_ATB_ACTIVATION_SWIGLU_BACKWARD, || unsupported("the gradient of SwiGLU"))?;
        require(param.dim == -1, || parameter(format!("dim is {}, and only -1 is supported", param.dim)))?;
        Ok(Self { param })
    }

    fn is_swiglu(&self) -> bool {
        self.param.type_ == SPEC_ATB_ACTIVATION_SWIGLU_FORWARD
    }

    fn apply(&self, x: f32) -> f32 {
        match self.param.type_ {
            SPEC_ATB_ACTIVATION_RELU => x.max(0.0),
            SPEC_ATB_ACTIVATION_GELU if self.param.exact_gelu != 0 => {
                0.5 * x * (1.0 + error_function(f64::from(x) / std::f64::consts::SQRT_2) as f32)
            }
            SPEC_ATB_ACTIVATION_GELU => {
                let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
            SPEC_ATB_ACTIVATION_FAST_GELU | SPEC_ATB_ACTIVATION_FASTER_GELU_FORWARD => x * sigmoid(1.702 * x),
            SPEC_ATB_ACTIVATION_SWISH => x * sigmoid(self.param.scale * x),
            SPEC_ATB_ACTIVATION_LOG => x.ln(),
            SPEC_ATB_ACTIVATION_SIGMOID => sigmoid(x),
            _ => x,
        }
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Its Taylor series near 0, and 1 where halves do not tell the difference.
fn error_function(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..80 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

impl Operator for Activation {
    fn name(&self) -> &'static str {
        "Activation"
    }

    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let types: &[Type] = match self.param.type_ {
            SPEC_ATB_ACTIVATION_SWISH => &[Type::F16, Type::Bf16],
            _ => &[Type::F16, Type::Bf16, Type::F32],
        };
        all_of(inputs.iter().chain(outputs), types)
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let mut dims = inputs[0].dims.clone();
        if self.is_swiglu() {
            let last = dims.len() - 1;
            require(dims[last].is_multiple_of(2), || shape(format!("SwiGLU halves the last dimension of {dims:?}")))?;
            dims[last] /= 2;
        }
        Ok(vec![inputs[0].with(dims)])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], soc: Soc) -> Outcome<Plan> {
        let (_, width) = inputs[0].desc.rows();
        require(!(self.is_swiglu() && soc.is_310p()) || width % 32 == 0, || {
            shape(format!("SwiGLU of {width} columns, and this chip needs a multiple of 32"))
        })?;
        let activation = *self;
        Ok(Plan::new(move |bound| {
            let x = bound.inputs[0].floats();
            let y: Vec<f32> = if activation.is_swiglu() {
                let swiglu = |row: &[f32]| {
                    let (gate, up) = row.split_at(width / 2);
                    gate.iter().zip(up).map(|(gate, up)| gate * sigmoid(*gate) * up).collect::<Vec<_>>()
                };
                x.chunks(width).flat_map(swiglu).collect()
            } else {
                x.iter().map(|x| activation.apply(*x)).collect()
            };
            bound.outputs[0].write_floats(0, &y);
            Ok(())
        }))
    }
}
