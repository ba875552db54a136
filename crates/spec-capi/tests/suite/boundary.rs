//! What comes from outside, called from Rust by the signatures of C.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};

use spec::types::{
    spec_description, spec_engine, spec_finish, spec_load_options, spec_request, spec_result, spec_status, spec_token,
    spec_token_source,
};

use crate::programs::{alone, model};

fn last_error() -> String {
    // SAFETY: the library's texts end with a NUL.
    unsafe { CStr::from_ptr(spec::spec_last_error()) }.to_str().unwrap().to_owned()
}

/// An engine over the tiny pair, freed at the end.
struct Engine(*mut spec_engine);

impl Engine {
    fn load(device: Option<&CStr>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, is_draft| {
            let path = folder.path().join(name);
            std::fs::write(&path, model(is_draft)).unwrap();
            CString::new(path.to_str().unwrap()).unwrap()
        };
        let (target, draft) = (file("a.safetensors", false), file("b.onnx", true));
        let options = spec_load_options {
            model: target.as_ptr(),
            draft_model: draft.as_ptr(),
            draft: c"model".as_ptr(),
            device: device.map_or(null(), CStr::as_ptr),
            threads: 2,
            ..Default::default()
        };
        let mut engine = null_mut();
        // SAFETY: the structure and its texts are alive.
        let status = unsafe { spec::spec_load(&options, &mut engine) };
        assert_eq!(status, spec_status::Ok, "{}", last_error());
        assert_eq!(last_error(), "");
        Self(engine)
    }

    fn generate(
        &self,
        request: &spec_request,
        on_token: &mut dyn FnMut(&spec_token) -> bool,
    ) -> (spec_status, Option<spec_result>) {
        /// # Safety
        /// `user_data` is what is handed over below.
        unsafe extern "C" fn tell(user_data: *mut c_void, token: *const spec_token) -> bool {
            // SAFETY: it is what was handed over below, and alive during the call.
            let on_token = unsafe { &mut *user_data.cast::<&mut dyn FnMut(&spec_token) -> bool>() };
            // SAFETY: the library's token is alive during the call.
            on_token(unsafe { &*token })
        }
        let mut on_token = on_token;
        let user_data = (&raw mut on_token).cast();
        let mut result = std::mem::MaybeUninit::uninit();
        // SAFETY: everything is alive during the call.
        let status = unsafe { spec::spec_generate(self.0, request, Some(tell), user_data, result.as_mut_ptr()) };
        // SAFETY: written when the call succeeded.
        (status, (status == spec_status::Ok).then(|| unsafe { result.assume_init() }))
    }

    fn tokens(&self, request: &spec_request) -> (Vec<u32>, spec_result) {
        let mut tokens = Vec::new();
        let (status, result) = self.generate(request, &mut |token| {
            tokens.push(token.id);
            true
        });
        assert_eq!(status, spec_status::Ok, "{}", last_error());
        (tokens, result.unwrap())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: it came from the library, and is freed once.
        unsafe { spec::spec_free(self.0) };
    }
}

const PROMPT: [u32; 4] = [101, 2043, 2003, 102];

fn request() -> spec_request {
    spec_request {
        prompt_tokens: PROMPT.as_ptr(),
        prompt_token_count: PROMPT.len(),
        max_tokens: 24,
        draft_len: 4,
        ..Default::default()
    }
}

