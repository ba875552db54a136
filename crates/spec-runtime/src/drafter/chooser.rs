use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{Ask, Average, DraftCost, DraftTree, Gate, NodeId, Prices, Proposal, Token};

use super::weighed::{Asked, Expected, Round};
use super::{DraftContext, Drafter, GenerationId, Member, Odds, Work, Worth};
use crate::clock::MachineClock;
use crate::{Clock, DraftCacheStats, Event, KvUsage, RuntimeError, Stream};

/// Several drafters in one: it puts what they propose into one tree, keeps the nodes that pay, and learns for each generation
/// which drafters do.
///
/// A node is worth the probability that it is accepted, learnt by [`Class`](crate::Class), and costs the time that it adds to the round: it is kept
/// when the round has more expected tokens per second with it than without. Look-ups cost a row of the target's pass ([`Prices`]) and
/// are asked in every round. A draft model costs passes of its own: it is asked when what it has brought of late is worth them, and
/// tried now and then when not ([`Gate`]).
///
/// Trees need nodes that may be dropped. Where the rule draws tokens, one drafter proposes a chain, chosen before it draws.
/// Under a policy that names no prices, such as a fixed length, the first drafter that has a proposal makes it.
pub struct Chooser {
    drafters: Vec<Box<dyn Drafter>>,
    name: String,
    clock: Arc<dyn Clock>,
    states: HashMap<GenerationId, State>,
    /// By generation that may not have all drafters, those that it may.
    only: HashMap<GenerationId, Vec<bool>>,
    work: Work,
}

struct State {
    arms: Vec<Arm>,
    /// Length of the text when the last round ended.
    seen: usize,
    round: Option<Round>,
}

/// A drafter, as one generation has come to know it.
struct Arm {
    gate: Gate,
    odds: Odds,
    /// Seconds per pass of its model.
    pass: Average,
    /// Drafts of late, the tokens accepted of them, and the seconds they took; older ones count less.
    asked: f64,
    gained: f64,
    seconds: f64,
}

impl Chooser {
    /// Chooses among `drafters`; of two that propose the same, the first counts. Free ones are best put first.
    pub fn new(drafters: Vec<Box<dyn Drafter>>) -> Self {
        let name = drafters.iter().map(|drafter| drafter.name()).collect::<Vec<_>>().join(" + ");
        Self {
            drafters,
            name,
            clock: Arc::new(MachineClock::new()),
            states: HashMap::new(),
            only: HashMap::new(),
            work: Work::default(),
        }
    }

    /// Times draft models by another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The proposal of the first drafter that has one.
    fn draft_first(&mut self, context: &mut DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        for (index, drafter) in self.drafters.iter_mut().enumerate() {
            let asked = self.only.get(&context.generation).is_none_or(|only| only[index]);
            if !asked || !suits(&**drafter, &context.proposal) {
                continue;
            }
            let tree = drafter.draft(lend(context, context.budget, context.context, None))?;
            self.work.add(drafter.work());
            if !tree.is_empty() {
                return Ok(tree);
            }
        }
        Ok(DraftTree::new())
    }

