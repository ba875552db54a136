//! Tokens per second of several clients at once, with speculation and without, on one server in one run.

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use spec_figures::{Spread, ratios};

use super::ceiling::{Ceiling, Curve, add, survival};
use super::client::{Client, Mode};
use crate::asking::Answered;
use crate::engine::Position;
use crate::http::Endpoint;
use crate::progress::Progress;

/// A kind of prompt, its text, and its figures by number of clients.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) cells: Vec<Cell>,
    /// Of drafts made for one client alone: what the ceiling is reckoned with.
    positions: Vec<Position>,
}

/// One number of clients.
pub(super) struct Cell {
    pub(super) clients: usize,
    /// Tokens per second, by round.
    plain: Vec<f64>,
    speculative: Vec<f64>,
}

#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) prompt: String,
    pub(super) clients: usize,
    pub(super) plain: Spread,
    pub(super) speculative: Spread,
    pub(super) ratio: Spread,
    pub(super) ceiling: Option<Ceiling>,
}

impl Subject {
    pub(super) fn new(name: String, text: String, clients: &[usize]) -> Self {
        let cell = |&clients: &usize| Cell { clients, plain: Vec::new(), speculative: Vec::new() };
        Self { name, text, cells: clients.iter().map(cell).collect(), positions: Vec::new() }
    }

    /// One round: every number of clients in both modes. Prompts differ by their last line, anew in every round, so that
    /// no answer is known before.
    pub(super) fn round(
        &mut self,
        endpoint: &Endpoint,
        round: usize,
        max_tokens: usize,
        progress: &mut Progress,
    ) -> Result<()> {
        for at in 0..self.cells.len() {
            let clients = self.cells[at].clients;
            let prompts = prompts(&self.text, round, clients);
            let mut texts: [Vec<String>; 2] = [Vec::new(), Vec::new()];
            for mode in Mode::in_turn(round + at) {
                let client = Client::of(endpoint, mode);
                let (rate, answers) = rate(&client, &prompts, max_tokens)?;
                progress.done(&format!("{}, {clients} at once, {}: {rate:.1} tokens/s", self.name, mode.name()));
                let cell = &mut self.cells[at];
                match mode {
                    Mode::Plain => cell.plain.push(rate),
                    Mode::Speculative => cell.speculative.push(rate),
                }
                if mode == Mode::Speculative && clients == 1 {
                    answers.iter().for_each(|answer| add(&mut self.positions, &answer.speculation.by_position));
                }
                texts[mode as usize] = answers.into_iter().map(|answer| answer.text).collect();
            }
            for (plain, speculative) in texts[0].iter().zip(&texts[1]) {
                ensure!(
                    plain == speculative,
                    "{}, {clients} at once: plain said {plain:?} and speculation {speculative:?}",
                    self.name
                );
            }
        }
        Ok(())
    }

    pub(super) fn figures(&self, curve: Option<&Curve>) -> Vec<Figures> {
        let survival = survival(&self.positions);
        let figures = |cell: &Cell| {
            Some(Figures {
                prompt: self.name.clone(),
                clients: cell.clients,
                plain: Spread::of(&cell.plain)?,
                speculative: Spread::of(&cell.speculative)?,
                ratio: Spread::of(&ratios(&cell.speculative, &cell.plain))?,
                ceiling: curve.filter(|_| !survival.is_empty()).map(|curve| curve.ceiling(cell.clients, &survival)),
            })
        };
        self.cells.iter().filter_map(figures).collect()
    }
}

/// What a user says in a file of ours, whose prompts carry the markers of one model's template: a server has its own.
pub(super) fn said(text: &str) -> &str {
    let said = text.split_once("<|im_start|>user\n").and_then(|(_, rest)| rest.split_once("<|im_end|>"));
    said.map_or(text, |(said, _)| said).trim()
}

/// Messages that share all but their ends.
pub(super) fn prompts(text: &str, round: usize, clients: usize) -> Vec<Value> {
    (0..clients)
        .map(|client| {
            let content = format!("{text}\n\n(This is request {} of round {}.)", client + 1, round + 1);
            json!([{ "role": "user", "content": content }])
        })
        .collect()
}

/// Tokens per second of all clients together. Their prompts are read before: what is compared is decoding.
pub(super) fn rate(client: &Client, prompts: &[Value], max_tokens: usize) -> Result<(f64, Vec<Answered>)> {
    let bodies = |tokens| prompts.iter().map(|messages| client.body(messages, tokens)).collect::<Vec<_>>();
    client.ask_together(&bodies(1))?;
    let (answers, took) = client.ask_together(&bodies(max_tokens))?;
    let tokens: usize = answers.iter().map(|answer| answer.completion_tokens).sum();
    ensure!(tokens > answers.len(), "{tokens} tokens for {} clients are too few to time", answers.len());
    Ok((tokens as f64 / took.as_secs_f64(), answers))
}

#[cfg(test)]
mod tests {
    use super::{Curve, Subject, prompts, said};
    use crate::engine::Position;
    use crate::http::tests::{scripted, streamed};
    use crate::progress::Progress;

    #[test]
    fn a_round_times_both_modes_and_ends_where_their_texts_differ() {
        let is_plain = |body: &str| body.contains(r#""speculation":{"enabled":false}"#);
        let honest = scripted(move |body| streamed("one two three", if is_plain(body) { 0 } else { 4 }));
        let mut subject = Subject::new("code".into(), "text".into(), &[1, 2]);
        subject.round(&honest, 0, 3, &mut Progress::new(4)).unwrap();
        let figures = subject.figures(None);
        assert_eq!(figures.iter().map(|figures| figures.clients).collect::<Vec<_>>(), [1, 2]);
        assert!(figures.iter().all(|figures| figures.plain.median > 0.0 && figures.speculative.median > 0.0));
        assert_eq!(subject.positions, [Position { drafted: 4, accepted: 2 }]);

        let wrong = scripted(move |body| streamed(if is_plain(body) { "one two" } else { "one too" }, 0));
        let error =
            Subject::new("code".into(), "text".into(), &[1]).round(&wrong, 0, 3, &mut Progress::new(2)).unwrap_err();
        assert!(error.to_string().contains("one too"), "{error:#}");
    }

    #[test]
    fn no_two_clients_ask_the_same_and_all_share_a_beginning() {
        let all: Vec<String> =
            [0, 1].iter().flat_map(|&round| prompts("text", round, 8)).map(|p| p.to_string()).collect();
        let mut distinct = all.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 16);
        assert!(all.iter().all(|prompt| prompt.contains(r#""content":"text\n\n"#)), "{all:?}");
    }

    #[test]
    fn a_prompt_is_freed_of_another_templates_markers() {
        let file = "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!((said(file), said("Why?\n")), ("Why?", "Why?"));
    }

    #[test]
    fn ratios_are_of_one_round_and_stand_beside_their_ceiling() {
        let mut subject = Subject::new("code".into(), String::new(), &[1, 4]);
        subject.cells[0].plain = vec![10.0, 5.0];
        subject.cells[0].speculative = vec![20.0, 10.0];
        subject.positions = vec![Position { drafted: 10, accepted: 5 }];
        let curve = Curve::new(vec![(1.0, 10.0), (2.0, 10.0)]).unwrap();
        let figures = subject.figures(Some(&curve));
        // Four at once were not measured.
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].ratio.least, figures[0].ratio.most), (2.0, 2.0));
        assert_eq!(figures[0].ceiling.unwrap().ratio, 1.5);
        assert!(subject.figures(None)[0].ceiling.is_none());
    }
}
