//! The article's programs over the simulator: `tests/article/listing.cpp` is its listing as it stands, the others complete its
//! fragments. The compiler's address sanitiser looks for leaks on the host, `at_exit.cpp` for those on the device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use spec_ascend::{AscendDevice, AscendModel, AscendStream, DeviceOptions, LoadOptions};
use spec_model::Checkpoint;
use spec_runtime::{Engine, Request, StopRules};
use spec_testing::Letters;

use crate::programs::{END, TARGET, alone, compile, model, package, run};

const INCLUDES: [&str; 3] = ["../atb-rs/compat/include", "include", "../acl-sys/headers"];

/// The ids that each model gives behind a prompt without a draft, on a simulator of this process.
fn plain(requests: &[(bool, &[u32], usize)]) -> Vec<Vec<u32>> {
    let _alone = alone();
    ascend_sim::configure("delay=0").unwrap();
    // SAFETY: each function has the C signature of its symbol: the simulator takes both from acl-sys.
    let api = unsafe { acl_sys::Api::from_parts(|_, symbol| ascend_sim::resolve(symbol)) };
    let runtime = atb_rs::Runtime::start(api).unwrap();
    let device = AscendDevice::open(&runtime, 0, DeviceOptions::default()).unwrap();
    let answer = |&(is_draft, prompt, max_tokens): &(bool, &[u32], usize)| {
        let stream = AscendStream::new(&device).unwrap();
        let checkpoint = Checkpoint::from_bytes(model(is_draft), "model").unwrap();
        let model = AscendModel::load(&checkpoint, &stream, LoadOptions::default()).unwrap();
        let mut engine = Engine::new(Arc::new(model), Arc::new(Letters(TARGET.vocab))).on_stream(Box::new(stream));
        let mut request = Request::new(prompt.to_vec(), max_tokens);
        request.stop = StopRules { end_ids: vec![END], ..request.stop };
        engine.generate(request, &mut |_| {}).unwrap().tokens
    };
    requests.iter().map(answer).collect()
}

/// A folder with the pair of models under the article's names, which say nothing of what is inside.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("models")).unwrap();
    for (name, is_draft) in [("models/draft_bert.onnx", true), ("models/target_bert.onnx", false)] {
        std::fs::write(folder.path().join(name), model(is_draft)).unwrap();
    }
    folder
}

fn article(name: &str) -> PathBuf {
    package("tests/article").join(name)
}

/// Compiles one of the programs, or an altered one, for a C++ ABI.
fn compiled(source: PathBuf, abi: u8, folder: &Path) -> Command {
    let program = folder.join(format!("program-{abi}"));
    let abi = format!("-D_GLIBCXX_USE_CXX11_ABI={abi}");
    let mut arguments = vec!["-std=c++17", "-g", "-fsanitize=address", "-Wl,--wrap=aclrtResetDevice", &abi];
    // The article's fragments keep what they got in variables that nothing reads.
    arguments.extend(["-Wno-unused-variable", "-Wno-unused-but-set-variable"]);
    compile("c++", &arguments, &[source, article("at_exit.cpp")], &INCLUDES, &program);
    let mut command = Command::new(&program);
    command.current_dir(folder).env("ASCEND_SIM_CONFIG", "delay=0 strict=fail").env("SPEC_DECODE_DEBUG", "1");
    command.env("ASAN_OPTIONS", "detect_leaks=1");
    command
}

/// Compiles one of the programs, and runs it in the folder of its models. Gives what it printed, and its log.
fn ran(name: &str, abi: u8, folder: &Path) -> (String, String) {
    let output = run(&mut compiled(article(name), abi, folder));
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(err.ends_with("at the end: nothing\n"), "{err}");
    (out, err)
}

/// Rounds, accepted and drafted ids of the first Forward that a log tells of.
fn figures(log: &str) -> [usize; 3] {
    let line = log.lines().find(|line| line.contains("drafted ids accepted")).unwrap_or_else(|| panic!("{log}"));
    let words: Vec<&str> = line.split(' ').collect();
    let before =
        |word: &str, back: usize| words[words.iter().position(|found| *found == word).unwrap() - back].parse().unwrap();
    [before("rounds,", 1), before("of", 1), before("drafted", 1)]
}

