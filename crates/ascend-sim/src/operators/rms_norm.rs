//! RmsNorm: alone, of a sum with the residual, and quantised.

use super::tensor::{Argument, Desc, Tensor, Type};
use super::{Bound, Operator, Plan, all_of, is, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{
    SPEC_ATB_DYNAMIC_QUANT_ASYMMETRIC, SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC, SPEC_ATB_QUANT_INT8, SPEC_ATB_QUANT_NONE,
    SPEC_ATB_RMS_NORM, SPEC_ATB_RMS_NORM_GEMMA, SPEC_ATB_RMS_NORM_HIGH_PERFORMANCE, SPEC_ATB_RMS_POST_NORM,
    SPEC_ATB_RMS_PRE_NORM, spec_atb_rms_norm_param,
};

const SMALLEST_EPSILON: f32 = 2e-38;

#[derive(Clone, Copy)]
pub(crate) struct RmsNorm {
    param: spec_atb_rms_norm_param,
}

impl RmsNorm {
    pub(crate) fn new(param: spec_atb_rms_norm_param) -> Outcome<Self> {
        let layer = param.layer;
        let known = [SPEC_ATB_RMS_NORM, SPEC_ATB_RMS_PRE_NORM, SPEC_ATB_RMS_POST_NORM].contains(&layer);
        require(known, || parameter(format!("layer type {}", layer.0)))?;
        let quantised = param.quant == SPEC_ATB_QUANT_INT8;
        require(quantised || param.quant == SPEC_ATB_QUANT_NONE, || {
            parameter(format!("quant type {}", param.quant.0))
        })?;
        require(
            param.epsilon.abs() >= SMALLEST_EPSILON && param.layer_norm_epsilon.abs() >= f64::from(SMALLEST_EPSILON),
            || parameter("an epsilon is smaller than 2e-38"),
        )?;
        require(param.dynamic_quant != SPEC_ATB_DYNAMIC_QUANT_ASYMMETRIC, || {
            parameter("there is no asymmetric dynamic quantisation")
        })?;
        let dynamic = param.dynamic_quant == SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC;
        require(!dynamic || quantised && layer == SPEC_ATB_RMS_NORM, || {
            parameter("dynamic quantisation is of the plain norm to int8")
        })?;
        let special = param.model == SPEC_ATB_RMS_NORM_GEMMA
            || param.precision == SPEC_ATB_RMS_NORM_HIGH_PERFORMANCE
            || param.has_rstd != 0;
        require(!(special && quantised), || parameter("GEMMA, HIGH_PERFORMANCE and rstd exclude quantisation"))?;
        require(param.has_rstd == 0 || layer == SPEC_ATB_RMS_NORM, || parameter("rstd is of the plain norm"))?;
        require(param.has_bias == 0 || layer != SPEC_ATB_RMS_NORM && !quantised, || {
            parameter("a bias is of pre- and post-norm without quantisation")
        })?;
        Ok(Self { param })
    }

    fn quantised(&self) -> bool {
        self.param.quant == SPEC_ATB_QUANT_INT8
    }

    fn dynamic(&self) -> bool {
        self.param.dynamic_quant == SPEC_ATB_DYNAMIC_QUANT_SYMMETRIC
    }

    fn has_residual(&self) -> bool {
        self.param.layer != SPEC_ATB_RMS_NORM
    }

    /// Places of gamma and of what quantisation needs.
    fn places(&self) -> Places {
        let gamma = 1 + usize::from(self.has_residual()) + usize::from(self.param.has_bias != 0);
        // Post-norm is quantised without beta.
        let beta = (self.quantised() && self.param.layer != SPEC_ATB_RMS_POST_NORM).then_some(gamma + 1);
        let scale = (self.quantised() && !self.dynamic()).then_some(beta.unwrap_or(gamma) + 1);
        Places { gamma, beta, scale }
    }
}

#[derive(Clone, Copy)]
struct Places {
    gamma: usize,
    beta: Option<usize>,
    /// The offset is behind it.
    scale: Option<usize>,
}

impl Operator for RmsNorm {
    fn name(&self) -> &'static str {
        "RmsNorm"
    }

    fn arity(&self) -> (usize, usize) {
        let Places { gamma, beta, scale } = self.places();
        let inputs = scale.map_or(beta.unwrap_or(gamma) + 1, |scale| scale + 2);
        let outputs = match self.param.layer {
            SPEC_ATB_RMS_NORM => 1 + usize::from(self.param.has_rstd != 0 || self.dynamic()),
            SPEC_ATB_RMS_PRE_NORM => 2,
            _ => 1 + usize::from(self.quantised()),
        };
        (inputs, outputs)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let Places { gamma, beta, scale } = self.places();
        let a2 = !soc.is_310p();
        let last_float = scale.unwrap_or_else(|| beta.unwrap_or(gamma));
        let f16_only = self.dynamic()
            || self.param.precision == SPEC_ATB_RMS_NORM_HIGH_PERFORMANCE
            || self.quantised() && self.param.layer == SPEC_ATB_RMS_PRE_NORM;
        let types: &[Type] = if self.param.has_rstd != 0 {
            &[Type::F32]
        } else if f16_only {
            &[Type::F16]
        } else {
            &[Type::F16, Type::Bf16]
        };
        let floats = all_of(&inputs[..=last_float], types);
        let offset = scale.is_none_or(|scale| is(&inputs[scale + 1], Type::I8));
        let x = inputs[0].dtype;
        let result = if self.quantised() { Type::I8 } else { x };
        let second = match outputs.get(1) {
            None => true,
            Some(second) if self.dynamic() => is(second, Type::F32),
            Some(second) => is(second, x),
        };
        let chip = a2 || self.param.has_rstd == 0 && !(self.param.layer == SPEC_ATB_RMS_POST_NORM && self.quantised());
        floats && offset && is(&outputs[0], result) && second && chip
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let Places { gamma, scale, .. } = self.places();
        let x = &inputs[0];
        let (_, width) = x.rows();
        require((width * x.dtype.size()).is_multiple_of(32), || {
            shape(format!("the last dimension of {:?} is not a multiple of 32 bytes", x.dims))
        })?;
        require(!self.dynamic() || width <= 12_288, || shape(format!("{width} columns, and 12288 can be quantised")))?;
        for (at, input) in inputs.iter().enumerate().take(scale.unwrap_or(inputs.len())).skip(1) {
            if at == 1 && self.has_residual() && self.param.has_bias == 0 || at == 2 && self.param.has_bias != 0 {
                require(input.dims == x.dims, || {
                    shape(format!("the residual has shape {:?}, and x {:?}", input.dims, x.dims))
                })?;
            } else {
                require(input.elements() == width && input.dims.last() == Some(&width), || {
                    shape(format!("input {at} has shape {:?}, for {width} columns", input.dims))
                })?;
            }
        }
        if let Some(scale) = scale {
            require(inputs[scale].elements() == 1 && inputs[scale + 1].elements() == 1, || {
                shape("scale and offset have one element each")
            })?;
        }
        let y = x.of_type(if self.quantised() { Type::I8 } else { x.dtype });
        let mut outputs = vec![y];
        if self.param.has_rstd != 0 {
            let mut dims = x.dims.clone();
            let normed = inputs[gamma].dims.len();
            let rank = dims.len();
            dims[rank - normed.min(rank)..].fill(1);
            outputs.push(Desc::new(Type::F32, dims));
        } else if self.dynamic() {
            outputs.push(Desc::new(Type::F32, &x.dims[..x.dims.len() - 1]));
        } else if self.arity().1 == 2 {
            outputs.push(x.clone());
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let norm = *self;
        let elements = inputs[0].desc.elements() as f64;
        Ok(Plan::new(move |bound| norm.run(bound)).with_work(elements))
    }

    fn sums(&self) -> bool {
        true
    }
}

impl RmsNorm {
    fn run(&self, bound: &Bound) -> Outcome {
        let Places { gamma, beta, scale } = self.places();
        let (rows, width) = bound.inputs[0].desc.rows();
        let mut x = bound.inputs[0].floats();
        let mut add = |tensor: &Tensor| {
            let values = tensor.floats();
            x.iter_mut().enumerate().for_each(|(at, x)| *x += values[at % values.len()]);
        };
        if self.param.has_bias != 0 {
            add(&bound.inputs[1]);
        }
        if self.has_residual() {
            add(&bound.inputs[gamma - 1]);
        }
        let gamma = bound.inputs[gamma].floats();
        let beta = beta.map(|beta| bound.inputs[beta].floats());
        let plus = if self.param.model == SPEC_ATB_RMS_NORM_GEMMA { 1.0 } else { 0.0 };
        let mut y = vec![0.0; x.len()];
        let mut reciprocals = Vec::with_capacity(rows);
        for (x, y) in x.chunks(width).zip(y.chunks_mut(width)) {
            // In f64, so that the order of the sum shows in no result.
            let sum: f64 = x.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
            let reciprocal = (1.0 / (sum / width as f64 + f64::from(self.param.epsilon)).sqrt()) as f32;
            reciprocals.push(reciprocal);
            for (column, y) in y.iter_mut().enumerate() {
                let normed = x[column] * reciprocal * (gamma[column] + plus);
                *y = normed + beta.as_ref().map_or(0.0, |beta| beta[column]);
            }
        }
        if let Some(scale) = scale {
            let (scale, offset) = (bound.inputs[scale].floats()[0], bound.inputs[scale + 1].floats()[0]);
            let quantised: Vec<f32> = y.iter().map(|y| quantise(y / scale + offset)).collect();
            bound.outputs[0].write_floats(0, &quantised);
        } else if self.dynamic() {
            let mut scales = Vec::with_capacity(rows);
            for y in y.chunks_mut(width) {
                let scale = y.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / 127.0;
                scales.push(scale);
                y.iter_mut().for_each(|y| *y = if scale > 0.0 { quantise(*y / scale) } else { 0.0 });
            }
            bound.outputs[0].write_floats(0, &y);
            bound.outputs[1].write_floats(0, &scales);
            return Ok(());
        } else {
            bound.outputs[0].write_floats(0, &y);
        }
        match bound.outputs.get(1) {
            Some(second) if self.param.has_rstd != 0 => second.write_floats(0, &reciprocals),
            // Pre-norm hands on what it normed; post-norm, quantised, its result before quantising.
            Some(second) if self.param.layer == SPEC_ATB_RMS_PRE_NORM => second.write_floats(0, &x),
            Some(second) => second.write_floats(0, &y),
            None => {}
        }
        Ok(())
    }
}

/// To int8, ties to even.
pub(crate) fn quantise(value: f32) -> f32 {
    value.round_ties_even().clamp(-128.0, 127.0)
}
