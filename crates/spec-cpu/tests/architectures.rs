//! Every architecture: logits against transformers', and speculation that changes nothing.

use std::path::Path;
use std::sync::Arc;

use spec_core::{Fixed, SamplingParams};
use spec_cpu::{CpuModel, Isa, KvType, LoadOptions, Pool};
use spec_model::{Checkpoint, RopeConfig};
use spec_runtime::{
    Batch, Completion, Drafter, Engine, HostStream, Model as _, ModelDrafter, NgramDrafter, Request, Want,
};
use spec_testing::Letters;
use spec_testing::logits::{self, LogitsCase, RotaryTable};
use spec_testing::tiny::{self, TinySpec};

/// Most that a logit may differ by; both sides compute in f32.
const TOLERANCE: f32 = 1e-3;
/// Texts that one instruction set is enough for.
const LONG: usize = 1000;

fn load(checkpoint: &Checkpoint, isa: Isa, kv: KvType) -> Arc<CpuModel> {
    let mut options = LoadOptions::new(Arc::new(Pool::new(2).expect("threads")));
    options.isa = Some(isa);
    options.kv = kv;
    Arc::new(CpuModel::load(checkpoint, options).expect("a model that the kernels take"))
}

fn greatest(logits: &[f32]) -> usize {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("a vocabulary")
}

/// The logits of the rows that the case knows.
fn found(case: &LogitsCase, model: &CpuModel) -> Vec<Vec<f32>> {
    let seq = model.open().expect("room");
    let mut logits = Vec::new();
    for (index, tokens) in case.tokens().chunks(model.config().max_rows).enumerate() {
        let committed = index * model.config().max_rows;
        model.reserve(seq, tokens.len()).expect("room");
        let mut batch = Batch::chain(seq, tokens, committed, None, Want::Nothing);
        let wanted: Vec<usize> = (0..tokens.len()).filter(|row| case.rows.contains(&(committed + row))).collect();
        for row in &mut batch.rows {
            row.want = if wanted.contains(&(row.position - committed)) { Want::Logits } else { Want::Nothing };
        }
        let rows = model.submit(&HostStream, &batch).expect("legal rows").wait().expect("a pass");
        logits.extend(wanted.iter().map(|&row| rows.logits(row).expect("wanted").to_vec()));
        let path: Vec<u32> = (0..tokens.len() as u32).collect();
        model.settle(seq, &path).expect("a chain");
    }
    model.close(seq);
    logits
}

/// What differs from the oracle, in words.
fn differences(case: &LogitsCase, checkpoint: &Checkpoint, form: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let isas = if case.count > LONG { vec![Isa::detect()] } else { Isa::available() };
    for isa in isas {
        let what = format!("{} as {form} on {}", case.name, isa.name());
        let found = found(case, &load(checkpoint, isa, KvType::F32));
        let mut worst = 0.0_f32;
        for ((found, expected), row) in found.iter().zip(&case.logits).zip(&case.rows) {
            assert_eq!(found.len(), expected.len(), "{what}");
            let most = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            worst = worst.max(most);
            if most >= TOLERANCE || found.iter().any(|logit| logit.is_nan()) {
                problems.push(format!("{what}, position {row}: logits differ by {most}"));
            } else if greatest(found) != greatest(expected) {
                problems.push(format!("{what}, position {row}: another token is first"));
            }
        }
        println!("{what}: logits differ by {worst:.1e} at most");
    }
    problems
}

fn same_rotation(config: Option<&RopeConfig>, table: Option<&RotaryTable>, what: &str) -> Option<String> {
    let (Some(config), Some(table)) = (config, table) else {
        return (config.is_some() != table.is_some()).then(|| format!("{what}: a rotary table too many or too few"));
    };
    let found = config.frequencies();
    // Theirs are rounded to f32 at every step.
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
    let same = found.len() == table.frequencies.len()
        && found.iter().zip(&table.frequencies).all(close)
        && (config.magnitude() - table.magnitude).abs() < 1e-6;
    (!same).then(|| format!("{what}: {found:?} times {}, not {table:?}", config.magnitude()))
}

