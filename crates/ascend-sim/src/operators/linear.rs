//! Linear: matrix products, of halves and of int8.

use super::product::{Dot, in_parallel};
use super::tensor::{Argument, Desc, Format, Tensor, Type, halves};
use super::{Bound, Operator, Plan, is, shape};
use crate::config::Soc;
use crate::failure::{Outcome, parameter, require};
use acl_sys::{ACL_BF16, ACL_FLOAT16, SPEC_ATB_LINEAR_QUANT_PER_TOKEN, SPEC_ATB_MATMUL_PLAIN, spec_atb_linear_param};
use std::sync::Mutex;

/// What kind of product the parameters ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Halves or f32.
    Float,
    /// Added into f32.
    Accumulate,
    /// int8 with a scale for each column.
    PerChannel,
    /// int8 with a scale for each column and each row.
    PerToken,
}

pub(crate) struct Linear {
    param: spec_atb_linear_param,
    kind: Kind,
    /// Type of the result; `None` for that of the factors.
    out: Option<Type>,
}

impl Linear {
    pub(crate) fn new(param: spec_atb_linear_param, soc: Soc) -> Outcome<Self> {
        require(param.reserved == 0, || parameter("a reserved field is not 0"))?;
        require(param.matmul == SPEC_ATB_MATMUL_PLAIN, || super::attention::unsupported("EIN_SUM products"))?;
        let out = match param.out_data_type {
            -1 => None,
            code if code == ACL_FLOAT16.0 => Some(Type::F16),
            code if code == ACL_BF16.0 => Some(Type::Bf16),
            code => return Err(parameter(format!("a Linear has no result of type {code}"))),
        };
        let per_token = param.quant == SPEC_ATB_LINEAR_QUANT_PER_TOKEN;
        let kind = match (out, param.accumulate != 0) {
            (None, false) => Kind::Float,
            (None, true) => Kind::Accumulate,
            (Some(_), false) if per_token => Kind::PerToken,
            (Some(_), false) => Kind::PerChannel,
            (Some(_), true) => return Err(parameter("a quantised product cannot be added to something")),
        };
        let has_bias = param.has_bias != 0;
        require(!(kind == Kind::Accumulate && has_bias), || parameter("a product that is added has no bias"))?;
        require(!(kind == Kind::PerToken && has_bias), || parameter("a product with scales per token has no bias"))?;
        require(out.is_some() || !per_token, || parameter("scales per token need an out_data_type"))?;
        if soc.is_310p() && out.is_some() {
            let plain = param.transpose_a == 0 && param.transpose_b != 0 && has_bias && kind == Kind::PerChannel;
            require(plain && out == Some(Type::F16), || {
                parameter("int8 products of this chip are f16, per channel, with bias, and with B transposed only")
            })?;
        }
        Ok(Self { param, kind, out })
    }

    fn has_bias(&self) -> bool {
        self.param.has_bias != 0
    }

