//! Drafting for all generations of a round at once.

use std::time::Duration;

use spec_core::{Company, DraftTree, KeyedChoices, Origin, TreeError};

use super::round::guarded;
use super::{Engine, Generation, RowShare};
use crate::drafter::shares;
use crate::{DraftContext, DraftWith, Drafted, RuntimeError};

/// What a round proposes for a generation.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) tree: DraftTree,
    /// Whether a constraint left no choice, rather than a drafter guessing.
    pub(super) forced: bool,
    /// Nodes that the drafter could propose.
    pub(super) budget: usize,
    /// Nodes that were drafted during the round before.
    pub(super) ahead: usize,
    /// When drafting began.
    pub(super) begun: Duration,
    /// What preparing the drafter took.
    pub(super) preparation: Duration,
    /// What drafting took beside: its share of it, where it went on for several generations.
    pub(super) time: Duration,
}

/// Tokens that a draft model catches up on in a round, at least: more than a round adds.
const CATCH_UP: usize = 8;

impl Engine {
    /// Drafts for generations that are past their prompts, `rows` nodes in all, in a pass that has `reading` rows of prompts beside.
    pub(super) fn draft_for(
        &mut self,
        generations: &mut [&mut Generation],
        rows: usize,
        reading: usize,
        share: &RowShare,
    ) -> Vec<Result<Draft, RuntimeError>> {
        let others = generations.len().saturating_sub(1);
        let company = Company { rows: others, reading, tokens: others as f64 };
        let wanted = |generation: &mut &mut Generation| {
            guarded(share.catches, "the drafter", || self.wanted(generation, rows, company))
        };
        let mut drafts: Vec<_> = generations.iter_mut().map(wanted).collect();
        let wants: Vec<usize> = drafts.iter().map(|draft| draft.as_ref().map_or(0, |draft| draft.budget)).collect();
        let mut budgets = fair(&wants, rows);
        for (draft, budget) in drafts.iter_mut().zip(&mut budgets) {
            let Ok(draft) = draft else { continue };
            draft.budget = *budget;
            if draft.forced {
                // It is given, and can be cut anywhere. Nobody is asked.
                draft.tree.truncate(std::mem::take(budget)).unwrap_or(());
            }
        }
        let begun = self.clock.now();
        for draft in drafts.iter_mut().flatten() {
            // What a constraint has foreseen took no time of a drafter, and belongs here all the same.
            draft.begun = begun;
        }
        let preparation = match guarded(share.catches, "the drafter", || self.prepare(&budgets)) {
            Ok(preparation) => preparation,
            Err(error) => return fail(drafts, &budgets, error),
        };
        // Among others, as much as prompts may take of the target's pass, of all that draft.
        let asked = budgets.iter().filter(|&&budget| budget > 0).count();
        let catch_up =
            if company == Company::default() { usize::MAX } else { (share.beside / asked.max(1)).max(CATCH_UP) };
        let drafted = self.ask(generations, &budgets, catch_up, share);
        let time = (self.clock.now() - begun).saturating_sub(preparation);
        debug_assert!(
            generations.iter().all(|generation| generation.pipeline.len() == generation.tokens.len()),
            "the drafter restores the history"
        );

        let work = |drafted: &Result<Drafted, _>| drafted.as_ref().map_or(Default::default(), |drafted| drafted.work);
        let shares = shares(&drafted.iter().map(work).collect::<Vec<_>>());
        let asked = drafts.iter_mut().zip(&budgets).filter(|&(_, &budget)| budget > 0);
        for (((draft, &budget), drafted), share) in asked.zip(drafted).zip(shares) {
            let settled = match drafted {
                Ok(drafted) => self.proposed(drafted, budget),
                // Others hold the draft model's cache. Nothing was drawn before that was found out, and plain decoding is a legal answer.
                Err(RuntimeError::KvExhausted { .. }) if company != Company::default() => Ok(Draft::default()),
                Err(error) => Err(error),
            };
            *draft = settled.map(|draft| Draft { begun, preparation, time: time.mul_f64(share), ..draft });
        }
        drafts
    }

    /// How many nodes a generation wants, and the draft itself where a constraint leaves no choice.
    fn wanted(&self, generation: &mut Generation, rows: usize, company: Company) -> Result<Draft, RuntimeError> {
        let request = &mut generation.request;
        if request.draft_with == DraftWith::Nothing || self.drafter.is_none() {
            return Ok(Draft::default());
        }
        let most = self.most_drafted(generation.tokens.len(), generation.emission.remaining()).min(rows);
        if let Some(constraint) = &mut request.constraint {
            let forced = constraint.forced(most, self.text.vocab(), generation.emission.end_ids())?;
            if !forced.is_empty() {
                let tree = DraftTree::chain(&forced, Origin::Fixed);
                return Ok(Draft { budget: tree.len(), tree, forced: true, ..Draft::default() });
            }
        }
        request.draft_len.among(company);
        Ok(Draft { budget: request.draft_len.next().min(most), ..Draft::default() })
    }

