//! A draft of a draft model under way. Several go on side by side, in passes that they share.

use spec_core::{Law, NodeId, Pipeline, SamplingError, Scratch, Token};

use super::growing::{BEAM, Growing, Limits};
use super::reader::Reader;
use super::{DraftContext, Work};
use crate::{Batch, KvGuard, Row, Rows, RuntimeError, SeqId, Sequence, Want};

/// The rows of a draft under verification.
pub(super) struct Block {
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
    pub(super) fn open(sequence: &Sequence, base: usize, lead: usize, room: usize) -> Result<Self, RuntimeError> {
        Ok(Self { guard: KvGuard::reserve(sequence, lead + room)?, base, rows: Vec::new(), root: None, room })
    }

    /// Adds a row to a pass over this block.
    fn push(
        &mut self,
        batch: &mut Vec<Row>,
        seq: SeqId,
        token: Token,
        position: usize,
        parent: Option<u32>,
        want: Want,
    ) {
        batch.push(Row { seq, token, position, parent, want });
        self.rows.push((parent, token));
    }

    /// Adds text from `position` on, which the draft follows; `want` is what its last row delivers.
    pub(super) fn push_text(
        &mut self,
        batch: &mut Vec<Row>,
        seq: SeqId,
        tokens: &[Token],
        position: usize,
        want: Want,
    ) {
        for (index, &token) in tokens.iter().enumerate() {
            let want = if index + 1 == tokens.len() { want } else { Want::Nothing };
            self.push(batch, seq, token, position + index, self.root, want);
            self.root = Some(self.rows.len() as u32 - 1);
        }
    }

    /// Keeps the rows that are part of the text now, as the draft model reads it. Its last token is fed in the next round by whoever goes on from there.
    pub(super) fn commit(self, text: &[Token]) -> Result<(), RuntimeError> {
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

/// What a lane asks of its model, and shares with others.
pub(super) struct Common<'m> {
    /// Name of the drafter.
    pub(super) name: &'m str,
    pub(super) reader: Option<&'m Reader>,
    pub(super) want: Want,
    pub(super) scratch: &'m mut Scratch,
    /// A row of logits by the target's ids.
    pub(super) row: &'m mut Vec<f32>,
}

impl Common<'_> {
    /// The draft model's id of a token that it proposed.
    fn own_id(&self, token: Token, vocab: usize) -> Result<Token, RuntimeError> {
        match self.reader {
            None => Ok(token),
            Some(reader) => reader.map.draft_id(token).ok_or(RuntimeError::BadToken { token, vocab }),
        }
    }
}

/// The draft of one generation, from its first pass to its last.
pub(super) struct Lane<'s, 'c, 'a> {
    context: &'c mut DraftContext<'a>,
    sequence: &'s Sequence,
    /// Tokens of the sequence in front of the draft.
    length: usize,
    /// Position of the draft's first tokens in the whole text.
    position: usize,
    limits: Limits<'a>,
    draft: Growing,
    block: Option<Block>,
    /// Text that the next pass reads before there is a block.
    catching_up: Option<(KvGuard, usize)>,
    /// Rows of the next pass; none once the draft is made.
    pub(super) rows: Vec<Row>,
    /// The nodes that they look behind, by row; `None` is the text.
    behind: Vec<(Option<NodeId>, usize)>,
    goes_on: &'c dyn Fn() -> bool,
    pub(super) work: Work,
}

impl<'s, 'c, 'a> Lane<'s, 'c, 'a> {
    /// A draft behind the committed text, or behind one that it is assumed to become.
    pub(super) fn new(
        context: &'c mut DraftContext<'a>,
        sequence: &'s Sequence,
        (length, position): (usize, usize),
        limits: Limits<'a>,
        goes_on: &'c dyn Fn() -> bool,
    ) -> Self {
        Self {
            context,
            sequence,
            length,
            position,
            limits,
            draft: Growing::default(),
            block: None,
            catching_up: None,
            rows: Vec::new(),
            behind: Vec::new(),
            goes_on,
            work: Work::default(),
        }
    }

    /// Begins with the pass that reads the end of `text`, from the first token that the cache does not hold.
    pub(super) fn catch_up(&mut self, text: &[Token], want: Want) -> Result<(), RuntimeError> {
        let done = self.sequence.kv_len()?;
        let unread = text.len() - done;
        self.catching_up = Some((KvGuard::reserve(self.sequence, unread)?, unread));
        self.rows = Batch::chain(self.sequence.id(), &text[done..], done, None, want).rows;
        self.behind = vec![(None, unread - 1)];
        self.work.caught_up += unread - 1;
        Ok(())
    }

