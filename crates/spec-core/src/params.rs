//! Sampling parameters and their ranges.

use alloc::vec::Vec;

use crate::{SamplingError, Token};

/// How a request samples. The default changes nothing and takes the argmax.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 takes the argmax. Finite, at least 0.
    pub temperature: f32,
    /// Keeps the `top_k` greatest logits; 0 is off.
    pub top_k: usize,
    /// Keeps the smallest set of most probable tokens whose probability reaches `top_p`; 1 is off. In (0, 1].
    pub top_p: f32,
    /// Keeps tokens at least `min_p` times as probable as the most probable one; 0 is off. In [0, 1].
    pub min_p: f32,
    /// Divides positive logits of seen tokens and multiplies negative ones; 1 is off. Finite, above 0.
    pub repeat_penalty: f32,
    /// Subtracted from the logits of seen tokens; 0 is off. Finite.
    pub presence_penalty: f32,
    /// Subtracted from the logits of seen tokens once per occurrence; 0 is off. Finite.
    pub frequency_penalty: f32,
    /// How many of the last tokens count as seen; 0 is the whole history, prompt included.
    pub penalty_window: usize,
    /// Added to the logits of single tokens; minus infinity bans one. A token named twice gets both.
    pub logit_bias: Vec<(Token, f32)>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 0,
            logit_bias: Vec::new(),
        }
    }
}

impl SamplingParams {
    /// Checks every field against its range and the vocabulary.
    ///
    /// # Errors
    /// Names the first field that is out of range, its value and the range.
    pub fn validate(&self, vocab: usize) -> Result<(), SamplingError> {
        let fields = [
            (
                "temperature",
                self.temperature,
                self.temperature >= 0.0,
                "finite and at least 0 (0 takes the most probable token)",
            ),
            ("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1 (1 is off)"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1 (0 is off)"),
            ("repeat_penalty", self.repeat_penalty, self.repeat_penalty > 0.0, "finite and above 0 (1 is off)"),
            ("presence_penalty", self.presence_penalty, true, "finite (0 is off)"),
            ("frequency_penalty", self.frequency_penalty, true, "finite (0 is off)"),
        ];
        for (field, value, within, range) in fields {
            if !(within && value.is_finite()) {
                return Err(SamplingError::OutOfRange { field, value, range });
            }
        }
        for &(token, value) in &self.logit_bias {
            if token as usize >= vocab {
                return Err(SamplingError::BiasToken { token, vocab });
            }
            if value.is_nan() || value == f32::INFINITY {
                return Err(SamplingError::BiasValue { token, value });
            }
        }
        Ok(())
    }

    /// Whether the law is one-hot at the argmax.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Whether the most probable token of a row is that of the row as the model gave it, unless a mask forbids it: there are
    /// no penalties and no bias.
    pub fn keeps_argmax(&self) -> bool {
        !self.has_penalties() && self.logit_bias.is_empty()
    }

    /// Whether seen tokens change the logits.
    pub(crate) fn has_penalties(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// `1 / temperature`; `None` at temperature 0.
    pub(crate) fn inverse_temperature(&self) -> Option<f64> {
        (!self.is_greedy()).then(|| 1.0 / f64::from(self.temperature))
    }
}
