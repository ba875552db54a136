//! What the rounds of a record come to.

use std::collections::BTreeMap;
use std::time::Duration;

use spec_core::Prices;

use crate::record::{End, Record, RequestRecord, Round, Run};

/// Draft lengths that are looked at.
const MOST: usize = spec_core::Goodput::MOST;
/// Weight of the acceptance over all positions in that of one, in draft tokens.
const POOL: f64 = 2.0;
/// The share of a pass of the target that a pass of any draft model takes at least.
const MODEL: f64 = 0.02;

/// One run of a record, in figures. Times are in seconds.
pub(crate) struct Figures<'a> {
    pub(crate) run: &'a Run,
    /// Those that drafts could be made for, or all where none could.
    pub(crate) requests: Vec<&'a RequestRecord>,
    /// Those behind the first tokens, of these requests.
    pub(crate) rounds: Vec<&'a Round>,
    pub(crate) wall: Wall,
    /// Tokens emitted in rounds.
    pub(crate) emitted: usize,
    pub(crate) drafting: Drafting,
    /// First draft position first; what a grammar foresaw is not in it.
    pub(crate) positions: Vec<Position>,
    pub(crate) passes: Passes,
    /// Seconds of a round beside drafting and the pass, without a draft and with one.
    after: [f64; 2],
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wall {
    pub(crate) prefill: f64,
    /// Loading a draft model behind the first token.
    pub(crate) preparation: f64,
    pub(crate) draft: f64,
    pub(crate) pass: f64,
    pub(crate) sample: f64,
    pub(crate) rollback: f64,
}

impl Wall {
    /// From the first emitted token to the last, without loading.
    pub(crate) fn decode(&self) -> f64 {
        self.draft + self.pass + self.sample + self.rollback
    }

    /// All of it.
    pub(crate) fn all(&self) -> f64 {
        self.prefill + self.preparation + self.decode()
    }
}

/// What drafting took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drafting {
    /// Rounds in which a drafter proposed something; beside a draft model, those in which it was asked.
    pub(crate) rounds: usize,
    /// Draft tokens, without those that a grammar foresaw, and those of them accepted.
    pub(crate) tokens: usize,
    pub(crate) accepted: usize,
    /// Tokens in a row that a draft has, in the mean of those rounds.
    pub(crate) length: f64,
    /// Seconds of one, in the median of those rounds; `None` when nothing was drafted.
    pub(crate) per_token: Option<f64>,
    /// Seconds beyond that: a draft model reading text that it has not seen.
    pub(crate) catching_up: f64,
}

/// How one draft position fared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Position {
    /// Rounds that drafted it and kept all before it.
    pub(crate) reached: usize,
    /// Those that kept it too.
    pub(crate) kept: usize,
}

impl<'a> Figures<'a> {
    /// The figures of the last run in a record that got past a first token, or `None` where none did.
    pub(crate) fn of(record: &'a Record) -> Option<Self> {
        let decodes = |request: &&RequestRecord| request.rounds.iter().any(|round| round.round > 0);
        let index = record.requests.iter().filter(decodes).map(|request| request.run).max()?;
        let run = &record.runs[index];
        let all: Vec<&RequestRecord> = record.requests.iter().filter(|request| request.run == index).collect();
        // `spec demo` runs every prompt plain as well: those passes tell what rows take, and nothing of drafting.
        let may_draft = |request: &&RequestRecord| request.rounds.iter().any(|round| round.budget > 0 || round.forced);
        let drafting_ones: Vec<&RequestRecord> = all.iter().copied().filter(may_draft).collect();
        let requests = if drafting_ones.is_empty() { all.clone() } else { drafting_ones };
        let rounds = behind_the_prompt(&requests);
        let guessed: Vec<&Round> =
            rounds.iter().copied().filter(|round| round.drafted() > 0 && !round.forced).collect();
        // Look-ups take next to nothing, and say nothing of the model beside them.
        let by_model: Vec<&Round> = match &run.draft {
            Some(_) => guessed.iter().copied().filter(|round| took_a_model(round)).collect(),
            None => guessed.clone(),
        };
        let guessed = if by_model.is_empty() { guessed } else { by_model };
        Some(Self {
            run,
            wall: wall(&requests, &rounds),
            emitted: rounds.iter().map(|round| round.emitted).sum(),
            drafting: drafting(&guessed),
            positions: positions(&guessed),
            passes: Passes::of(&behind_the_prompt(&all)),
            after: [false, true].map(|drafts| {
                let these = rounds.iter().filter(|round| (round.drafted() > 0) == drafts);
                median(these.map(|round| round.seconds.sample + round.seconds.rollback).collect()).unwrap_or(0.0)
            }),
            requests,
            rounds,
        })
    }

