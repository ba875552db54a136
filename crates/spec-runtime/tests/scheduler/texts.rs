//! What look-ups bring on texts that a real model wrote, over a clock that passes move by what they were measured to take.

use super::*;

use std::collections::HashMap;

use spec_core::Goodput;
use spec_runtime::{Batch, Clock, DraftWith, ModelConfig, Pass, Rows, SeqId, Stream, Want};
use spec_testing::VirtualClock;
use spec_testing::data::{RealText, texts};

/// Milliseconds of a pass of the 1.5B model on two cores, by rows: with tiles of AMX, with vectors of AVX-512.
const TILES: [(usize, f64); 11] = [
    (1, 38.0),
    (2, 40.4),
    (3, 43.3),
    (4, 45.6),
    (6, 50.3),
    (8, 54.0),
    (12, 60.2),
    (16, 68.1),
    (32, 92.0),
    (272, 740.0),
    (1040, 2800.0),
];
const VECTORS: [(usize, f64); 10] = [
    (1, 40.0),
    (2, 40.3),
    (3, 42.8),
    (4, 45.8),
    (6, 49.8),
    (8, 57.1),
    (12, 88.7),
    (16, 93.1),
    (272, 1490.0),
    (1040, 5700.0),
];

fn pass(costs: &[(usize, f64)], rows: usize) -> f64 {
    let next = costs.iter().position(|&(most, _)| most >= rows).expect("no pass is longer");
    let (high, more) = costs[next];
    let (low, less) = costs[next.saturating_sub(1)];
    if low == high { more } else { less + (more - less) * (rows - low) as f64 / (high - low) as f64 }
}

/// Says texts by heart: behind each position what stands there, whatever was drafted before it. A text is known by its first token.
struct Reciter {
    inner: Arc<HashModel>,
    clock: Arc<VirtualClock>,
    costs: &'static [(usize, f64)],
    texts: Vec<Vec<Token>>,
    said: Mutex<HashMap<SeqId, usize>>,
}

impl Model for Reciter {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }
    spec_testing::sequences_of!(inner);
    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        self.clock.pass(pass(self.costs, batch.rows.len()));
        let mut said = self.said.lock();
        for row in batch.rows.iter().filter(|row| row.position == 0) {
            said.insert(row.seq, row.token as usize);
        }
        let next = |row: &spec_runtime::Row| {
            let mut logits = vec![0.0; self.config().vocab];
            logits[self.texts[said[&row.seq]].get(row.position + 1).map_or(0, |&token| token as usize)] = 50.0;
            logits
        };
        let logits = batch.rows.iter().map(|row| (row.want != Want::Nothing).then(|| next(row))).collect();
        let rows = batch.rows.iter().map(|row| spec_runtime::Row { want: Want::Nothing, ..*row }).collect();
        self.inner.submit(stream, &Batch { rows })?;
        Ok(Box::new(Recited(logits)))
    }
}

struct Recited(Vec<Option<Vec<f32>>>);

impl Pass for Recited {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        Ok(self)
    }
}

impl Rows for Recited {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        self.0.get(row).and_then(Option::as_deref).ok_or(RuntimeError::NotWanted { row })
    }
}

/// Real texts with ids of a small vocabulary, the first of each its number.
struct Library {
    texts: Vec<RealText>,
    vocab: usize,
}

impl Library {
    fn new() -> Self {
        let mut texts = texts();
        let mut ids = HashMap::new();
        let first = texts.len();
        for (number, text) in texts.iter_mut().enumerate() {
            for token in text.prompt.iter_mut().chain(&mut text.answer) {
                let fresh = (first + ids.len()) as Token;
                *token = *ids.entry(*token).or_insert(fresh);
            }
            text.prompt.insert(0, number as Token);
        }
        Self { texts, vocab: first + ids.len() }
    }

