use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use spec_core::{DraftTree, NodeId, Scratch, Token, TreeError};

use super::growing::{CHILDREN, Growing, Limits, UNKNOWN};
use super::lane::{Block, Common, Lane};
use super::reader::Reader;
use super::shortlist::Shortlist;
use super::{Class, DraftContext, Drafted, Drafter, GenerationId, Work, draft_one};
use crate::{
    Batch, Event, HostStream, KvGuard, KvUsage, Model, Rows, RuntimeError, Sequence, Stream, VocabularyMap, Want,
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

/// A generation before its lane begins.
struct Begun<'t> {
    /// The text as the draft model reads it, and where the part begins that it is to look at.
    tokens: Cow<'t, [Token]>,
    start: usize,
    budget: usize,
    sequence: Sequence,
    /// Where a trial reads.
    aside: Option<Sequence>,
    /// What was drafted ahead behind this text.
    ahead: Option<Growing>,
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

    fn pass(&self, batch: &Batch) -> Result<Box<dyn Rows>, RuntimeError> {
        self.model.submit(&*self.stream, batch)?.wait()
    }

    /// Reads text up to `end`, in passes of its own; gives how many tokens it read.
    fn read_on(&self, sequence: &Sequence, text: &[Token], end: usize) -> Result<usize, RuntimeError> {
        let begun = sequence.kv_len()?;
        let mut done = begun;
        while done < end {
            let next = end.min(done + self.model.config().max_rows);
            let guard = KvGuard::reserve(sequence, next - done)?;
            let batch = Batch::chain(sequence.id(), &text[done..next], done, None, Want::Nothing);
            self.pass(&batch)?;
            guard.commit_chain(next - done)?;
            done = next;
        }
        Ok(done - begun)
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

    /// What is known of a generation before it drafts; `None` where it has nothing to draft.
    fn begin<'t>(&mut self, context: &DraftContext<'t>) -> Result<Option<Begun<'t>>, RuntimeError> {
        self.prepare()?;
        let seen = context.context.filter(|&seen| seen > 0 && seen < context.tokens.len());
        let length = seen.unwrap_or(context.tokens.len());
        let Some((tokens, start)) = self.read(context.generation, context.tokens, length) else { return Ok(None) };
        // An error from here on loses the state: the sequence closes, and the next round starts it afresh.
        let state = match self.states.remove(&context.generation) {
            Some(state) => state,
            None => {
                let sequence = Sequence::open(&self.model)?;
                if let (Some(tenant), [before @ .., _]) = (context.tenant, &*tokens) {
                    sequence.adopt(tenant, before)?;
                }
                State { sequence, block: None, classes: Vec::new(), listed: 0, ahead: None }
            }
        };
        // A trial reads the end of the text elsewhere, and leaves this sequence for later; who has read as much of it goes on there.
        let unread = tokens.len().saturating_sub(state.sequence.kv_len()?);
        let seen = seen.filter(|&seen| unread > seen);
        let start = if seen.is_some() { start } else { 0 };
        let text = &tokens[start..];
        let budget = context.budget.min((self.model.config().context + 1).saturating_sub(text.len()));
        if budget == 0 {
            self.states.insert(context.generation, state);
            return Ok(None);
        }
        let State { sequence, block, listed, ahead, .. } = state;
        drop(block);
        if let Scored::Listed(shortlist) = &mut self.shortlist {
            match tokens.get(listed..) {
                Some(emitted) if listed > 0 => shortlist.follow(&*self.model, emitted)?,
                _ => shortlist.read(&*self.model, &tokens)?,
            }
        }
        // A draft of just this text came to nothing for want of room: its last token is looked behind again.
        let sequence = if sequence.truncate(tokens.len() - 1)? { sequence } else { Sequence::open(&self.model)? };
        let aside = if seen.is_some() { Some(Sequence::open(&self.model)?) } else { None };
        let ahead = ahead.filter(|ahead| ahead.is_behind(context.tokens)).map(|ahead| ahead.draft);
        Ok(Some(Begun { tokens, start, budget, sequence, aside, ahead }))
    }

    /// Has a lane begin with the end of its text, `share` tokens at most. What is before that is read at once, or, where it is too much, in part:
    /// then there is nothing more to do in this round.
    fn enter<'s, 'c, 'a>(
        &mut self,
        begun: &'s mut Begun<'a>,
        context: &'c mut DraftContext<'a>,
        share: usize,
    ) -> Result<Lane<'s, 'c, 'a>, RuntimeError> {
        let text = &begun.tokens[begun.start..];
        // A trial reads the end of the text as if there were nothing before it, on the side.
        let sequence = begun.aside.as_ref().unwrap_or(&begun.sequence);
        let ahead = begun.ahead.take().filter(|_| begun.aside.is_none());
        let limits = self.limits(text.len(), begun.budget, context);
        let (depth, weighed, position) = (limits.depth, context.worth.is_some(), context.tokens.len());
        // A trial has little to read, and nothing of it is kept.
        let most = if begun.aside.is_some() { usize::MAX } else { context.catch_up.max(1) };
        let mut lane = Lane::new(context, sequence, (text.len(), position), limits, &|| true);
        match ahead {
            Some(mut draft) => {
                if !weighed {
                    draft.truncate(depth).map_err(self.malformed())?;
                }
                let max_rows = self.model.config().max_rows;
                lane.take_up(draft, &self.common(), max_rows)?;
            }
            None => {
                let done = sequence.kv_len()?;
                let put_off = text.len() - done > most.saturating_add(share);
                let end = if put_off { done + most } else { text.len().saturating_sub(share) };
                lane.work.caught_up = self.read_on(sequence, text, end)?;
                if !put_off {
                    lane.catch_up(text, self.want())?;
                }
            }
        }
        Ok(lane)
    }

    fn common(&mut self) -> Common<'_> {
        let want = self.want();
        let Self { name, reader, scratch, row, .. } = self;
        Common { name, reader: reader.as_ref(), want, scratch, row }
    }

    /// Runs lanes to their ends, in passes that they share.
    fn run(&mut self, lanes: &mut [Course<'_, '_, '_>]) {
        let max_rows = self.model.config().max_rows;
        loop {
            let (mut batch, mut sharing) = (Batch::default(), Vec::new());
            for (index, lane) in lanes.iter().enumerate() {
                let Some(Ok(lane)) = lane else { continue };
                if lane.rows.is_empty() || batch.rows.len() + lane.rows.len() > max_rows {
                    // What has no place in this pass has one in the next.
                    continue;
                }
                sharing.push((index, batch.rows.len()));
                batch.rows.extend(&lane.rows);
            }
            if sharing.is_empty() {
                return;
            }
            self.pass_for(&batch, &sharing, lanes);
        }
    }

    /// One pass for lanes, with the place of their first rows. When it fails, each is tried alone: whose fault it is shows then.
    fn pass_for(&mut self, batch: &Batch, sharing: &[(usize, usize)], lanes: &mut [Course<'_, '_, '_>]) {
        let max_rows = self.model.config().max_rows;
        match (self.pass(batch), sharing) {
            (Ok(rows), _) => {
                for &(index, first) in sharing {
                    if let Some(Ok(lane)) = &mut lanes[index]
                        && let Err(error) = lane.take(&*rows, first, &mut self.common(), max_rows)
                    {
                        lanes[index] = Some(Err(error));
                    }
                }
            }
            (Err(error), &[(index, _)]) => lanes[index] = Some(Err(error)),
            (Err(_), _) => {
                for &(index, _) in sharing {
                    if let Some(Ok(lane)) = &lanes[index] {
                        let own = Batch { rows: lane.rows.clone() };
                        self.pass_for(&own, &[(index, 0)], lanes);
                    }
                }
            }
        }
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
        block.push_text(&mut batch.rows, sequence.id(), unread, done, self.want());
        let rows = self.pass(&batch)?;

        let mut guess = DraftTree::new();
        let law = context.pipeline.law(rows.logits(unread.len() - 1)?, None, &mut self.scratch)?;
        let guessed = context.proposal.propose(&mut guess, None, &law, 1, text.len(), context.choices);
        let Some(&guessed) = guessed.map_err(self.malformed())?.first() else { return Ok(0) };
        let guess = guess.node(guessed).token;
        if context.end_ids.contains(&guess) || !under_way() {
            return Ok(0);
        }
        context.pipeline.push(guess);
        let draft = self.grow_behind(state, guess, context, limits, under_way);
        context.pipeline.truncate(text.len());
        let draft = draft?;
        let nodes = draft.tree.len();
        let base = text.len() - assumed;
        state.ahead = (nodes > 0).then(|| Ahead { base, assumed: [&text[base..], &[guess]].concat(), draft });
        Ok(nodes)
    }

    /// Drafts behind a guess, in the block that is open.
    fn grow_behind<'a>(
        &mut self,
        state: &mut State,
        guess: Token,
        context: &mut DraftContext<'a>,
        limits: Limits<'a>,
        under_way: &dyn Fn() -> bool,
    ) -> Result<Growing, RuntimeError> {
        let Some(mut block) = state.block.take() else { return Ok(Growing::default()) };
        let length = context.tokens.len() + 1;
        let mut lane = Lane::new(context, &state.sequence, (length, length), limits, under_way);
        block.push_text(&mut lane.rows, state.sequence.id(), &[guess], length - 1, self.want());
        lane.begin_behind(block);
        let mut lanes = [Some(Ok(lane))];
        self.run(&mut lanes);
        let [Some(lane)] = lanes else { return Ok(Growing::default()) };
        let (draft, block, _) = lane?.into_draft();
        state.block = block;
        Ok(draft)
    }
}

