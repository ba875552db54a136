//! Tensors as operators see them: described while planning, bound to memory while running.

use crate::failure::{Failure, Outcome};
use crate::memory::View;
use acl_sys::{
    ACL_BF16, ACL_BOOL, ACL_FLOAT, ACL_FLOAT16, ACL_FORMAT_FRACTAL_NZ, ACL_FORMAT_ND, ACL_INT8, ACL_INT32, ACL_INT64,
    ACL_UINT8, ACL_UINT32, ACL_UINT64, SPEC_ATB_MAX_DIMS, Status, aclDataType, spec_atb_dims, spec_atb_tensor,
    spec_atb_tensor_desc,
};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Element types that operators know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    F32,
    F16,
    Bf16,
    I8,
    U8,
    Bool,
    I32,
    U32,
    I64,
    U64,
    /// Something else, which no operator takes.
    Other(i32),
}

const TYPES: &[(aclDataType, Type)] = &[
    (ACL_FLOAT, Type::F32),
    (ACL_FLOAT16, Type::F16),
    (ACL_BF16, Type::Bf16),
    (ACL_INT8, Type::I8),
    (ACL_UINT8, Type::U8),
    (ACL_BOOL, Type::Bool),
    (ACL_INT32, Type::I32),
    (ACL_UINT32, Type::U32),
    (ACL_INT64, Type::I64),
    (ACL_UINT64, Type::U64),
];

impl Type {
    pub(crate) fn from_acl(code: i32) -> Self {
        TYPES.iter().find(|(acl, _)| acl.0 == code).map_or(Type::Other(code), |(_, own)| *own)
    }

    fn to_acl(self) -> i32 {
        match self {
            Type::Other(code) => code,
            own => TYPES.iter().find(|(_, other)| *other == own).map_or(-1, |(acl, _)| acl.0),
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Type::I8 | Type::U8 | Type::Bool => 1,
            Type::F16 | Type::Bf16 => 2,
            Type::F32 | Type::I32 | Type::U32 => 4,
            Type::I64 | Type::U64 => 8,
            Type::Other(_) => 0,
        }
    }

    /// f16 or bf16.
    pub(crate) fn is_half(self) -> bool {
        matches!(self, Type::F16 | Type::Bf16)
    }
}

/// Memory layouts that operators know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Nd,
    Nz,
    Other(i32),
}

/// Element type, layout and shape; no dimensions for an optional tensor that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Desc {
    pub(crate) dtype: Type,
    pub(crate) format: Format,
    pub(crate) dims: Vec<usize>,
}

/// Bytes that a tensor has at most.
const MAX_BYTES: u64 = 256 << 30;

impl Desc {
    pub(crate) fn new(dtype: Type, dims: impl Into<Vec<usize>>) -> Self {
        Self { dtype, format: Format::Nd, dims: dims.into() }
    }

    /// The same with another shape.
    pub(crate) fn with(&self, dims: impl Into<Vec<usize>>) -> Self {
        Self { dims: dims.into(), ..self.clone() }
    }

