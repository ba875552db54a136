//! Softmax over neighbouring axes.

use super::tensor::{Argument, Desc, Type};
use super::{Operator, Plan, all_of, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::spec_atb_softmax_param;

pub(crate) struct Softmax {
    axes: Vec<i64>,
}

impl Softmax {
    pub(crate) fn new(param: spec_atb_softmax_param) -> Outcome<Self> {
        let count = usize::try_from(param.axis_count).ok().filter(|count| (1..=8).contains(count));
        let count = count.ok_or_else(|| parameter(format!("{} axes of a Softmax", param.axis_count)))?;
        let axes = param.axes[..count].to_vec();
        let neighbours = axes.windows(2).all(|pair| pair[1] == pair[0] + 1);
        require(neighbours && axes.iter().all(|axis| *axis >= -1), || {
            parameter(format!("axes {axes:?} are not neighbours from -1 on"))
        })?;
        Ok(Self { axes })
    }

    /// First axis and the one behind the last.
    fn range(&self, rank: usize) -> Outcome<(usize, usize)> {
        let place = |axis: i64| if axis < 0 { rank - 1 } else { axis as usize };
        let (first, end) = (place(self.axes[0]), place(self.axes[self.axes.len() - 1]) + 1);
        require(first < end && end <= rank, || shape(format!("axes {:?} of {rank} dimensions", self.axes)))?;
        Ok((first, end))
    }
}

impl Operator for Softmax {
    fn name(&self) -> &'static str {
        "Softmax"
    }

    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        all_of(inputs.iter().chain(outputs), &[Type::F16, Type::F32, Type::Bf16])
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        self.range(inputs[0].dims.len())?;
        Ok(vec![inputs[0].clone()])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let dims = &inputs[0].desc.dims;
        let (first, end) = self.range(dims.len())?;
        let product = |dims: &[usize]| dims.iter().product::<usize>();
        let (length, inner) = (product(&dims[first..end]), product(&dims[end..]));
        let plan = Plan::new(move |bound| {
            let mut values = bound.inputs[0].floats();
            for outer in values.chunks_mut(length * inner) {
                for at in 0..inner {
                    let places = || (at..length * inner).step_by(inner);
                    let largest = places().fold(f32::NEG_INFINITY, |largest, place| largest.max(outer[place]));
                    let mut sum = 0.0f64;
                    for place in places() {
                        outer[place] = (outer[place] - largest).exp();
                        sum += f64::from(outer[place]);
                    }
                    for place in places() {
                        outer[place] = (f64::from(outer[place]) / sum) as f32;
                    }
                }
            }
            bound.outputs[0].write_floats(0, &values);
            Ok(())
        });
        Ok(plan.with_scratch(length.min(16_384) * 4))
    }

    fn sums(&self) -> bool {
        true
    }
}
