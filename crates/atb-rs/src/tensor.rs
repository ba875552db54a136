//! Tensors: descriptions, memory, and what ATB needs to be told beside them.

use crate::call::lock;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{DeviceBuffer, HostBuffer};
use crate::stream::Stream;
use acl_sys::{
    ACL_FORMAT_FRACTAL_NZ, ACL_FORMAT_ND, SPEC_ATB_MAX_DIMS, spec_atb_dims, spec_atb_tensor, spec_atb_tensor_desc,
};
use std::fmt;
use std::sync::{Arc, Mutex};

const MAX_DIMS: usize = SPEC_ATB_MAX_DIMS as usize;

macro_rules! data_types {
    ($($(#[$doc:meta])* $name:ident $value:literal $size:literal $text:literal;)*) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DataType { $($(#[$doc])* $name,)* }

        impl DataType {
            /// Bytes of an element.
            pub const fn size(self) -> usize {
                match self { $(Self::$name => $size,)* }
            }

            /// The value of `aclDataType`.
            pub(crate) const fn raw(self) -> i32 {
                match self { $(Self::$name => $value,)* }
            }

            pub(crate) const fn from_raw(raw: i32) -> Option<Self> {
                match raw { $($value => Some(Self::$name),)* _ => None }
            }
        }

        impl fmt::Display for DataType {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

data_types! {
    /// IEEE single.
    F32 0 4 "f32";
    /// IEEE half.
    F16 1 2 "f16";
    /// Signed, 8 bits.
    I8 2 1 "i8";
    /// Signed, 32 bits.
    I32 3 4 "i32";
    /// Unsigned, 8 bits.
    U8 4 1 "u8";
    /// Unsigned, 32 bits.
    U32 8 4 "u32";
    /// Signed, 64 bits.
    I64 9 8 "i64";
    /// Unsigned, 64 bits.
    U64 10 8 "u64";
    /// A byte that is 0 or 1.
    Bool 12 1 "bool";
    /// The upper half of an IEEE single.
    Bf16 27 2 "bf16";
}

/// How a tensor's elements lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// In the order of the shape, the last axis closest together.
    Nd,
    /// In tiles of 16 rows of 32 bytes (`FRACTAL_NZ`).
    Nz,
}

/// Element type, format and shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    dtype: DataType,
    format: Format,
    dims: [usize; MAX_DIMS],
    rank: usize,
}

impl TensorDesc {
    /// A tensor in ND format, of 1 to 8 axes.
    pub fn new<const RANK: usize>(dtype: DataType, shape: [usize; RANK]) -> Self {
        const { assert!(RANK >= 1 && RANK <= MAX_DIMS, "a tensor has 1 to 8 axes") };
        let mut dims = [0; MAX_DIMS];
        dims[..RANK].copy_from_slice(&shape);
        Self { dtype, format: Format::Nd, dims, rank: RANK }
    }

    /// The same in NZ format.
    #[must_use]
    pub fn nz(mut self) -> Self {
        self.format = Format::Nz;
        self
    }

    /// Its element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.shape().iter().fold(1, |product, &length| product.saturating_mul(length))
    }

    /// Whether an axis is 0 long.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype.size())
    }

    /// The last axis.
    pub(crate) fn last(&self) -> usize {
        self.dims[self.rank - 1]
    }

    pub(crate) fn with_shape(&self, shape: &[usize]) -> Option<Self> {
        let mut dims = [0; MAX_DIMS];
        dims.get_mut(..shape.len())?.copy_from_slice(shape);
        (!shape.is_empty()).then_some(Self { dims, rank: shape.len(), ..*self })
    }

    pub(crate) fn raw(desc: Option<&Self>) -> spec_atb_tensor_desc {
        let Some(desc) = desc else {
            return spec_atb_tensor_desc {
                dtype: 0,
                format: 0,
                shape: spec_atb_dims { dims: [0; MAX_DIMS], dim_num: 0 },
            };
        };
        let format = match desc.format {
            Format::Nd => ACL_FORMAT_ND,
            Format::Nz => ACL_FORMAT_FRACTAL_NZ,
        };
        let dims = desc.dims.map(|length| i64::try_from(length).unwrap_or(i64::MAX));
        spec_atb_tensor_desc {
            dtype: desc.dtype.raw(),
            format: format.0,
            shape: spec_atb_dims { dims, dim_num: desc.rank as u64 },
        }
    }

    pub(crate) fn from_raw(raw: &spec_atb_tensor_desc) -> Option<Self> {
        let rank = usize::try_from(raw.shape.dim_num).ok().filter(|rank| (1..=MAX_DIMS).contains(rank))?;
        let mut dims = [0; MAX_DIMS];
        for (to, &from) in dims[..rank].iter_mut().zip(&raw.shape.dims) {
            *to = usize::try_from(from).ok()?;
        }
        let format = match raw.format {
            format if format == ACL_FORMAT_ND.0 => Format::Nd,
            format if format == ACL_FORMAT_FRACTAL_NZ.0 => Format::Nz,
            _ => return None,
        };
        Some(Self { dtype: DataType::from_raw(raw.dtype)?, format, dims, rank })
    }
}

impl fmt::Debug for TensorDesc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self.format {
            Format::Nd => "",
            Format::Nz => " in NZ",
        };
        write!(formatter, "{} {:?}{format}", self.dtype, self.shape())
    }
}

