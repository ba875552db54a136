use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{DraftTree, Law, NodeId, Pipeline, SamplingError, Scratch, Token};

use super::reader::Reader;
use super::shortlist::Shortlist;
use super::{Class, DraftContext, Drafter, GenerationId, Work, Worth};
use crate::{Batch, HostStream, KvGuard, Model, Row, Rows, RuntimeError, Sequence, Stream, VocabularyMap, Want};

/// Drafts with a model of its own: a smaller one, or the target's file opened again. Where the vocabularies differ, a
/// [`VocabularyMap`] stands between them: laws are over the target's ids, rows and cache hold the draft model's.
///
/// Its KV cache holds entries of the committed prefix only. Tokens it has not seen, because they were the
/// target's corrections or because rounds went by without drafting, are caught up before it proposes.
///
/// Without [`DraftContext::worth`] it proposes a chain of the whole budget. With it, it grows a tree level by level: a pass of
/// the model looks behind the nodes that are likeliest to stand, for as long as the tokens that this is expected to add are worth
/// the pass.
pub struct ModelDrafter {
    model: Arc<dyn Model>,
    stream: Box<dyn Stream>,
    name: String,
    states: HashMap<GenerationId, State>,
    scratch: Scratch,
    work: Work,
    shortlist: Scored,
    /// `None`: the vocabularies are one.
    reader: Option<Reader>,
    /// A row of logits by the target's ids.
    row: Vec<f32>,
}

/// Which tokens are scored.
enum Scored {
    All,
    /// Those of a shortlist, once the model is there.
    Some,
    Listed(Shortlist),
}

struct State {
    sequence: Sequence,
    block: Option<Block>,
    /// Classes of the nodes proposed last, in their order.
    classes: Vec<Class>,
    /// Length of the text that the shortlist has seen, in tokens of the draft model.
    listed: usize,
}

/// The rows of a draft under verification.
struct Block {
    guard: KvGuard,
    /// Length of the committed text that they follow, in tokens of the draft model.
    base: usize,
    /// Parent row and token of each, in the order of submission.
    rows: Vec<(Option<u32>, Token)>,
}

impl Block {
    /// Keeps the rows that are part of the text now, as the draft model reads it. Its last token is fed in the next round by whoever goes on from there.
    fn commit(self, text: &[Token]) -> Result<(), RuntimeError> {
        let mut path: Vec<u32> = Vec::new();
        for &token in text.get(self.base..text.len().saturating_sub(1)).unwrap_or_default() {
            let next = (path.last().copied(), token);
            match self.rows.iter().position(|&row| row == next) {
                Some(row) => path.push(row as u32),
                None => break,
            }
        }
        self.guard.commit(&path)
    }
}

/// Nodes that one pass looks behind at most, and children proposed below one: passes of a few rows cost little more than one.
const BEAM: usize = 4;
const CHILDREN: usize = 3;
/// Rows that a draft may take in the drafter's cache when it grows a tree.
const TREE_ROWS: usize = 32;
/// What a row adds to a pass of the draft model, as a share of the pass.
const ROW: f64 = 0.04;
/// Nodes that the target's pass is expected to have room for.
const ROWS: usize = 7;

/// Classes of the likeliest token by its probability, of further ones by theirs, and of drawn tokens by the greatest probability:
/// what may be looked at before a draw.
const FIRST: u8 = 0;
const FURTHER: u8 = 16;
const DRAWN: u8 = 32;
const BOUNDS: [f64; 15] = [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.995];

fn class(base: u8, probability: f64) -> Class {
    let bucket = BOUNDS.partition_point(|&bound| bound <= probability);
    // On seven prompts a 1.5B model accepted what a 0.5B was so sure of about as often as it was sure.
    Class { index: base + bucket as u8, prior: probability.clamp(0.01, 0.98) }
}

impl ModelDrafter {
    /// A drafter over `model`, whose vocabulary is the target's, id for id. For another one see
    /// [`with_vocabulary`](Self::with_vocabulary).
    pub fn new(model: Arc<dyn Model>) -> Self {
        let name = format!("model {}", model.config().name);
        Self {
            model,
            stream: Box::new(HostStream),
            name,
            states: HashMap::new(),
            scratch: Scratch::default(),
            work: Work::default(),
            shortlist: Scored::All,
            reader: None,
            row: Vec::new(),
        }
    }

