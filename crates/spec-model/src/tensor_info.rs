//! Lines of tensor tables, whatever the format.

use std::ops::Range;

use crate::TensorType;

/// One line of a file's tensor table, with its place in the file resolved and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Name, unique in the checkpoint.
    pub name: String,
    /// Element type.
    pub tensor_type: TensorType,
    /// Dimensions, fastest first: 1 to 4 of them, none zero.
    pub dims: Vec<usize>,
    /// The data's bytes in the file.
    pub range: Range<usize>,
}

impl TensorInfo {
    /// Elements of a row: the fastest dimension.
    pub fn cols(&self) -> usize {
        self.dims[0]
    }

    /// Rows: the product of the other dimensions.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product()
    }

    /// Dimensions slowest first, as `[rows, cols]`, for messages.
    pub fn shape(&self) -> String {
        let dims: Vec<_> = self.dims.iter().rev().collect();
        format!("{dims:?}")
    }
}
