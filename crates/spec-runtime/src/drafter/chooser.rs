use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{Ask, Average, DraftCost, DraftTree, Gate, NodeId, Prices, Proposal, Token};

use super::weighed::{Asked, Expected, Round, best};
use super::{DraftContext, Drafted, Drafter, GenerationId, Member, Odds, Work, Worth, draft_one, shares};
use crate::clock::MachineClock;
use crate::{Clock, DraftCacheStats, Event, KvUsage, RuntimeError, Stream};

/// Several drafters in one: it puts what they propose into one tree, keeps the nodes that pay, and learns for each generation
/// which drafters do.
///
/// A node is worth the probability that it is accepted, learnt by [`Class`](crate::Class), and costs the time that it adds to the round: it is kept
/// when the round has more expected tokens per second with it than without. Look-ups cost a row of the target's pass ([`Prices`]) and
/// are asked in every round; the text shows what they are worth, whether they had rows or not. A draft model costs passes of its own: it is asked when what it has brought of late is worth them, and
/// tried now and then when not ([`Gate`]).
///
/// Generations that share a pass are drafted for together: a draft model's passes serve all that ask it, and their nodes compete for the rows of the
/// target's pass.
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
    /// When it is asked. Look-ups are in every round: what a row would have brought shows without it.
    gate: Option<Gate>,
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

    /// Whom a round asks: what costs nothing first, and what it finds tells whether more is needed.
    fn order(&self) -> Vec<usize> {
        let is_free = |&index: &usize| self.drafters[index].cost() == DraftCost::Free;
        let (mut order, rest): (Vec<usize>, Vec<usize>) = (0..self.drafters.len()).partition(is_free);
        order.extend(rest);
        order
    }

    fn enter<'c, 'a>(&mut self, context: &'c mut DraftContext<'a>) -> Part<'c, 'a> {
        let state = context.prices.map(|prices| {
            let mut state = self.states.remove(&context.generation).unwrap_or_else(|| State {
                arms: self.drafters.iter().map(|drafter| Arm::new(drafter.cost())).collect(),
                seen: context.tokens.len(),
                round: None,
            });
            state.round = None;
            let alone = context.proposal.draws() || context.width == 1;
            Weighing { prices, state, alone, round: Round::new(context, self.drafters.len()) }
        });
        Part { context, weighing: state, asked: None, tree: None, work: Work::default(), failed: None }
    }

    /// Asks a drafter for the generations that it may pay for, all of them at once, and takes what it proposes into their rounds.
    fn ask(&mut self, index: usize, parts: &mut [Part<'_, '_>]) {
        let drafter = &mut self.drafters[index];
        for part in parts.iter_mut() {
            let generation = part.context.generation;
            let may = self.only.get(&generation).is_none_or(|only| only[index]);
            part.asked = None;
            if may && part.is_open() && suits(&**drafter, &part.context.proposal) {
                part.asked = part.wants(index, &**drafter);
            }
        }
        let mut contexts: Vec<DraftContext<'_>> = parts.iter_mut().filter_map(|part| part.lend(index)).collect();
        if contexts.is_empty() {
            return;
        }
        let begun = self.clock.now();
        let drafted = drafter.draft_all(&mut contexts);
        drop(contexts);
        let seconds = (self.clock.now() - begun).as_secs_f64();
        let works: Vec<Work> =
            drafted.iter().map(|drafted| drafted.as_ref().map_or(Work::default(), |drafted| drafted.work)).collect();
        let asking = parts.iter_mut().filter(|part| part.asked.is_some());
        for ((part, drafted), share) in asking.zip(drafted).zip(shares(&works)) {
            match drafted {
                Ok(drafted) => part.take(index, &**drafter, drafted, seconds * share),
                // Others hold the draft model's cache: it is left alone for a while. Nothing was drawn before it found that out.
                Err(RuntimeError::KvExhausted { .. }) if part.weighing.is_some() => part.rest(index),
                Err(error) => part.failed = Some(error),
            }
        }
    }
}