    /// Batch, rows and columns of the logical factors: x as [M, K], w as [K, N].
    fn sizes(&self, inputs: &[Desc]) -> Outcome<Sizes> {
        let (x, w) = (&inputs[0], &inputs[1]);
        require(matches!(x.dims.len(), 2 | 3), || shape(format!("x has shape {:?}, not 2 or 3 dimensions", x.dims)))?;
        let x_batch = if x.dims.len() == 3 { x.dims[0] } else { 1 };
        let x_last = &x.dims[x.dims.len() - 2..];
        let (m, k) = if self.param.transpose_a != 0 { (x_last[1], x_last[0]) } else { (x_last[0], x_last[1]) };
        let tiled = w.format == Format::Nz && w.dims.len() == 4;
        let (w_batch, w_rows, w_columns) = if tiled {
            let tile = if w.dtype == Type::I8 { 32 } else { 16 };
            require(w.dims[3] == tile && w.dims[2] % 16 == 0, || {
                shape(format!(
                    "a weight in NZ tiles has shape [b, n1, rows, {tile}] with rows % 16 == 0, not {:?}",
                    w.dims
                ))
            })?;
            (w.dims[0], w.dims[2], w.dims[1] * tile)
        } else {
            require(matches!(w.dims.len(), 2 | 3), || {
                shape(format!("the weight has shape {:?}, not 2 or 3 dimensions", w.dims))
            })?;
            let last = &w.dims[w.dims.len() - 2..];
            (if w.dims.len() == 3 { w.dims[0] } else { 1 }, last[0], last[1])
        };
        let (n, w_k) = if self.param.transpose_b != 0 { (w_rows, w_columns) } else { (w_columns, w_rows) };
        let fits = if tiled { w_k >= k } else { w_k == k };
        require(fits, || shape(format!("x of shape {:?} and a weight of shape {:?} do not multiply", x.dims, w.dims)))?;
        require(w_batch == 1 || w_batch == x_batch, || shape(format!("{x_batch} products of {w_batch} weights")))?;
        require(!(self.kind == Kind::PerToken && x.dims.len() == 3 && w.dims.len() == 2), || {
            shape("with scales per token an x of 3 dimensions needs a weight of 3")
        })?;
        Ok(Sizes { batch: x_batch, w_batch, m, n, k, w_rows, w_columns })
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    w_batch: usize,
    m: usize,
    n: usize,
    k: usize,
    w_rows: usize,
    w_columns: usize,
}

impl Operator for Linear {
    fn name(&self) -> &'static str {
        "Linear"
    }

    fn arity(&self) -> (usize, usize) {
        let more = match self.kind {
            Kind::Float => 0,
            Kind::Accumulate | Kind::PerChannel => 1,
            Kind::PerToken => 2,
        };
        (2 + usize::from(self.has_bias()) + more, 1)
    }

    fn has_kernel(&self, inputs: &[Desc], outputs: &[Desc], soc: Soc) -> bool {
        let (x, w) = (&inputs[0], &inputs[1]);
        if x.format != Format::Nd || matches!(w.format, Format::Other(_)) {
            return false;
        }
        let (nz, a2) = (w.format == Format::Nz, !soc.is_310p());
        let bias = self.has_bias().then(|| &inputs[2]);
        let last = &inputs[inputs.len() - 1];
        match self.kind {
            Kind::Float => {
                let types = x.dtype == w.dtype && is(&outputs[0], x.dtype);
                let known = x.dtype == Type::F16 || a2 && x.dtype == Type::Bf16 || a2 && x.dtype == Type::F32 && !nz;
                let bias = bias.is_none_or(|bias| is(bias, x.dtype) || a2 && !nz && is(bias, Type::F32));
                // bf16 is in the table, and 310P refuses it by a status of its own.
                types && (known || x.dtype == Type::Bf16) && bias
            }
            Kind::Accumulate => {
                a2 && x.dtype.is_half() && x.dtype == w.dtype && is(last, Type::F32) && is(&outputs[0], Type::F32)
            }
            Kind::PerChannel => {
                let scale = match self.out {
                    Some(Type::Bf16) => is(last, Type::F32),
                    _ => is(last, Type::U64) || is(last, Type::I64),
                };
                let int8 = x.dtype == Type::I8 && w.dtype == Type::I8;
                int8 && scale && bias.is_none_or(|bias| is(bias, Type::I32)) && Some(outputs[0].dtype) == self.out
            }
            Kind::PerToken => {
                let int8 = x.dtype == Type::I8 && w.dtype == Type::I8 && !nz;
                let scales = is(&inputs[2], Type::F32) && is(&inputs[3], Type::F32);
                a2 && int8 && scales && Some(outputs[0].dtype) == self.out
            }
        }
    }

    fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        let sizes = self.sizes(inputs)?;
        let dtype = match self.kind {
            Kind::Accumulate => Type::F32,
            _ => self.out.unwrap_or(inputs[0].dtype),
        };
        let mut dims = inputs[0].dims.clone();
        let rank = dims.len();
        dims[rank - 2] = sizes.m;
        dims[rank - 1] = sizes.n;
        let columns = |desc: &Desc, what: &str| {
            let fits = desc.dims.last() == Some(&sizes.n)
                && (desc.elements() == sizes.n || desc.elements() == sizes.batch * sizes.n);
            require(fits, || {
                shape(format!("the {what} has shape {:?}, and the product {} columns", desc.dims, sizes.n))
            })
        };
        let mut next = 2;
        if self.has_bias() {
            columns(&inputs[next], "bias")?;
            next += 1;
        }
        match self.kind {
            Kind::Float => {}
            Kind::Accumulate => require(inputs[next].dims == dims, || {
                shape(format!("what is added to has shape {:?}, and the product {dims:?}", inputs[next].dims))
            })?,
            Kind::PerChannel | Kind::PerToken => columns(&inputs[next], "scale")?,
        }
        if self.kind == Kind::PerToken {
            let rows = sizes.batch * sizes.m;
            require(inputs[next + 1].elements() == rows, || {
                shape(format!("scales per token have shape {:?}, for {rows} rows", inputs[next + 1].dims))
            })?;
        }
        Ok(vec![Desc::new(dtype, dims)])
    }

    fn plan(&self, inputs: &[Argument], _outputs: &[Argument], _soc: Soc) -> Outcome<Plan> {
        let descs: Vec<Desc> = inputs.iter().map(|input| input.desc.clone()).collect();
        let sizes = self.sizes(&descs)?;
        let int8 = matches!(self.kind, Kind::PerChannel | Kind::PerToken);
        let work = (sizes.batch * sizes.m) as f64 * sizes.n as f64 * sizes.k as f64 * if int8 { 0.5 } else { 1.0 };
        let (param, kind) = (self.param, self.kind);
        // What the cube unit hands to the vector unit: a tile of f32 results.
        let scratch = sizes.m.min(128) * sizes.n.min(256) * 4;
        Ok(Plan::new(move |bound| run(bound, &param, kind, sizes)).with_work(work).with_scratch(scratch))
    }

    fn sums(&self) -> bool {
        true
    }
}

/// A factor as rows of f32 along the summed axis.
struct Factor<'a> {
    tensor: &'a Tensor,
    rows: usize,
    columns: usize,
    /// Elements of a batch entry's start.
    start: usize,
    /// Whether the summed axis is the stored columns.
    along_columns: bool,
    tile: Option<usize>,
}

impl Factor<'_> {
    /// The vector of index `at` across the summed axis; `to` is as long as that axis.
    fn vector(&self, at: usize, to: &mut [f32]) {
        match (self.tile, self.along_columns) {
            (None, true) => self.tensor.read_floats(self.start + at * self.columns, to),
            _ => {
                for (along, to) in to.iter_mut().enumerate() {
                    let (row, column) = if self.along_columns { (at, along) } else { (along, at) };
                    let offset = match self.tile {
                        None => row * self.columns + column,
                        Some(tile) => (column / tile * self.rows + row) * tile + column % tile,
                    };
                    *to = self.element(self.start + offset);
                }
            }
        }
    }

    fn element(&self, at: usize) -> f32 {
        let mut value = [0.0];
        match self.tensor.desc.dtype {
            Type::F16 => halves(&self.tensor.slice::<u16>()[at..=at], &mut value, true),
            Type::Bf16 => halves(&self.tensor.slice::<u16>()[at..=at], &mut value, false),
            _ => self.tensor.read_floats(at, &mut value),
        }
        value[0]
    }
}

