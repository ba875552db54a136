//! The public prompts, and what another implementation makes of the real models.

use serde::Deserialize;

use crate::models::Model;

/// The seven public prompts: name, and text with chat markup.
pub fn prompts() -> [(&'static str, &'static str); 7] {
    macro_rules! prompt {
        ($name:literal) => {
            ($name, include_str!(concat!("../data/prompts/", $name, ".txt")))
        };
    }
    [
        prompt!("chat"),
        prompt!("chinese"),
        prompt!("code-edit"),
        prompt!("code-write"),
        prompt!("extract"),
        prompt!("prose"),
        prompt!("summarise"),
    ]
}

/// A text that a real model wrote.
#[derive(Clone, Debug, Deserialize)]
pub struct RealText {
    /// Name of the prompt.
    pub name: String,
    /// How it was drawn: `greedy`, or a seed at temperature 0.8.
    pub sampling: String,
    /// The prompt's ids.
    pub prompt: Vec<u32>,
    /// The answer's ids, up to 256.
    pub answer: Vec<u32>,
}

/// Answers of Qwen2.5-Coder 1.5B Q4_K_M to the seven prompts, by this engine: greedy, and with two seeds.
///
/// # Panics
/// If the file in this crate is damaged.
pub fn texts() -> Vec<RealText> {
    serde_json::from_str(include_str!("../data/texts.json")).expect("the file is a list of texts")
}

/// What the reference implementation says of a model.
#[derive(Clone, Debug, Deserialize)]
pub struct Reference {
    /// Stem of the model's file.
    pub model: String,
    /// The implementation.
    pub source: String,
    /// Texts and their ids.
    pub tokenize: Vec<TokenizeCase>,
    /// Greedy completions.
    pub complete: Vec<CompletionCase>,
}

/// A text and its ids.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenizeCase {
    /// The text.
    pub text: String,
    /// Its ids, special tokens taken as plain text.
    pub ids: Vec<u32>,
    /// Its ids with special tokens parsed.
    pub ids_with_special: Vec<u32>,
}

/// A prompt and its greedy completion.
#[derive(Clone, Debug, Deserialize)]
pub struct CompletionCase {
    /// `plain` or `chat`.
    pub kind: String,
    /// The text, or the user's message.
    pub user: String,
    /// The text after the chat template.
    pub prompt_text: String,
    /// Its ids.
    pub prompt_ids: Vec<u32>,
    /// The tokens generated.
    pub generated: Vec<GeneratedToken>,
    /// Their text.
    pub text: String,
}

/// A generated token.
#[derive(Clone, Debug, Deserialize)]
pub struct GeneratedToken {
    /// The token.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// The likeliest tokens and their log-probabilities, best first.
    pub top: Vec<(u32, f64)>,
}

/// The reference of a model.
///
/// # Panics
/// When the data in the repository is damaged.
pub fn reference(model: Model) -> Reference {
    let text = match model {
        Model::SmolLm2 => include_str!("../data/reference/smollm2-135m-instruct-q4_1.json"),
        Model::QwenDraft => include_str!("../data/reference/qwen2.5-coder-0.5b-instruct-q4_k_m.json"),
        Model::QwenTarget => include_str!("../data/reference/qwen2.5-coder-1.5b-instruct-q4_k_m.json"),
        Model::Gemma => include_str!("../data/reference/gemma-3-270m-q4_k_m.json"),
    };
    let reference: Reference = serde_json::from_str(text).expect("the reference data parses");
    assert_eq!(reference.model, model.stem(), "the reference belongs to the model");
    reference
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_a_reference_and_every_prompt_a_text() {
        for model in [Model::SmolLm2, Model::QwenDraft, Model::QwenTarget, Model::Gemma] {
            let reference = reference(model);
            assert!(!reference.tokenize.is_empty());
            assert!(reference.complete.iter().all(|case| !case.prompt_ids.is_empty() && !case.generated.is_empty()));
        }
        assert!(prompts().iter().all(|(_, text)| text.len() > 100));
    }
}
