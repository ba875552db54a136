//! Devices: what the doctor says of them, answers of a simulated one, and what it will take.

use super::*;

/// `spec doctor` with an empty environment, as a service may have it.
fn doctor(words: &[&str], environment: &[(&str, &std::path::Path)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spec"));
    command.arg("doctor").args(words).env_clear().envs(environment.iter().copied());
    Ran { line: format!("{command:?}"), output: command.output().expect("the binary runs") }
}

#[test]
fn the_doctor_works_without_an_environment() {
    let text = doctor(&[], &[]).ok().out();
    assert!(text.starts_with("CPU\n") && text.ends_with("cpu can be used\n"), "{text}");
    let json: Value = serde_json::from_str(&doctor(&["--json"], &[]).ok().out()).expect("JSON");
    assert_eq!((&json["usable"], &json["exit_code"]), (&true.into(), &0.into()));
    for (device, words) in [("gpu", "ascend-sim"), ("ascend:x", "ascend:N")] {
        doctor(&["--device", device], &[]).refused(2, &[words]);
    }
    let cuda = doctor(&["--device", "cuda"], &[]);
    assert_eq!(cuda.output.status.code(), Some(4));
    assert!(cuda.out().contains("not built yet"), "{}", cuda.out());
}

#[test]
fn the_doctor_says_how_a_missing_library_is_found() {
    // A toolkit whose folder of libraries is empty, wherever another one may be installed.
    let folder = tempfile::tempdir().expect("a folder");
    let cann = folder.path().join("cann");
    std::fs::create_dir_all(cann.join("lib64")).expect("a folder");
    std::fs::write(cann.join("lib64/libascendcl.so"), "no library").expect("a file");
    std::fs::write(cann.join("lib64/libacl_rt.so"), "no library").expect("a file");
    let ran = doctor(&["--device", "ascend"], &[("ASCEND_HOME_PATH", cann.as_path())]);
    let out = ran.out();
    let tried = format!("tried {}", cann.join("lib64/libascendcl.so").display());
    assert!(out.contains(&tried), "{out}");
    // Where CANN is installed besides, its libraries are found next.
    if ran.output.status.code() == Some(3) {
        let last = format!("  export LD_LIBRARY_PATH={}", cann.join("lib64").display());
        assert!(out.lines().last().is_some_and(|line| line.starts_with(&last)), "{out}");
    } else {
        assert!(std::path::Path::new("/usr/local/Ascend").exists(), "{out}");
    }
}

#[test]
fn the_doctor_tries_the_simulator_that_its_variable_names() {
    let test = std::env::current_exe().expect("a test has a file");
    let library = test.with_file_name("libascend_sim.so");
    let out = doctor(&["--device", "ascend-sim"], &[("SPEC_ASCEND_SIM", library.as_path())]).ok().out();
    assert!(out.contains("self-test: add, matmul") && out.ends_with("ascend-sim can be used\n"), "{out}");
}

impl Files {
    /// Runs `spec` where the simulator is the one beside this test.
    fn spec_simulated(&self, line: &str, config: &str) -> Ran {
        let library = std::env::current_exe().expect("a test has a file").with_file_name("libascend_sim.so");
        let words: Vec<&str> = line.split(' ').collect();
        let simulator = library.display().to_string();
        self.spec_with(&words, &[("SPEC_ASCEND_SIM", &simulator), ("ASCEND_SIM_CONFIG", config)])
    }
}

#[test]
fn the_simulated_device_answers_the_same_with_and_without_drafts() {
    let files = Files::new();
    let tail = "--device ascend-sim -n 30 -p hello --output ids";
    let run =
        |drafts: &str| files.spec_simulated(&format!("generate --model target.gguf {drafts} {tail}"), "delay=0").ok();
    let plain = run("--draft none").out();
    assert_eq!(plain.trim().split(',').count(), 30, "{plain}");
    for drafts in [
        "--draft self --draft-len 3",
        "--draft model --draft-model draft.gguf --draft-len 4",
        "--quant int8 --draft self --draft-len 2",
    ] {
        let drafted = run(drafts);
        let said = drafted.err();
        assert!(said.contains("draft tokens accepted"), "{drafts}: {said}");
        assert!(!drafts.contains("self") || said.contains("100 % of"), "{drafts}: {said}");
        assert!(drafts.contains("int8") || drafted.out() == plain, "{drafts}: {} and {plain}", drafted.out());
    }
    let sampled = |drafts: &str| run(&format!("{drafts} --temperature 0.9 --seed 7")).out();
    assert_eq!(sampled("--draft none"), sampled("--draft model --draft-model draft.gguf --draft-len 4"));
}

#[test]
fn what_a_device_cannot_do_is_said_in_a_line() {
    let files = Files::new();
    let run = |line: &str, config: &str| {
        files.spec_simulated(&format!("generate --model target.gguf -n 4 -p hi {line}"), config)
    };
    run("--device cuda", "").refused(2, &["not built yet"]);
    run("--device ascend-sim --kv q8", "").refused(2, &["--kv", "f16 or bf16"]);
    run("--device ascend-sim --quant q8_0", "").refused(2, &["--quant", "int8"]);
    run("--quant int8", "").refused(2, &["--device ascend"]);
    run("--device ascend-sim", "delay=0; memory=97M")
        .refused(1, &["ascend-sim", "bytes free", "lower the context", "KV cache"]);
    run("--device ascend-sim", "delay=0; fault=task.Linear:5:lost").refused(1, &["ascend-sim", "lost", "npu-smi info"]);
    run("--device ascend-sim", "delay=0; fault=task.Linear:5:507015").refused(1, &["507015", "AICORE_EXCEPTION"]);
    files.gpt2("gpt2.gguf");
    let refused = files.spec_simulated("generate --model gpt2.gguf -n 4 -p hi --device ascend-sim", "delay=0");
    refused.refused(1, &["cannot run on Ascend", "norms with a mean", "--device cpu"]);
}

#[test]
fn inspect_plans_the_memory_of_an_npu() {
    let files = Files::new();
    let json: Value = serde_json::from_str(&files.spec("inspect --model target.gguf --json").ok().out()).expect("JSON");
    let plan = &json["ascend"];
    let parts: u64 = plan["parts"].as_object().expect("parts").values().filter_map(Value::as_u64).sum();
    assert_eq!(plan["device_bytes"].as_u64(), Some(parts));
    assert_eq!(plan["parts"]["a context of ATB for the stream"].as_u64(), Some(96 << 20));
    let text = files.spec("inspect --model target.gguf").ok().out();
    assert!(text.contains("memory of an Atlas A2, for 256 positions") && text.contains("KV cache, "), "{text}");
    files.gpt2("gpt2.gguf");
    let text = files.spec("inspect --model gpt2.gguf").ok().out();
    assert!(text.contains("cannot run on Ascend: norms with a mean"), "{text}");
}
