//! Split: a tensor in two or three along an axis.

use super::tensor::{Argument, Desc, Type};
use super::{Operator, Plan, all_of, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::spec_atb_split_param;

pub(crate) struct Split {
    dim: i32,
    count: usize,
    /// None for equal pieces.
    sizes: Option<Vec<usize>>,
}

impl Split {
    pub(crate) fn new(param: spec_atb_split_param) -> Outcome<Self> {
        require(matches!(param.count, 2 | 3), || {
            parameter(format!("a Split in {}, and 2 or 3 are possible", param.count))
        })?;
        let count = param.count as usize;
        let sizes: Vec<usize> = param.sizes[..count].iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
        let (given, equal) = (sizes.iter().all(|size| *size > 0), param.sizes.iter().all(|size| *size == 0));
        require(equal || given && param.sizes[count..].iter().all(|size| *size == 0), || {
            parameter(format!("sizes {:?} of a Split in {count}", param.sizes))
        })?;
        Ok(Self { dim: param.dim, count, sizes: given.then_some(sizes) })
    }

    fn axis(&self, rank: usize) -> Outcome<usize> {
        let axis = if self.dim < 0 { i64::from(self.dim) + rank as i64 } else { i64::from(self.dim) };
        usize::try_from(axis)
            .ok()
            .filter(|axis| *axis < rank)
            .ok_or_else(|| shape(format!("axis {} of {rank}", self.dim)))
    }
}

impl Operator for Split {
    fn name(&self) -> &'static str {
        "Split"
    }

    fn arity(&self) -> (usize, usize) {
        (1, self.count)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let types: &[Type] =
            if self.count == 2 { &[Type::F16, Type::Bf16, Type::I64] } else { &[Type::F16, Type::Bf16] };
        all_of(inputs.iter().chain(outputs), types)
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let dims = &inputs[0].dims;
        let axis = self.axis(dims.len())?;
        let sizes = match &self.sizes {
            Some(sizes) => sizes.clone(),
            None => vec![dims[axis] / self.count; self.count],
        };
        require(sizes.iter().sum::<usize>() == dims[axis], || {
            shape(format!("pieces of {sizes:?} of a dimension of {}", dims[axis]))
        })?;
        let piece = |size: &usize| {
            let mut dims = dims.clone();
            dims[axis] = *size;
            inputs[0].with(dims)
        };
        Ok(sizes.iter().map(piece).collect())
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let dims = inputs[0].desc.dims.clone();
        let axis = self.axis(dims.len())?;
        let outer: usize = dims[..axis].iter().product();
        let inner: usize = dims[axis + 1..].iter().product();
        Ok(Plan::new(move |bound| {
            let mut before = 0;
            for output in &bound.outputs {
                let piece = output.desc.dims[axis] * inner;
                for at in 0..outer {
                    output.copy_from(at * piece, &bound.inputs[0], at * dims[axis] * inner + before, piece);
                }
                before += piece;
            }
            Ok(())
        }))
    }
}