/// A lane under way, or what ended it; `None`: there is nothing to draft.
type Course<'s, 'c, 'a> = Option<Result<Lane<'s, 'c, 'a>, RuntimeError>>;

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

    /// Where the vocabularies differ, nearly: the cache holds the draft model's tokens.
    fn unread(&self, generation: GenerationId, tokens: &[Token]) -> usize {
        let read = self.states.get(&generation).and_then(|state| state.sequence.kv_len().ok());
        tokens.len().saturating_sub(read.unwrap_or(0))
    }

    fn prepare(&mut self) -> Result<(), RuntimeError> {
        self.model.prepare()?;
        if matches!(self.shortlist, Scored::Some) {
            self.shortlist = Shortlist::new(&*self.model)?.map_or(Scored::All, Scored::Listed);
        }
        Ok(())
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let Drafted { tree, work } = draft_one(self, context)?;
        self.work = work;
        Ok(tree)
    }

    fn draft_all(&mut self, contexts: &mut [DraftContext<'_>]) -> Vec<Result<Drafted, RuntimeError>> {
        let generations: Vec<GenerationId> = contexts.iter().map(|context| context.generation).collect();
        let (mut begun, mut drafted) = (Vec::new(), Vec::new());
        for context in contexts.iter() {
            let (ready, nothing) = match self.begin(context) {
                Ok(ready) => (ready, Ok(Drafted::default())),
                Err(error) => (None, Err(error)),
            };
            begun.push(ready);
            drafted.push(nothing);
        }
        // What all read first has to fit into one pass.
        let share = (self.model.config().max_rows / generations.len().max(1)).max(1);
        let ready = begun.iter_mut().zip(contexts);
        let mut lanes: Vec<Course<'_, '_, '_>> =
            ready.map(|(begun, context)| begun.as_mut().map(|begun| self.enter(begun, context, share))).collect();
        self.run(&mut lanes);
        let made = lanes.into_iter().map(|lane| lane.map(|lane| lane.map(Lane::into_draft))).collect::<Vec<_>>();
        for (((generation, begun), made), drafted) in generations.into_iter().zip(begun).zip(made).zip(&mut drafted) {
            let (Some(begun), Some(made)) = (begun, made) else { continue };
            let Begun { tokens, sequence, aside, .. } = begun;
            *drafted = made.map(|(Growing { tree, classes, .. }, block, work)| {
                // The rows of a trial go with their sequence.
                let block = block.filter(|_| aside.is_none());
                self.states.insert(generation, State { sequence, block, classes, listed: tokens.len(), ahead: None });
                Drafted { tree, work }
            });
        }
        drafted
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
