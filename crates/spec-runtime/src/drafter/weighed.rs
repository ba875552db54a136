//! What several drafters propose for a round, and which of it pays.

use smallvec::SmallVec;
use spec_core::{DraftTree, NodeId, Origin, Prices, Token};

use super::{Class, DraftContext, Odds};

/// The draft of a round, from its first proposal until it is judged.
pub(super) struct Round {
    /// Length of the committed text.
    pub(super) base: usize,
    /// Whatever was proposed, in a row or not.
    pub(super) proposed: Vec<Proposed>,
    /// What the draft is chosen from, and then what it is.
    pub(super) nodes: Vec<Candidate>,
    /// By drafter.
    pub(super) asked: Vec<Asked>,
}

/// A drafter's tree, and the class of each of its nodes.
#[derive(Debug)]
pub(super) struct Proposed {
    pub(super) by: usize,
    tree: DraftTree,
    classes: Vec<Class>,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Asked {
    pub(super) trial: bool,
    /// Passes of its model.
    pub(super) seconds: f64,
    /// What its nodes add to the target's pass; counted of drafters that take seconds only.
    pub(super) rows: f64,
    pub(super) proposed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) token: Token,
    pub(super) parent: Option<usize>,
    pub(super) origin: Origin,
    /// Probability that it is accepted once all above it are, as its drafters see it.
    pub(super) odds: f64,
    /// Probability that it and all above it are accepted, beside its siblings.
    pub(super) survival: f64,
    /// Kept whatever it is worth: its drafter is on trial.
    pub(super) trial: bool,
    /// Who proposed it.
    pub(super) by: SmallVec<[usize; 2]>,
}

/// Times as many tokens per second as without them that nodes have to bring: what is expected of them and of the times of passes is uncertain,
/// and of many that look as good as nothing those are kept that only look better.
const GAIN: f64 = 1.015;

/// What is expected of a round, for all that share it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) tokens: f64,
    pub(super) seconds: f64,
    /// Probability that the likeliest of the first tokens is accepted.
    pub(super) found: f64,
}

impl Proposed {
    /// Learns from the text that followed how the tokens fared.
    pub(super) fn judge(&self, text: &[Token], odds: &mut Odds) {
        let mut above = None;
        for &token in text {
            let is_right = |id: NodeId| self.tree.node(id).token == token;
            self.tree.children(above).for_each(|id| odds.learn(self.classes[id.index()], is_right(id)));
            above = self.tree.children(above).find(|&id| is_right(id));
            if above.is_none() {
                break;
            }
        }
    }
}

impl Round {
    pub(super) fn new(context: &DraftContext<'_>, drafters: usize) -> Self {
        let asked = vec![Asked::default(); drafters];
        Self { base: context.tokens.len(), proposed: Vec::new(), nodes: Vec::new(), asked }
    }

    /// Another draft in the place of the one at hand.
    pub(super) fn begin_anew(&mut self) {
        self.nodes.clear();
        self.asked.fill(Asked::default());
    }

    /// Takes in a drafter's tree. A token that another drafter has proposed at the same place is one node.
    pub(super) fn add(&mut self, tree: &DraftTree, by: usize, trial: bool, expect: impl Fn(NodeId) -> (Class, f64)) {
        let mut places: Vec<usize> = Vec::with_capacity(tree.len());
        let mut classes = Vec::with_capacity(tree.len());
        for (id, node) in tree.nodes() {
            let parent = node.parent.map(|parent| places[parent.index()]);
            let (class, odds) = expect(id);
            let same = |candidate: &Candidate| candidate.parent == parent && candidate.token == node.token;
            let place = match self.nodes.iter().position(same) {
                Some(place) => place,
                None => {
                    let origin = match node.kind {
                        spec_core::NodeKind::Given(origin) => origin,
                        spec_core::NodeKind::Sampled(_) => Origin::Fixed,
                    };
                    let (token, by) = (node.token, SmallVec::new());
                    self.nodes.push(Candidate { token, parent, origin, odds: 0.0, survival: 0.0, trial: false, by });
                    self.nodes.len() - 1
                }
            };
            let candidate = &mut self.nodes[place];
            candidate.odds = candidate.odds.max(odds);
            candidate.trial |= trial;
            candidate.by.push(by);
            places.push(place);
            classes.push(class);
        }
        self.proposed.push(Proposed { by, tree: tree.clone(), classes });
        self.settle();
    }

    /// Works out what survives. Of siblings one is accepted at most: the likelier ones leave the others what is left.
    fn settle(&mut self) {
        let place = |parent: Option<usize>| parent.map_or(0, |parent| parent + 1);
        let mut children = vec![0; self.nodes.len() + 1];
        self.nodes.iter().for_each(|node| children[place(node.parent)] += 1);
        for index in 0..self.nodes.len() {
            let Candidate { parent, odds, .. } = self.nodes[index];
            let left = if children[place(parent)] == 1 {
                1.0
            } else {
                let siblings = self.nodes.iter().enumerate().filter(|(_, other)| other.parent == parent);
                let likelier = siblings.filter(|&(at, other)| other.odds > odds || (other.odds == odds && at < index));
                (1.0 - likelier.map(|(_, other)| other.odds).sum::<f64>()).max(0.0)
            };
            self.nodes[index].survival = odds.min(left) * parent.map_or(1.0, |parent| self.nodes[parent].survival);
        }
    }