#[test]
fn what_cannot_be_meant_is_an_error_with_the_argument_named() {
    let text = c"\xff\xfe";
    let load = |change: &dyn Fn(&mut spec_load_options)| {
        let mut options = spec_load_options { model: c"/nowhere/at/all".as_ptr(), ..Default::default() };
        change(&mut options);
        let mut engine = std::ptr::dangling_mut();
        // SAFETY: the structure and its texts are alive.
        let status = unsafe { spec::spec_load(&options, &mut engine) };
        assert!(engine.is_null());
        (status, last_error())
    };
    type Change<'a> = &'a dyn Fn(&mut spec_load_options);
    let cases: [(Change<'_>, spec_status, &str); 8] = [
        (&|options| options.model = null(), spec_status::InvalidArgument, "options.model is null"),
        (&|options| options.model = text.as_ptr(), spec_status::InvalidArgument, "options.model is not UTF-8"),
        (&|options| options.abi_version = 77, spec_status::InvalidArgument, "version 77"),
        (&|options| options.draft = c"luck".as_ptr(), spec_status::InvalidArgument, "`luck`: give auto"),
        (&|options| options.draft = c"model".as_ptr(), spec_status::InvalidArgument, "options.draft_model is null"),
        (&|_| (), spec_status::Model, "/nowhere/at/all"),
        (&|options| options.device = c"gpu".as_ptr(), spec_status::Model, "/nowhere/at/all"),
        (
            &|options| options.draft_model = text.as_ptr(),
            spec_status::InvalidArgument,
            "options.draft_model is not UTF-8",
        ),
    ];
    for (change, status, words) in cases {
        let (found, said) = load(change);
        assert!(found == status && said.contains(words), "{found:?}: {said}");
    }
    let mut engine = null_mut();
    // SAFETY: null is refused everywhere.
    unsafe {
        assert_eq!(spec::spec_load(null(), &mut engine), spec_status::InvalidArgument);
        assert_eq!(last_error(), "options is null");
        assert_eq!(spec::spec_load(&spec_load_options::default(), null_mut()), spec_status::InvalidArgument);
        assert_eq!(spec::spec_generate(null(), &request(), None, null_mut(), null_mut()), spec_status::InvalidArgument);
        assert_eq!(last_error(), "engine is null");
        assert_eq!(spec::spec_cancel(null()), spec_status::InvalidArgument);
        assert_eq!(spec::spec_describe(null(), null_mut()), spec_status::InvalidArgument);
        assert_eq!(spec::spec_load_options_init(null_mut()), spec_status::InvalidArgument);
        assert_eq!(spec::spec_request_init(null_mut()), spec_status::InvalidArgument);
        spec::spec_free(null_mut());
    }
}

#[test]
fn a_request_that_cannot_be_met_leaves_the_engine_usable() {
    let engine = Engine::load(None);
    let mut description = std::mem::MaybeUninit::<spec_description>::uninit();
    // SAFETY: the engine is alive, and the place valid; the description is read when it was written.
    let description = unsafe {
        assert_eq!(spec::spec_describe(engine.0, description.as_mut_ptr()), spec_status::Ok);
        description.assume_init()
    };
    assert_eq!((description.vocab, description.context, description.end_token), (2112, 256, 102));
    assert!(!description.drafter.is_null());
    let beyond = [2112];
    type Change<'a> = &'a dyn Fn(&mut spec_request);
    let cases: [(Change<'_>, &str); 6] = [
        (&|request| request.prompt = c"x".as_ptr(), "both given"),
        (&|request| request.prompt_tokens = null(), "4 ids are said to be there"),
        (&|request| (request.prompt_tokens, request.prompt_token_count) = (beyond.as_ptr(), 1), "2112"),
        (&|request| request.temperature = f32::NAN, "temperature"),
        (&|request| request.rule = c"epsilom:1".as_ptr(), "request.rule"),
        (&|request| request.abi_version = 0, "_init"),
    ];
    for (change, words) in cases {
        let mut request = request();
        change(&mut request);
        let (status, _) = engine.generate(&request, &mut |_| true);
        assert_eq!(status, spec_status::InvalidArgument, "{words}");
        assert!(last_error().contains(words), "{words}: {}", last_error());
    }
    let (tokens, result) = engine.tokens(&request());
    assert!(!tokens.is_empty() && result.drafted > 0);
}

#[test]
fn drafts_change_nothing_and_tokens_say_where_they_come_from() {
    let engine = Engine::load(None);
    for temperature in [0.0, 0.8] {
        let request = spec_request { temperature, seed: 7, ..request() };
        let mut sources = Vec::new();
        let mut drafted = Vec::new();
        let (_, result) = engine.generate(&request, &mut |token| {
            sources.push(token.source);
            drafted.push(token.id);
            true
        });
        let result = result.unwrap();
        assert!(result.drafted > 0 && result.accepted > 0, "{result:?}");
        let accepted = sources.iter().filter(|source| **source == spec_token_source::Accepted).count();
        assert_eq!(accepted, result.accepted);
        // One row a pass, and so no room for a draft.
        let plain: Vec<u32> = (0..drafted.len())
            .map(|length| {
                let text: Vec<u32> = PROMPT.iter().chain(&drafted[..length]).copied().collect();
                let one = spec_request {
                    prompt_tokens: text.as_ptr(),
                    prompt_token_count: text.len(),
                    max_tokens: 1,
                    ..request
                };
                engine.tokens(&one).0[0]
            })
            .collect();
        assert_eq!(drafted, plain, "at temperature {temperature}");
    }
}

#[test]
fn a_callback_can_end_it_and_cannot_begin_another() {
    let engine = Engine::load(None);
    let mut seen = 0;
    let (status, result) = engine.generate(&request(), &mut |_| {
        seen += 1;
        let (status, _) = engine.generate(&request(), &mut |_| true);
        assert_eq!(status, spec_status::Busy, "{}", last_error());
        seen < 3
    });
    assert_eq!((status, result.unwrap().finish, seen), (spec_status::Ok, spec_finish::Cancelled, 3));
    // SAFETY: the engine is alive.
    let (status, result) =
        engine.generate(&request(), &mut |_| unsafe { spec::spec_cancel(engine.0) } == spec_status::Ok);
    assert_eq!((status, result.unwrap().finish), (spec_status::Ok, spec_finish::Cancelled));
}

/// Nobody has started AscendCL here: the first engine does, and the last one ends it.
#[test]
fn engines_share_a_device_and_leave_it_to_the_next() {
    let _alone = alone();
    let load = || Engine::load(Some(c"ascend-sim"));
    let tokens = {
        let (one, other) = (load(), load());
        let (tokens, result) = one.tokens(&request());
        assert!(result.drafted > 0 && result.accepted > 0, "{result:?}");
        assert_eq!(tokens, other.tokens(&request()).0);
        drop(one);
        assert_eq!(tokens, other.tokens(&request()).0);
        tokens
    };
    assert_eq!(tokens, load().tokens(&request()).0);
}

#[test]
fn errors_are_each_threads_own() {
    // SAFETY: null is refused.
    unsafe { spec::spec_load(null(), null_mut()) };
    let other = std::thread::spawn(|| {
        assert_eq!(last_error(), "");
        // SAFETY: null is refused.
        unsafe { spec::spec_cancel(null()) };
        last_error()
    });
    assert_eq!((other.join().unwrap().as_str(), last_error().as_str()), ("engine is null", "engine is null"));
}
