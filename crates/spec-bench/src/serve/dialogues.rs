//! Ten dialogues of customer service: does every turn reuse what was said before, and does drafting cost time to the first word?

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use spec_figures::{Percentiles, Spread, ratios};

use super::client::{Client, Mode};
use crate::asking::Answered;
use crate::http::Endpoint;
use crate::progress::Progress;

/// Tokens of an earlier turn that may have to be read again: the last ones, which fill no block of the cache.
const UNSHARED: usize = 64;

#[derive(Deserialize)]
pub(super) struct Dialogues {
    pub(super) system: String,
    pub(super) dialogues: Vec<Dialogue>,
}

#[derive(Deserialize)]
pub(super) struct Dialogue {
    pub(super) name: String,
    pub(super) language: String,
    /// What the customer says.
    pub(super) turns: Vec<String>,
}

/// A turn in one mode.
#[derive(Clone, Copy, Serialize)]
struct Turn {
    /// Seconds.
    first: f64,
    whole: f64,
    prompt_tokens: usize,
    cached_tokens: usize,
}

#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) turns: usize,
    /// Turns after a dialogue's first that read again more than the end of what was said.
    pub(super) without_reuse: usize,
    /// Of all tokens of prompts, the share that was not read again.
    pub(super) cached_share: f64,
    /// Speculative over plain, turn by turn.
    pub(super) first_ratio: Spread,
    pub(super) whole_ratio: Spread,
    /// Seconds to the first piece of text.
    pub(super) first: [Percentiles; 2],
    pub(super) whole: [Percentiles; 2],
}

pub(super) fn read() -> Result<Dialogues> {
    serde_json::from_str(include_str!("../../data/dialogues.json")).context("the dialogues")
}

/// Leads each dialogue in both modes, a turn of one and then of the other; the answers have to be equal.
pub(super) fn measure(
    endpoint: &Endpoint,
    dialogues: &Dialogues,
    max_tokens: usize,
    progress: &mut Progress,
) -> Result<Figures> {
    let clients = Mode::BOTH.map(|mode| Client::of(endpoint, mode));
    let mut turns: [Vec<Vec<Turn>>; 2] = [Vec::new(), Vec::new()];
    for dialogue in &dialogues.dialogues {
        let mut messages = vec![json!({ "role": "system", "content": dialogues.system })];
        turns.iter_mut().for_each(|of_mode| of_mode.push(Vec::new()));
        for (at, said) in dialogue.turns.iter().enumerate() {
            messages.push(json!({ "role": "user", "content": said }));
            let mut texts = [String::new(), String::new()];
            for mode in Mode::in_turn(at) {
                let client = &clients[mode as usize];
                let answer = client.ask(&client.body(&json!(messages), max_tokens))?;
                if let Some(of_dialogue) = turns[mode as usize].last_mut() {
                    of_dialogue.push(Turn::of(&answer));
                }
                texts[mode as usize] = answer.text;
            }
            let [plain, speculative] = texts;
            ensure!(plain == speculative, "{}, turn {}: {plain:?} became {speculative:?}", dialogue.name, at + 1);
            messages.push(json!({ "role": "assistant", "content": plain }));
        }
        progress.done(&format!("dialogue {} ({}), {} turns", dialogue.name, dialogue.language, dialogue.turns.len()));
    }
    figures(&turns)
}

impl Turn {
    fn of(answer: &Answered) -> Self {
        Self {
            first: answer.first.as_secs_f64(),
            whole: answer.whole.as_secs_f64(),
            prompt_tokens: answer.prompt_tokens,
            cached_tokens: answer.cached_tokens,
        }
    }
}

/// Of turns by mode and dialogue.
fn figures(turns: &[Vec<Vec<Turn>>; 2]) -> Result<Figures> {
    let without_reuse = turns
        .iter()
        .flatten()
        .flat_map(|dialogue| dialogue.windows(2))
        .filter(|pair| pair[1].cached_tokens + UNSHARED < pair[0].prompt_tokens)
        .count();
    let flat = turns.each_ref().map(|of_mode| of_mode.iter().flatten().copied().collect::<Vec<Turn>>());
    let all = || flat.iter().flatten();
    let values =
        |value: fn(&Turn) -> f64| flat.each_ref().map(|of_mode| of_mode.iter().map(value).collect::<Vec<f64>>());
    let (first, whole) = (values(|turn| turn.first), values(|turn| turn.whole));
    let ratio = |of: &[Vec<f64>; 2]| Spread::of(&ratios(&of[1], &of[0])).context("no turn was measured");
    let percentiles = |of: &[Vec<f64>; 2]| {
        let [plain, speculative] = of.each_ref().map(|of_mode| Percentiles::of(of_mode));
        Some([plain?, speculative?])
    };
    Ok(Figures {
        turns: flat[0].len(),
        without_reuse,
        cached_share: all().map(|turn| turn.cached_tokens).sum::<usize>() as f64
            / all().map(|turn| turn.prompt_tokens).sum::<usize>().max(1) as f64,
        first_ratio: ratio(&first)?,
        whole_ratio: ratio(&whole)?,
        first: percentiles(&first).context("no turn was measured")?,
        whole: percentiles(&whole).context("no turn was measured")?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Turn, figures, read};

    #[test]
    fn there_are_ten_dialogues_half_of_them_chinese_of_five_to_ten_turns() {
        let read = read().unwrap();
        let of = |language: &str| read.dialogues.iter().filter(|dialogue| dialogue.language == language).count();
        assert_eq!((of("en"), of("zh")), (5, 5));
        assert!(read.dialogues.iter().all(|dialogue| (5..=10).contains(&dialogue.turns.len())));
        assert!(read.system.len() > 500, "a prefix that is worth sharing");
    }

    #[test]
    fn a_turn_that_reads_everything_again_is_counted() {
        let turn = |prompt_tokens, cached_tokens, first| Turn { first, whole: 1.0, prompt_tokens, cached_tokens };
        let plain = vec![vec![turn(300, 0, 2.0), turn(400, 290, 1.0)]];
        let speculative = vec![vec![turn(300, 0, 2.0), turn(400, 0, 2.0)]];
        let figures = figures(&[plain, speculative]).unwrap();
        assert_eq!((figures.turns, figures.without_reuse), (2, 1));
        assert_eq!((figures.first_ratio.least, figures.first_ratio.most), (1.0, 2.0));
        assert!((figures.cached_share - 290.0 / 1400.0).abs() < 1e-12);
    }
}
