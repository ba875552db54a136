//! Rotary position embedding: what turns, how fast, and how it is stretched beyond the trained context.

use std::f64::consts::PI;

use crate::RopeStyle;

/// Rotary position embedding: pair `i` of `dims / 2` turns by `position * frequencies()[i]`, and the turned elements are
/// multiplied with [`RopeConfig::magnitude`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RopeConfig {
    /// Base of the frequencies, above 1.
    pub theta: f32,
    /// Pairing of elements.
    pub style: RopeStyle,
    /// Leading elements of a head that are rotated; even, at most the head.
    pub dims: usize,
    /// How frequencies are stretched.
    pub scaling: RopeScaling,
    /// Divisors of the `dims / 2` frequencies (tensor `rope_freqs.weight`), all finite and positive; `None` means 1.
    pub frequency_factors: Option<Vec<f32>>,
}

/// Stretching of frequencies beyond the context that a model was trained for.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// None.
    None,
    /// Every position divided by `factor`.
    Linear {
        /// At least 1.
        factor: f32,
    },
    /// Llama 3.1: long wavelengths divided by `factor`, short ones kept, those between blended.
    Llama3 {
        /// At least 1.
        factor: f32,
        /// Wavelengths above `original_context / low_freq_factor` are stretched.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f32,
        /// Positions before stretching.
        original_context: usize,
    },
    /// YaRN (arXiv 2309.00071).
    Yarn {
        /// At least 1.
        factor: f32,
        /// Positions before stretching.
        original_context: usize,
        /// Pairs that turn more often than this within the original context are kept.
        beta_fast: f32,
        /// Pairs that turn less often than this are stretched.
        beta_slow: f32,
        /// The magnitude.
        attention_factor: f32,
        /// True when the borders of the blend are whole pairs.
        truncate: bool,
    },
}

impl RopeConfig {
    /// Radians per position of each of the `dims / 2` pairs.
    #[must_use]
    pub fn frequencies(&self) -> Vec<f64> {
        let (dims, theta) = (self.dims as f64, f64::from(self.theta));
        let pairs = self.dims / 2;
        let plain = |pair: usize| theta.powf(-2.0 * pair as f64 / dims);
        (0..pairs)
            .map(|pair| {
                let divisor = self.frequency_factors.as_ref().map_or(1.0, |factors| f64::from(factors[pair]));
                self.scale(pair, plain(pair)) / divisor
            })
            .collect()
    }

    fn scale(&self, pair: usize, frequency: f64) -> f64 {
        // The share of `frequency` that is kept; the rest is divided by the factor.
        let blend = |kept: f64, factor: f32| frequency * kept + frequency / f64::from(factor) * (1.0 - kept);
        match self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / f64::from(factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let (low, high) = (f64::from(low_freq_factor), f64::from(high_freq_factor));
                let turns = original_context as f64 * frequency / (2.0 * PI);
                if turns > high {
                    frequency
                } else if turns < low {
                    frequency / f64::from(factor)
                } else {
                    blend((turns - low) / (high - low), factor)
                }
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, .. } => {
                let border = |turns: f32| {
                    let wavelength = original_context as f64 / (f64::from(turns) * 2.0 * PI);
                    self.dims as f64 * wavelength.ln() / (2.0 * f64::from(self.theta).ln())
                };
                let (mut low, mut high) = (border(beta_fast), border(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(self.dims as f64 - 1.0));
                if low == high {
                    high += 0.001;
                }
                blend(1.0 - ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0), factor)
            }
        }
    }

    /// What turned elements are multiplied with: YaRN's attention factor, otherwise 1.
    #[must_use]
    pub fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }
}
