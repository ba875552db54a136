//! Tiny checkpoints of every architecture, and the logits that transformers computes for them.
//!
//! No weight is stored: the head of `oracles/logits.py` says how tensors and texts follow from their names.

mod gguf;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A checkpoint, a text, and what another implementation makes of them.
#[derive(Clone, Debug, Deserialize)]
pub struct LogitsCase {
    /// What the case is called.
    #[serde(skip)]
    pub name: &'static str,
    /// What `config.json` says.
    pub config: Map<String, Value>,
    /// Names and shapes of the tensors, as safetensors files have them.
    pub tensors: Vec<(String, Vec<usize>)>,
    /// Tokens of the text.
    #[serde(rename = "tokens")]
    pub count: usize,
    /// Positions whose logits are known.
    pub rows: Vec<usize>,
    /// Logits of each of these.
    pub logits: Vec<Vec<f32>>,
    /// `global` and `local`, as far as the model has them.
    pub rope: BTreeMap<String, RotaryTable>,
}

/// A rotary embedding.
#[derive(Clone, Debug, Deserialize)]
pub struct RotaryTable {
    /// Radians per position of each pair.
    pub frequencies: Vec<f64>,
    /// What cosines and sines are multiplied with.
    pub magnitude: f32,
}

/// Every case.
///
/// # Panics
/// When the data in the repository is damaged.
pub fn cases() -> Vec<LogitsCase> {
    macro_rules! cases {
        ($($name:literal)*) => {
            [$(($name, include_str!(concat!("../data/logits/", $name, ".json")))),*]
        };
    }
    let texts = cases![
        "llama" "llama-biased" "llama-linear" "llama-llama3" "llama-yarn" "mistral" "mistral-whole" "qwen2" "qwen2-windows"
        "qwen2-yarn" "qwen3" "gemma3" "gemma3-pattern" "gemma3-capped" "gpt2"
    ];
    let parse = |(name, text)| {
        let case: LogitsCase = serde_json::from_str(text).expect("the oracle's data parses");
        LogitsCase { name, ..case }
    };
    texts.into_iter().map(parse).collect()
}

/// The upper 24 bits of the hash of each element of `name`.
fn hashed(name: &str, count: usize) -> impl Iterator<Item = u32> {
    let fnv1a = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv1a);
    (1..=count as u64).map(move |index| {
        let x = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 40) as u32
    })
}

impl LogitsCase {
    /// The text.
    pub fn tokens(&self) -> Vec<u32> {
        let vocab = self.integer("vocab_size").expect("every case names its vocabulary") as u32;
        hashed("tokens", self.count).map(|hash| hash % vocab).collect()
    }

    /// The elements of a tensor, as safetensors files have them.
    fn values(&self, name: &str, shape: &[usize]) -> Vec<f32> {
        let is_norm = shape.len() == 1 && name.ends_with(".weight");
        let centre = if is_norm && !self.norms_from_one() { 1.0 } else { 0.0 };
        let is_vocabulary =
            ["embed_tokens.weight", "wte.weight", "lm_head.weight"].iter().any(|end| name.ends_with(end));
        let reach = if is_vocabulary { 0.5 } else { 0.25 };
        let value = |hash: u32| (centre + reach * (f64::from(hash) / f64::from(1 << 23) - 1.0)) as f32;
        hashed(name, shape.iter().product()).map(value).collect()
    }

    fn integer(&self, key: &str) -> Option<u64> {
        self.config.get(key).and_then(Value::as_u64)
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.config.get(key).and_then(Value::as_f64)
    }

    fn model_type(&self) -> &str {
        self.config["model_type"].as_str().expect("every case names its architecture")
    }

    fn norms_from_one(&self) -> bool {
        self.model_type().starts_with("gemma")
    }

    /// The bytes of `config.json`.
    pub fn config_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.config).expect("what was parsed can be written")
    }

    /// The bytes of `model.safetensors`, every tensor F32.
    pub fn safetensors(&self) -> Vec<u8> {
        let mut header = Map::new();
        let mut data = Vec::new();
        for (name, shape) in &self.tensors {
            let start = data.len();
            data.extend(self.values(name, shape).iter().flat_map(|value| value.to_le_bytes()));
            let entry = serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
            header.insert(name.clone(), entry);
        }
        let header = serde_json::to_vec(&header).expect("a map of names");
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.extend(data);
        bytes
    }

    /// The bytes of a GGUF file, every tensor F32, as converters write it: query and key rows permuted where they do,
    /// norms whole, matrices outputs first. `None` where the format has no key for what the configuration says.
    pub fn gguf(&self) -> Option<Vec<u8>> {
        gguf::convert(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_script() {
        // From `hashed("tokens", 3)` in Python.
        assert_eq!(hashed("tokens", 3).collect::<Vec<_>>(), [12_736_430, 4_898_490, 5_892_376]);
        for case in cases() {
            assert_eq!(case.rows.len(), case.logits.len(), "{}", case.name);
            assert!(case.rows.iter().all(|&row| row < case.count), "{}", case.name);
            let vocab = case.integer("vocab_size").expect("named") as usize;
            assert!(case.logits.iter().all(|row| row.len() == vocab), "{}", case.name);
        }
    }
}
