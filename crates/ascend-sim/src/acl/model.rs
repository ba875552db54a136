//! Offline models: lists of buffers are real, models are refused, since running them takes the vendor's compiler.

use super::Handle;
use crate::exports::{Out, Text, exports};
use crate::failure::{Failure, Outcome, argument};
use acl_sys::{
    ACL_DT_UNDEFINED, ACL_FORMAT_UNDEFINED, Status, aclDataBuffer, aclDataType, aclFormat, aclmdlDataset, aclmdlDesc,
    aclmdlIODims,
};
use std::ffi::c_char;

fn refused<T>() -> Outcome<T> {
    Err(Failure::new(Status::ACL_ERROR_API_NOT_SUPPORT, "the simulator does not run offline models"))
}

/// The list behind a handle.
fn dataset<'a>(handle: *const aclmdlDataset) -> Outcome<&'a mut Vec<*mut aclDataBuffer>> {
    let handle = handle.cast_mut().cast::<Vec<*mut aclDataBuffer>>();
    // SAFETY: by the caller's contract it is null or came from aclmdlCreateDataset, and one thread uses it at a time.
    unsafe { handle.as_mut() }.ok_or_else(|| argument("the dataset is null"))
}

exports! {
    /// Refused.
    fn aclmdlQuerySize(file: Text, _work: Out<usize>, _weights: Out<usize>) {
        file.get().ok_or_else(|| argument("the file's name is null"))?;
        refused()
    }

    /// Refused.
    fn aclmdlLoadFromFile(file: Text, _model: Out<u32>) {
        file.get().ok_or_else(|| argument("the file's name is null"))?;
        refused()
    }

    /// Refused.
    fn aclmdlLoadFromMem(_data: Handle, _size: usize, _model: Out<u32>) {
        refused()
    }

    /// No model is loaded.
    fn aclmdlUnload(model: u32) {
        Err(Failure::new(Status::ACL_ERROR_INVALID_MODEL_ID, format!("no model {model} is loaded")))
    }

    /// Makes a description, which stays empty.
    fn aclmdlCreateDesc() -> *mut aclmdlDesc, else std::ptr::null_mut(), {
        Ok(Box::into_raw(Box::new(0u64)).cast())
    }

    /// Frees a description.
    fn aclmdlDestroyDesc(description: *mut aclmdlDesc) {
        if description.is_null() {
            return Err(argument("the description is null"));
        }
        // SAFETY: it came from aclmdlCreateDesc, by the caller's contract, and is given back once.
        drop(unsafe { Box::from_raw(description.cast::<u64>()) });
        Ok(())
    }

    /// No model is loaded.
    fn aclmdlGetDesc(_description: *mut aclmdlDesc, model: u32) {
        Err(Failure::new(Status::ACL_ERROR_INVALID_MODEL_ID, format!("no model {model} is loaded")))
    }

    /// None.
    fn aclmdlGetNumInputs(_description: *mut aclmdlDesc) -> usize, else 0, { Ok(0) }

    /// None.
    fn aclmdlGetNumOutputs(_description: *mut aclmdlDesc) -> usize, else 0, { Ok(0) }

    /// Refused.
    fn aclmdlGetInputSizeByIndex(_description: *mut aclmdlDesc, _index: usize) -> usize, else 0, { refused() }

    /// Refused.
    fn aclmdlGetOutputSizeByIndex(_description: *mut aclmdlDesc, _index: usize) -> usize, else 0, { refused() }

    /// Refused.
    fn aclmdlGetInputDims(_description: *const aclmdlDesc, _index: usize, _dims: Out<aclmdlIODims>) { refused() }

    /// Refused.
    fn aclmdlGetOutputDims(_description: *const aclmdlDesc, _index: usize, _dims: Out<aclmdlIODims>) { refused() }

    /// Refused.
    fn aclmdlGetCurOutputDims(_description: *const aclmdlDesc, _index: usize, _dims: Out<aclmdlIODims>) { refused() }

    /// Refused.
    fn aclmdlGetInputNameByIndex(_description: *const aclmdlDesc, _index: usize) -> *const c_char, else std::ptr::null(), { refused() }

    /// Refused.
    fn aclmdlGetOutputNameByIndex(_description: *const aclmdlDesc, _index: usize) -> *const c_char, else std::ptr::null(), { refused() }

    /// Refused.
    fn aclmdlGetInputIndexByName(_description: *const aclmdlDesc, _name: Text, _index: Out<usize>) { refused() }

    /// Refused.
    fn aclmdlGetInputDataType(_description: *const aclmdlDesc, _index: usize) -> aclDataType, else ACL_DT_UNDEFINED, { refused() }

    /// Refused.
    fn aclmdlGetOutputDataType(_description: *const aclmdlDesc, _index: usize) -> aclDataType, else ACL_DT_UNDEFINED, { refused() }

    /// Refused.
    fn aclmdlGetInputFormat(_description: *const aclmdlDesc, _index: usize) -> aclFormat, else ACL_FORMAT_UNDEFINED, { refused() }

    /// Refused.
    fn aclmdlGetOutputFormat(_description: *const aclmdlDesc, _index: usize) -> aclFormat, else ACL_FORMAT_UNDEFINED, { refused() }

    /// Makes a list of buffers.
    fn aclmdlCreateDataset() -> *mut aclmdlDataset, else std::ptr::null_mut(), {
        Ok(Box::into_raw(Box::<Vec<*mut aclDataBuffer>>::default()).cast())
    }

    /// Frees a list.
    fn aclmdlDestroyDataset(handle: *const aclmdlDataset) {
        let list: *mut Vec<*mut aclDataBuffer> = dataset(handle)?;
        // SAFETY: it came from a box, by the caller's contract, and is given back once.
        drop(unsafe { Box::from_raw(list) });
        Ok(())
    }

    /// Appends to a list.
    fn aclmdlAddDatasetBuffer(handle: *mut aclmdlDataset, buffer: *mut aclDataBuffer) {
        if buffer.is_null() {
            return Err(argument("the data buffer is null"));
        }
        dataset(handle)?.push(buffer);
        Ok(())
    }

    /// Length of a list.
    fn aclmdlGetDatasetNumBuffers(handle: *const aclmdlDataset) -> usize, else 0, {
        Ok(dataset(handle)?.len())
    }

    /// An entry of a list.
    fn aclmdlGetDatasetBuffer(handle: *const aclmdlDataset, index: usize) -> *mut aclDataBuffer, else std::ptr::null_mut(), {
        dataset(handle)?.get(index).copied().ok_or_else(|| argument(format!("the dataset has no buffer {index}")))
    }

    /// Refused.
    fn aclmdlExecute(_model: u32, _input: *const aclmdlDataset, _output: *mut aclmdlDataset) { refused() }

    /// Refused.
    fn aclmdlExecuteAsync(_model: u32, _input: *const aclmdlDataset, _output: *mut aclmdlDataset, _stream: Handle) { refused() }

    /// Refused.
    fn aclmdlSetDynamicBatchSize(_model: u32, _dataset: *mut aclmdlDataset, _index: usize, _size: u64) { refused() }

    /// Refused.
    fn aclmdlSetInputDynamicDims(_model: u32, _dataset: *mut aclmdlDataset, _index: usize, _dims: *const aclmdlIODims) { refused() }
}
