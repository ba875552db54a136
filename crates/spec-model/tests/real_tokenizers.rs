//! Every string of the stored references, by each way to a tokenizer that a model family has.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use serde_json::value::RawValue;
use spec_model::gguf::Gguf;
use spec_model::{ChatTemplate, Conversation, Mapping, Tokenizer};
use spec_testing::data::{self, Reference};
use spec_testing::models::{self, Model};

/// A text on which tokenizers are known to differ, with its ids by llama.cpp.
const GOLDEN: &str = "Hello world! Café déjà vu — 123 😊";

/// What is wrong with the ids of `tokenizer`, by the reference.
fn differences(name: &str, tokenizer: &Tokenizer, reference: &Reference) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut compared = 0;
    let mut equal = |text: &str, special: bool, want: &[u32]| {
        compared += 1;
        let got = tokenizer.encode(text, special).unwrap();
        if got != want {
            wrong.push(format!("{name}: {text:?} special {special}: got {got:?}, want {want:?}"));
        }
    };
    for case in &reference.tokenize {
        equal(&case.text, false, &case.ids);
        equal(&case.text, true, &case.ids_with_special);
    }
    for completion in &reference.complete {
        equal(&completion.prompt_text, true, &completion.prompt_ids);
    }
    assert!(compared >= 38, "{name}: {compared} compared");
    for case in &reference.tokenize {
        let text = tokenizer.decode(&case.ids).unwrap();
        if text != case.text {
            wrong.push(format!("{name}: {:?} decodes to {text:?}", case.ids));
        }
    }
    wrong
}

fn gguf(model: Model) -> (Tokenizer, Option<ChatTemplate>) {
    let path = models::path(model);
    let gguf = Gguf::parse(Mapping::open(&path).unwrap(), model.stem()).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata(), None).unwrap();
    (tokenizer, ChatTemplate::from_metadata(gguf.metadata()).unwrap())
}

fn published(family: &str) -> Tokenizer {
    let folder = models::published_tokenizer(family);
    let read = |name| std::fs::read(folder.join(name)).unwrap();
    let name = format!("{family}/tokenizer.json");
    Tokenizer::from_json(&read("tokenizer.json"), Some(&read("tokenizer_config.json")), None, &name).unwrap()
}

#[test]
fn real_smollm2_tokens_are_the_golden_ones() {
    let (tokenizer, _) = gguf(Model::SmolLm2);
    let ids = [19556, 905, 17, 48031, 2756, 32564, 90, 16739, 386, 101, 1841, 216, 33, 34, 35, 40303, 228];
    assert_eq!(tokenizer.encode(GOLDEN, false).unwrap(), ids);
    assert_eq!(tokenizer.encode("<|im_end|>", true).unwrap(), [2], "a control token is one id");
}

#[test]
#[ignore = "needs Gemma 3 270M and published tokenizers: cargo xtask test --gemma"]
fn real_gemma_and_published_tokenizers_give_the_ids_of_the_references() {
    let (gemma, template) = gguf(Model::Gemma);
    assert!(template.is_none(), "the public file has no chat template");
    let (gemma_json, qwen_json) = (published("gemma-3"), published("qwen2.5"));
    let mut wrong = differences("gemma gguf", &gemma, &data::reference(Model::Gemma));
    wrong.extend(differences("gemma json", &gemma_json, &data::reference(Model::Gemma)));
    wrong.extend(differences("qwen json, 0.5B", &qwen_json, &data::reference(Model::QwenDraft)));
    wrong.extend(differences("qwen json, 1.5B", &qwen_json, &data::reference(Model::QwenTarget)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let golden = [9259, 1902, 236888, 62367, 29234, 11042, 2192, 236743, 236770, 236778, 236800, 103453];
    for tokenizer in [&gemma, &gemma_json] {
        assert_eq!(tokenizer.encode(GOLDEN, false).unwrap(), golden);
        assert_eq!(tokenizer.encode("<end_of_turn>", true).unwrap(), [2, 106], "a control token is one id");
        assert_eq!(tokenizer.end_ids(), [1, 106]);
    }
    let golden = [9707, 1879, 0, 65671, 45839, 32514, 1959, 220, 16, 17, 18, 26525, 232];
    assert_eq!(qwen_json.encode(GOLDEN, false).unwrap(), golden);
    assert_eq!(qwen_json.end_ids(), [151_643, 151_645]);

    // The file in one form and the published one are the same vocabulary, but for what either takes for control.
    for id in 0..262_144 {
        assert_eq!(gemma.token_bytes(id, true).unwrap(), gemma_json.token_bytes(id, true).unwrap(), "token {id}");
    }
}

/// What jinja2 makes of the templates in models' files: conversations as they are written, since the order of keys counts.
#[derive(serde::Deserialize)]
struct Rendered<'a> {
    #[serde(borrow)]
    conversations: std::collections::BTreeMap<String, Written<'a>>,
    models: std::collections::BTreeMap<String, std::collections::BTreeMap<String, [Option<String>; 2]>>,
}

#[derive(serde::Deserialize)]
struct Written<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    variables: Option<&'a RawValue>,
}

/// Every conversation by the template in the file of `model`.
fn renders_as_jinja2(model: Model) {
    let template = gguf(model).1.unwrap();
    let text = include_str!("../../spec-testing/data/chat_templates/rendered.json");
    let oracle: Rendered<'_> = serde_json::from_str(text).unwrap();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (name, results) in &oracle.models[model.stem()] {
        let written = &oracle.conversations[name];
        for (add_generation_prompt, theirs) in [false, true].into_iter().zip(results) {
            let ours = template.render_json(&Conversation {
                messages: written.messages.get(),
                tools: written.tools.map(RawValue::get),
                variables: written.variables.map(RawValue::get),
                add_generation_prompt,
            });
            compared += 1;
            if ours.as_ref().ok() != theirs.as_ref() {
                wrong.push(format!("{name}:\n  ours   {ours:?}\n  theirs {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty() && compared > 20, "{compared} compared\n{}", wrong.join("\n"));
}

#[test]
fn real_smollm2_template_renders_as_in_python() {
    renders_as_jinja2(Model::SmolLm2);
}

#[test]
#[ignore = "needs the Qwen pair: cargo xtask test --pair"]
fn real_qwen_pair_templates_render_as_in_python() {
    for model in [Model::QwenDraft, Model::QwenTarget] {
        renders_as_jinja2(model);
    }
}
