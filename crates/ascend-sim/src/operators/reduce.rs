//! Reduce: largest, smallest, sum over axes.

use super::tensor::{Argument, Desc, Type};
use super::{Operator, Plan, all_of, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{
    SPEC_ATB_REDUCE_MAX, SPEC_ATB_REDUCE_MIN, SPEC_ATB_REDUCE_SUM, spec_atb_reduce_param, spec_atb_reduce_type,
};

pub(crate) struct Reduce {
    kind: spec_atb_reduce_type,
    axes: Vec<usize>,
}

impl Reduce {
    pub(crate) fn new(param: spec_atb_reduce_param) -> Outcome<Self> {
        require(param.reserved == 0, || parameter("a reserved field is not 0"))?;
        let known = [SPEC_ATB_REDUCE_MAX, SPEC_ATB_REDUCE_MIN, SPEC_ATB_REDUCE_SUM];
        require(known.contains(&param.type_), || parameter(format!("reduce type {}", param.type_.0)))?;
        let count = usize::try_from(param.axis_count).ok().filter(|count| (1..=8).contains(count));
        let count = count.ok_or_else(|| parameter(format!("{} axes of a Reduce", param.axis_count)))?;
        let axes = param.axes[..count].iter().map(|axis| usize::try_from(*axis));
        let axes: Vec<usize> = axes.collect::<Result<_, _>>().map_err(|_| parameter("an axis is negative"))?;
        let distinct = axes.iter().enumerate().all(|(at, axis)| !axes[..at].contains(axis));
        require(distinct, || parameter(format!("axes {axes:?} repeat")))?;
        Ok(Self { kind: param.type_, axes })
    }
}

impl Operator for Reduce {
    fn name(&self) -> &'static str {
        "Reduce"
    }

    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let types: &[Type] =
            if self.kind == SPEC_ATB_REDUCE_SUM { &[Type::F16, Type::Bf16] } else { &[Type::I32, Type::Bf16] };
        all_of(inputs.iter().chain(outputs), types)
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let dims = &inputs[0].dims;
        require(self.axes.iter().all(|axis| *axis < dims.len()), || {
            shape(format!("axes {:?} of {dims:?}", self.axes))
        })?;
        let kept = dims.iter().enumerate().filter(|(axis, _)| !self.axes.contains(axis)).map(|(_, length)| *length);
        let kept: Vec<usize> = kept.collect();
        Ok(vec![inputs[0].with(if kept.is_empty() { vec![1] } else { kept })])
    }

    fn plan(&self, inputs: &[Argument], outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let dims = inputs[0].desc.dims.clone();
        let (kind, axes, count) = (self.kind, self.axes.clone(), outputs[0].desc.elements());
        let plan = Plan::new(move |bound| {
            let mut groups: Vec<Vec<usize>> = vec![Vec::new(); count];
            for at in 0..dims.iter().product() {
                let (mut rest, mut place, mut step) = (at, 0, 1);
                for (axis, length) in dims.iter().enumerate().rev() {
                    if !axes.contains(&axis) {
                        place += rest % length * step;
                        step *= length;
                    }
                    rest /= length;
                }
                groups[place].push(at);
            }
            if bound.inputs[0].desc.dtype == Type::I32 {
                let x = bound.inputs[0].integers();
                let best = |group: &Vec<usize>| {
                    let values = group.iter().map(|at| x[*at]);
                    if kind == SPEC_ATB_REDUCE_MAX { values.max() } else { values.min() }.unwrap_or_default()
                };
                bound.outputs[0].write_integers(0, &groups.iter().map(best).collect::<Vec<_>>());
            } else {
                let x = bound.inputs[0].floats();
                let reduce = |group: &Vec<usize>| {
                    let values = group.iter().map(|at| x[*at]);
                    match kind {
                        SPEC_ATB_REDUCE_MAX => values.fold(f32::NEG_INFINITY, f32::max),
                        SPEC_ATB_REDUCE_MIN => values.fold(f32::INFINITY, f32::min),
                        _ => values.map(f64::from).sum::<f64>() as f32,
                    }
                };
                bound.outputs[0].write_floats(0, &groups.iter().map(reduce).collect::<Vec<_>>());
            }
            Ok(())
        });
        Ok(plan.with_scratch(count * 4))
    }

    fn sums(&self) -> bool {
        self.kind == SPEC_ATB_REDUCE_SUM
    }
}