    /// Asks a drafter if it may pay, and takes what it proposes into the round.
    fn ask(
        &mut self,
        index: usize,
        context: &mut DraftContext<'_>,
        prices: &Prices,
        state: &mut State,
        round: &mut Round,
    ) -> Result<DraftTree, RuntimeError> {
        let asked = self.only.get(&context.generation).is_none_or(|only| only[index]);
        let drafter = &mut self.drafters[index];
        if !asked || !suits(&**drafter, &context.proposal) {
            return Ok(DraftTree::new());
        }
        let arm = &mut state.arms[index];
        let pass = match drafter.cost() {
            DraftCost::Free => 0.0,
            DraftCost::Model | DraftCost::Weighed => arm.pass.get().unwrap_or_else(|| UNKNOWN_PASS * prices.target(1)),
        };
        let trial = match arm.gate.ask(prices, pass) {
            Ask::No => return Ok(DraftTree::new()),
            Ask::Try { tokens, context } => Some((tokens, context)),
            Ask::Yes => None,
        };
        let without = round.expected(prices, context.budget);
        // What was drafted ahead is at hand, and has cost nobody any time.
        let is_ahead = drafter.is_ahead(context.generation, context.tokens);
        let (budget, seen) = match trial {
            Some((tokens, seen)) => (tokens.min(context.budget), seen),
            None if is_ahead || drafter.cost() == DraftCost::Free || arm.pays(&without) => (context.budget, None),
            None => {
                // Not worth it beside what is at hand already is no reason to leave it alone.
                if !arm.pays(&Expected { tokens: prices.tokens(1.0), seconds: prices.pass(1), found: 0.0 }) {
                    arm.gate.rest();
                }
                return Ok(DraftTree::new());
            }
        };
        let trial = trial.is_some();
        let worth =
            Worth { odds: &arm.odds, tokens: without.tokens, seconds: without.seconds, pass, row: prices.row() };
        let begun = self.clock.now();
        let tree = match drafter.draft(lend(context, budget, seen, (!trial).then_some(worth))) {
            Ok(tree) => tree,
            // Others hold the draft model's cache: it is left alone for a while. Nothing was drawn before it found that out.
            Err(RuntimeError::KvExhausted { .. }) => {
                arm.gate.rest();
                return Ok(DraftTree::new());
            }
            Err(error) => return Err(error),
        };
        let seconds = (self.clock.now() - begun).as_secs_f64();
        let work = drafter.work();
        self.work.add(work);
        if work.passes > 0 {
            arm.pass.enter(seconds / (work.passes as f64 + work.caught_up as f64 * Prices::CATCH_UP));
        }
        // Catching up on a long text happens once, and says nothing of the next draft.
        let passes = work.passes as f64 + work.caught_up.min(2 * CAUGHT_UP) as f64 * Prices::CATCH_UP;
        let seconds = arm.pass.get().map_or(0.0, |pass| pass * passes);
        round.asked[index] = Asked { trial, seconds, rows: 0.0, proposed: !tree.is_empty() };
        round.add(&tree, index, trial, |node| {
            let class = drafter.class(context.generation, node);
            (class, arm.odds.expect(class))
        });
        Ok(tree)
    }

    /// A tree of what all drafters propose, as far as it pays.
    fn draft_together(
        &mut self,
        context: &mut DraftContext<'_>,
        prices: &Prices,
        state: &mut State,
    ) -> Result<DraftTree, RuntimeError> {
        let mut round = Round::new(context, self.drafters.len());
        // What costs nothing is asked first, and what it finds tells whether more is needed.
        for free in [true, false] {
            for index in 0..self.drafters.len() {
                if (self.drafters[index].cost() == DraftCost::Free) == free {
                    self.ask(index, context, prices, state, &mut round)?;
                }
            }
        }
        let kept = round.best(prices, context.budget);
        round.keep(&kept);
        round.charge_rows(prices);
        for (index, arm) in state.arms.iter_mut().enumerate() {
            let used = round.nodes.iter().any(|node| node.by.iter().any(|&(by, _)| by == index));
            if round.asked[index].proposed && !used {
                arm.gate.turn_down(prices);
            }
        }
        let tree = round.tree().map_err(|source| RuntimeError::Draft { drafter: self.name.clone(), source })?;
        state.round = Some(round);
        Ok(tree)
    }

    /// One drafter's chain, for rules that draw or judge chains: who drafts is settled before anything is drawn.
    fn draft_alone(
        &mut self,
        context: &mut DraftContext<'_>,
        prices: &Prices,
        state: &mut State,
    ) -> Result<DraftTree, RuntimeError> {
        for index in 0..self.drafters.len() {
            let mut round = Round::new(context, self.drafters.len());
            let mut tree = self.ask(index, context, prices, state, &mut round)?;
            if self.drafters[index].cost() == DraftCost::Free {
                // Look-ups draw nothing: their chain may be cut, or given up for a model's.
                let kept = round.best(prices, context.budget).len();
                tree.truncate(kept).map_err(|source| RuntimeError::Draft { drafter: self.name.clone(), source })?;
                round.nodes.truncate(kept);
                if kept == 0 && round.asked[index].proposed && !prices.is_alone() {
                    state.arms[index].gate.turn_down(prices);
                }
            }
            if !tree.is_empty() {
                round.charge_rows(prices);
                state.round = Some(round);
                return Ok(tree);
            }
        }
        Ok(DraftTree::new())
    }
}

/// A pass of a draft model as a share of the target's, before it is measured.
const UNKNOWN_PASS: f64 = 0.4;
/// What a draft keeps of its weight at the next one of its drafter.
const MEMORY: f64 = 0.95;
/// Tokens that a drafter in use has to catch up on at most, in the ordinary course of things.
const CAUGHT_UP: usize = 8;

/// Whether the drafter can serve the proposal: one that keeps probabilities needs a drafter that has them.
fn suits(drafter: &dyn Drafter, proposal: &Proposal<'_>) -> bool {
    !matches!(proposal, Proposal::Confident) || drafter.has_laws()
}