fn run(bound: &Bound, param: &spec_atb_linear_param, kind: Kind, sizes: Sizes) -> Outcome {
    let Sizes { batch, w_batch, m, n, k, w_rows, w_columns } = sizes;
    let (x, w, out) = (&bound.inputs[0], &bound.inputs[1], &bound.outputs[0]);
    let mut next = 2;
    let mut take = || {
        next += 1;
        &bound.inputs[next - 1]
    };
    let bias = (param.has_bias != 0).then(&mut take);
    let int8 = matches!(kind, Kind::PerChannel | Kind::PerToken);
    let scales = int8.then(|| scales(take()));
    let per_token = (kind == Kind::PerToken).then(|| take().floats());
    let accumulator = (kind == Kind::Accumulate).then(|| take().floats());
    let float_bias = bias.filter(|_| !int8).map(Tensor::floats);
    let integer_bias = bias.filter(|_| int8).map(Tensor::integers);
    let tile = (w.desc.format == Format::Nz).then_some(if w.desc.dtype == Type::I8 { 32 } else { 16 });
    let stored = if tile.is_some() && w.desc.dims.len() < 4 {
        // The logical shape is padded to whole tiles in memory, which the description does not count.
        (w_rows.next_multiple_of(16), w_columns)
    } else {
        (w_rows, w_columns)
    };
    let columns_of =
        |values: &[f32], b: usize, column: usize| values[if values.len() == n { column } else { b * n + column }];
    let dot = Dot::new();
    for b in 0..batch {
        let left = Factor {
            tensor: x,
            rows: m,
            columns: if param.transpose_a != 0 { m } else { k },
            start: b * m * k,
            along_columns: param.transpose_a == 0,
            tile: None,
        };
        let mut rows = vec![0.0; m * k];
        rows.chunks_mut(k).enumerate().for_each(|(at, row)| left.vector(at, row));
        let right = Factor {
            tensor: w,
            rows: stored.0,
            columns: stored.1,
            start: if w_batch == 1 { 0 } else { b * w_rows * w_columns },
            along_columns: param.transpose_b != 0,
            tile,
        };
        let result = Mutex::new(vec![0.0f32; m * n]);
        in_parallel(n, m * n * k, |range| {
            let mut column = vec![0.0; k];
            let mut mine = vec![0.0; m * range.len()];
            for (at, index) in range.clone().enumerate() {
                right.vector(index, &mut column);
                for (row, value) in rows.chunks(k).enumerate() {
                    let sum = if int8 { exact(value, &column) } else { f64::from(dot.of(value, &column)) };
                    let with_bias = sum
                        + integer_bias
                            .as_ref()
                            .map_or(0.0, |bias| bias[if bias.len() == n { index } else { b * n + index }] as f64);
                    let mut value = with_bias as f32;
                    if let Some(scales) = &scales {
                        value *= columns_of(scales, b, index);
                    }
                    if let Some(rows) = &per_token {
                        value *= rows[b * m + row];
                    }
                    if let Some(bias) = &float_bias {
                        value += columns_of(bias, b, index);
                    }
                    if let Some(sums) = &accumulator {
                        value += sums[(b * m + row) * n + index];
                    }
                    mine[row * range.len() + at] = value;
                }
            }
            let mut result = result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for row in 0..m {
                result[row * n + range.start..row * n + range.end]
                    .copy_from_slice(&mine[row * range.len()..(row + 1) * range.len()]);
            }
        });
        out.write_floats(b * m * n, &result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
    Ok(())
}

/// The sum of products of small integers, exactly: blocks whose sums f32 holds without rounding, summed in f64.
fn exact(a: &[f32], b: &[f32]) -> f64 {
    // 1024 products of at most 2^14 stay below 2^24.
    a.chunks(1024).zip(b.chunks(1024)).map(|(a, b)| f64::from(block(a, b))).sum()
}

fn block(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

/// Scales of columns: f32, or its bits in the low half of 64.
fn scales(tensor: &Tensor) -> Vec<f32> {
    match tensor.desc.dtype {
        Type::F32 => tensor.floats(),
        _ => tensor.integers().iter().map(|bits| f32::from_bits(*bits as u32)).collect(),
    }
}
