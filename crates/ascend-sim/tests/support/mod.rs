//! A simulated machine for one test, linked rather than loaded, and short ways of using it.
#![allow(dead_code, reason = "each test file uses some of it")]

use acl_sys::*;
use half::{bf16, f16};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod operations;

/// Calls a function of the table.
macro_rules! api {
    ($machine:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: pointers in tests are valid or null, handles are alive or meant not to be, and what streams use lives on;
        // the simulator checks what a device would trust.
        unsafe { $machine.api.$name($($argument),*) }
    }};
}
#[allow(unused_imports, reason = "each test file uses some of it")]
pub(crate) use api;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The machine, which other tests of the process have to wait for.
pub(crate) struct Machine {
    pub(crate) api: Api,
    _alone: MutexGuard<'static, ()>,
}

type Symbol = *mut c_void;

fn control(name: &str) -> Symbol {
    ascend_sim::resolve(name).expect("the control plane is exported").as_ptr()
}

impl Machine {
    /// With a configuration, and device 0 current on this thread.
    pub(crate) fn new(config: &str) -> Self {
        let machine = Self::without_device(config);
        machine.call(api!(machine, aclrtSetDevice(0)));
        machine
    }

    pub(crate) fn without_device(config: &str) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the addresses are those of the simulator's functions, which have the signatures of acl-sys.
        let api = unsafe { Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
        let machine = Self { api, _alone: alone };
        // SAFETY: it takes nothing.
        let _ =
            unsafe { std::mem::transmute::<Symbol, unsafe extern "C" fn() -> Status>(control("ascend_sim_reset"))() };
        assert_eq!(machine.configure(config), Status::SUCCESS, "{}", machine.message());
        machine
    }

    pub(crate) fn configure(&self, config: &str) -> Status {
        let config = CString::new(config).expect("no NUL");
        let address = control("ascend_sim_configure");
        // SAFETY: the text is NUL-terminated.
        unsafe {
            std::mem::transmute::<Symbol, unsafe extern "C" fn(*const c_char) -> Status>(address)(config.as_ptr())
        }
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let mut text = vec![0u8; 1 << 16];
        type Signature = unsafe extern "C" fn(*mut c_char, u64) -> u64;
        // SAFETY: the buffer is as long as it is said to be.
        unsafe { std::mem::transmute::<Symbol, Signature>(control(name))(text.as_mut_ptr().cast(), text.len() as u64) };
        let text = CStr::from_bytes_until_nul(&text).expect("NUL-terminated").to_string_lossy().into_owned();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.lines("ascend_sim_violations")
    }

    pub(crate) fn leaks(&self) -> Vec<String> {
        self.lines("ascend_sim_leaks")
    }

    pub(crate) fn alive(&self) -> Vec<String> {
        self.lines("ascend_sim_alive")
    }

    /// Nanoseconds of a stream's virtual clock.
    pub(crate) fn virtual_time(&self, stream: aclrtStream) -> u64 {
        let mut time = 0;
        type Signature = unsafe extern "C" fn(aclrtStream, *mut u64) -> Status;
        // SAFETY: the pointer is valid.
        self.ok(unsafe {
            std::mem::transmute::<Symbol, Signature>(control("ascend_sim_virtual_time"))(stream, &mut time)
        });
        time
    }