    /// Does what the drafter has put off, once somebody asks it; gives what that took.
    fn prepare(&mut self, budgets: &[usize]) -> Result<Duration, RuntimeError> {
        let Some(drafter) = self.drafter.as_mut().filter(|_| !self.is_prepared) else { return Ok(Duration::ZERO) };
        if budgets.iter().all(|&budget| budget == 0) {
            return Ok(Duration::ZERO);
        }
        let begun = self.clock.now();
        drafter.prepare()?;
        self.is_prepared = true;
        let took = self.clock.now() - begun;
        tracing::debug!(drafter = drafter.name(), seconds = took.as_secs_f64(), "drafter prepared");
        Ok(took)
    }

    /// What the drafter says for the generations whose budget is not 0. If it panics, it is asked for each alone: whose draft it was shows then.
    fn ask(
        &mut self,
        generations: &mut [&mut Generation],
        budgets: &[usize],
        catch_up: usize,
        share: &RowShare,
    ) -> Vec<Result<Drafted, RuntimeError>> {
        let Some(drafter) = &mut self.drafter else { return Vec::new() };
        let asked = || budgets.iter().enumerate().filter(|&(_, &budget)| budget > 0).map(|(index, _)| index);
        let mut choices: Vec<_> = asked().map(|index| generations[index].choices()).collect();
        let contexts = generations.iter_mut().zip(budgets).filter(|&(_, &budget)| budget > 0);
        let mut contexts: Vec<DraftContext<'_>> = contexts
            .zip(&mut choices)
            .map(|((generation, &budget), choices)| DraftContext {
                catch_up,
                ..generation.draft_context(budget, choices)
            })
            .collect();
        if contexts.is_empty() {
            return Vec::new();
        }
        match guarded(share.catches, "the drafter", || Ok(drafter.draft_all(&mut contexts))) {
            Ok(drafted) => drafted,
            Err(error) if contexts.len() == 1 => vec![Err(error)],
            Err(_) => {
                drop(contexts);
                let alone = asked().flat_map(|index| {
                    let mut budget = vec![0; budgets.len()];
                    budget[index] = budgets[index];
                    self.ask(generations, &budget, catch_up, share)
                });
                alone.collect()
            }
        }
    }

    /// A draft as far as the target can score it.
    fn proposed(&self, Drafted { mut tree, work }: Drafted, budget: usize) -> Result<Draft, RuntimeError> {
        let drafter =
            |source: TreeError| RuntimeError::Draft { drafter: self.drafter().unwrap_or_default().to_owned(), source };
        // Given nodes can go. A drawn one cannot, and is an error: dropping it would bias the output.
        tree.truncate(budget).map_err(&drafter)?;
        // A token that the target does not have cannot be scored; what was drafted before it can.
        let vocab = self.text.vocab();
        let known = tree.nodes().take_while(|(_, node)| (node.token as usize) < vocab).count();
        tree.truncate(known).map_err(&drafter)?;
        let ahead = work.ahead.min(tree.len());
        Ok(Draft { tree, budget, ahead, ..Draft::default() })
    }

    /// Nodes that a draft behind `length` tokens may have when `remaining` tokens may still be emitted.
    pub(super) fn most_drafted(&self, length: usize, remaining: usize) -> usize {
        let config = self.target.config();
        let room = config.context.saturating_sub(length);
        room.min(config.max_rows - 1).min(remaining.saturating_sub(1))
    }
}

impl Generation {
    /// What a drafter sees of it.
    pub(super) fn draft_context<'a>(&'a mut self, budget: usize, choices: &'a mut KeyedChoices) -> DraftContext<'a> {
        DraftContext {
            tenant: self.request.tenant,
            end_ids: self.emission.end_ids(),
            proposal: self.rule.proposal(),
            left: self.emission.remaining(),
            context: self.request.draft_len.context(),
            width: if self.rule.chains_only() { 1 } else { self.request.draft_width.max(1) },
            prices: self.request.draft_len.prices(),
            ..DraftContext::new(self.id, &self.tokens, &mut self.pipeline, choices, budget)
        }
    }
}

/// Divides `room` among those that want so much: nobody gets more than that, nor less than an equal part if they want it.
fn fair(wants: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|&index| wants[index]);
    let (mut given, mut left) = (vec![0; wants.len()], room);
    for (done, index) in order.into_iter().enumerate() {
        given[index] = wants[index].min(left / (wants.len() - done));
        left -= given[index];
    }
    given
}

/// What all that were to be drafted for fail by.
fn fail(
    mut drafts: Vec<Result<Draft, RuntimeError>>,
    budgets: &[usize],
    error: RuntimeError,
) -> Vec<Result<Draft, RuntimeError>> {
    let mut errors = error.for_all();
    for (draft, _) in drafts.iter_mut().zip(budgets).filter(|&(_, &budget)| budget > 0) {
        *draft = Err(errors());
    }
    drafts
}

#[cfg(test)]
mod tests {
    use super::fair;

    #[test]
    fn rows_are_divided_by_what_is_wanted() {
        assert_eq!(fair(&[16, 0, 2], 9), [7, 0, 2]);
        assert_eq!(fair(&[16, 16, 16], 9), [3, 3, 3]);
        assert_eq!(fair(&[16, 1, 16], 10), [4, 1, 5]);
        assert_eq!(fair(&[2, 3], 64), [2, 3]);
        assert_eq!(fair(&[], 5), [0; 0]);
    }
}
