//! Sort: the largest elements of each row, and where they were.

use super::tensor::{Argument, Desc, Type};
use super::{Operator, Plan, all_of, is, shape};
use crate::config::{Soc, Ties};
use crate::failure::{Outcome, parameter, require};
use crate::world::world;
use acl_sys::spec_atb_sort_param;

pub(crate) struct Sort {
    count: usize,
}

impl Sort {
    pub(crate) fn new(param: spec_atb_sort_param) -> Outcome<Self> {
        require(param.reserved == 0, || parameter("a reserved field is not 0"))?;
        let count = usize::try_from(param.count).ok().filter(|count| *count > 0);
        Ok(Self { count: count.ok_or_else(|| parameter(format!("num of a Sort is {}", param.count)))? })
    }
}

/// Indices of a row, largest value first; the first of equals, and numbers before what is none.
pub(crate) fn descending(row: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| compare(row, *a, *b, Ties::Lowest));
    order
}

fn compare(row: &[f32], a: usize, b: usize, ties: Ties) -> std::cmp::Ordering {
    let key = |at: usize| if row[at].is_nan() { f32::NEG_INFINITY } else { row[at] };
    let places = match ties {
        Ties::Lowest => a.cmp(&b),
        Ties::Highest => b.cmp(&a),
    };
    key(b).total_cmp(&key(a)).then(row[a].is_nan().cmp(&row[b].is_nan())).then(places)
}

/// The `count` largest, largest first.
fn largest(row: &[f32], count: usize, ties: Ties) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    if count < row.len() {
        order.select_nth_unstable_by(count, |a, b| compare(row, *a, *b, ties));
        order.truncate(count);
    }
    order.sort_by(|a, b| compare(row, *a, *b, ties));
    order
}

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "Sort"
    }

    fn arity(&self) -> (usize, usize) {
        (1, 2)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let types: &[Type] = if soc.is_310p() { &[Type::F16, Type::Bf16] } else { &[Type::F16, Type::Bf16, Type::F32] };
        all_of([&inputs[0], &outputs[0]], types) && is(&outputs[1], Type::I32)
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let (_, width) = inputs[0].rows();
        require(self.count <= width, || shape(format!("the {} largest of {width}", self.count)))?;
        let mut dims = inputs[0].dims.clone();
        let last = dims.len() - 1;
        dims[last] = self.count;
        Ok(vec![inputs[0].with(dims.clone()), Desc::new(Type::I32, dims)])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let (rows, width) = inputs[0].desc.rows();
        let (count, ties) = (self.count, world().config().sort_ties);
        let plan = Plan::new(move |bound| {
            let x = bound.inputs[0].floats();
            let (mut values, mut indices) = (Vec::with_capacity(rows * count), Vec::with_capacity(rows * count));
            for row in x.chunks(width) {
                for at in largest(row, count, ties) {
                    values.push(row[at]);
                    indices.push(at as i64);
                }
            }
            bound.outputs[0].write_floats(0, &values);
            bound.outputs[1].write_integers(0, &indices);
            Ok(())
        });
        Ok(plan.with_scratch(rows * width * 8))
    }
}