    /// Bytes of the device as they are now, whatever is queued.
    pub(crate) fn peek(&self, from: *const c_void, count: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; count];
        type Signature = unsafe extern "C" fn(*mut c_void, *const c_void, u64) -> Status;
        // SAFETY: the function has this signature.
        let peek = unsafe { std::mem::transmute::<Symbol, Signature>(control("ascend_sim_peek")) };
        // SAFETY: the target has as many bytes.
        self.ok(unsafe { peek(bytes.as_mut_ptr().cast(), from, count as u64) });
        bytes
    }

    pub(crate) fn message(&self) -> String {
        let text = api!(self, aclGetRecentErrMsg()).expect("exported");
        // SAFETY: null, or a C string that lives until the next call.
        if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
    }

    #[track_caller]
    pub(crate) fn ok(&self, status: Status) {
        assert_eq!(status, Status::SUCCESS, "{}", self.message());
    }

    #[track_caller]
    pub(crate) fn call(&self, result: Result<Status, Error>) {
        self.ok(result.expect("exported"));
    }

    #[track_caller]
    pub(crate) fn fails(&self, result: Result<Status, Error>, expected: i32) -> String {
        let status = result.expect("exported");
        let message = self.message();
        assert_eq!(status.0, expected, "{message}");
        message
    }

    pub(crate) fn stream(&self) -> aclrtStream {
        let mut stream = ptr::null_mut();
        self.call(api!(self, aclrtCreateStream(&mut stream)));
        stream
    }

    pub(crate) fn event(&self) -> aclrtEvent {
        let mut event = ptr::null_mut();
        self.call(api!(self, aclrtCreateEventExWithFlag(&mut event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE)));
        event
    }

    pub(crate) fn device(&self, size: usize) -> *mut c_void {
        let mut pointer = ptr::null_mut();
        self.call(api!(self, aclrtMalloc(&mut pointer, size, ACL_MEM_MALLOC_HUGE_FIRST)));
        pointer
    }

    pub(crate) fn pinned(&self, size: usize) -> *mut c_void {
        let mut pointer = ptr::null_mut();
        self.call(api!(self, aclrtMallocHost(&mut pointer, size)));
        pointer
    }

    pub(crate) fn upload(&self, bytes: &[u8]) -> *mut c_void {
        let pointer = self.device(bytes.len());
        let from = bytes.as_ptr().cast();
        self.call(api!(self, aclrtMemcpy(pointer, bytes.len(), from, bytes.len(), ACL_MEMCPY_HOST_TO_DEVICE)));
        pointer
    }

    pub(crate) fn download(&self, from: *const c_void, count: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; count];
        let to = bytes.as_mut_ptr().cast();
        self.call(api!(self, aclrtMemcpy(to, count, from, count, ACL_MEMCPY_DEVICE_TO_HOST)));
        bytes
    }

    pub(crate) fn synchronize(&self, stream: aclrtStream) {
        self.call(api!(self, aclrtSynchronizeStream(stream)));
    }

    /// An ATB context on a stream.
    pub(crate) fn context(&self, stream: aclrtStream) -> *mut spec_atb_context {
        let mut context = ptr::null_mut();
        self.call(api!(self, spec_atb_create_context(ptr::null(), &mut context)));
        self.call(api!(self, spec_atb_set_execute_stream(context, stream)));
        context
    }

    /// Bytes of workspace, after setup.
    pub(crate) fn setup(
        &self,
        operation: *mut spec_atb_operation,
        inputs: &[Tensor],
        outputs: &[Tensor],
        context: *mut spec_atb_context,
    ) -> (Status, u64) {
        let mut size = 0;
        let status = with_pack(inputs, outputs, |pack| api!(self, spec_atb_setup(operation, pack, &mut size, context)));
        (status.expect("exported"), size)
    }

    pub(crate) fn execute(
        &self,
        operation: *mut spec_atb_operation,
        (inputs, outputs): (&[Tensor], &[Tensor]),
        (workspace, size): (*mut c_void, u64),
        context: *mut spec_atb_context,
    ) -> Status {
        let status =
            with_pack(inputs, outputs, |pack| api!(self, spec_atb_execute(operation, pack, workspace, size, context)));
        status.expect("exported")
    }

    /// Sets up, executes and waits.
    #[track_caller]
    pub(crate) fn run(&self, operation: *mut spec_atb_operation, inputs: &[Tensor], outputs: &[Tensor]) {
        let stream = self.stream();
        let context = self.context(stream);
        let (status, size) = self.setup(operation, inputs, outputs, context);
        self.ok(status);
        let workspace = if size == 0 { ptr::null_mut() } else { self.device(size as usize) };
        self.ok(self.execute(operation, (inputs, outputs), (workspace, size), context));
        self.synchronize(stream);
        self.call(api!(self, spec_atb_destroy_context(context)));
        self.call(api!(self, aclrtDestroyStream(stream)));
    }

    pub(crate) fn tensor(&self, dtype: aclDataType, dims: &[usize], values: &[f64]) -> Tensor {
        let bytes = encode(dtype, values);
        assert_eq!(dims.iter().product::<usize>(), values.len(), "{dims:?}");
        Tensor { desc: desc(dtype, dims), device: self.upload(&bytes), host: None, size: bytes.len() }
    }

    /// Lengths of sequences, with their copy on the host.
    pub(crate) fn lengths(&self, values: &[i32]) -> Tensor {
        let floats: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
        Tensor { host: Some(values.to_vec()), ..self.tensor(ACL_INT32, &[values.len()], &floats) }
    }

    pub(crate) fn empty(&self, dtype: aclDataType, dims: &[usize]) -> Tensor {
        let size = dims.iter().product::<usize>() * encode(dtype, &[0.0]).len();
        Tensor { desc: desc(dtype, dims), device: self.device(size), host: None, size }
    }

    pub(crate) fn values(&self, tensor: &Tensor) -> Vec<f64> {
        decode(aclDataType(tensor.desc.dtype), &self.download(tensor.device, tensor.size))
    }
}