    pub(crate) fn of_type(&self, dtype: Type) -> Self {
        Self { dtype, ..self.clone() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dims.is_empty()
    }

    pub(crate) fn elements(&self) -> usize {
        if self.is_empty() { 0 } else { self.dims.iter().product() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// The last dimension, and what is before it.
    pub(crate) fn rows(&self) -> (usize, usize) {
        let width = self.dims.last().copied().unwrap_or(0);
        (self.elements().checked_div(width).unwrap_or(0), width)
    }

    /// Takes a description over; 8 and 9 for shapes that no tensor has.
    pub(crate) fn from_abi(desc: &spec_atb_tensor_desc, what: &str, optional: bool) -> Outcome<Self> {
        let dtype = Type::from_acl(desc.dtype);
        let format = match desc.format {
            format if format == ACL_FORMAT_ND.0 => Format::Nd,
            format if format == ACL_FORMAT_FRACTAL_NZ.0 => Format::Nz,
            other => Format::Other(other),
        };
        if desc.shape.dim_num == 0 && optional {
            return Ok(Self { dtype, format, dims: Vec::new() });
        }
        let fail = |status, text: String| Err(Failure::new(status, format!("{what}: {text}")));
        let count = usize::try_from(desc.shape.dim_num).unwrap_or(usize::MAX);
        if count == 0 || count > SPEC_ATB_MAX_DIMS as usize {
            return fail(Status::ATB_ERROR_INVALID_TENSOR_DIM, format!("{count} dimensions, and 1 to 8 are possible"));
        }
        let mut bytes = dtype.size().max(1) as u64;
        let mut dims = Vec::with_capacity(count);
        for dim in &desc.shape.dims[..count] {
            let Some(dim) = usize::try_from(*dim).ok().filter(|dim| *dim > 0) else {
                return fail(Status::ATB_ERROR_INVALID_TENSOR_SIZE, format!("a dimension of {dim}"));
            };
            bytes = bytes.saturating_mul(dim as u64);
            dims.push(dim);
        }
        if bytes > MAX_BYTES {
            return fail(Status::ATB_ERROR_INVALID_TENSOR_SIZE, format!("{bytes} bytes are more than 256 GiB"));
        }
        Ok(Self { dtype, format, dims })
    }

    pub(crate) fn to_abi(&self) -> spec_atb_tensor_desc {
        let format = match self.format {
            Format::Nd => ACL_FORMAT_ND.0,
            Format::Nz => ACL_FORMAT_FRACTAL_NZ.0,
            Format::Other(code) => code,
        };
        spec_atb_tensor_desc { dtype: self.dtype.to_acl(), format, shape: dims_to_abi(&self.dims) }
    }
}

pub(crate) fn dims_to_abi(dims: &[usize]) -> spec_atb_dims {
    let mut shape = spec_atb_dims { dims: [0; 8], dim_num: dims.len() as u64 };
    for (to, from) in shape.dims.iter_mut().zip(dims) {
        *to = i64::try_from(*from).unwrap_or(i64::MAX);
    }
    shape
}

/// A tensor of a call: described, with addresses.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) desc: Desc,
    pub(crate) device: usize,
    pub(crate) host: usize,
    pub(crate) size: u64,
}

impl Argument {
    pub(crate) fn from_abi(tensor: &spec_atb_tensor, what: &str, optional: bool) -> Outcome<Self> {
        let desc = Desc::from_abi(&tensor.desc, what, optional)?;
        let (device, host) = (tensor.device_data as usize, tensor.host_data as usize);
        Ok(Self { desc, device, host, size: tensor.data_size })
    }

    /// A tensor inside a graph, whose memory comes later.
    pub(crate) fn internal(desc: Desc, device: usize) -> Self {
        let size = desc.bytes() as u64;
        Self { desc, device, host: 0, size }
    }

    pub(crate) fn to_abi(&self) -> spec_atb_tensor {
        spec_atb_tensor {
            desc: self.desc.to_abi(),
            device_data: self.device as *mut _,
            host_data: self.host as *mut _,
            data_size: self.size,
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.device != 0 || self.host != 0
    }

    /// The host's copy of 32-bit lengths; `None` where the caller gave none.
    pub(crate) fn host_lengths(&self) -> Option<Vec<i64>> {
        if self.host == 0 || self.desc.dtype.size() != 4 {
            return None;
        }
        let start = self.host as *const i32;
        // SAFETY: host data that is not null has as many elements as the description says, by the caller's contract.
        let values = (0..self.desc.elements()).map(|at| i64::from(unsafe { start.add(at).read_unaligned() }));
        Some(values.collect())
    }
}

/// A tensor with its bytes.
pub(crate) struct Tensor {
    pub(crate) desc: Desc,
    pub(crate) view: Option<View>,
}

/// Types whose values may be any bits.
pub(crate) trait Plain: Copy {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for i64 {}
impl Plain for u64 {}
impl Plain for f32 {}

impl Tensor {
    /// The elements, as a type of their size.
    pub(crate) fn slice<T: Plain>(&self) -> &[T] {
        let Some(view) = &self.view else { return &[] };
        debug_assert_eq!(size_of::<T>(), self.desc.dtype.size(), "the type's size is the element's");
        let start = view.pointer().cast_const().cast::<T>();
        assert!(start.is_aligned(), "a tensor whose address is not a multiple of its element's size");
        // SAFETY: in bounds and kept alive by the view, aligned as just checked, and any bits are a value. A program that
        // lets other streams write meanwhile races, on a device as here, and strict mode says so.
        unsafe { std::slice::from_raw_parts(start, view.len / size_of::<T>()) }
    }

    fn write<T: Plain>(&self, offset: usize, values: &[T]) {
        let Some(view) = &self.view else { return };
        let bytes = size_of_val(values);
        assert!(offset * size_of::<T>() + bytes <= view.len, "an operator writes within its tensors");
        // SAFETY: in bounds as just checked, and kept alive by the view; the source is another allocation.
        unsafe {
            let target = view.pointer().add(offset * size_of::<T>());
            std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), target, bytes);
        }
    }

    /// `to.len()` elements from `offset` on, widened.
    pub(crate) fn read_floats(&self, offset: usize, to: &mut [f32]) {
        let end = offset + to.len();
        match self.desc.dtype {
            Type::F32 => to.copy_from_slice(&self.slice::<f32>()[offset..end]),
            Type::F16 => halves(&self.slice::<u16>()[offset..end], to, true),
            Type::Bf16 => halves(&self.slice::<u16>()[offset..end], to, false),
            Type::I8 => {
                for (to, from) in to.iter_mut().zip(&self.slice::<i8>()[offset..end]) {
                    *to = f32::from(*from);
                }
            }
            _ => {
                let all = self.integers();
                for (to, from) in to.iter_mut().zip(&all[offset..end]) {
                    *to = *from as f32;
                }
            }
        }
    }

    /// All elements, widened.
    pub(crate) fn floats(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.desc.elements()];
        self.read_floats(0, &mut values);
        values
    }

    /// Writes from `offset` on, rounded to the nearest, ties to even.
    pub(crate) fn write_floats(&self, offset: usize, values: &[f32]) {
        match self.desc.dtype {
            Type::F32 => self.write(offset, values),
            Type::F16 => {
                let mut bits = vec![f16::ZERO; values.len()];
                bits.convert_from_f32_slice(values);
                self.write(offset, &bits.iter().map(|value| value.to_bits()).collect::<Vec<u16>>());
            }
            Type::Bf16 => {
                let bits: Vec<u16> = values.iter().map(|value| bf16::from_f32(*value).to_bits()).collect();
                self.write(offset, &bits);
            }
            _ => {
                let integers: Vec<i64> = values.iter().map(|value| *value as i64).collect();
                self.write_integers(offset, &integers);
            }
        }
    }

    /// All elements of an integer type.
    pub(crate) fn integers(&self) -> Vec<i64> {
        match self.desc.dtype {
            Type::I8 => self.slice::<i8>().iter().map(|value| i64::from(*value)).collect(),
            Type::U8 | Type::Bool => self.slice::<u8>().iter().map(|value| i64::from(*value)).collect(),
            Type::I32 => self.slice::<i32>().iter().map(|value| i64::from(*value)).collect(),
            Type::U32 => self.slice::<u32>().iter().map(|value| i64::from(*value)).collect(),
            Type::I64 => self.slice::<i64>().to_vec(),
            Type::U64 => self.slice::<u64>().iter().map(|value| *value as i64).collect(),
            _ => self.floats().iter().map(|value| *value as i64).collect(),
        }
    }

    /// Writes integers from `offset` on; what does not fit is cut to the type's bits.
    pub(crate) fn write_integers(&self, offset: usize, values: &[i64]) {
        match self.desc.dtype {
            Type::I8 | Type::U8 | Type::Bool => {
                self.write(offset, &values.iter().map(|value| *value as u8).collect::<Vec<_>>());
            }
            Type::I32 | Type::U32 => self.write(offset, &values.iter().map(|value| *value as i32).collect::<Vec<_>>()),
            Type::I64 | Type::U64 => self.write(offset, values),
            _ => self.write_floats(offset, &values.iter().map(|value| *value as f32).collect::<Vec<_>>()),
        }
    }

    /// Copies elements from another tensor of the same type.
    pub(crate) fn copy_from(&self, offset: usize, from: &Tensor, from_offset: usize, count: usize) {
        let size = self.desc.dtype.size();
        let (Some(to), Some(from)) = (&self.view, &from.view) else { return };
        assert!((offset + count) * size <= to.len && (from_offset + count) * size <= from.len, "copies stay in bounds");
        // SAFETY: both sides are in bounds as just checked, and kept alive by their views; they may be the same memory.
        unsafe {
            std::ptr::copy(from.pointer().add(from_offset * size), to.pointer().add(offset * size), count * size);
        }
    }

    /// Moves elements by a unit in the last place, as another order of a kernel's sums would: which ones depends on the
    /// kernel and on how many rows it was given.
    pub(crate) fn perturb(&self, kernel: &str, rows: usize) {
        if !self.desc.dtype.is_half() {
            return;
        }
        let infinity = if self.desc.dtype == Type::F16 { 0x7C00 } else { 0x7F80 };
        let seed = kernel
            .bytes()
            .fold(rows as u64 ^ 0xA5CE_0000, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
        let mut random = crate::stream::Random::new(seed);
        let moved: Vec<u16> = self
            .slice::<u16>()
            .iter()
            .map(|bits| {
                let magnitude = bits & 0x7FFF;
                match random.next() % 4 {
                    0 if magnitude > 0 && magnitude < infinity - 1 => bits + 1,
                    1 if magnitude > 1 && magnitude < infinity => bits - 1,
                    _ => *bits,
                }
            })
            .collect();
        self.write(0, &moved);
    }
}

/// Widens halves: f16, or bf16.
pub(crate) fn halves(from: &[u16], to: &mut [f32], is_f16: bool) {
    if is_f16 {
        // SAFETY: `f16` is a transparent wrapper of `u16`, and any bits are a value.
        let from = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<f16>(), from.len()) };
        from.convert_to_f32_slice(to);
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = f32::from_bits(u32::from(*from) << 16);
        }
    }
}
