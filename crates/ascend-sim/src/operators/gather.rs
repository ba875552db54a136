//! Gather: rows of a table by index.

use super::tensor::{Argument, Desc, Format, Type};
use super::{Operator, Plan, shape, trap};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::spec_atb_gather_param;

pub(crate) struct Gather {
    axis: usize,
    batch: usize,
}

impl Gather {
    pub(crate) fn new(param: spec_atb_gather_param) -> Outcome<Self> {
        let number = |value: i64, what: &str| {
            usize::try_from(value)
                .map_err(|_| parameter(format!("{what} of a Gather is {value}, and has to be 0 or more")))
        };
        let gather = Self { axis: number(param.axis, "axis")?, batch: number(param.batch_dims, "batch_dims")? };
        require(gather.batch <= gather.axis, || parameter("batch_dims of a Gather is more than its axis"))?;
        Ok(gather)
    }
}

impl Operator for Gather {
    fn name(&self) -> &'static str {
        "Gather"
    }

    fn arity(&self) -> (usize, usize) {
        (2, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let values = [Type::F16, Type::Bf16, Type::F32, Type::I32, Type::U32, Type::I64];
        let indices = [Type::I64, Type::I32, Type::U32];
        let plain = inputs.iter().chain(outputs).all(|desc| desc.format == Format::Nd);
        plain
            && values.contains(&inputs[0].dtype)
            && indices.contains(&inputs[1].dtype)
            && outputs[0].dtype == inputs[0].dtype
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let (x, indices) = (&inputs[0].dims, &inputs[1].dims);
        require(self.axis < x.len() && self.batch <= indices.len(), || {
            shape(format!("axis {} and batch_dims {} of shapes {x:?} and {indices:?}", self.axis, self.batch))
        })?;
        require(x[..self.batch] == indices[..self.batch], || {
            shape(format!("the first {} dimensions of {x:?} and {indices:?} differ", self.batch))
        })?;
        let dims = [&x[..self.axis], &indices[self.batch..], &x[self.axis + 1..]].concat();
        require(dims.len() <= 8, || shape(format!("a result of {} dimensions", dims.len())))?;
        Ok(vec![inputs[0].with(dims)])
    }

    fn plan(&self, inputs: &[Argument], outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let x = inputs[0].desc.dims.clone();
        let product = |dims: &[usize]| dims.iter().product::<usize>();
        let (batch, outer) = (product(&x[..self.batch]), product(&x[self.batch..self.axis]));
        let (length, inner) = (x[self.axis], product(&x[self.axis + 1..]));
        let bytes = 2 * outputs[0].desc.bytes();
        let plan = Plan::new(move |bound| {
            let indices = bound.inputs[1].integers();
            let count = indices.len() / batch;
            let mut to = 0;
            for b in 0..batch {
                for o in 0..outer {
                    for index in &indices[b * count..(b + 1) * count] {
                        let row = usize::try_from(*index).ok().filter(|row| *row < length);
                        let row = row.ok_or_else(|| trap(format!("index {index} of a table of {length}")))?;
                        let from = ((b * outer + o) * length + row) * inner;
                        bound.outputs[0].copy_from(to, &bound.inputs[0], from, inner);
                        to += inner;
                    }
                }
            }
            Ok(())
        });
        Ok(plan.with_bytes(bytes as f64))
    }
}