/// The nodes that pay, of all that were proposed for generations whose drafts may be cut: with them the pass that they share brings the
/// most tokens per second.
fn cut(parts: &mut [Part<'_, '_>], name: &str) {
    let (mut fixed, mut rounds): (Vec<&Round>, Vec<_>) = (Vec::new(), Vec::new());
    let mut prices = None;
    for part in parts.iter() {
        let Some(weighing) = part.weighing.as_ref().filter(|_| part.failed.is_none()) else { continue };
        if weighing.alone {
            fixed.push(&weighing.round);
        } else {
            rounds.push((&weighing.round, part.context.budget));
            prices.get_or_insert(weighing.prices);
        }
    }
    let Some(prices) = prices else { return };
    let kept = best(prices, &rounds, &fixed);
    let rows = fixed.iter().map(|round| round.nodes.len()).sum::<usize>();
    let total = rows + kept.iter().map(Vec::len).sum::<usize>();
    let cut = parts.iter_mut().filter(|part| part.failed.is_none());
    let cut = cut.filter_map(|part| {
        Some((part.weighing.as_mut().filter(|weighing| !weighing.alone)?, &mut part.tree, &mut part.failed))
    });
    for ((weighing, tree, failed), kept) in cut.zip(kept) {
        let round = &mut weighing.round;
        round.keep(&kept);
        round.charge_rows(prices, total);
        for (index, arm) in weighing.state.arms.iter_mut().enumerate() {
            let used = round.nodes.iter().any(|node| node.by.contains(&index));
            if let Some(gate) = &mut arm.gate
                && round.asked[index].proposed
                && !used
            {
                gate.turn_down(prices);
            }
        }
        match round.tree() {
            Ok(made) => *tree = Some(made),
            Err(source) => *failed = Some(RuntimeError::Draft { drafter: name.to_owned(), source }),
        }
    }
}

/// A generation's part of a round that is being drafted.
struct Part<'c, 'a> {
    context: &'c mut DraftContext<'a>,
    /// `None` under a policy that names no prices: the first proposal is taken.
    weighing: Option<Weighing<'a>>,
    /// What the drafter is asked for whose turn it is.
    asked: Option<Asking>,
    /// The draft, once nothing can come to it.
    tree: Option<DraftTree>,
    work: Work,
    failed: Option<RuntimeError>,
}

struct Weighing<'a> {
    prices: &'a Prices,
    state: State,
    /// Whether one drafter proposes a chain, for rules that draw or judge chains: who drafts is settled before anything is drawn.
    alone: bool,
    round: Round,
}

/// What a drafter is asked for.
#[derive(Clone, Copy)]
struct Asking {
    budget: usize,
    seen: Option<usize>,
    trial: bool,
    /// What the round has without it.
    without: Option<Expected>,
    pass: f64,
}

impl Part<'_, '_> {
    /// Whether a proposal is still of use.
    fn is_open(&self) -> bool {
        self.failed.is_none() && self.tree.is_none()
    }

    /// What a drafter is to be asked for; `None`: it is left alone.
    fn wants(&mut self, index: usize, drafter: &dyn Drafter) -> Option<Asking> {
        let context = &*self.context;
        let Some(Weighing { prices, state, round, .. }) = &mut self.weighing else {
            let (budget, seen) = (context.budget, context.context);
            return Some(Asking { budget, seen, trial: false, without: None, pass: 0.0 });
        };
        let prices = *prices;
        let without = round.expected(prices, context.budget);
        let arm = &mut state.arms[index];
        let Some(gate) = &mut arm.gate else {
            let budget = context.budget;
            return Some(Asking { budget, seen: None, trial: false, without: Some(without), pass: 0.0 });
        };
        let pass = arm.pass.get().unwrap_or_else(|| UNKNOWN_PASS * prices.target(1));
        // What was drafted ahead is at hand, and has cost nobody any time.
        let is_ahead = drafter.is_ahead(context.generation, context.tokens);
        let ask = if drafter.cost() == DraftCost::Model && !is_ahead {
            let unread = drafter.unread(context.generation, context.tokens);
            // In use it reads what the last round brought: that is part of its drafts' price.
            let reading = unread.saturating_sub(CAUGHT_UP) as f64 * Prices::CATCH_UP * pass;
            gate.ask_reader(prices, pass, reading, context.left)
        } else {
            gate.ask(prices, pass)
        };
        let trial = match ask {
            Ask::No => return None,
            Ask::Try { tokens, context } => Some((tokens, context)),
            Ask::Yes => None,
        };
        let is_open = gate.current() == Ask::Yes;
        let (budget, seen) = match trial {
            Some(_) if !is_open && drafter.cost() == DraftCost::Model && without.found > FOUND => return None,
            // A gate that is open asks for more proof: of what pays only.
            Some((tokens, seen)) if !is_open || arm.pays(&without) => (tokens.min(context.budget), seen),
            None if is_ahead || arm.pays(&without) => (context.budget, None),
            _ => {
                // Not worth it beside what is at hand already is no reason to leave it alone.
                if !arm.pays(&Expected { tokens: prices.tokens(1.0), seconds: prices.pass(1), found: 0.0 }) {
                    arm.rest();
                }
                return None;
            }
        };
        Some(Asking { budget, seen, trial: trial.is_some(), without: Some(without), pass })
    }