    /// Drafts from a vocabulary of the model's own. Its end tokens, like all of its tokens, mean what the target's mean.
    #[must_use]
    pub fn with_vocabulary(mut self, map: VocabularyMap) -> Self {
        self.reader = (!map.is_identity()).then(|| Reader::new(map));
        self
    }

    /// Scores the tokens that are likely to come, and not the whole vocabulary: a pass costs less, and a token that is missing is
    /// not drafted. The list is learnt from prompts and answers; when too many are missing, all are scored.
    #[must_use]
    pub fn with_shortlist(mut self) -> Self {
        self.shortlist = Scored::Some;
        self
    }

    fn want(&self) -> Want {
        match &self.shortlist {
            Scored::Listed(shortlist) => shortlist.want(),
            Scored::All | Scored::Some => Want::Logits,
        }
    }

    /// The committed text in the draft model's ids, and where its last `seen` tokens begin; `None` where it cannot be read.
    fn read<'a>(
        &mut self,
        generation: GenerationId,
        tokens: &'a [Token],
        seen: usize,
    ) -> Option<(Cow<'a, [Token]>, usize)> {
        match &mut self.reader {
            None => Some((Cow::Borrowed(tokens), tokens.len().saturating_sub(seen))),
            Some(reader) => reader.read(generation, tokens, seen).map(|(text, start)| (Cow::Owned(text), start)),
        }
    }

    /// The draft model's id of a token that it proposed.
    fn own_id(&self, token: Token) -> Result<Token, RuntimeError> {
        match &self.reader {
            None => Ok(token),
            Some(reader) => {
                reader.map.draft_id(token).ok_or(RuntimeError::BadToken { token, vocab: self.model.config().vocab })
            }
        }
    }

    /// Runs passes on a stream of the model's device.
    #[must_use]
    pub fn on_stream(mut self, stream: Box<dyn Stream>) -> Self {
        self.stream = stream;
        self
    }

    /// Brings the drafter's cache up to the committed text; gives the last pass and the row of the last token.
    fn catch_up(&mut self, sequence: &Sequence, tokens: &[Token]) -> Result<(Box<dyn Rows>, usize), RuntimeError> {
        loop {
            let done = sequence.kv_len()?;
            let end = tokens.len().min(done + self.model.config().max_rows);
            let last = end == tokens.len();
            let want = if last { self.want() } else { Want::Nothing };
            let guard = KvGuard::reserve(sequence, end - done)?;
            let batch = Batch::chain(sequence.id(), &tokens[done..end], done, None, want);
            let rows = self.model.submit(&*self.stream, &batch)?.wait()?;
            guard.commit_chain(end - done)?;
            self.work.caught_up += end - done - usize::from(last);
            if last {
                self.work.passes += 1;
                return Ok((rows, end - done - 1));
            }
        }
    }

    /// Drafts behind `text`, which is the end of the committed text.
    fn grow(
        &mut self,
        sequence: &Sequence,
        text: &[Token],
        budget: usize,
        context: &mut DraftContext<'_>,
    ) -> Result<(DraftTree, Block, Vec<Class>), RuntimeError> {
        let committed = context.tokens.len();
        let (mut rows, row) = self.catch_up(sequence, text)?;
        // The last position of the context takes the last row.
        let depth = budget.min(self.model.config().context + 1 - text.len());
        let capacity = if context.worth.is_some() { TREE_ROWS.min(self.model.config().max_rows) } else { depth - 1 };
        let mut block = Block { guard: KvGuard::reserve(sequence, capacity)?, base: text.len(), rows: Vec::new() };
        let drawn = context.proposal.draws();
        let width = match context.worth {
            Some(_) if !drawn => context.width.clamp(1, CHILDREN),
            _ => 1,
        };
        let ahead = Ahead { worth: context.worth, depth, width, drawn, end_ids: context.end_ids };
        let history = Restored { length: context.pipeline.len(), pipeline: &mut *context.pipeline };
        let mut draft = Growing { tree: DraftTree::new(), classes: Vec::new(), survival: Vec::new(), rows: Vec::new() };

        // The nodes whose rows are at hand, by row of the pass.
        let mut looked_behind: Vec<(Option<NodeId>, usize)> = vec![(None, row)];
        loop {
            for &(parent, row) in &looked_behind {
                history.pipeline.truncate(history.length);
                let path = parent.map(|parent| draft.tree.path(parent)).unwrap_or_default();
                for &node in &path {
                    history.pipeline.push(draft.tree.node(node).token);
                }
                let mut logits = rows.logits(row)?;
                if let Some(reader) = &self.reader {
                    logits = reader.map.row(logits, &mut self.row);
                }
                let law = if context.worth.is_some() {
                    history.pipeline.summarized_law(logits, None, &mut self.scratch)
                } else {
                    history.pipeline.law(logits, None, &mut self.scratch)
                };
                let law = match law {
                    Ok(law) => law,
                    // Of a part of the vocabulary the request may forbid every token. The target has others.
                    Err(SamplingError::NothingAllowed { .. }) => continue,
                    Err(error) => return Err(error.into()),
                };
                let position = committed + path.len();
                // Known before anything is drawn.
                let before = context.worth.map(|_| law.soft_probability(law.argmax()));
                let nodes = context
                    .proposal
                    .propose(&mut draft.tree, parent, &law, width, position, context.choices)
                    .map_err(|source| RuntimeError::Draft { drafter: self.name.clone(), source })?;
                draft.weigh(&ahead, &law, before, parent, &nodes);
            }
            let chosen = draft.worth_looking_behind(&ahead, capacity - block.rows.len(), self.work.passes);
            if chosen.is_empty() {
                break;
            }
            looked_behind.clear();
            let mut batch = Batch::default();
            for (index, &node) in chosen.iter().enumerate() {
                let token = self.own_id(draft.tree.node(node).token)?;
                let parent = draft.tree.node(node).parent.and_then(|parent| draft.rows[parent.index()]);
                let position = text.len() - 1 + draft.tree.depth(node);
                batch.rows.push(Row { seq: sequence.id(), token, position, parent, want: self.want() });
                draft.rows[node.index()] = Some(block.rows.len() as u32);
                block.rows.push((parent, token));
                looked_behind.push((Some(node), index));
            }
            rows = self.model.submit(&*self.stream, &batch)?.wait()?;
            self.work.passes += 1;
        }
        drop(history);
        Ok((draft.tree, block, draft.classes))
    }
}

