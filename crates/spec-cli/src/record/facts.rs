//! What is recorded of the models that ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spec_core::{LengthPolicyName, RuleName};
use spec_model::Checkpoint;

use super::{Run, VERSION};
use crate::args::{DraftLen, ModelArgs};
use crate::memory::Size;
use crate::session::{Device, Opened, Session};

/// A model file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelFacts {
    pub(crate) name: String,
    /// Of all its files.
    pub(crate) file_bytes: u64,
    pub(crate) parameters: u64,
    /// The type that most bytes of its tensors have.
    #[serde(rename = "type")]
    pub(crate) tensor_type: String,
}

impl ModelFacts {
    pub(crate) fn of(checkpoint: &Checkpoint) -> Self {
        let mut types: BTreeMap<String, usize> = BTreeMap::new();
        let mut parameters = 0;
        for tensor in checkpoint.tensors() {
            parameters += (tensor.rows * tensor.cols) as u64;
            *types.entry(tensor.tensor_type.to_string()).or_default() += tensor.stored_bytes();
        }
        let most = types.into_iter().max_by_key(|&(_, bytes)| bytes);
        Self {
            name: checkpoint.config().name.clone(),
            file_bytes: checkpoint.files().map(|(_, bytes)| bytes as u64).sum(),
            parameters,
            tensor_type: most.map_or_else(String::new, |(name, _)| name),
        }
    }
}

/// A draft model, and what it shares with the target.
#[derive(Clone, Debug)]
pub(crate) struct DraftFacts {
    pub(crate) model: ModelFacts,
    /// Share of the target's tokens that it has too.
    pub(crate) shared_vocabulary: f64,
}

impl Run {
    /// What a command is about to run whose requests say by themselves how they sample; `drafter` is the engine's.
    pub(crate) fn of(
        command: &str,
        model: &ModelArgs,
        opened: &Opened,
        session: &Session,
        (drafter, context): (&str, usize),
    ) -> Self {
        Self {
            version: VERSION,
            command: command.to_owned(),
            target: ModelFacts::of(&opened.checkpoint),
            draft: session.draft.as_ref().map(|draft| draft.model.clone()),
            drafter: drafter.to_owned(),
            rule: None,
            length_policy: match (model.preset, model.draft_len, model.length_policy) {
                (Some(preset), _, _) => format!("fixed:{}", preset.tokens()),
                (None, DraftLen::Tokens(tokens), _) => format!("fixed:{tokens}"),
                (None, DraftLen::Auto, policy) => policy.unwrap_or_default().to_string(),
            },
            temperature: None,
            prompt_tokens: None,
            threads: match &session.device {
                Device::Cpu(device) => Some(device.pool().threads()),
                Device::Ascend(_) => None,
            },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            device: session.target.config().device.clone(),
            context,
            shared_vocabulary: session.draft.as_ref().map(|draft| draft.shared_vocabulary),
            memory_limit: model.mem_limit.map(|Size(bytes)| bytes as u64),
            machine_memory: crate::doctor::machine_memory(),
            storage: Some([format!("{:?}", model.storage), format!("{:?}", model.draft_storage)]),
        }
    }

    /// With what all its requests sample by.
    #[must_use]
    pub(crate) fn sampling(self, rule: Option<RuleName>, temperature: f32) -> Self {
        let usual = if temperature == 0.0 { "greedy" } else { "coupled" };
        let rule = rule.map_or_else(|| usual.to_owned(), |rule| rule.to_string());
        Self { rule: Some(rule), temperature: Some(temperature.into()), ..self }
    }

    /// Its length policy, where this program knows it.
    pub(crate) fn policy(&self) -> Option<LengthPolicyName> {
        self.length_policy.parse().ok()
    }
}