fn with_pack<T>(inputs: &[Tensor], outputs: &[Tensor], call: impl FnOnce(&spec_atb_pack) -> T) -> T {
    let convert = |tensors: &[Tensor]| tensors.iter().map(Tensor::abi).collect::<Vec<_>>();
    let (inputs, outputs) = (convert(inputs), convert(outputs));
    call(&spec_atb_pack {
        inputs: inputs.as_ptr(),
        input_count: inputs.len() as u64,
        outputs: outputs.as_ptr(),
        output_count: outputs.len() as u64,
    })
}

/// A tensor on the device.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) desc: spec_atb_tensor_desc,
    pub(crate) device: *mut c_void,
    pub(crate) host: Option<Vec<i32>>,
    pub(crate) size: usize,
}

impl Tensor {
    pub(crate) fn abi(&self) -> spec_atb_tensor {
        let host = self.host.as_ref().map_or(ptr::null_mut(), |host| host.as_ptr().cast_mut().cast());
        spec_atb_tensor { desc: self.desc, device_data: self.device, host_data: host, data_size: self.size as u64 }
    }
}

pub(crate) fn desc(dtype: aclDataType, dims: &[usize]) -> spec_atb_tensor_desc {
    let mut shape = spec_atb_dims { dims: [0; 8], dim_num: dims.len() as u64 };
    for (to, from) in shape.dims.iter_mut().zip(dims) {
        *to = *from as i64;
    }
    spec_atb_tensor_desc { dtype: dtype.0, format: ACL_FORMAT_ND.0, shape }
}

pub(crate) fn encode(dtype: aclDataType, values: &[f64]) -> Vec<u8> {
    let all = |convert: &dyn Fn(f64) -> Vec<u8>| values.iter().flat_map(|value| convert(*value)).collect();
    match dtype {
        ACL_FLOAT => all(&|value| (value as f32).to_le_bytes().to_vec()),
        ACL_FLOAT16 => all(&|value| f16::from_f64(value).to_le_bytes().to_vec()),
        ACL_BF16 => all(&|value| bf16::from_f64(value).to_le_bytes().to_vec()),
        ACL_INT8 => all(&|value| (value as i8).to_le_bytes().to_vec()),
        ACL_INT32 => all(&|value| (value as i32).to_le_bytes().to_vec()),
        ACL_INT64 | ACL_UINT64 => all(&|value| (value as i64).to_le_bytes().to_vec()),
        other => panic!("no encoding for {other:?}"),
    }
}

pub(crate) fn decode(dtype: aclDataType, bytes: &[u8]) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|chunk| convert(chunk.try_into().expect("of this length"))).collect()
    }
    match dtype {
        ACL_FLOAT => each(bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        ACL_FLOAT16 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f64()),
        ACL_BF16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f64()),
        ACL_INT8 => each(bytes, |bytes| f64::from(i8::from_le_bytes(bytes))),
        ACL_INT32 => each(bytes, |bytes| f64::from(i32::from_le_bytes(bytes))),
        ACL_INT64 | ACL_UINT64 => each(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        other => panic!("no decoding for {other:?}"),
    }
}