/// What the elements of an attention mask mean. Kernels differ, and none of them checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MaskValues {
    /// Added to scores: 0 keeps, -10000 or minus infinity drops.
    Additive,
    /// Multiplied by a large negative number, then added: 0 keeps, 1 drops.
    Indicator,
}

impl fmt::Display for MaskValues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            MaskValues::Additive => "additive values (0 and -10000)",
            MaskValues::Indicator => "indicators (0 and 1)",
        })
    }
}

/// Lengths of sequences: i32, one for each sequence, on the device and on the host.
///
/// Kernels read the device's copy. Setup reads the host's, to plan by: without it ATB refuses, and with an old one it
/// plans wrongly. This type keeps both the same, and [`Plan`](crate::Plan) notices when they change after setup.
#[derive(Clone, Debug)]
pub struct Lengths(Arc<LengthsInner>);

#[derive(Debug)]
struct LengthsInner {
    device: DeviceBuffer,
    host: Mutex<Arc<[i32]>>,
    staging: Mutex<Vec<HostBuffer>>,
}

impl Lengths {
    /// Room for the lengths of `count` sequences, which are all 0 until they are set.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::from_slice`].
    pub fn new(context: &Context, count: usize) -> Result<Self> {
        let zeros = vec![0; count];
        let device = DeviceBuffer::from_slice(context, &zeros)?;
        Ok(Self(Arc::new(LengthsInner { device, host: Mutex::new(zeros.into()), staging: Mutex::default() })))
    }

    /// Changes all lengths: on the host now, on the device by a copy on the stream. Every operation that takes them
    /// has to be set up again.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for another number of lengths; those of [`Stream::upload`].
    pub fn set(&self, stream: &Stream, lengths: &[i32]) -> Result<()> {
        let count = self.0.device.len() / size_of::<i32>();
        if lengths.len() != count {
            return Err(Error::OutOfRange {
                attempt: "setting lengths of sequences".to_owned(),
                what: format!("lengths for {count} sequences"),
                start: 0,
                end: lengths.len(),
                length: count,
            });
        }
        let mut staging = lock(&self.0.staging);
        // Copies that are still under way keep their pinned memory; a few steps ahead are a few buffers.
        let at = match staging.iter().position(HostBuffer::is_idle) {
            Some(at) => at,
            None => {
                staging.push(HostBuffer::new(self.0.device.context(), self.0.device.len())?);
                staging.len() - 1
            }
        };
        staging[at].write()?.copy_from_slice(lengths);
        stream.upload(&staging[at], &self.0.device)?;
        *lock(&self.0.host) = lengths.into();
        Ok(())
    }