/// What decides how far a draft goes.
struct Ahead<'a> {
    worth: Option<Worth<'a>>,
    /// Greatest depth of a node.
    depth: usize,
    /// Children of a node.
    width: usize,
    /// Whether tokens are drawn, after which none may be dropped for what it is.
    drawn: bool,
    end_ids: &'a [Token],
}

/// A tree that grows, and what is expected of its nodes.
struct Growing {
    tree: DraftTree,
    classes: Vec<Class>,
    /// Probability that a node and all above it are accepted.
    survival: Vec<f64>,
    /// The row that looks behind a node, once there is one.
    rows: Vec<Option<u32>>,
}

impl Growing {
    fn weigh(
        &mut self,
        ahead: &Ahead<'_>,
        law: &Law<'_>,
        greatest: Option<f64>,
        parent: Option<NodeId>,
        nodes: &[NodeId],
    ) {
        for (rank, &node) in nodes.iter().enumerate() {
            self.rows.push(None);
            let class = match greatest {
                None => Class { index: DRAWN, prior: 0.5 },
                Some(greatest) if ahead.drawn => class(DRAWN, greatest),
                Some(_) => {
                    let own = law.soft_probability(self.tree.node(node).token);
                    class(if rank == 0 { FIRST } else { FURTHER }, own)
                }
            };
            let above = parent.map_or(1.0, |parent| self.survival[parent.index()]);
            self.survival.push(above * ahead.worth.map_or(1.0, |worth| worth.odds.expect(class)));
            self.classes.push(class);
        }
    }