fn lend<'b>(
    context: &'b mut DraftContext<'_>,
    budget: usize,
    seen: Option<usize>,
    worth: Option<Worth<'b>>,
) -> DraftContext<'b> {
    DraftContext {
        generation: context.generation,
        tenant: context.tenant,
        tokens: context.tokens,
        end_ids: context.end_ids,
        pipeline: &mut *context.pipeline,
        proposal: context.proposal,
        choices: &mut *context.choices,
        budget,
        context: seen,
        width: context.width,
        prices: None,
        worth,
    }
}

impl Arm {
    fn new(cost: DraftCost) -> Self {
        let (gate, pass) = (Gate::new(cost), Average::default());
        Self { gate, odds: Odds::default(), pass, asked: 0.0, gained: 0.0, seconds: 0.0 }
    }

    /// Whether a draft is expected to bring more tokens per second than the round has without.
    fn pays(&self, without: &Expected) -> bool {
        /// Drafts that the first expectation counts for, and the tokens and passes of such a draft.
        const FIRST: (f64, f64, f64) = (4.0, 0.8, 1.3);
        let Some(pass) = self.pass.get() else { return without.found < 0.5 };
        let gain = (self.gained + FIRST.0 * FIRST.1) / (self.asked + FIRST.0);
        let seconds = (self.seconds + FIRST.0 * FIRST.2 * pass) / (self.asked + FIRST.0);
        // It adds where the token at hand is not the right one.
        gain * (1.0 - without.found) * without.seconds > without.tokens * seconds
    }
}

impl Round {
    /// Teaches the drafters how their tokens fared; `text` is the committed text now.
    fn teach(&self, arms: &mut [Arm], text: &[Token]) {
        let mut accepted = vec![0; arms.len()];
        let mut above = None;
        // The last token is not a draft's, or ends the text.
        for &token in text.get(self.base..).unwrap_or_default() {
            let mut next = None;
            for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.parent == above) {
                for &(by, class) in &node.by {
                    arms[by].odds.learn(class, node.token == token);
                    accepted[by] += usize::from(node.token == token);
                }
                if node.token == token {
                    next = Some(index);
                }
            }
            if next.is_none() {
                break;
            }
            above = next;
        }
        for ((arm, asked), &accepted) in arms.iter_mut().zip(&self.asked).zip(&accepted) {
            if asked.trial && asked.proposed {
                if accepted > 0 {
                    // Earlier failures are no longer true. How a model's certainty bears on acceptance still is.
                    if asked.seconds == 0.0 && self.alone {
                        arm.odds.forget();
                    }
                    (arm.asked, arm.gained, arm.seconds) = (0.0, 0.0, 0.0);
                }
                arm.gate.tried(accepted > 0);
            } else if asked.proposed {
                arm.asked = arm.asked * MEMORY + 1.0;
                arm.gained = arm.gained * MEMORY + accepted as f64;
                arm.seconds = arm.seconds * MEMORY + asked.seconds + asked.rows;
            }
        }
    }
}

impl Drafter for Chooser {
    fn name(&self) -> &str {
        &self.name
    }

    fn work(&self) -> Work {
        self.work
    }

    fn cost(&self) -> DraftCost {
        DraftCost::Weighed
    }

    fn has_laws(&self) -> bool {
        self.drafters.iter().any(|drafter| drafter.has_laws())
    }

    fn prepare(&mut self) -> Result<(), RuntimeError> {
        self.drafters.iter_mut().try_for_each(|drafter| drafter.prepare())
    }

    fn draft(&mut self, mut context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        self.work = Work::default();
        let Some(prices) = context.prices else { return self.draft_first(&mut context) };
        let mut state = self.states.remove(&context.generation).unwrap_or_else(|| State {
            arms: self.drafters.iter().map(|drafter| Arm::new(drafter.cost())).collect(),
            seen: context.tokens.len(),
            round: None,
        });
        state.round = None;
        let generation = context.generation;
        let tree = if context.proposal.draws() || context.width == 1 {
            self.draft_alone(&mut context, prices, &mut state)?
        } else {
            self.draft_together(&mut context, prices, &mut state)?
        };
        self.states.insert(generation, state);
        Ok(tree)
    }

    fn read(&mut self, generation: GenerationId, prompt: &[Token]) {
        self.drafters.iter_mut().for_each(|drafter| drafter.read(generation, prompt));
    }

    fn drafts_ahead(&self) -> bool {
        self.drafters.iter().any(|drafter| drafter.drafts_ahead())
    }