fn rotations(case: &LogitsCase, checkpoint: &Checkpoint) -> Vec<String> {
    let config = checkpoint.config();
    let local = config.sliding_window.as_ref().and_then(|window| window.rope.as_ref());
    [("global", config.rope.as_ref()), ("local", local)]
        .into_iter()
        .filter_map(|(name, rope)| same_rotation(rope, case.rope.get(name), &format!("{}, {name}", case.name)))
        .collect()
}

/// Compares all cases that `open` can make a checkpoint of, and says how many these are.
fn compare(form: &str, open: impl Fn(&LogitsCase) -> Option<Checkpoint>) -> usize {
    let mut problems = Vec::new();
    let mut tried = 0;
    for case in logits::cases() {
        let Some(checkpoint) = open(&case) else { continue };
        tried += 1;
        problems.extend(rotations(&case, &checkpoint));
        problems.extend(differences(&case, &checkpoint, form));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    tried
}

#[test]
fn gguf_checkpoints_of_every_architecture_give_the_logits_of_transformers() {
    let open = |case: &LogitsCase| Some(Checkpoint::from_bytes(case.gguf()?, case.name).expect("a legal file"));
    assert_eq!(compare("GGUF", open), logits::cases().len() - 1, "all but one have keys for what they say");
}

#[test]
fn safetensors_checkpoints_of_every_architecture_give_the_logits_of_transformers() {
    let open = |case: &LogitsCase| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("logits").join(case.name);
        std::fs::create_dir_all(&folder).expect("a folder for tests");
        std::fs::write(folder.join("config.json"), case.config_json()).expect("room on the disk");
        std::fs::write(folder.join("model.safetensors"), case.safetensors()).expect("room on the disk");
        Some(Checkpoint::open(&folder).expect("a legal folder"))
    };
    assert_eq!(compare("safetensors", open), logits::cases().len());
}

#[test]
fn speculation_changes_nothing_and_a_models_own_copy_is_accepted_whole() {
    let greedy = SamplingParams::default();
    let seeded = SamplingParams { temperature: 0.8, top_p: 0.95, ..SamplingParams::default() };
    for spec in TinySpec::every_architecture() {
        let open = |spec| Checkpoint::from_bytes(tiny::gguf(spec), "tiny.gguf").expect("a legal file");
        let target = load(&open(spec), Isa::detect(), KvType::F16);
        let model = |spec: TinySpec| -> Box<dyn Drafter> {
            Box::new(ModelDrafter::new(load(&open(spec), Isa::detect(), KvType::F16)))
        };
        let prompt: Vec<u32> = (0..30).map(|i| i * 7 % 60).collect();
        let run = |drafter: Option<Box<dyn Drafter>>, sampling: &SamplingParams, k: usize| -> Completion {
            let mut engine = Engine::new(Arc::clone(&target) as _, Arc::new(Letters(spec.vocab)));
            if let Some(drafter) = drafter {
                engine = engine.with_drafter(drafter);
            }
            let request = Request {
                sampling: sampling.clone(),
                seed: Some(5),
                draft_len: Box::new(Fixed(k)),
                ..Request::new(prompt.clone(), 200)
            };
            engine.generate(request, &mut |_| {}).expect("the generation succeeds")
        };
        for (setting, sampling) in [("greedy", &greedy), ("seeded", &seeded)] {
            let plain = run(None, sampling, 0);
            assert_eq!(plain.tokens.len(), 200);
            for k in [1, 5] {
                for (name, drafter) in [
                    ("self", model(spec)),
                    ("random", model(TinySpec { seed: 99, ..spec })),
                    ("ngram", Box::new(NgramDrafter::new())),
                ] {
                    let what = format!("{}, window {:?}, {setting}, {name}, k {k}", spec.arch, spec.window);
                    let got = run(Some(drafter), sampling, k);
                    assert_eq!(got.tokens, plain.tokens, "{what}");
                    let stats = &got.speculation;
                    assert!(name == "ngram" || stats.drafted > 0, "{what}: nothing was drafted");
                    assert!(name != "self" || stats.accepted == stats.drafted, "{what}: {stats:?}");
                }
            }
        }
        assert_eq!(target.free_blocks(), target.total_blocks(), "{}: blocks leak", spec.arch);
    }
}
