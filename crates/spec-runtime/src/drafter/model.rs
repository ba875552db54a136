use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{DraftTree, NodeId, Pipeline, SamplingError, Scratch, Token, TreeError};

use super::growing::{BEAM, CHILDREN, Growing, Limits, UNKNOWN};
use super::reader::Reader;
use super::shortlist::Shortlist;
use super::{Class, DraftContext, Drafter, GenerationId, Work};
use crate::{
    Batch, Event, HostStream, KvGuard, KvUsage, Model, Row, Rows, RuntimeError, SeqId, Sequence, Stream, VocabularyMap,
    Want,
};

/// Drafts with a model of its own: a smaller one, or the target's file opened again. Where the vocabularies differ, a
/// [`VocabularyMap`] stands between them: laws are over the target's ids, rows and cache hold the draft model's.
///
/// Its KV cache holds entries of the committed prefix only. Tokens it has not seen, because they were the
/// target's corrections or because rounds went by without drafting, are caught up before it proposes.
///
/// Without [`DraftContext::worth`] it proposes a chain of the whole budget. With it, it grows a tree level by level: a pass of
/// the model looks behind the nodes that are likeliest to stand, for as long as the tokens that this is expected to add are worth
/// the pass.
///
/// It drafts ahead in rows of an open reservation, which go when the round ends, but for those of tokens that are text by then; the
/// nodes themselves are kept until the text shows whether they were of use.
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
    ahead: Option<Ahead>,
}

/// A draft behind a text that was not there yet.
struct Ahead {
    /// Length of the committed text then.
    base: usize,
    /// The tokens that it was assumed to go on with.
    assumed: Vec<Token>,
    draft: Growing,
}

impl Ahead {
    fn is_behind(&self, text: &[Token]) -> bool {
        text.get(self.base..) == Some(&self.assumed)
    }
}

/// The rows of a draft under verification.
struct Block {
    guard: KvGuard,
    /// Length of the text that they follow, in tokens of the draft model.
    base: usize,
    /// Parent row and token of each, in the order of submission.
    rows: Vec<(Option<u32>, Token)>,
    /// The row of the token that the draft follows; `None` where that one is committed.
    root: Option<u32>,
    /// Rows that the draft's nodes may have.
    room: usize,
}

impl Block {
    /// Opens room for `lead` rows of text and `room` of nodes.
    fn open(sequence: &Sequence, base: usize, lead: usize, room: usize) -> Result<Self, RuntimeError> {
        Ok(Self { guard: KvGuard::reserve(sequence, lead + room)?, base, rows: Vec::new(), root: None, room })
    }

    /// Adds a row to a pass over this block.
    fn push(&mut self, batch: &mut Batch, seq: SeqId, token: Token, position: usize, parent: Option<u32>, want: Want) {
        batch.rows.push(Row { seq, token, position, parent, want });
        self.rows.push((parent, token));
    }

    /// Adds text from `position` on, which the draft follows; `want` is what its last row delivers.
    fn push_text(&mut self, batch: &mut Batch, seq: SeqId, tokens: &[Token], position: usize, want: Want) {
        for (index, &token) in tokens.iter().enumerate() {
            let want = if index + 1 == tokens.len() { want } else { Want::Nothing };
            self.push(batch, seq, token, position + index, self.root, want);
            self.root = Some(self.rows.len() as u32 - 1);
        }
    }

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

/// What a draft grows from.
struct Stem<'a> {
    sequence: &'a Sequence,
    /// Tokens of the sequence in front of the draft.
    length: usize,
    /// Position of the draft's first tokens in the whole text.
    position: usize,
    limits: Limits<'a>,
}

/// A pass's results, and the nodes that they are behind by row; `None` is the text.
struct Seen {
    rows: Box<dyn Rows>,
    behind: Vec<(Option<NodeId>, usize)>,
}

impl ModelDrafter {
    /// The share of the vocabulary that [`with_shortlist`](Self::with_shortlist) lists from the start, as one part of so many.
    pub const SHORTLIST_SHARE: usize = Shortlist::SHARE;

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

    fn malformed(&self) -> impl Fn(TreeError) -> RuntimeError + use<> {
        let drafter = self.name.clone();
        move |source| RuntimeError::Draft { drafter: drafter.clone(), source }
    }