#[test]
fn the_listing_prints_the_targets_own_ids_by_drafting_and_leaves_nothing_behind() {
    let expected = plain(&[(false, &[101, 2043, 2003, 102], 9)]).remove(0);
    assert!(expected.len() > 5, "more than one round: {expected:?}");
    let folder = folder();
    for abi in [0, 1] {
        let (printed, log) = ran("listing.cpp", abi, folder.path());
        let ids = printed.split(": ").nth(1).unwrap_or_else(|| panic!("{printed}"));
        let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids, expected, "{log}");
        let [rounds, accepted, drafted] = figures(&log);
        assert!(accepted > 0 && drafted > accepted && rounds + 1 < expected.len(), "{log}");
    }
}

#[test]
fn the_fragments_on_streams_and_caches_are_programs() {
    let prompt = [101, 2043, 2003];
    let answers = plain(&[(true, &prompt, 8), (false, &prompt, 8)]);
    let filled = |answer: &[u32]| {
        let ids = (0..8).map(|at| answer.get(at).copied().unwrap_or(END).to_string());
        ids.collect::<Vec<_>>().join(" ")
    };
    let expected = format!("miss\nhit\npasses 1\ndraft {}\ntarget {}\n", filled(&answers[0]), filled(&answers[1]));
    let folder = folder();
    for abi in [0, 1] {
        assert_eq!(ran("streams_and_cache.cpp", abi, folder.path()).0, expected);
    }
}

#[test]
fn the_fragment_on_adapting_is_a_program() {
    let folder = folder();
    for abi in [0, 1] {
        let (printed, log) = ran("adaptive.cpp", abi, folder.path());
        assert_eq!(printed, "5 6 7 8 8 8 7 6 5 4 as it should\n", "{log}");
    }
}

#[test]
fn what_goes_wrong_is_a_status_and_leaves_nothing_behind() {
    let folder = folder();
    let (_, log) = ran("refusals.cpp", 1, folder.path());
    for words in ["models/nowhere.onnx", "set eos_token_id", "2112", "no models are loaded", "end token 2112"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// Without it the tests above might find nothing because nothing is looked for.
#[test]
fn a_listing_that_leaks_is_found_out() {
    let folder = folder();
    let listing = std::fs::read_to_string(article("listing.cpp")).unwrap();
    let leaks = [
        ("aclrtFree(output_tokens.deviceData);", "", "giving the device back: 36 bytes"),
        ("return 0;", "new int[7]; return 0;", "28 byte(s) leaked"),
    ];
    for (from, to, words) in leaks {
        assert!(listing.contains(from));
        let source = folder.path().join("leaking.cpp");
        std::fs::write(&source, listing.replacen(from, to, 1)).unwrap();
        let output = compiled(source, 1, folder.path()).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && log.contains(words), "{words}: {log}");
    }
}

/// Needs ATB's and CANN's include folders in `SPEC_ATB_INCLUDE`, as `atb-rs/tests/shim.rs` does. There is no ATB to run it over.
#[test]
#[ignore = "needs ATB's headers in SPEC_ATB_INCLUDE"]
fn the_listing_over_atbs_headers_compiles_under_both_abis() {
    let folders = std::env::var_os("SPEC_ATB_INCLUDE").expect("SPEC_ATB_INCLUDE names ATB's and CANN's headers");
    for abi in [0, 1] {
        let mut command = Command::new("c++");
        command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
        command.arg(format!("-D_GLIBCXX_USE_CXX11_ABI={abi}")).arg(article("over_atb.cpp"));
        // ATB's before ours: both have an atb/context.h.
        for folder in std::env::split_paths(&folders).chain([package("../atb-rs/shim/stubs")]) {
            command.arg("-isystem").arg(folder);
        }
        for include in INCLUDES {
            command.arg("-idirafter").arg(package(include));
        }
        run(&mut command);
    }
}