    /// The context in which a drafter is asked.
    fn lend(&mut self, index: usize) -> Option<DraftContext<'_>> {
        let Asking { budget, seen, trial, without, pass } = self.asked?;
        let worth = match (&self.weighing, without) {
            (Some(Weighing { prices, state, .. }), Some(Expected { tokens, seconds, .. })) if !trial => {
                Some(Worth { odds: &state.arms[index].odds, tokens, seconds, pass, row: prices.row() })
            }
            _ => None,
        };
        Some(DraftContext { budget, context: seen, prices: None, worth, ..self.context.lend() })
    }

    /// Takes what a drafter proposes into the round.
    fn take(&mut self, index: usize, drafter: &dyn Drafter, Drafted { mut tree, work }: Drafted, seconds: f64) {
        self.work.add(work);
        let generation = self.context.generation;
        let Some(Weighing { prices, state, alone, round }) = &mut self.weighing else {
            self.tree = Some(tree).filter(|tree| !tree.is_empty());
            return;
        };
        if *alone {
            round.begin_anew();
        }
        let arm = &mut state.arms[index];
        let trial = self.asked.is_some_and(|asked| asked.trial);
        if work.passes > 0 {
            arm.pass.enter(seconds / work.in_passes());
        }
        // Catching up on a long text happens once, and says nothing of the next draft.
        let passes = Work { caught_up: work.caught_up.min(2 * CAUGHT_UP), ..work }.in_passes();
        let seconds = arm.pass.get().map_or(0.0, |pass| pass * passes);
        round.asked[index] = Asked { trial, seconds, rows: 0.0, proposed: !tree.is_empty() };
        round.add(&tree, index, trial, |node| {
            let class = drafter.class(generation, node);
            (class, arm.odds.expect(class))
        });
        if !*alone {
            return;
        }
        if drafter.cost() == DraftCost::Free {
            // Look-ups draw nothing: their chain may be cut, or given up for a model's.
            let kept = round.best(prices, self.context.budget).len();
            if let Err(source) = tree.truncate(kept) {
                self.failed = Some(RuntimeError::Draft { drafter: drafter.name().to_owned(), source });
                return;
            }
            round.nodes.truncate(kept);
        }
        if !tree.is_empty() {
            round.charge_rows(prices, round.nodes.len());
            self.tree = Some(tree);
        }
    }

    /// Leaves a drafter alone for a while.
    fn rest(&mut self, index: usize) {
        if let Some(Weighing { state, .. }) = &mut self.weighing {
            state.arms[index].rest();
        }
    }
}

/// Probability of the first token at hand from which on a trial of a model waits: it tells more where little else is found, and costs less.
const FOUND: f64 = 0.7;
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

impl Arm {
    fn new(cost: DraftCost) -> Self {
        let gate = (cost != DraftCost::Free).then(|| Gate::new(cost));
        let pass = Average::default();
        Self { gate, odds: Odds::default(), pass, asked: 0.0, gained: 0.0, seconds: 0.0 }
    }

    /// Leaves it alone for a while.
    fn rest(&mut self) {
        self.gate.iter_mut().for_each(Gate::rest);
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
    /// Teaches the drafters how their tokens fared, those without a row too; `text` is the committed text now.
    fn teach(&self, arms: &mut [Arm], text: &[Token]) {
        let text = text.get(self.base..).unwrap_or_default();
        self.proposed.iter().for_each(|proposed| proposed.judge(text, &mut arms[proposed.by].odds));
        let mut accepted = vec![0; arms.len()];
        let mut above = None;
        // The last token is not a draft's, or ends the text.
        for &token in text {
            let mut next = None;
            for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.parent == above) {
                if node.token == token {
                    node.by.iter().for_each(|&by| accepted[by] += 1);
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
                    (arm.asked, arm.gained, arm.seconds) = (0.0, 0.0, 0.0);
                }
                arm.gate.iter_mut().for_each(|gate| gate.tried(accepted));
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

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let Drafted { tree, work } = draft_one(self, context)?;
        self.work = work;
        Ok(tree)
    }

    fn draft_all(&mut self, contexts: &mut [DraftContext<'_>]) -> Vec<Result<Drafted, RuntimeError>> {
        let mut parts: Vec<Part<'_, '_>> = contexts.iter_mut().map(|context| self.enter(context)).collect();
        for index in self.order() {
            self.ask(index, &mut parts);
        }
        cut(&mut parts, &self.name);
        let settled = parts.into_iter().map(|Part { context, weighing, tree, work, failed, .. }| {
            if let Some(error) = failed {
                return Err(error);
            }
            let tree = tree.unwrap_or_default();
            if let Some(Weighing { state, round, .. }) = weighing {
                self.states.insert(context.generation, State { round: Some(round), ..state });
            }
            Ok(Drafted { tree, work })
        });
        settled.collect()
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
                    if arm.gate.as_ref().is_some_and(|gate| gate.current() != Ask::Yes) {
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
            let lent = DraftContext { budget, context: None, prices: None, worth, ..context.lend() };
            nodes += drafter.draft_ahead(lent, assumed, under_way)?;
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
            let emitted = tokens.len().saturating_sub(*seen);
            arms.iter_mut().filter_map(|arm| arm.gate.as_mut()).for_each(|gate| gate.advance(emitted));
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
