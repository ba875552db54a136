//! Small worlds: a target and a drafter whose rows are functions of the text, and the exact law of what a round emits in them.

use std::collections::{BTreeMap, HashSet};
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::every::enumerate;
use crate::math::mix64;
use crate::{
    AcceptanceRule, Choices, DraftTree, NodeId, PathLaws, Pipeline, Proposal, SamplingParams, Scratch, Token, TokenMask,
};

/// How rows are made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Rows {
    /// Anything.
    Random,
    /// Some tokens masked.
    Zeros,
    /// Many equal logits.
    Ties,
    /// One token has nearly everything.
    Peaked,
    /// The even ids only, in this case and the next.
    Even,
    /// The odd ids only.
    Odd,
    /// One token has everything.
    Certain,
}

impl Rows {
    /// The row after `text`: f32 logits, at least one of them finite.
    pub(super) fn row(self, seed: u64, vocab: usize, text: &[Token]) -> Vec<f32> {
        let context =
            text.iter().fold(mix64(seed ^ 0x51), |hash, &token| mix64(hash.rotate_left(9) ^ u64::from(token + 1)));
        let bits = |id: usize| mix64(context ^ mix64(id as u64 + 77));
        let unit = |id: usize| (bits(id) >> 40) as f32 / 16_777_216.0;
        let chosen = (mix64(context) % vocab as u64) as usize;
        (0..vocab)
            .map(|id| match self {
                Self::Random => unit(id) * 5.0,
                Self::Zeros if id != chosen && bits(id) & 3 < 2 => f32::NEG_INFINITY,
                Self::Zeros => unit(id) * 3.0,
                Self::Ties => (bits(id) & 1) as f32,
                Self::Peaked => unit(id) + if id == chosen { 9.0 } else { 0.0 },
                Self::Even if id % 2 == 1 => f32::NEG_INFINITY,
                Self::Odd if id % 2 == 0 && vocab > 1 => f32::NEG_INFINITY,
                Self::Even | Self::Odd => unit(id) * 2.0,
                Self::Certain if id == chosen => 0.0,
                Self::Certain => f32::NEG_INFINITY,
            })
            .collect()
    }
}

/// Where rows come from: by the text behind the prompt.
pub(super) type RowSource<'a> = &'a dyn Fn(&[Token]) -> Vec<f32>;

/// How a draft is made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Drafting {
    /// As the rule says.
    Proposal,
    /// The drafter's most probable tokens, as given nodes.
    Top,
    /// Drawn from the drafter's law and then passed off as given: samples matched one-hot.
    Matched,
    /// One given child below each node, further ones drawn.
    Mixed,
}

/// One experiment.
pub(super) struct World<'a> {
    pub(super) vocab: usize,
    pub(super) prompt: &'a [Token],
    pub(super) target: RowSource<'a>,
    pub(super) drafter: RowSource<'a>,
    /// Processing of both rows; the history is that of each path.
    pub(super) params: SamplingParams,
    /// Another processing of the drafter's rows.
    pub(super) drafter_params: Option<SamplingParams>,
    pub(super) rule: &'a dyn AcceptanceRule,
    /// Children per node, by level.
    pub(super) shape: &'a [usize],
    pub(super) drafting: Drafting,
    /// A drafted token behind which its branch ends.
    pub(super) end: Option<Token>,
}

/// What a world comes to.
pub(super) struct Found {
    /// Greatest difference to the target's law over all texts of the drafted length and one token more.
    pub(super) distance: f64,
    /// Sum of the absolute differences, halved.
    pub(super) variation: f64,
    /// Expected number of accepted tokens.
    pub(super) accepted: f64,
}

struct Everything;

impl TokenMask for Everything {
    fn allows(&self, _: Token) -> bool {
        true
    }
}

