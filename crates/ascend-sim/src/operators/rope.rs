//! Rope: rotary position embedding of queries and keys.

use super::tensor::{Argument, Desc, Tensor, Type};
use super::{Bound, Operator, Plan, all_of, is, shape, trap};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::spec_atb_rope_param;

#[derive(Clone, Copy)]
pub(crate) struct Rope {
    coefficient: usize,
    by_position: bool,
}

impl Rope {
    pub(crate) fn new(param: spec_atb_rope_param) -> Outcome<Self> {
        let coefficient = usize::try_from(param.rotary_coeff).ok().filter(|coefficient| *coefficient >= 2);
        let coefficient = coefficient.ok_or_else(|| parameter(format!("rotary_coeff is {}", param.rotary_coeff)))?;
        require(matches!(param.cos_format, 0 | 1), || parameter(format!("cos_format is {}", param.cos_format)))?;
        Ok(Self { coefficient, by_position: param.cos_format == 1 })
    }
}

impl Operator for Rope {
    fn name(&self) -> &'static str {
        "Rope"
    }

    fn arity(&self) -> (usize, usize) {
        (5, 2)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], _soc: Soc) -> bool {
        let halves = [Type::F16, Type::Bf16];
        let queries = all_of([&inputs[0], &inputs[1], &outputs[0], &outputs[1]], &halves);
        let same = all_of([&inputs[0], &inputs[2], &inputs[3]], &halves);
        let wide = inputs[0].dtype == Type::F16 && is(&inputs[2], Type::F32) && is(&inputs[3], Type::F32);
        queries && (same || wide) && (is(&inputs[4], Type::I32) || is(&inputs[4], Type::U32))
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let (q, k, cos, sin) = (&inputs[0], &inputs[1], &inputs[2], &inputs[3]);
        require(cos.dims.len() == 2 && cos.dims == sin.dims, || {
            shape(format!("cos and sin have shapes {:?} and {:?}, not one of 2 dimensions", cos.dims, sin.dims))
        })?;
        require(matches!(q.dims.len(), 2 | 4) && q.dims.len() == k.dims.len(), || {
            shape(format!("query and key have shapes {:?} and {:?}, not 2 or 4 dimensions", q.dims, k.dims))
        })?;
        let tokens = |desc: &Desc| if desc.dims.len() == 2 { desc.dims[0] } else { desc.dims[0] * desc.dims[1] };
        let hidden = |desc: &Desc| desc.elements() / tokens(desc);
        let (q_hidden, k_hidden, size) = (hidden(q), hidden(k), cos.dims[1]);
        require(
            (16..=4096).contains(&size) && q_hidden % 16 == 0 && k_hidden % size == 0 && q_hidden % k_hidden == 0,
            || shape(format!("heads of {size} in a query of {q_hidden} and a key of {k_hidden}")),
        )?;
        require(tokens(q) == tokens(k) && (self.by_position || tokens(q) == cos.dims[0]), || {
            shape(format!("{} and {} tokens, and {} rows of cos", tokens(q), tokens(k), cos.dims[0]))
        })?;
        let known = matches!(self.coefficient, 2 | 4) || self.coefficient == size;
        require(known, || parameter(format!("rotary_coeff is {}, not 2, 4 or the head size", self.coefficient)))?;
        require(inputs[4].dims.len() == 1, || shape(format!("lengths have shape {:?}", inputs[4].dims)))?;
        Ok(vec![q.clone(), k.clone()])
    }

    fn plan(&self, _inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let rope = *self;
        Ok(Plan::new(move |bound| rope.run(bound)))
    }
}

impl Rope {
    fn run(&self, bound: &Bound) -> Outcome {
        let (cos, sin) = (&bound.inputs[2], &bound.inputs[3]);
        let (table, size) = cos.desc.rows();
        let (cos, sin) = (cos.floats(), sin.floats());
        let tokens = match &bound.inputs[0].desc.dims[..] {
            [tokens, _] => *tokens,
            [batch, length, ..] => batch * length,
            _ => 0,
        };
        let rows: Vec<usize> = if self.by_position {
            let lengths = bound.inputs[4].integers();
            let rows: Vec<usize> = lengths.iter().flat_map(|length| 0..usize::try_from(*length).unwrap_or(0)).collect();
            require(rows.len() == tokens && rows.iter().all(|row| *row < table), || {
                trap(format!("lengths {lengths:?} for {tokens} tokens and a table of {table} positions"))
            })?;
            rows
        } else {
            (0..tokens).collect()
        };
        for (input, output) in bound.inputs[..2].iter().zip(&bound.outputs) {
            self.rotate(input, output, &rows, (&cos, &sin), size);
        }
        Ok(())
    }

    fn rotate(&self, input: &Tensor, output: &Tensor, rows: &[usize], (cos, sin): (&[f32], &[f32]), size: usize) {
        let mut values = input.floats();
        let hidden = values.len() / rows.len().max(1);
        let mut before = vec![0.0; size];
        for (token, row) in values.chunks_mut(hidden).zip(rows) {
            let (cos, sin) = (&cos[row * size..(row + 1) * size], &sin[row * size..(row + 1) * size]);
            for head in token.chunks_mut(size) {
                before.copy_from_slice(head);
                for (at, value) in head.iter_mut().enumerate() {
                    let (partner, sign) = self.partner(at, size);
                    *value = before[at] * cos[at] + sign * before[partner] * sin[at];
                }
            }
        }
        output.write_floats(0, &values);
    }

    /// The element that one is rotated with, and the sign of it.
    fn partner(&self, at: usize, size: usize) -> (usize, f32) {
        // Blocks that are rotated alone: the whole head, its halves, or its pairs.
        let block = match self.coefficient {
            2 => size,
            4 => size / 2,
            _ => 2,
        };
        let (start, half) = (at - at % block, block / 2);
        if at % block < half { (at + half, -1.0) } else { (start + at % block - half, 1.0) }
    }
}
