//! One round of any number of generations: each drafts or reads on in its prompt, one pass of the target serves them all, and each
//! is judged, emitted and rolled back by itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use spec_core::{DraftTree, LogitRows, Round};

use super::ahead::Ahead;
use super::drafting::Draft;
use super::generation::{Judged, collect};
use super::observe::{RoundReport, RoundTimes};
use super::{Engine, Generation};
use crate::{Batch, DraftWith, Emitted, FinishReason, KvGuard, Row, Rows, RuntimeError, Sequence, Want};

/// A generation that takes part in a round, and where its tokens go.
pub struct Turn<'a> {
    /// The generation.
    pub generation: &'a mut Generation,
    /// Takes its tokens.
    pub sink: &'a mut dyn FnMut(&Emitted),
}

/// What a round may take of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowShare {
    /// Rows of the pass; never more than the model carries.
    pub most: usize,
    /// Those of them that prompts may have beside generations that are past theirs: what bounds the time between two tokens.
    pub beside: usize,
    /// Whether code that panics ends the generation that it worked for, and no other. Otherwise the panic goes on to the caller.
    pub catches: bool,
}

/// A generation's part of a pass.
struct Part {
    /// Its turn.
    turn: usize,
    /// Tokens that the cache held before.
    base: usize,
    /// Tokens of the text that the pass reads.
    read: usize,
    draft: Draft,
    /// Whether the last token of the text is read, so that there is something to be judged.
    judged: bool,
    /// Its first row in the pass.
    first: usize,
    guard: Option<KvGuard>,
}

impl Part {
    fn rows(&self) -> usize {
        self.read + self.draft.tree.len()
    }
}

/// What a pass came to.
struct Passed {
    rows: Box<dyn Rows>,
    overlap: Option<Ahead>,
    submitted: Duration,
    done: Duration,
}

impl Passed {
    /// What the target took.
    fn verify(&self) -> Duration {
        self.done.saturating_sub(self.submitted + self.overlap.unwrap_or_default().late)
    }
}

type Settled = Option<Result<bool, RuntimeError>>;