    /// The lengths as they are now.
    pub fn get(&self) -> Arc<[i32]> {
        Arc::clone(&lock(&self.0.host))
    }
}

/// A tensor: a description, the device memory that holds it, and what else ATB has to be told. Clones share the memory.
#[doc(alias = "CreateTensor")]
#[derive(Clone, Debug)]
pub struct Tensor {
    desc: Option<TensorDesc>,
    memory: Option<(DeviceBuffer, usize)>,
    lengths: Option<Lengths>,
    mask: Option<MaskValues>,
}

impl Tensor {
    /// A tensor at the start of a buffer.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the buffer is too short.
    pub fn new(desc: TensorDesc, buffer: &DeviceBuffer) -> Result<Self> {
        Self::at(desc, buffer, 0)
    }

    /// A tensor from byte `offset` of a buffer on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the buffer is too short.
    pub fn at(desc: TensorDesc, buffer: &DeviceBuffer, offset: usize) -> Result<Self> {
        let end = offset.saturating_add(desc.bytes());
        if end > buffer.len() {
            return Err(Error::OutOfRange {
                attempt: format!("placing a tensor of {desc}"),
                what: buffer.memory().to_string(),
                start: offset,
                end,
                length: buffer.len(),
            });
        }
        Ok(Self { desc: Some(desc), memory: Some((buffer.clone(), offset)), lengths: None, mask: None })
    }

    /// A tensor in memory of its own.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::new`].
    pub fn allocate(context: &Context, desc: TensorDesc) -> Result<Self> {
        Self::new(desc, &DeviceBuffer::new(context, desc.bytes())?)
    }

    /// An optional tensor that is left out.
    pub fn absent() -> Self {
        Self { desc: None, memory: None, lengths: None, mask: None }
    }

    /// Lengths of sequences, with their copy on the host.
    pub fn lengths(lengths: &Lengths) -> Self {
        let device = &lengths.0.device;
        let desc = TensorDesc::new(DataType::I32, [device.len() / size_of::<i32>()]);
        Self { desc: Some(desc), memory: Some((device.clone(), 0)), lengths: Some(lengths.clone()), mask: None }
    }

    /// The same tensor as a mask, with what its elements mean. Attention takes no other.
    #[must_use]
    pub fn with_mask_values(mut self, values: MaskValues) -> Self {
        self.mask = Some(values);
        self
    }

    /// Its description; `None` when it is left out.
    pub fn desc(&self) -> Option<&TensorDesc> {
        self.desc.as_ref()
    }

    /// Its memory; `None` when it is left out.
    pub fn buffer(&self) -> Option<&DeviceBuffer> {
        self.memory.as_ref().map(|(buffer, _)| buffer)
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            desc: self.desc,
            lengths: self.lengths.as_ref().map(Lengths::get),
            mask: self.mask,
            address: self.memory.as_ref().map(|(buffer, offset)| (buffer.memory().pointer() as usize) + offset),
        }
    }

    /// The tensor as the shim takes it. `host` has to live as long as the result is used.
    pub(crate) fn raw(&self, host: Option<&Arc<[i32]>>) -> spec_atb_tensor {
        let device_data = self
            .memory
            .as_ref()
            .map_or(std::ptr::null_mut(), |(buffer, offset)| buffer.memory().pointer().wrapping_byte_add(*offset));
        spec_atb_tensor {
            desc: TensorDesc::raw(self.desc.as_ref()),
            device_data,
            host_data: host.map_or(std::ptr::null_mut(), |host| host.as_ptr().cast_mut().cast()),
            data_size: self.desc.map_or(0, |desc| desc.bytes() as u64),
        }
    }
}

/// What checks of an operation's limits look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) desc: Option<TensorDesc>,
    pub(crate) lengths: Option<Arc<[i32]>>,
    pub(crate) mask: Option<MaskValues>,
    /// On the device; `None` inside a graph.
    pub(crate) address: Option<usize>,
}
