//! A source of choices that answers every way, one run after another.

use std::collections::HashSet;
use std::vec::Vec;

use crate::{ChoiceKey, Choices};

/// One run's answers: those of the trail where it has some, behind it the first possible one.
pub(super) struct Every {
    trail: Vec<Fork>,
    at: usize,
    probability: f64,
    keys: HashSet<ChoiceKey>,
    reused: Option<ChoiceKey>,
}

struct Fork {
    /// Possible answers with their probabilities.
    options: Vec<(usize, f64)>,
    taken: usize,
}

impl Every {
    fn answer(&mut self, key: ChoiceKey, options: impl FnOnce() -> Vec<(usize, f64)>) -> usize {
        if !self.keys.insert(key) {
            self.reused = Some(key);
        }
        if self.at == self.trail.len() {
            self.trail.push(Fork { options: options(), taken: 0 });
        }
        let fork = &self.trail[self.at];
        let (answer, probability) = fork.options[fork.taken];
        self.at += 1;
        self.probability *= probability;
        answer
    }
}

impl Choices for Every {
    fn accept(&mut self, key: ChoiceKey, probability: f64) -> bool {
        let yes = if probability >= 1.0 { 1.0 } else { f64::max(probability, 0.0) };
        let options = || [(1, yes), (0, 1.0 - yes)].into_iter().filter(|&(_, p)| p > 0.0).collect();
        self.answer(key, options) == 1
    }

    fn draw(&mut self, key: ChoiceKey, weights: &[f64]) -> Option<usize> {
        let total: f64 = weights.iter().filter(|weight| **weight > 0.0).sum();
        if !(total > 0.0 && total < f64::INFINITY) {
            return None;
        }
        let positive = |&(_, weight): &(usize, f64)| weight > 0.0;
        let options = || weights.iter().copied().enumerate().filter(positive).map(|(i, w)| (i, w / total)).collect();
        Some(self.answer(key, options))
    }
}

/// Runs `work` for every way its choices can fall. It gets the probability of the run with `finish`ed choices.
///
/// `taken` are keys used before, by the same round. A key used twice is an error: production would answer it alike both times.
pub(super) fn enumerate<T>(
    taken: &HashSet<ChoiceKey>,
    mut work: impl FnMut(&mut dyn Choices) -> T,
    mut finish: impl FnMut(T, f64, HashSet<ChoiceKey>) -> Result<(), String>,
) -> Result<(), String> {
    let mut trail: Vec<Fork> = Vec::new();
    loop {
        let mut every = Every { trail, at: 0, probability: 1.0, keys: taken.clone(), reused: None };
        let result = work(&mut every);
        if let Some(key) = every.reused {
            return Err(format!("a key is used twice: {key:?}"));
        }
        finish(result, every.probability, every.keys)?;
        trail = every.trail;
        while trail.last().is_some_and(|fork| fork.taken + 1 == fork.options.len()) {
            trail.pop();
        }
        match trail.last_mut() {
            Some(fork) => fork.taken += 1,
            None => return Ok(()),
        }
    }
}

use std::format;
use std::string::String;