impl World<'_> {
    /// Drafts with the shipped proposal: level by level, each row after the history of its path.
    fn draft(&self, pipeline: &mut Pipeline, choices: &mut dyn Choices) -> DraftTree {
        let mut tree = DraftTree::new();
        let mut scratch = Scratch::default();
        let base = pipeline.len();
        let mut level: Vec<Option<NodeId>> = vec![None];
        for &width in self.shape {
            let mut below = Vec::new();
            for parent in level {
                let path = tokens_to(&tree, parent);
                if path.last().copied() == self.end && self.end.is_some() {
                    continue;
                }
                pipeline.extend(&path);
                let row = (self.drafter)(&path);
                let law = pipeline.law(&row, None, &mut scratch).expect("a proper row");
                let position = base + path.len();
                let nodes = self.children(&mut tree, parent, &law, width, position, choices);
                below.extend(nodes.into_iter().map(Some));
                pipeline.truncate(base);
            }
            level = below;
        }
        tree
    }

    fn children(
        &self,
        tree: &mut DraftTree,
        parent: Option<NodeId>,
        law: &crate::Law<'_>,
        width: usize,
        position: usize,
        choices: &mut dyn Choices,
    ) -> Vec<NodeId> {
        let mut propose = |tree: &mut DraftTree, proposal: Proposal<'_>, width| {
            proposal.propose(tree, parent, law, width, position, choices).expect("a proper parent").to_vec()
        };
        match self.drafting {
            Drafting::Proposal => propose(tree, self.rule.proposal(), width),
            Drafting::Top => propose(tree, Proposal::Argmax, width),
            Drafting::Mixed => {
                let mut nodes = propose(tree, Proposal::Argmax, 1);
                nodes.extend(propose(tree, self.rule.proposal(), width - 1));
                nodes.dedup();
                nodes
            }
            Drafting::Matched => {
                let mut drawn = DraftTree::new();
                let own = Proposal::Sampled(crate::Siblings::Distinct);
                let node = own.propose(&mut drawn, None, law, 1, position, choices).expect("a first draw")[0];
                vec![tree.push(parent, drawn.node(node).token, crate::Origin::Fixed).expect("a chain")]
            }
        }
    }

    /// Enumerates drafting and verification.
    pub(super) fn explore(&self) -> Result<Found, String> {
        let mut pipeline = Pipeline::new(self.params.clone(), self.vocab).expect("valid parameters");
        pipeline.extend(self.prompt);
        let params = self.drafter_params.as_ref().unwrap_or(&self.params);
        let mut drafter = Pipeline::new(params.clone(), self.vocab).expect("valid parameters");
        drafter.extend(self.prompt);
        let mut emitted: BTreeMap<Vec<Token>, f64> = BTreeMap::new();
        let mut accepted = 0.0;
        enumerate(
            &HashSet::new(),
            |choices| self.draft(&mut drafter, choices),
            |tree, drafted, keys| {
                let paths: Vec<Vec<Token>> = tree.nodes().map(|(id, _)| tokens_to(&tree, Some(id))).collect();
                let rows: Vec<Vec<f32>> = [vec![]].iter().chain(&paths).map(|path| (self.target)(path)).collect();
                enumerate(
                    &keys,
                    |choices| {
                        let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, self.prompt.len(), None);
                        self.rule.verify(&tree, &mut laws, choices).expect("the rule judges such trees")
                    },
                    |outcome, judged, _| {
                        let mut text: Vec<Token> = outcome.accepted.iter().map(|&node| tree.node(node).token).collect();
                        accepted += drafted * judged * text.len() as f64;
                        text.push(outcome.next);
                        *emitted.entry(text).or_insert(0.0) += drafted * judged;
                        Ok(())
                    },
                )
            },
        )?;
        self.compare(&emitted, accepted)
    }

    /// Completes each text by the target alone and compares with the target's law of whole texts.
    fn compare(&self, emitted: &BTreeMap<Vec<Token>, f64>, accepted: f64) -> Result<Found, String> {
        let mass: f64 = emitted.values().sum();
        if (mass - 1.0).abs() > 1e-9 {
            return Err(format!("the runs have probability {mass} together"));
        }
        let mut completed: BTreeMap<Vec<Token>, f64> = BTreeMap::new();
        let mut plain: BTreeMap<Vec<Token>, f64> = BTreeMap::new();
        for (text, &mass) in emitted {
            self.complete(text, mass, &mut completed);
        }
        self.complete(&[], 1.0, &mut plain);
        let texts: HashSet<&Vec<Token>> = completed.keys().chain(plain.keys()).collect();
        let off = |text: &Vec<Token>| {
            let side = |map: &BTreeMap<Vec<Token>, f64>| map.get(text).copied().unwrap_or(0.0);
            (side(&completed) - side(&plain)).abs()
        };
        let distance = texts.iter().map(|&text| off(text)).fold(0.0, f64::max);
        let variation = texts.iter().map(|&text| off(text)).sum::<f64>() / 2.0;
        Ok(Found { distance, variation, accepted })
    }

    fn complete(&self, text: &[Token], mass: f64, into: &mut BTreeMap<Vec<Token>, f64>) {
        if text.len() > self.shape.len() {
            *into.entry(text.to_vec()).or_insert(0.0) += mass;
            return;
        }
        for (token, probability) in self.plain_law(text).into_iter().enumerate() {
            if probability > 0.0 {
                self.complete(&[text, &[token as Token]].concat(), mass * probability, into);
            }
        }
    }

    /// The target's law after a text, as plain decoding has it. Without processing, by a softmax of its own.
    fn plain_law(&self, text: &[Token]) -> Vec<f64> {
        let row = (self.target)(text);
        if self.params == (SamplingParams { temperature: 1.0, ..SamplingParams::default() }) {
            return softmax(&row);
        }
        let mut pipeline = Pipeline::new(self.params.clone(), self.vocab).expect("valid parameters");
        pipeline.extend(self.prompt);
        pipeline.extend(text);
        let mut probabilities = Vec::new();
        let mut scratch = Scratch::default();
        let law = pipeline.law(&row, Some(&Everything), &mut scratch).expect("a proper row");
        law.probabilities(&mut probabilities);
        probabilities
    }
}

fn tokens_to(tree: &DraftTree, node: Option<NodeId>) -> Vec<Token> {
    node.map_or_else(Vec::new, |node| tree.path(node).iter().map(|&id| tree.node(id).token).collect())
}

/// By the standard library's exponential.
pub(super) fn softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = row.iter().map(|&logit| (f64::from(logit) - f64::from(max)).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Logits of given probabilities.
pub(super) fn logits(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}