    /// The nodes that the next pass looks behind, of at most `room`; `passes` were made so far.
    fn worth_looking_behind(&self, ahead: &Ahead<'_>, room: usize, passes: usize) -> Vec<NodeId> {
        let open = |&(id, node): &(NodeId, &spec_core::Node)| {
            self.rows[id.index()].is_none() && self.tree.depth(id) < ahead.depth && !ahead.end_ids.contains(&node.token)
        };
        let open = self.tree.nodes().filter(open).map(|(id, _)| id);
        let Some(worth) = &ahead.worth else {
            // A chain: its last node, until it is long enough.
            return open.filter(|node| node.index() + 1 == self.tree.len()).take(room).collect();
        };
        let mut candidates: Vec<NodeId> = open.collect();
        candidates.sort_by(|a, b| self.survival[b.index()].total_cmp(&self.survival[a.index()]));
        candidates.truncate(if ahead.width == 1 { 1 } else { BEAM }.min(room));
        let first = usize::from(if ahead.drawn { DRAWN } else { FIRST });
        let next = worth.odds.expect_any(first..first + 16, 0.75);
        // What the round has so far: the likeliest nodes, in a pass of as many rows.
        let mut survival = self.survival.clone();
        survival.sort_by(|a, b| b.total_cmp(a));
        survival.truncate(ROWS);
        let tokens = worth.tokens + survival.iter().sum::<f64>();
        let drafting = passes as f64 * worth.pass;
        let rate = tokens / (worth.seconds + drafting + worth.row * survival.len() as f64);
        let gain = |node: &NodeId| self.survival[node.index()] * next - rate * worth.row;
        candidates.retain(|node| gain(node) > rate * worth.pass * ROW);
        let total: f64 = candidates.iter().map(gain).sum();
        let price = rate * worth.pass * (1.0 + ROW * candidates.len().saturating_sub(1) as f64);
        if total > price { candidates } else { Vec::new() }
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &str {
        &self.name
    }

    fn has_laws(&self) -> bool {
        true
    }

    fn class(&self, generation: GenerationId, node: NodeId) -> Class {
        let classes = self.states.get(&generation).map(|state| &state.classes);
        classes.and_then(|classes| classes.get(node.index())).copied().unwrap_or(Class { index: DRAWN, prior: 0.5 })
    }

    fn work(&self) -> Work {
        self.work
    }

    fn prepare(&mut self) -> Result<(), RuntimeError> {
        self.model.prepare()?;
        if matches!(self.shortlist, Scored::Some) {
            self.shortlist = Shortlist::new(&*self.model)?.map_or(Scored::All, Scored::Listed);
        }
        Ok(())
    }

    fn draft(&mut self, mut context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        self.prepare()?;
        self.work = Work::default();
        let seen = context.context.filter(|&seen| seen > 0 && seen < context.tokens.len());
        let length = seen.unwrap_or(context.tokens.len());
        let Some((tokens, start)) = self.read(context.generation, context.tokens, length) else {
            return Ok(DraftTree::new());
        };
        let text = &tokens[start..];
        let budget = context.budget.min((self.model.config().context + 1).saturating_sub(text.len()));
        if budget == 0 {
            return Ok(DraftTree::new());
        }
        let state = match self.states.remove(&context.generation) {
            Some(state) => state,
            None => State { sequence: Sequence::open(&self.model)?, block: None, classes: Vec::new(), listed: 0 },
        };
        // An error below drops the state: the sequence closes, and the next round starts it afresh.
        let State { sequence, block, listed, .. } = state;
        drop(block);
        if let Scored::Listed(shortlist) = &mut self.shortlist {
            match tokens.get(listed..) {
                Some(emitted) if listed > 0 => shortlist.follow(&*self.model, emitted)?,
                _ => shortlist.read(&*self.model, &tokens)?,
            }
        }
        let (tree, block, classes) = if seen.is_some() {
            // A trial reads the end of the text as if there were nothing before it, on the side.
            let aside = Sequence::open(&self.model)?;
            let (tree, _, classes) = self.grow(&aside, text, budget, &mut context)?;
            (tree, None, classes)
        } else {
            let (tree, block, classes) = self.grow(&sequence, text, budget, &mut context)?;
            (tree, Some(block), classes)
        };
        self.states.insert(context.generation, State { sequence, block, classes, listed: tokens.len() });
        Ok(tree)
    }

    fn observe(&mut self, generation: GenerationId, tokens: &[Token], _: usize) -> Result<(), RuntimeError> {
        let Some(block) = self.states.get_mut(&generation).and_then(|state| state.block.take()) else { return Ok(()) };
        match self.read(generation, tokens, tokens.len()) {
            Some((text, _)) => block.commit(&text),
            // Nothing will be drafted behind this text; dropping the block rolls it back.
            None => Ok(()),
        }
    }

    fn forget(&mut self, generation: GenerationId) {
        self.states.remove(&generation);
        if let Some(reader) = &mut self.reader {
            reader.forget(generation);
        }
    }
}

/// Gives the pipeline back as it was.
struct Restored<'a> {
    length: usize,
    pipeline: &'a mut Pipeline,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.pipeline.truncate(self.length);
    }
}
