//! `examples/c/generate.c`, compiled as C and as C++ and run.

use std::process::Command;
use std::sync::Arc;

use spec_cpu::{CpuModel, LoadOptions, Pool};
use spec_model::Checkpoint;
use spec_runtime::{Engine, Request, StopRules};
use spec_testing::Letters;

use crate::programs::{TARGET, compile, model, package, run};

const PROMPT: &str = "one two three one two three one two";

/// What the engine gives without a draft.
fn plain() -> String {
    let checkpoint = Checkpoint::from_bytes(model(false), "target").unwrap();
    let tokenizer = checkpoint.tokenizer().unwrap();
    let mut options = LoadOptions::new(Arc::new(Pool::new(2).unwrap()));
    options.context = Some(TARGET.context);
    let target = Arc::new(CpuModel::load(&checkpoint, options).unwrap());
    let mut engine = Engine::new(target, Arc::new(Letters(TARGET.vocab)));
    let mut request = Request::new(tokenizer.encode(PROMPT, true).unwrap(), 64);
    request.stop = StopRules { end_ids: tokenizer.end_ids().to_vec(), ..request.stop };
    let completion = engine.generate(request, &mut |_| {}).unwrap();
    tokenizer.decode(&completion.tokens).unwrap()
}

#[test]
fn the_c_example_prints_the_engines_text_with_a_draft_model_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let (target, draft) = (folder.path().join("target"), folder.path().join("draft"));
    std::fs::write(&target, model(false)).unwrap();
    std::fs::write(&draft, model(true)).unwrap();
    let expected = plain();
    let source = package("examples/c/generate.c");
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++17")] {
        let program = folder.path().join(compiler);
        let language = if compiler == "cc" { "c" } else { "c++" };
        let arguments = [standard, "-x", language];
        compile(compiler, &arguments, std::slice::from_ref(&source), &["include"], &program);
        for drafted in [false, true] {
            let mut command = Command::new(&program);
            command.arg(&target).arg(PROMPT);
            if drafted {
                command.arg(&draft);
            }
            let output = run(&mut command);
            let (text, figures) =
                (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            assert_eq!(text.trim_end(), expected.trim_end(), "{compiler}");
            assert!(!drafted || !figures.contains(" of 0 drafted"), "{figures}");
        }
        let refused = Command::new(&program).arg(folder.path().join("absent")).arg("x").output().unwrap();
        let words = String::from_utf8(refused.stderr).unwrap();
        assert!(
            refused.status.code() == Some(1) && words.starts_with("loading: ") && words.contains("absent"),
            "{words}"
        );
    }
}