    /// Begins with a draft that was made ahead, where it pays to go on with it.
    pub(super) fn take_up(
        &mut self,
        mut draft: Growing,
        common: &Common<'_>,
        max_rows: usize,
    ) -> Result<(), RuntimeError> {
        self.work.ahead = draft.tree.len();
        draft.rows.fill(None);
        let text = self.context.tokens;
        let done = self.sequence.kv_len()?;
        let unread = &text[done..];
        let chosen = draft.worth_looking_behind(&self.limits, BEAM, 0);
        self.draft = draft;
        if chosen.is_empty() || unread.len() + self.draft.tree.len() > max_rows {
            return Ok(());
        }
        let room = self.draft.tree.len() + self.limits.rows(max_rows);
        // What was drafted is at hand, whether there is room for more or not.
        let Ok(mut block) = Block::open(self.sequence, done, unread.len(), room) else { return Ok(()) };
        block.push_text(&mut self.rows, self.sequence.id(), unread, done, Want::Nothing);
        self.block = Some(block);
        self.work.caught_up += unread.len() - 1;
        self.look_behind(&chosen, common)
    }

    /// What came of it.
    pub(super) fn into_draft(self) -> (Growing, Option<Block>, Work) {
        (self.draft, self.block, self.work)
    }

    /// Begins with rows of an open block that are read already.
    pub(super) fn begin_behind(&mut self, block: Block) {
        self.block = Some(block);
        self.behind = vec![(None, 0)];
    }

    /// Takes in a pass, of which its rows begin at `first`, and asks for the next where that pays.
    pub(super) fn take(
        &mut self,
        rows: &dyn Rows,
        first: usize,
        common: &mut Common<'_>,
        max_rows: usize,
    ) -> Result<(), RuntimeError> {
        self.work.passes += 1;
        if let Some((guard, read)) = self.catching_up.take() {
            guard.commit_chain(read)?;
            self.block = Some(Block::open(self.sequence, self.length, 0, self.limits.rows(max_rows))?);
        }
        self.grow(rows, first, common)?;
        self.rows.clear();
        self.behind.clear();
        let Some(block) = &self.block else { return Ok(()) };
        if !(self.goes_on)() {
            return Ok(());
        }
        let taken = self.draft.rows.iter().flatten().count();
        let room = block.room.saturating_sub(taken);
        let chosen = self.draft.worth_looking_behind(&self.limits, room, self.work.passes);
        self.look_behind(&chosen, common)
    }

    /// Adds nodes behind those that a pass has looked behind.
    fn grow(&mut self, rows: &dyn Rows, first: usize, common: &mut Common<'_>) -> Result<(), RuntimeError> {
        let Self { context, draft, limits, .. } = self;
        let history = Restored { length: context.pipeline.len(), pipeline: &mut *context.pipeline };
        for &(parent, row) in &self.behind {
            history.pipeline.truncate(history.length);
            let path = parent.map(|parent| draft.tree.path(parent)).unwrap_or_default();
            for &node in &path {
                history.pipeline.push(draft.tree.node(node).token);
            }
            let mut logits = rows.logits(first + row)?;
            if let Some(reader) = common.reader {
                logits = reader.map.row(logits, common.row);
            }
            let law = if limits.worth.is_some() {
                history.pipeline.summarized_law(logits, None, common.scratch)
            } else {
                history.pipeline.law(logits, None, common.scratch)
            };
            let law: Law<'_> = match law {
                Ok(law) => law,
                // Of a part of the vocabulary the request may forbid every token. The target has others.
                Err(SamplingError::NothingAllowed { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            // Known before anything is drawn.
            let before = limits.worth.map(|_| law.soft_probability(law.argmax()));
            let position = self.position + path.len();
            let nodes = context
                .proposal
                .propose(&mut draft.tree, parent, &law, limits.width, position, context.choices)
                .map_err(|source| RuntimeError::Draft { drafter: common.name.to_owned(), source })?;
            draft.weigh(limits, &law, before, parent, &nodes);
        }
        Ok(())
    }

    /// Has the next pass look behind `chosen`. Nodes above them that have no row in the block yet are read on the way.
    fn look_behind(&mut self, chosen: &[NodeId], common: &Common<'_>) -> Result<(), RuntimeError> {
        let Some(block) = &mut self.block else { return Ok(()) };
        let draft = &mut self.draft;
        for &last in chosen {
            for node in draft.tree.path(last) {
                if draft.rows[node.index()].is_some() {
                    continue;
                }
                let want = if chosen.contains(&node) {
                    self.behind.push((Some(node), self.rows.len()));
                    common.want
                } else {
                    Want::Nothing
                };
                let parent = draft.tree.node(node).parent.map_or(block.root, |parent| draft.rows[parent.index()]);
                let position = self.length - 1 + draft.tree.depth(node);
                let vocab = self.sequence.model().config().vocab;
                let token = common.own_id(draft.tree.node(node).token, vocab)?;
                block.push(&mut self.rows, self.sequence.id(), token, position, parent, want);
                draft.rows[node.index()] = Some(block.rows.len() as u32 - 1);
            }
        }
        draft.mark_looked_behind(chosen);
        Ok(())
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
