//! Operations that are the caller's code.

use crate::failure::{Failure, Outcome, parameter, require};
use crate::operators::tensor::{Argument, Desc};
use acl_sys::{
    Status, spec_atb_infer_shape_function, spec_atb_pack, spec_atb_plugin_param, spec_atb_release_function,
    spec_atb_tensor, spec_atb_tensor_desc,
};
use std::ffi::c_void;

/// Data of the caller's, given back when what holds it goes.
pub(crate) struct UserData {
    pub(crate) pointer: *mut c_void,
    release: spec_atb_release_function,
}

// SAFETY: the data is handed to the caller's own functions only, which may be called on any thread, as the interface
// says, one at a time.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl UserData {
    pub(crate) fn new(pointer: *mut c_void, release: spec_atb_release_function) -> Self {
        Self { pointer, release }
    }
}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller gave the function for this data, to be called once.
            unsafe { release(self.pointer) };
        }
    }
}

/// Asks a function of the caller's for the outputs' descriptions.
pub(crate) fn infer_by(
    function: spec_atb_infer_shape_function,
    user_data: *mut c_void,
    inputs: &[Desc],
    outputs: usize,
) -> Outcome<Vec<Desc>> {
    let function = function.ok_or_else(|| parameter("there is no function that infers shapes"))?;
    let inputs: Vec<spec_atb_tensor_desc> = inputs.iter().map(Desc::to_abi).collect();
    let empty = Desc::new(crate::operators::tensor::Type::Other(-1), Vec::new()).to_abi();
    let mut inferred = vec![empty; outputs];
    // SAFETY: the caller gave the function with its data; both arrays have as many elements as is said.
    let status = unsafe {
        function(user_data, inputs.as_ptr(), inputs.len() as u64, inferred.as_mut_ptr(), inferred.len() as u64)
    };
    require(status.is_success(), || Failure::new(status, "the caller's function that infers shapes failed"))?;
    inferred
        .iter()
        .enumerate()
        .map(|(at, desc)| Desc::from_abi(desc, &format!("inferred output {at}"), false))
        .collect()
}

/// An operation of the caller's.
pub(crate) struct Plugin {
    pub(crate) name: String,
    pub(crate) arity: (usize, usize),
    param: spec_atb_plugin_param,
    user_data: UserData,
}

// SAFETY: the functions may be called on any thread that uses the operation, as the interface says.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl Plugin {
    pub(crate) fn new(name: String, param: spec_atb_plugin_param) -> Outcome<Self> {
        let complete = param.infer_shape.is_some() && param.setup.is_some() && param.execute.is_some();
        require(complete, || Failure::new(Status::SPEC_ATB_ERROR_NULL, "a function of the plugin is null"))?;
        let arity = (param.input_count as usize, param.output_count as usize);
        Ok(Self { name, arity, param, user_data: UserData::new(param.user_data, param.release) })
    }

    pub(crate) fn infer(&self, inputs: &[Desc]) -> Outcome<Vec<Desc>> {
        infer_by(self.param.infer_shape, self.user_data.pointer, inputs, self.arity.1)
    }

    fn with_pack<T>(inputs: &[Argument], outputs: &[Argument], run: impl FnOnce(&spec_atb_pack) -> T) -> T {
        let inputs: Vec<spec_atb_tensor> = inputs.iter().map(Argument::to_abi).collect();
        let outputs: Vec<spec_atb_tensor> = outputs.iter().map(Argument::to_abi).collect();
        run(&spec_atb_pack {
            inputs: inputs.as_ptr(),
            input_count: inputs.len() as u64,
            outputs: outputs.as_ptr(),
            output_count: outputs.len() as u64,
        })
    }

    pub(crate) fn setup(&self, inputs: &[Argument], outputs: &[Argument]) -> Outcome<u64> {
        let setup = self.param.setup.ok_or_else(|| parameter("the plugin has no setup"))?;
        let mut workspace = 0;
        let status = Self::with_pack(inputs, outputs, |pack| {
            // SAFETY: the caller gave the function with its data; the pack lives as long as the call.
            unsafe { setup(self.user_data.pointer, pack, &mut workspace) }
        });
        require(status.is_success(), || Failure::new(status, format!("setup of plugin {} failed", self.name)))?;
        Ok(workspace)
    }

    pub(crate) fn execute(
        &self,
        inputs: &[Argument],
        outputs: &[Argument],
        (workspace, size): (usize, u64),
        stream: usize,
    ) -> Outcome {
        let execute = self.param.execute.ok_or_else(|| parameter("the plugin has no execute"))?;
        let status = Self::with_pack(inputs, outputs, |pack| {
            // SAFETY: the caller gave the function with its data; the pack lives as long as the call.
            unsafe { execute(self.user_data.pointer, pack, workspace as *mut c_void, size, stream as *mut c_void) }
        });
        require(status.is_success(), || Failure::new(status, format!("execute of plugin {} failed", self.name)))
    }
}