    /// What the round is expected to bring with the nodes at hand.
    pub(super) fn expected(&self, prices: &Prices, budget: usize) -> Expected {
        let nodes = self.best(prices, budget);
        let firsts = self.nodes.iter().filter(|node| node.parent.is_none());
        Expected {
            tokens: prices.tokens(1.0 + nodes.iter().map(|&node| self.nodes[node].survival).sum::<f64>()),
            seconds: prices.pass(1 + nodes.len()),
            found: firsts.map(|node| node.survival).fold(0.0, f64::max),
        }
    }

    /// The nodes, parents first, with which the round brings the most tokens per second; what drafting took is spent.
    pub(super) fn best(&self, prices: &Prices, budget: usize) -> Vec<usize> {
        best(prices, &[(self, budget)], &[]).pop().unwrap_or_default()
    }

    /// Leaves only `kept`, which are in order and hold every parent of theirs.
    pub(super) fn keep(&mut self, kept: &[usize]) {
        let place = |old: usize| kept.binary_search(&old).expect("the parent of a kept node is kept");
        self.nodes = kept
            .iter()
            .map(|&old| {
                let node = self.nodes[old].clone();
                Candidate { parent: node.parent.map(place), ..node }
            })
            .collect();
    }

    /// Charges each drafter that takes time for the rows that nobody else proposed, of a pass with `rows` rows of drafts.
    pub(super) fn charge_rows(&mut self, prices: &Prices, rows: usize) {
        for (index, asked) in self.asked.iter_mut().enumerate().filter(|(_, asked)| asked.seconds > 0.0) {
            let own = self.nodes.iter().filter(|node| node.by.iter().all(|&by| by == index)).count();
            asked.rows = prices.pass(1 + rows) - prices.pass(1 + rows - own);
        }
    }

    pub(super) fn tree(&self) -> Result<DraftTree, spec_core::TreeError> {
        let mut tree = DraftTree::new();
        let mut ids: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            ids.push(tree.push(node.parent.map(|parent| ids[parent]), node.token, node.origin)?);
        }
        Ok(tree)
    }
}

/// The nodes of several rounds, each parents first, with which the pass that they share brings the most tokens per second; what drafting took
/// is spent, and the nodes of `fixed` rounds are kept whatever they are worth. A round has at most as many nodes as stand with it.
pub(super) fn best(prices: &Prices, rounds: &[(&Round, usize)], fixed: &[&Round]) -> Vec<Vec<usize>> {
    let node = |&(round, node): &(usize, usize)| &rounds[round].0.nodes[node];
    let all = rounds.iter().enumerate();
    let mut order: Vec<(usize, usize)> =
        all.flat_map(|(at, (round, _))| (0..round.nodes.len()).map(move |node| (at, node))).collect();
    // A parent comes before its children: it is at least as likely, and older. Trials come first of all.
    order.sort_by(|a, b| {
        let (a, b) = (node(a), node(b));
        b.trial.cmp(&a.trial).then(b.survival.total_cmp(&a.survival))
    });
    // What is past a round's own limit goes; the parents of what is not stay.
    let mut left: Vec<usize> = rounds.iter().map(|&(_, budget)| budget).collect();
    order.retain(|&(round, _)| {
        let has_room = left[round] > 0;
        left[round] = left[round].saturating_sub(1);
        has_room
    });
    let trials = order.iter().filter(|place| node(place).trial).count();
    let everyone = || rounds.iter().map(|&(round, _)| round).chain(fixed.iter().copied());
    let spent: f64 = everyone().flat_map(|round| &round.asked).map(|asked| asked.seconds).sum();
    let given = || fixed.iter().flat_map(|round| &round.nodes);
    let rows = 1 + given().count();
    let (mut count, mut best_rate, mut tokens) = (0, 0.0, 1.0 + given().map(|node| node.survival).sum::<f64>());
    // Beside passes that all have drafts, the row of a draft looks cheaper than it is.
    let most = if prices.knows_plain() { order.len() } else { trials };
    for length in 0..=most {
        if let Some(last) = length.checked_sub(1) {
            tokens += node(&order[last]).survival;
        }
        let rate = prices.tokens(tokens) / (spent + prices.pass(rows + length));
        if length <= trials || rate > best_rate * GAIN {
            (count, best_rate) = (length, rate);
        }
    }
    let mut kept = vec![Vec::new(); rounds.len()];
    for &(round, node) in &order[..count] {
        kept[round].push(node);
    }
    kept.iter_mut().for_each(|nodes| nodes.sort_unstable());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_siblings_one_is_accepted_at_most() {
        let mut round = Round { base: 0, proposed: Vec::new(), nodes: Vec::new(), asked: vec![Asked::default(); 2] };
        let odds = |odds: f64| move |_| (Class { index: 0, prior: odds }, odds);
        round.add(&DraftTree::chain(&[1, 2, 3], Origin::Fixed), 0, false, odds(0.9));
        let survivals = |round: &Round| round.nodes.iter().map(|node| node.survival).collect::<Vec<_>>();
        let close = |found: Vec<f64>, wanted: &[f64]| {
            assert_eq!(found.len(), wanted.len());
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}, not {wanted:?}");
        };
        close(survivals(&round), &[0.9, 0.81, 0.729]);
        // Surer of another second token: the first one's is what that leaves, and so is all behind it.
        round.add(&DraftTree::chain(&[1, 7, 8], Origin::Fixed), 1, false, odds(0.95));
        close(survivals(&round), &[0.95, 0.95 * 0.05, 0.95 * 0.05 * 0.9, 0.95 * 0.95, 0.95 * 0.95 * 0.95]);
    }
}