    /// Tokens per second as they came, from first to last.
    pub(crate) fn rate(&self) -> f64 {
        if self.wall.decode() > 0.0 { self.emitted as f64 / self.wall.decode() } else { 0.0 }
    }

    /// Share of draft tokens that were accepted.
    pub(crate) fn acceptance(&self) -> f64 {
        ratio(self.drafting.accepted, self.drafting.tokens)
    }

    /// Whether a model drafts, and not look-ups alone.
    pub(crate) fn has_draft_model(&self) -> bool {
        self.run.draft.is_some()
    }

    /// Whether anything was there to draft with.
    pub(crate) fn has_drafter(&self) -> bool {
        self.run.drafter != "none"
    }

    /// Seconds of a plain pass, measured or inferred from longer ones.
    pub(crate) fn plain_pass(&self) -> f64 {
        self.passes.at(1)
    }

    /// What a draft token takes, as a share of a plain pass.
    pub(crate) fn cost(&self) -> Option<f64> {
        Some(self.drafting.per_token? / self.plain_pass())
    }

    /// The share of drafts that stand at a position, from 0, among those that stood before it. Where little was seen, that of all
    /// positions counts.
    pub(crate) fn stands(&self, position: usize) -> f64 {
        let (kept, reached) =
            self.positions.iter().fold((1.0, 2.0), |sum, p| (sum.0 + p.kept as f64, sum.1 + p.reached as f64));
        let pooled = kept / reached;
        let Position { reached, kept } = self.positions.get(position).copied().unwrap_or_default();
        (kept as f64 + POOL * pooled) / (reached as f64 + POOL)
    }

    /// Tokens per second that drafts of so many tokens in a row would bring, each `draft` seconds, standing as `stands` says.
    pub(crate) fn rate_at(&self, length: usize, draft: f64, stands: impl Fn(usize) -> f64) -> f64 {
        let mut survives = 1.0;
        let tokens: f64 = (0..length)
            .map(|position| {
                survives *= stands(position);
                survives
            })
            .sum();
        (1.0 + tokens) / self.round_at(length, draft)
    }

    fn round_at(&self, length: usize, draft: f64) -> f64 {
        length as f64 * draft + self.passes.at(1 + length) + self.after[usize::from(length > 0)]
    }

    /// The length with the most tokens per second, 0 included, and how many they are.
    pub(crate) fn best(&self, draft: f64, stands: impl Fn(usize) -> f64) -> (usize, f64) {
        let rates =
            (0..=MOST.min(self.passes.known_length())).map(|length| (length, self.rate_at(length, draft, &stands)));
        rates.reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap_or((0, 0.0))
    }

    /// Tokens per second without drafts.
    pub(crate) fn plain_rate(&self) -> f64 {
        self.rate_at(0, 0.0, |_| 0.0)
    }

    /// The most that a draft token may cost, as a share of a plain pass, for any draft to bring more than it takes at the acceptance
    /// seen.
    pub(crate) fn cost_that_pays(&self) -> f64 {
        // Drafts of `length` pay while their tokens take longer without them.
        let most = (1..=MOST.min(self.passes.known_length())).map(|length| {
            let tokens = self.rate_at(length, 0.0, |at| self.stands(at)) * self.round_at(length, 0.0);
            (tokens / self.plain_rate() - self.round_at(length, 0.0)) / length as f64
        });
        (most.fold(0.0, f64::max) / self.plain_pass()).max(0.0)
    }

    /// The share of the time that a rate of `reached` tokens a second would save of what the rounds took.
    pub(crate) fn saved_by_rate(&self, reached: f64) -> f64 {
        let share = if reached > 0.0 { 1.0 - self.rate() / reached } else { 0.0 };
        self.of_all(share.max(0.0) * self.wall.decode())
    }

    /// Seconds as a share of all that the run took.
    pub(crate) fn of_all(&self, seconds: f64) -> f64 {
        if self.wall.all() > 0.0 { seconds / self.wall.all() } else { 0.0 }
    }

    /// Tokens of the prompts, as far as they were got through.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.requests.iter().filter_map(|request| request.rounds.first()).map(|round| round.length).sum()
    }

    /// Requests that ended.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &'a End> {
        self.requests.iter().filter_map(|request| request.end.as_ref())
    }
}

/// The rounds behind the first tokens.
fn behind_the_prompt<'a>(requests: &[&'a RequestRecord]) -> Vec<&'a Round> {
    requests.iter().flat_map(|request| &request.rounds).filter(|round| round.round > 0).collect()
}

/// Whether a model worked on a round's draft: no pass of one is free.
fn took_a_model(round: &Round) -> bool {
    is_by_model(round.ahead, round.seconds.draft, round.seconds.pass())
}

/// The same of a draft of which so many nodes were made ahead, and for which a pass waited; in seconds.
pub(crate) fn is_by_model(ahead: usize, draft: f64, pass: f64) -> bool {
    ahead > 0 || draft > MODEL * pass
}