impl Engine {
    /// One round of several generations in one pass: those that are past their prompts draft, the others read on in theirs. Gives for
    /// each whether it goes on.
    ///
    /// What a generation emits does not depend on the others. An error ends the one that it is given for, with two exceptions:
    /// after [`RuntimeError::KvExhausted`] nothing is held and the generation may go on once there is room, and nothing but time is
    /// lost. A pass that fails is tried again for each of its generations alone.
    pub fn step_all(&mut self, turns: &mut [Turn<'_>], share: &RowShare) -> Vec<Result<bool, RuntimeError>> {
        let mut settled: Vec<Settled> = turns.iter_mut().map(|turn| self.begin_turn(turn, share)).collect();
        let mut parts = match self.parts(turns, &mut settled, share) {
            Ok(parts) => parts,
            Err(error) => return fail_all(settled, error),
        };
        if !parts.is_empty() {
            self.run(turns, &mut settled, &mut parts, share);
        }
        // One that had no rows in this round goes on.
        settled.into_iter().map(|settled| settled.unwrap_or(Ok(true))).collect()
    }

    /// What ends a generation before a pass, or lets it begin.
    fn begin_turn(&mut self, Turn { generation, sink }: &mut Turn<'_>, share: &RowShare) -> Settled {
        if generation.finished {
            return Some(Ok(false));
        }
        if generation.emission.remaining() == 0 {
            generation.end(FinishReason::Length);
            return Some(Ok(false));
        }
        if generation.request.cancel.is_cancelled() {
            let stopped = guarded(share.catches, "the receiver of tokens", || {
                generation.stop(FinishReason::Cancelled, *sink);
                Ok(false)
            });
            return Some(stopped);
        }
        if generation.sequence.is_none() {
            let entered = Sequence::open(&self.target).and_then(|sequence| generation.enter(sequence));
            if let Err(error) = entered {
                return Some(Err(error));
            }
        }
        None
    }

    /// Divides the rows of the pass: a row for each generation that decodes, then prompts and drafts.
    fn parts(
        &mut self,
        turns: &mut [Turn<'_>],
        settled: &mut [Settled],
        share: &RowShare,
    ) -> Result<Vec<Part>, RuntimeError> {
        let most = share.most.min(self.target.config().max_rows).max(1);
        let (mut decoding, mut reading) = (Vec::new(), Vec::new());
        for (turn, Turn { generation, .. }) in turns.iter().enumerate() {
            if settled[turn].is_some() {
                continue;
            }
            let base = generation.kv_len();
            let unread = generation.tokens.len() - base;
            // One that has read its text before judges its last token in a round like all others, so that its draws are the same.
            let goes_on = generation.first_token.is_some();
            match unread {
                1 if goes_on => decoding.push((turn, base)),
                _ => reading.push((turn, base, unread - usize::from(goes_on))),
            }
        }
        decoding.truncate(most);
        let free = most - decoding.len();
        let wanted: usize = reading.iter().map(|&(_, _, unread)| unread).sum();
        let beside = if decoding.is_empty() { free } else { share.beside.max(1).min(free) };
        // Prompts leave half of what is free to drafts, and take what these leave.
        let kept = wanted.min(beside).min(if decoding.is_empty() { free } else { free.div_ceil(2) });
        let mut left = free - kept;

        let begun = self.clock.now();
        self.put_drafter_behind_target()?;
        let is_decoding = |turn: usize| decoding.iter().any(|&(decoding, _)| decoding == turn);
        let drafting = turns.iter_mut().enumerate().filter(|(turn, _)| is_decoding(*turn));
        let mut drafting: Vec<&mut Generation> = drafting.map(|(_, turn)| &mut *turn.generation).collect();
        let drafts = self.draft_for(&mut drafting, left, kept, share);
        let mut parts: Vec<Part> = Vec::new();
        for (&(turn, base), draft) in decoding.iter().zip(drafts) {
            match draft {
                Ok(draft) => {
                    left -= draft.tree.len();
                    parts.push(Part { turn, base, read: 1, draft, judged: true, first: 0, guard: None });
                }
                Err(error) => settled[turn] = Some(Err(error)),
            }
        }
        let mut room = beside.min(kept + left);
        for &(turn, base, unread) in &reading {
            let read = unread.min(room);
            room -= read;
            let generation = &mut *turns[turn].generation;
            generation.begun.get_or_insert(begun);
            if read > 0 {
                let judged = base + read == generation.tokens.len();
                parts.push(Part { turn, base, read, draft: Draft::default(), judged, first: 0, guard: None });
            }
        }
        parts.retain_mut(|part| match reserve(turns[part.turn].generation, part) {
            Ok(()) => true,
            Err(error) => {
                settled[part.turn] = Some(Err(error));
                false
            }
        });
        Ok(parts)
    }

    /// Submits, judges and commits.
    fn run(&mut self, turns: &mut [Turn<'_>], settled: &mut [Settled], parts: &mut [Part], share: &RowShare) {
        match self.pass(turns, parts, share) {
            Ok(passed) => {
                let mut last = passed.done;
                let total = parts.iter().map(Part::rows).sum();
                // A pass over prompts alone says little of passes that verify.
                if parts.iter().any(|part| part.judged && turns[part.turn].generation.first_token.is_some()) {
                    self.prices.enter_pass(total, passed.verify());
                }
                for part in parts {
                    let turn = part.turn;
                    settled[turn] = Some(self.settle(&mut turns[turn], part, &passed, total, &mut last, share));
                }
            }
            Err(error) if parts.len() == 1 => settled[parts[0].turn] = Some(Err(error)),
            // Whose fault it is shows when each runs alone.
            Err(error) => {
                tracing::warn!(requests = parts.len(), %error, "a pass failed; each request is tried alone");
                parts.iter_mut().for_each(|part| part.guard = None);
                for part in parts {
                    match reserve(turns[part.turn].generation, part) {
                        Ok(()) => self.run(turns, settled, std::slice::from_mut(part), share),
                        Err(error) => settled[part.turn] = Some(Err(error)),
                    }
                }
            }
        }
    }

    fn pass(&mut self, turns: &mut [Turn<'_>], parts: &mut [Part], share: &RowShare) -> Result<Passed, RuntimeError> {
        let submitted = self.clock.now();
        let mut batch = Batch::default();
        for part in parts.iter_mut() {
            part.first = batch.rows.len();
            push_rows(&mut batch, turns[part.turn].generation, part)?;
        }
        let passed = guarded(share.catches, "a pass of the target", || {
            self.put_target_behind_drafter()?;
            let pass = self.target.submit(&*self.stream, &batch)?;
            for part in parts.iter() {
                let generation = &*turns[part.turn].generation;
                if generation.first_token.is_none() && part.base == generation.completion.cached_tokens {
                    self.read_prompt(generation)?;
                }
            }
            let mut overlap = None;
            if let [Part { judged: true, turn, draft, .. }] = &*parts
                && turns[*turn].generation.first_token.is_some()
            {
                overlap = self.draft_ahead(turns[*turn].generation, draft)?;
            }
            Ok((pass.wait()?, overlap))
        });
        let (rows, overlap) = passed?;
        Ok(Passed { rows, overlap, submitted, done: self.clock.now() })
    }

    /// Judges a generation's rows, emits what stands, and keeps its rows.
    fn settle(
        &mut self,
        Turn { generation, sink }: &mut Turn<'_>,
        part: &mut Part,
        passed: &Passed,
        total: usize,
        last: &mut Duration,
        share: &RowShare,
    ) -> Result<bool, RuntimeError> {
        let Some(guard) = part.guard.take() else { return Ok(true) };
        let is_first = generation.first_token.is_none();
        if !part.judged {
            guard.commit_chain(part.read)?;
            *last = self.clock.now();
            return Ok(true);
        }
        if is_first {
            generation.completion.timings.prefill = passed.done - generation.begun.unwrap_or(passed.submitted);
        }
        let tree = &part.draft.tree;
        let drafts = self.drafter.is_some() && generation.request.draft_with != DraftWith::Nothing;
        let judged = guarded(share.catches, "judging or receiving tokens", || {
            let verdicts = (generation.verdicts && !is_first).then(|| self.text.vocab());
            let rows = collect(&*passed.rows, part.first + part.read - 1, 1 + tree.len(), verdicts)?;
            let judged = generation.judge(&*self.text, tree, &rows, *sink)?;
            if drafts && tree.is_empty() {
                generation.tell_certainty(&rows);
            }
            Ok((judged, rows))
        });
        let (judged, rows) = judged?;
        let Judged { ref path, emitted, accepted, .. } = judged;
        let sampled = self.clock.now();
        if is_first {
            guard.commit_chain(part.read)?;
            generation.first_token = Some(sampled);
            self.report(generation, part, passed, (&judged, &rows), (total, *last, sampled), share)?;
            *last = sampled;
            return Ok(!generation.finished);
        }
        // The last emitted token has no KV entry yet: the root row and those of the accepted nodes before it are kept.
        guard.commit(&path[..emitted])?;
        debug_assert_eq!(generation.kv_len(), part.base + emitted, "KV length is committed - 1");
        if let Some(drafter) = self.drafter.as_mut().filter(|_| drafts && !generation.finished) {
            let accepted = if part.draft.forced { 0 } else { accepted };
            guarded(share.catches, "the drafter", || drafter.observe(generation.id, &generation.tokens, accepted))?;
        }
        self.count(generation, part, passed, total, (sampled, *last), (accepted, emitted));
        self.report(generation, part, passed, (&judged, &rows), (total, *last, sampled), share)?;
        *last = self.clock.now();
        Ok(!generation.finished)
    }

    /// Tells those who asked for it what a round did.
    fn report(
        &self,
        generation: &mut Generation,
        part: &Part,
        passed: &Passed,
        (judged, rows): (&Judged, &dyn LogitRows),
        (total, judged_from, sampled): (usize, Duration, Duration),
        share: &RowShare,
    ) -> Result<(), RuntimeError> {
        if generation.request.observers.is_empty() {
            return Ok(());
        }
        let draft = &part.draft;
        let is_prompt = generation.completion.speculation.rounds == 0;
        let begun = if is_prompt { generation.begun.unwrap_or(passed.submitted) } else { draft.begun };
        let overlap = passed.overlap.unwrap_or_default();
        let (text, emitted) = generation.tokens.split_at(generation.tokens.len() - judged.emitted);
        let report = RoundReport {
            generation: generation.id,
            round: generation.completion.speculation.rounds,
            text,
            emitted,
            accepted: judged.accepted,
            tree: &draft.tree,
            forced: draft.forced,
            budget: draft.budget,
            outcome: &judged.outcome,
            forbidden: judged.forbidden,
            rows,
            read: part.read,
            company: total - part.rows(),
            ahead: draft.ahead,
            times: RoundTimes {
                begun,
                preparation: draft.preparation,
                drafted: begun + draft.preparation + draft.time,
                submitted: passed.submitted,
                passed: passed.done,
                ahead: overlap.time,
                late: overlap.late,
                judged_from,
                sampled,
                settled: self.clock.now(),
            },
        };
        let observers = &mut generation.request.observers;
        guarded(share.catches, "an observer of rounds", || {
            observers.iter_mut().for_each(|observer| observer.round(&report));
            Ok(())
        })
    }

    /// Tells the policy and the figures how a round went.
    fn count(
        &self,
        generation: &mut Generation,
        part: &Part,
        passed: &Passed,
        total: usize,
        (sampled, judged_from): (Duration, Duration),
        (accepted, emitted): (usize, usize),
    ) {
        let draft = &part.draft;
        let drafted_before = std::mem::take(&mut generation.drafted_ahead);
        let ahead = passed.overlap.unwrap_or_default();
        let verify = passed.verify();
        // What a constraint forces says nothing about the drafter.
        if !draft.forced {
            generation.request.draft_len.observe(&Round {
                drafted: draft.tree.len(),
                company: total - part.rows(),
                accepted,
                emitted,
                draft: draft.time,
                ahead: passed.overlap.map(|_| if draft.ahead > 0 { drafted_before } else { Duration::ZERO }),
                verify,
            });
        }
        generation.drafted_ahead = ahead.time;
        let speculation = &mut generation.completion.speculation;
        speculation.forced += if draft.forced { draft.tree.len() } else { 0 };
        speculation.record(&nodes_by_depth(&draft.tree), accepted, emitted);
        speculation.ahead.drafted += ahead.nodes;
        speculation.ahead.used += draft.ahead;
        let timings = &mut generation.completion.timings;
        timings.preparation += draft.preparation;
        timings.draft += draft.time + ahead.late;
        timings.ahead += ahead.time.saturating_sub(ahead.late);
        timings.verify += verify;
        timings.sample += sampled - judged_from;
        timings.rollback += self.clock.now() - sampled;
        if let Some(first) = generation.first_token {
            timings.decode = (sampled - first).saturating_sub(timings.preparation);
        }
    }
}

/// Opens room for a part. Where there is room for the text only, a draft that may be dropped is.
fn reserve(generation: &Generation, part: &mut Part) -> Result<(), RuntimeError> {
    let Some(sequence) = &generation.sequence else { return Ok(()) };
    part.guard = match KvGuard::reserve(sequence, part.rows()) {
        Err(RuntimeError::KvExhausted { .. }) if part.draft.tree.truncate(0).is_ok() => {
            Some(KvGuard::reserve(sequence, part.rows())?)
        }
        guard => Some(guard?),
    };
    Ok(())
}

/// The text that a part reads, and the tree below its last token.
fn push_rows(batch: &mut Batch, generation: &Generation, part: &Part) -> Result<(), RuntimeError> {
    let Some(seq) = generation.sequence.as_ref().map(Sequence::id) else { return Ok(()) };
    let is_first = generation.first_token.is_none();
    let want = if generation.verdicts && !is_first { Want::Verdict } else { Want::Logits };
    let last = if part.judged { want } else { Want::Nothing };
    let text = &generation.tokens[part.base..part.base + part.read];
    batch.rows.extend(Batch::chain(seq, text, part.base, None, last).rows);
    let root = part.read - 1;
    let tree = &part.draft.tree;
    batch.rows.extend(tree.nodes().map(|(id, node)| Row {
        seq,
        token: node.token,
        position: part.base + root + tree.depth(id),
        parent: Some((root + node.parent.map_or(0, |parent| parent.index() + 1)) as u32),
        want,
    }));
    Ok(())
}

/// Runs code that may be the caller's. What it leaves half done belongs to a generation that ends.
pub(super) fn guarded<T>(
    catches: bool,
    during: &'static str,
    work: impl FnOnce() -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    if !catches {
        return work();
    }
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        Err(RuntimeError::Panicked { during, message })
    })
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// What all of the drafter or the target fail by ends all.
fn fail_all(settled: Vec<Settled>, error: RuntimeError) -> Vec<Result<bool, RuntimeError>> {
    let mut errors = error.for_all();
    settled.into_iter().map(|settled| settled.unwrap_or_else(|| Err(errors()))).collect()
}

fn nodes_by_depth(tree: &DraftTree) -> Vec<usize> {
    let mut counts = vec![0; tree.height()];
    for (id, _) in tree.nodes() {
        counts[tree.depth(id) - 1] += 1;
    }
    counts
}
