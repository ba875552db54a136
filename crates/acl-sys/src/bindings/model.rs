//! Made from `headers/acl/model.h`.
// Names are those of C, and stand for themselves where the header has no comment.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use super::base::*;
use crate::Status;
use crate::table::{functions, layout};
use core::ffi::{c_char, c_uint, c_void};

/// Name and shape of a model's input or output.
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct aclmdlIODims {
    /// NUL-terminated.
    pub name: [c_char; 128],
    /// How many of `dims` count.
    pub dimCount: usize,
    /// -1 where the model leaves a dimension open.
    pub dims: [i64; 128],
}
#[repr(C)]
pub struct aclmdlDesc {
    _unused: [u8; 0],
}
#[repr(C)]
pub struct aclmdlDataset {
    _unused: [u8; 0],
}
/// A captured graph ("running instance").
pub type aclmdlRI = *mut c_void;
/// Calls that would break it are refused on every thread.
pub const ACL_MODEL_RI_CAPTURE_MODE_GLOBAL: aclmdlRICaptureMode = aclmdlRICaptureMode(0);
/// They are refused on the capturing thread.
pub const ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL: aclmdlRICaptureMode = aclmdlRICaptureMode(1);
/// They are not refused.
pub const ACL_MODEL_RI_CAPTURE_MODE_RELAXED: aclmdlRICaptureMode = aclmdlRICaptureMode(2);
/// What else may not happen during a capture.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclmdlRICaptureMode(pub c_uint);
pub const ACL_MODEL_RI_CAPTURE_STATUS_NONE: aclmdlRICaptureStatus = aclmdlRICaptureStatus(0);
pub const ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE: aclmdlRICaptureStatus = aclmdlRICaptureStatus(1);
/// It was, until something broke it.
pub const ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED: aclmdlRICaptureStatus = aclmdlRICaptureStatus(2);
/// Whether a stream is being captured.
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct aclmdlRICaptureStatus(pub c_uint);

layout! {
    aclmdlIODims: 1160 bytes, aligned 8 { name 0, dimCount 128, dims 136 }
}