    fn likeliest_leaf(&self, generation: GenerationId, tree: &DraftTree) -> Option<NodeId> {
        let round = self.states.get(&generation).and_then(|state| state.round.as_ref());
        let leaves = tree.nodes().map(|(id, _)| id).filter(|&id| tree.children(Some(id)).next().is_none());
        match round {
            Some(round) => {
                let survival = |id: NodeId| round.nodes.get(id.index()).map_or(0.0, |node| node.survival);
                leaves.reduce(|best, id| if survival(id) > survival(best) { id } else { best })
            }
            // One drafter's tree, as it is.
            None => leaves.reduce(|best, id| if tree.depth(id) > tree.depth(best) { id } else { best }),
        }
    }

    /// The drafters that are in use, one after the other. Without prices the first that finds something.
    fn draft_ahead(
        &mut self,
        mut context: DraftContext<'_>,
        assumed: usize,
        under_way: &dyn Fn() -> bool,
    ) -> Result<usize, RuntimeError> {
        let (generation, budget, proposal) = (context.generation, context.budget, context.proposal);
        let state = self.states.get(&generation);
        let mut nodes = 0;
        for (index, drafter) in self.drafters.iter_mut().enumerate() {
            let asked = self.only.get(&generation).is_none_or(|only| only[index]);
            if !asked || !suits(&**drafter, &proposal) {
                continue;
            }
            let worth = match (context.prices, state) {
                (Some(prices), Some(state)) => {
                    let arm = &state.arms[index];
                    if arm.gate.current() != Ask::Yes {
                        continue;
                    }
                    // Its passes cost nothing while the target's goes on.
                    let (seconds, row) = (prices.pass(1), prices.row());
                    Some(Worth { odds: &arm.odds, tokens: 1.0, seconds, pass: 0.0, row })
                }
                (Some(_), None) => continue,
                (None, _) if nodes > 0 => break,
                (None, _) => None,
            };
            nodes += drafter.draft_ahead(lend(&mut context, budget, None, worth), assumed, under_way)?;
        }
        Ok(nodes)
    }

    fn is_ahead(&self, generation: GenerationId, tokens: &[Token]) -> bool {
        self.drafters.iter().any(|drafter| drafter.is_ahead(generation, tokens))
    }

    fn follow(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        self.drafters.iter().try_for_each(|drafter| drafter.follow(event))
    }

    fn precede(&self, stream: &dyn Stream) -> Result<(), RuntimeError> {
        self.drafters.iter().try_for_each(|drafter| drafter.precede(stream))
    }

    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError> {
        if let Some(State { arms, seen, round }) = self.states.get_mut(&generation) {
            if let Some(round) = round.take() {
                round.teach(arms, tokens);
            }
            arms.iter_mut().for_each(|arm| arm.gate.advance(tokens.len().saturating_sub(*seen)));
            *seen = tokens.len();
        }
        self.drafters.iter_mut().try_for_each(|drafter| drafter.observe(generation, tokens, accepted))
    }

    fn resume(&mut self, generation: GenerationId, kept: usize) -> Result<(), RuntimeError> {
        // What is known of the drafters holds for the next text as well.
        if let Some(state) = self.states.get_mut(&generation) {
            state.round = None;
            state.seen = state.seen.min(kept);
        }
        self.drafters.iter_mut().try_for_each(|drafter| drafter.resume(generation, kept))
    }

    fn members(&self) -> Vec<Member> {
        self.drafters.iter().flat_map(|drafter| drafter.members()).collect()
    }

    fn restrict(&mut self, generation: GenerationId, only: Option<&str>) {
        let means = |drafter: &dyn Drafter, name| drafter.members().iter().any(|member| member.is(name));
        match only {
            Some(name) => {
                let only = self.drafters.iter().map(|drafter| means(&**drafter, name)).collect();
                self.only.insert(generation, only);
            }
            None => drop(self.only.remove(&generation)),
        }
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        self.drafters.iter().find_map(|drafter| drafter.kv_usage())
    }

    fn draft_cache(&self) -> Option<DraftCacheStats> {
        self.drafters.iter().find_map(|drafter| drafter.draft_cache())
    }

    fn suspend(&mut self, generation: GenerationId) {
        self.drafters.iter_mut().for_each(|drafter| drafter.suspend(generation));
    }

    fn forget(&mut self, generation: GenerationId) {
        self.states.remove(&generation);
        self.only.remove(&generation);
        self.drafters.iter_mut().for_each(|drafter| drafter.forget(generation));
    }
}