    /// Milliseconds, and tokens drafted and accepted, of answers given side by side.
    fn recite(&self, which: &[usize], costs: &'static [(usize, f64)], draft_with: DraftWith) -> (f64, usize, usize) {
        let clock = Arc::new(VirtualClock::default());
        let inner =
            HashModel::new(HashSpec { vocab: self.vocab, context: 1024, blocks: 4096, max_rows: 1024, ..wide() });
        let texts = self.texts.iter().map(|text| [&text.prompt[..], &text.answer].concat()).collect();
        let model = Reciter { inner, clock: Arc::clone(&clock), costs, texts, said: Mutex::default() };
        let drafters: Vec<Box<dyn Drafter>> = vec![Box::new(SuffixDrafter::new()), Box::new(NgramDrafter::new())];
        let time = || Arc::clone(&clock) as Arc<dyn Clock>;
        let chooser = Chooser::new(drafters).with_clock(time());
        let engine = Engine::new(Arc::new(model), Arc::new(Letters(self.vocab)))
            .with_drafter(Box::new(chooser))
            .with_clock(time());
        let mut scheduler = Scheduler::new(engine, SchedulerOptions { prefill_chunk: 256, ..Default::default() });
        let logs: Vec<Log> = which
            .iter()
            .map(|&index| {
                let RealText { prompt, answer, .. } = &self.texts[index];
                let request = Request {
                    draft_len: Box::new(Goodput::default()),
                    draft_with: draft_with.clone(),
                    ..Request::new(prompt.clone(), answer.len())
                };
                submit(&mut scheduler, request)
            })
            .collect();
        finish(&mut scheduler);
        let milliseconds = clock.now().as_secs_f64() * 1e3;
        let (mut drafted, mut accepted) = (0, 0);
        for (log, &index) in logs.iter().zip(which) {
            let completion = log.completion();
            assert_eq!(completion.tokens, self.texts[index].answer, "{}", self.texts[index].name);
            drafted += completion.speculation.drafted;
            accepted += completion.speculation.accepted;
        }
        (milliseconds, drafted, accepted)
    }

    /// How many times as fast as plain the answers are given; the same text, or nothing is.
    fn gain(&self, which: &[usize], costs: &'static [(usize, f64)]) -> f64 {
        let (plain, drafted, _) = self.recite(which, costs, DraftWith::Nothing);
        assert_eq!(drafted, 0);
        let (with, drafted, accepted) = self.recite(which, costs, DraftWith::All);
        let (gain, RealText { name, sampling, .. }) = (plain / with, &self.texts[which[0]]);
        let what = format!("{} x {name}, {sampling}: {gain:.3}, {accepted} of {drafted}", which.len());
        println!("{what}");
        assert!(which.len() > 1 || accepted > 0, "{what}");
        assert!(gain > 0.98, "{what}");
        gain
    }
}

fn mean(gains: &[f64]) -> f64 {
    (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len() as f64).exp()
}

/// Of texts alone, greedy and with two seeds, and of 2, 4, 8 and 16 at a time: prompts are read in the same time, so that the mean gain of all is
/// less than that of what follows them.
#[test]
fn look_ups_gain_on_real_texts_and_lose_on_none() {
    let library = Library::new();
    let texts = || library.texts.iter().enumerate();
    for (name, costs, alone, together) in [
        ("tiles", &TILES[..], [1.78, 1.5, 1.5], [1.4, 1.22, 1.11, 1.03]),
        ("vectors", &VECTORS[..], [1.58, 1.42, 1.42], [1.26, 1.1, 1.0, 0.995]),
    ] {
        for (sampling, least) in ["greedy", "seed 1", "seed 2"].into_iter().zip(alone) {
            let which = texts().filter(|(_, text)| text.sampling == sampling);
            let gains: Vec<f64> = which.map(|(index, _)| library.gain(&[index], costs)).collect();
            println!("    {name}, {sampling}: {:.3}", mean(&gains));
            assert!(mean(&gains) > least, "{name}, {sampling}: {gains:?}");
        }
        for (clients, least) in [2, 4, 8, 16].into_iter().zip(together) {
            let same = |prompt: &str| -> Vec<usize> {
                texts().filter(|(_, text)| text.name == prompt).map(|(index, _)| index).cycle().take(clients).collect()
            };
            let prompts = ["chat", "code-edit", "code-write", "extract", "prose"];
            let gains = prompts.map(|prompt| library.gain(&same(prompt), costs));
            println!("    {name}, {clients} at a time: {:.3}", mean(&gains));
            assert!(mean(&gains) > least, "{name}, {clients} at a time: {gains:?}");
        }
    }
}