functions! {
    model:
    /// Bytes of work memory and of weights that a model's file asks for.
    fn aclmdlQuerySize(fileName: *const c_char, workSize: *mut usize, weightSize: *mut usize) -> Status = Model, Cann(8, 0);
    /// Loads a model from a file.
    fn aclmdlLoadFromFile(modelPath: *const c_char, modelId: *mut u32) -> Status = Model, Cann(8, 0);
    /// Loads a model from memory.
    fn aclmdlLoadFromMem(model: *const c_void, modelSize: usize, modelId: *mut u32) -> Status = Model, Cann(8, 0);
    /// Unloads a model.
    fn aclmdlUnload(modelId: u32) -> Status = Model, Cann(8, 0);
    /// Makes an empty description; null on failure.
    fn aclmdlCreateDesc() -> *mut aclmdlDesc = Model, Cann(8, 0);
    /// Frees a description.
    fn aclmdlDestroyDesc(modelDesc: *mut aclmdlDesc) -> Status = Model, Cann(8, 0);
    /// Fills a description from a loaded model.
    fn aclmdlGetDesc(modelDesc: *mut aclmdlDesc, modelId: u32) -> Status = Model, Cann(8, 0);
    /// Number of inputs.
    fn aclmdlGetNumInputs(modelDesc: *mut aclmdlDesc) -> usize = Model, Cann(8, 0);
    /// Number of outputs.
    fn aclmdlGetNumOutputs(modelDesc: *mut aclmdlDesc) -> usize = Model, Cann(8, 0);
    /// Bytes of an input.
    fn aclmdlGetInputSizeByIndex(modelDesc: *mut aclmdlDesc, index: usize) -> usize = Model, Cann(8, 0);
    /// Bytes of an output.
    fn aclmdlGetOutputSizeByIndex(modelDesc: *mut aclmdlDesc, index: usize) -> usize = Model, Cann(8, 0);
    /// Shape of an input.
    fn aclmdlGetInputDims(modelDesc: *const aclmdlDesc, index: usize, dims: *mut aclmdlIODims) -> Status = Model, Cann(8, 0);
    /// Shape of an output.
    fn aclmdlGetOutputDims(modelDesc: *const aclmdlDesc, index: usize, dims: *mut aclmdlIODims) -> Status = Model, Cann(8, 0);
    /// Shape of an output of the last execution.
    fn aclmdlGetCurOutputDims(modelDesc: *const aclmdlDesc, index: usize, dims: *mut aclmdlIODims) -> Status = Model, Cann(8, 0);
    /// Name of an input; it lives as long as the description.
    fn aclmdlGetInputNameByIndex(modelDesc: *const aclmdlDesc, index: usize) -> *const c_char = Model, Cann(8, 0);
    /// Name of an output; it lives as long as the description.
    fn aclmdlGetOutputNameByIndex(modelDesc: *const aclmdlDesc, index: usize) -> *const c_char = Model, Cann(8, 0);
    /// Which input has a name.
    fn aclmdlGetInputIndexByName(modelDesc: *const aclmdlDesc, name: *const c_char, index: *mut usize) -> Status = Model, Cann(8, 0);
    /// Element type of an input.
    fn aclmdlGetInputDataType(modelDesc: *const aclmdlDesc, index: usize) -> aclDataType = Model, Cann(8, 0);
    /// Element type of an output.
    fn aclmdlGetOutputDataType(modelDesc: *const aclmdlDesc, index: usize) -> aclDataType = Model, Cann(8, 0);
    /// Layout of an input.
    fn aclmdlGetInputFormat(modelDesc: *const aclmdlDesc, index: usize) -> aclFormat = Model, Cann(8, 0);
    /// Layout of an output.
    fn aclmdlGetOutputFormat(modelDesc: *const aclmdlDesc, index: usize) -> aclFormat = Model, Cann(8, 0);
    /// Makes an empty list of buffers; null on failure.
    fn aclmdlCreateDataset() -> *mut aclmdlDataset = Model, Cann(8, 0);
    /// Frees the list, not its buffers.
    fn aclmdlDestroyDataset(dataset: *const aclmdlDataset) -> Status = Model, Cann(8, 0);
    /// Appends a buffer, which has to live as long as the list.
    fn aclmdlAddDatasetBuffer(dataset: *mut aclmdlDataset, dataBuffer: *mut aclDataBuffer) -> Status = Model, Cann(8, 0);
    /// Number of buffers.
    fn aclmdlGetDatasetNumBuffers(dataset: *const aclmdlDataset) -> usize = Model, Cann(8, 0);
    /// One of the buffers; null when there is none of that number.
    fn aclmdlGetDatasetBuffer(dataset: *const aclmdlDataset, index: usize) -> *mut aclDataBuffer = Model, Cann(8, 0);
    /// Runs a model and waits for it.
    fn aclmdlExecute(modelId: u32, input: *const aclmdlDataset, output: *mut aclmdlDataset) -> Status = Model, Cann(8, 0);
    /// Runs a model in the order of a stream.
    fn aclmdlExecuteAsync(modelId: u32, input: *const aclmdlDataset, output: *mut aclmdlDataset, stream: aclrtStream) -> Status = Model, Cann(8, 0);
    /// Chooses the batch size of a model that has several.
    fn aclmdlSetDynamicBatchSize(modelId: u32, dataset: *mut aclmdlDataset, index: usize, batchSize: u64) -> Status = Model, Cann(8, 0);
    /// Chooses the shape of an input that leaves dimensions open.
    fn aclmdlSetInputDynamicDims(modelId: u32, dataset: *mut aclmdlDataset, index: usize, dims: *const aclmdlIODims) -> Status = Model, Cann(8, 0);
    /// From here on a stream's work is noted down, not run.
    fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> Status = Runtime, Cann(8, 1);
    /// Whether a stream is being captured, and into what.
    fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, modelRI: *mut aclmdlRI) -> Status = Runtime, Cann(8, 1);
    /// Ends a capture and hands over what was noted.
    fn aclmdlRICaptureEnd(stream: aclrtStream, modelRI: *mut aclmdlRI) -> Status = Runtime, Cann(8, 1);
    /// Runs captured work on a stream.
    fn aclmdlRIExecuteAsync(modelRI: aclmdlRI, stream: aclrtStream) -> Status = Runtime, Cann(8, 1);
    /// Frees captured work.
    fn aclmdlRIDestroy(modelRI: aclmdlRI) -> Status = Runtime, Cann(8, 1);
}