fn wall(requests: &[&RequestRecord], rounds: &[&Round]) -> Wall {
    let sum = |part: fn(&Round) -> f64| rounds.iter().map(|round| part(round)).sum();
    Wall {
        // Of a prompt of several passes the rounds have the last alone.
        prefill: requests
            .iter()
            .map(|request| {
                let told = request.end.as_ref().and_then(|end| end.timings["prefill_ms"].as_f64());
                let last = request.rounds.iter().find(|round| round.round == 0);
                told.map(|ms| ms / 1e3).or(last.map(|round| round.seconds.submit_to_passed)).unwrap_or(0.0)
            })
            .sum(),
        preparation: sum(|round| round.seconds.preparation),
        draft: sum(|round| round.seconds.draft + round.seconds.late),
        pass: sum(|round| round.seconds.pass()),
        sample: sum(|round| round.seconds.sample),
        rollback: sum(|round| round.seconds.rollback),
    }
}

fn drafting(guessed: &[&Round]) -> Drafting {
    let tokens = guessed.iter().map(|round| round.drafted()).sum();
    let waited = |round: &Round| round.seconds.draft + round.seconds.late;
    let per_token = median(guessed.iter().map(|round| waited(round) / round.drafted() as f64).collect());
    let beyond = |round: &&Round| {
        let usual = per_token.unwrap_or(0.0) * round.drafted() as f64;
        // Twice as long happens to any pass.
        (waited(round) > 2.0 * usual).then_some(waited(round) - usual)
    };
    Drafting {
        rounds: guessed.len(),
        tokens,
        accepted: guessed.iter().map(|round| round.accepted).sum(),
        length: ratio(guessed.iter().map(|round| round.by_depth.len()).sum(), guessed.len()),
        per_token,
        catching_up: guessed.iter().filter_map(beyond).sum(),
    }
}

fn positions(guessed: &[&Round]) -> Vec<Position> {
    let mut positions: Vec<Position> = Vec::new();
    for round in guessed {
        let reached = (round.accepted + 1).min(round.by_depth.len());
        if positions.len() < reached {
            positions.resize(reached, Position::default());
        }
        for (index, position) in positions[..reached].iter_mut().enumerate() {
            position.reached += 1;
            position.kept += usize::from(index < round.accepted);
        }
    }
    positions
}

/// What passes took by their rows.
pub(crate) struct Passes {
    by_rows: BTreeMap<usize, Vec<f64>>,
    curve: Prices,
}

impl Passes {
    /// Passes after which a median is believed.
    const ENOUGH: usize = 3;

    fn of(rounds: &[&Round]) -> Self {
        let mut by_rows: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for round in rounds {
            by_rows.entry(round.rows()).or_default().push(round.seconds.pass());
        }
        let is_any_sure = by_rows.values().any(|times| times.len() >= Self::ENOUGH);
        let mut curve = Prices::new(MOST + 1);
        let mut believed: Vec<_> =
            by_rows.iter().filter(|(_, times)| times.len() >= Self::ENOUGH || !is_any_sure).collect();
        // What is entered last counts where two contradict each other.
        believed.sort_by_key(|(_, times)| times.len());
        for (&rows, times) in believed {
            if let Some(seconds) = median(times.clone()) {
                curve.enter_pass(rows, Duration::from_secs_f64(seconds));
            }
        }
        Self { by_rows, curve }
    }

    /// Seconds of a pass of so many rows: the median, or a line between those of its neighbours. More rows never take less.
    pub(crate) fn at(&self, rows: usize) -> f64 {
        self.curve.target(rows)
    }

    /// Row counts that passes had, with how many had them.
    pub(crate) fn counts(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> {
        self.by_rows.iter().map(|(&rows, times)| (rows, times.len()))
    }

    /// Row counts of which the median is believed.
    pub(crate) fn measured(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.counts().filter(|&(_, count)| count >= Self::ENOUGH).map(|(rows, _)| rows)
    }

    /// The longest draft of which the cost is more than a guess.
    fn known_length(&self) -> usize {
        self.curve.known_rows().max(4)
    }

    /// Passes that took more than twice the median of their row count: how many, of how many that have one, and the seconds beyond it.
    pub(crate) fn outliers(&self) -> (usize, usize, f64) {
        let groups = self.by_rows.values().filter(|times| times.len() > 2 * Self::ENOUGH);
        groups.fold((0, 0, 0.0), |(slow, all, beyond), times| {
            let usual = median(times.clone()).unwrap_or(0.0);
            let late = times.iter().filter(|&&seconds| seconds > 2.0 * usual);
            (slow + late.clone().count(), all + times.len(), beyond + late.map(|seconds| seconds - usual).sum::<f64>())
        })
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

pub(crate) fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