    fn pass(&mut self, batch: &Batch) -> Result<Box<dyn Rows>, RuntimeError> {
        self.work.passes += 1;
        self.model.submit(&*self.stream, batch)?.wait()
    }

    /// Brings the drafter's cache up to the committed text; gives what the last pass saw behind it.
    fn catch_up(&mut self, sequence: &Sequence, tokens: &[Token]) -> Result<Seen, RuntimeError> {
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
                return Ok(Seen { rows, behind: vec![(None, end - done - 1)] });
            }
        }
    }

    fn limits<'a>(&self, length: usize, budget: usize, context: &DraftContext<'a>) -> Limits<'a> {
        let drawn = context.proposal.draws();
        let width = match context.worth {
            Some(_) if !drawn => context.width.clamp(1, CHILDREN),
            _ => 1,
        };
        // The last position of the context takes the last row.
        let depth = budget.min((self.model.config().context + 1).saturating_sub(length));
        Limits { worth: context.worth, depth, width, drawn, end_ids: context.end_ids }
    }

    /// Drafts behind `text`, which is the end of the committed text.
    fn draft_afresh(
        &mut self,
        sequence: &Sequence,
        text: &[Token],
        budget: usize,
        context: &mut DraftContext<'_>,
    ) -> Result<(Growing, Block), RuntimeError> {
        let position = context.tokens.len();
        let seen = self.catch_up(sequence, text)?;
        let limits = self.limits(text.len(), budget, context);
        let mut block = Block::open(sequence, text.len(), 0, limits.rows(self.model.config().max_rows))?;
        let stem = Stem { sequence, length: text.len(), position, limits };
        let draft = self.grow(&stem, Growing::default(), seen, &mut block, context, &|| true)?;
        Ok((draft, block))
    }

    /// Takes up what was drafted ahead behind the text that is there now, and goes on where that pays.
    fn go_on(
        &mut self,
        sequence: &Sequence,
        mut draft: Growing,
        context: &mut DraftContext<'_>,
    ) -> Result<(Growing, Option<Block>), RuntimeError> {
        let text = context.tokens;
        let limits = self.limits(text.len(), context.budget, context);
        if context.worth.is_none() {
            draft.truncate(limits.depth).map_err(self.malformed())?;
        }
        self.work.ahead = draft.tree.len();
        draft.rows.fill(None);
        let max_rows = self.model.config().max_rows;
        let done = sequence.kv_len()?;
        let unread = &text[done..];
        let chosen = draft.worth_looking_behind(&limits, BEAM, 0);
        if chosen.is_empty() || unread.len() + draft.tree.len() > max_rows {
            return Ok((draft, None));
        }
        let room = draft.tree.len() + limits.rows(max_rows);
        // What was drafted is at hand, whether there is room for more or not.
        let Ok(mut block) = Block::open(sequence, done, unread.len(), room) else { return Ok((draft, None)) };
        let stem = Stem { sequence, length: text.len(), position: text.len(), limits };
        let seen = self.look_behind(&stem, &mut draft, &chosen, unread, &mut block)?;
        self.work.caught_up += unread.len() - 1;
        let draft = self.grow(&stem, draft, seen, &mut block, context, &|| true)?;
        Ok((draft, Some(block)))
    }

    /// Drafts behind the text that is assumed, and a guess of the token that follows it.
    fn grow_ahead(
        &mut self,
        state: &mut State,
        context: &mut DraftContext<'_>,
        assumed: usize,
        under_way: &dyn Fn() -> bool,
    ) -> Result<usize, RuntimeError> {
        let text = context.tokens;
        let sequence = &state.sequence;
        let limits = self.limits(text.len() + 1, context.budget, context);
        let done = sequence.kv_len()?;
        let unread = &text[done..];
        let max_rows = self.model.config().max_rows;
        if limits.depth == 0 || unread.len() > max_rows || !under_way() {
            return Ok(0);
        }
        // The rows of the draft under verification go: in the pass over the last of them all can be read again.
        state.block = None;
        let Ok(block) = Block::open(sequence, done, unread.len() + 1, limits.rows(max_rows)) else { return Ok(0) };
        let block = state.block.insert(block);
        let mut batch = Batch::default();
        block.push_text(&mut batch, sequence.id(), unread, done, self.want());
        let rows = self.pass(&batch)?;

        let mut guess = DraftTree::new();
        let law = context.pipeline.law(rows.logits(unread.len() - 1)?, None, &mut self.scratch)?;
        let guessed = context.proposal.propose(&mut guess, None, &law, 1, text.len(), context.choices);
        let Some(&guessed) = guessed.map_err(self.malformed())?.first() else { return Ok(0) };
        let guess = guess.node(guessed).token;
        if context.end_ids.contains(&guess) || !under_way() {
            return Ok(0);
        }
        let mut batch = Batch::default();
        block.push_text(&mut batch, sequence.id(), &[guess], text.len(), self.want());
        let seen = Seen { rows: self.pass(&batch)?, behind: vec![(None, 0)] };

        let stem = Stem { sequence, length: text.len() + 1, position: text.len() + 1, limits };
        context.pipeline.push(guess);
        let draft = self.grow(&stem, Growing::default(), seen, block, context, under_way);
        context.pipeline.truncate(text.len());
        let draft = draft?;
        let nodes = draft.tree.len();
        let base = text.len() - assumed;
        state.ahead = (nodes > 0).then(|| Ahead { base, assumed: [&text[base..], &[guess]].concat(), draft });
        Ok(nodes)
    }

    /// Adds nodes behind those that were looked behind, pass by pass.
    fn grow(
        &mut self,
        stem: &Stem<'_>,
        mut draft: Growing,
        mut seen: Seen,
        block: &mut Block,
        context: &mut DraftContext<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Growing, RuntimeError> {
        let limits = &stem.limits;
        let history = Restored { length: context.pipeline.len(), pipeline: &mut *context.pipeline };
        loop {
            for &(parent, row) in &seen.behind {
                history.pipeline.truncate(history.length);
                let path = parent.map(|parent| draft.tree.path(parent)).unwrap_or_default();
                for &node in &path {
                    history.pipeline.push(draft.tree.node(node).token);
                }
                let mut logits = seen.rows.logits(row)?;
                if let Some(reader) = &self.reader {
                    logits = reader.map.row(logits, &mut self.row);
                }
                let law = if limits.worth.is_some() {
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
                // Known before anything is drawn.
                let before = limits.worth.map(|_| law.soft_probability(law.argmax()));
                let position = stem.position + path.len();
                let nodes = context
                    .proposal
                    .propose(&mut draft.tree, parent, &law, limits.width, position, context.choices)
                    .map_err(|source| RuntimeError::Draft { drafter: self.name.clone(), source })?;
                draft.weigh(limits, &law, before, parent, &nodes);
            }
            if !goes_on() {
                break;
            }
            let taken = draft.rows.iter().flatten().count();
            let chosen = draft.worth_looking_behind(limits, block.room.saturating_sub(taken), self.work.passes);
            if chosen.is_empty() {
                break;
            }
            seen = self.look_behind(stem, &mut draft, &chosen, &[], block)?;
        }
        drop(history);
        Ok(draft)
    }

    /// A pass that looks behind `chosen`. Text and nodes above them that have no row in the block yet are read on the way.
    fn look_behind(
        &mut self,
        stem: &Stem<'_>,
        draft: &mut Growing,
        chosen: &[NodeId],
        unread: &[Token],
        block: &mut Block,
    ) -> Result<Seen, RuntimeError> {
        let seq = stem.sequence.id();
        let mut batch = Batch::default();
        block.push_text(&mut batch, seq, unread, stem.length - unread.len(), Want::Nothing);
        let mut behind = Vec::with_capacity(chosen.len());
        for &last in chosen {
            for node in draft.tree.path(last) {
                if draft.rows[node.index()].is_some() {
                    continue;
                }
                let want = if chosen.contains(&node) {
                    behind.push((Some(node), batch.rows.len()));
                    self.want()
                } else {
                    Want::Nothing
                };
                let parent = draft.tree.node(node).parent.map_or(block.root, |parent| draft.rows[parent.index()]);
                let position = stem.length - 1 + draft.tree.depth(node);
                let token = self.own_id(draft.tree.node(node).token)?;
                block.push(&mut batch, seq, token, position, parent, want);
                draft.rows[node.index()] = Some(block.rows.len() as u32 - 1);
            }
        }
        draft.mark_looked_behind(chosen);
        Ok(Seen { rows: self.pass(&batch)?, behind })
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
        classes.and_then(|classes| classes.get(node.index())).copied().unwrap_or(UNKNOWN)
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
            None => {
                let sequence = Sequence::open(&self.model)?;
                // A trial reads elsewhere, and leaves this one for later.
                if let (Some(tenant), None, [before @ .., _]) = (context.tenant, seen, text) {
                    sequence.adopt(tenant, before)?;
                }
                State { sequence, block: None, classes: Vec::new(), listed: 0, ahead: None }
            }
        };
        // An error below drops the state: the sequence closes, and the next round starts it afresh.
        let State { sequence, block, listed, ahead, .. } = state;
        drop(block);
        if let Scored::Listed(shortlist) = &mut self.shortlist {
            match tokens.get(listed..) {
                Some(emitted) if listed > 0 => shortlist.follow(&*self.model, emitted)?,
                _ => shortlist.read(&*self.model, &tokens)?,
            }
        }
        // A draft of just this text came to nothing for want of room: its last token is looked behind again.
        let sequence = if sequence.truncate(text.len() - 1)? { sequence } else { Sequence::open(&self.model)? };
        let ahead = ahead.filter(|ahead| ahead.is_behind(context.tokens));
        let (draft, block) = if seen.is_some() {
            // A trial reads the end of the text as if there were nothing before it, on the side.
            let aside = Sequence::open(&self.model)?;
            (self.draft_afresh(&aside, text, budget, &mut context)?.0, None)
        } else if let Some(ahead) = ahead {
            self.go_on(&sequence, ahead.draft, &mut context)?
        } else {
            let (draft, block) = self.draft_afresh(&sequence, text, budget, &mut context)?;
            (draft, Some(block))
        };
        let Growing { tree, classes, .. } = draft;
        let listed = tokens.len();
        self.states.insert(context.generation, State { sequence, block, classes, listed, ahead: None });
        Ok(tree)
    }

    /// A text in other ids is read as it is committed, not as it is assumed to go on.
    fn drafts_ahead(&self) -> bool {
        self.reader.is_none()
    }

    fn draft_ahead(
        &mut self,
        mut context: DraftContext<'_>,
        assumed: usize,
        under_way: &dyn Fn() -> bool,
    ) -> Result<usize, RuntimeError> {
        // One that has never drafted would have the whole text to read.
        let Some(mut state) = self.states.remove(&context.generation) else { return Ok(0) };
        let generation = context.generation;
        // An error drops the state, as in `draft`.
        let nodes = self.grow_ahead(&mut state, &mut context, assumed, under_way)?;
        self.states.insert(generation, state);
        Ok(nodes)
    }

    fn is_ahead(&self, generation: GenerationId, tokens: &[Token]) -> bool {
        let ahead = self.states.get(&generation).and_then(|state| state.ahead.as_ref());
        ahead.is_some_and(|ahead| ahead.is_behind(tokens))
    }

    fn follow(&self, event: &dyn Event) -> Result<(), RuntimeError> {
        self.stream.wait(event)
    }

    fn precede(&self, stream: &dyn Stream) -> Result<(), RuntimeError> {
        stream.wait(&*self.stream.record()?)
    }

    fn observe(&mut self, generation: GenerationId, tokens: &[Token], _: usize) -> Result<(), RuntimeError> {
        let Some(block) = self.states.get_mut(&generation).and_then(|state| state.block.take()) else { return Ok(()) };
        match self.read(generation, tokens, tokens.len()) {
            Some((text, _)) => block.commit(&text),
            // Nothing will be drafted behind this text; dropping the block rolls it back.
            None => Ok(()),
        }
    }

    fn resume(&mut self, generation: GenerationId, kept: usize) -> Result<(), RuntimeError> {
        let kept = self.reader.as_mut().map_or(kept, |reader| reader.truncate(generation, kept));
        let Some(mut state) = self.states.remove(&generation) else { return Ok(()) };
        (state.block, state.ahead) = (None, None);
        // What follows is a prompt to the shortlist, not what a draft should have had.
        state.listed = 0;
        if state.sequence.truncate(kept)? {
            self.states.insert(generation, state);
        }
        Ok(())
    }

    fn kv_usage(&self) -> Option<KvUsage> {
        self.model.kv_usage()
    }

    fn suspend(&mut self, generation: GenerationId) {
        self.states.remove(&generation);
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
