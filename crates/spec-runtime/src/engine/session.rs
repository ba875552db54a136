//! A text that is continued by one generation after another, as a conversation is.

use std::sync::Arc;

use spec_core::Token;

use super::{Completion, Engine};
use crate::{Emitted, GenerationId, Request, RuntimeError, Sequence};

/// Keeps the keys and values of a text from one generation to the next, the target's and the drafter's.
///
/// A prompt is prefilled from where it departs from the text so far, the last answer included, so that what a chat sends again costs
/// nothing. The output is that of [`Engine::generate`] on the same request: what is kept are the rows that a prefill
/// would compute, and rows behind the common beginning are forgotten. [`Completion::cached_tokens`] tells what was kept.
///
/// ```
/// # fn chat(engine: &mut spec_runtime::Engine, first: spec_runtime::Request, second: spec_runtime::Request)
/// # -> Result<(), spec_runtime::RuntimeError> {
/// let mut session = spec_runtime::Session::new();
/// session.generate(engine, first, &mut |emitted| print!("{}", emitted.text))?;
/// // The prompt of `second` begins with that of `first` and its answer.
/// let answer = session.generate(engine, second, &mut |emitted| print!("{}", emitted.text))?;
/// println!("{} of {} prompt tokens were prefilled", answer.prompt_tokens - answer.cached_tokens, answer.prompt_tokens);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Session {
    kept: Option<Kept>,
}

/// What a generation leaves to the next.
#[derive(Debug)]
pub(super) struct Kept {
    /// The drafter of the engine that gave it knows the text by it.
    id: GenerationId,
    engine: Arc<()>,
    sequence: Sequence,
    tenant: Option<u64>,
    /// Prompt and emitted tokens; the cache holds the first of them.
    tokens: Vec<Token>,
}

impl Session {
    /// A session without a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tokens of the text so far: the last prompt and its answer.
    pub fn tokens(&self) -> &[Token] {
        self.kept.as_ref().map_or(&[], |kept| &kept.tokens)
    }

    /// Runs a request to its end. A generation that fails leaves nothing behind, and the next one prefills its whole prompt; one that
    /// is cancelled leaves what it came to. Another engine over the same target finds the target's part, one over another target nothing.
    ///
    /// # Errors
    /// As [`Engine::generate`]. A request that is refused leaves the session as it was.
    pub fn generate(
        &mut self,
        engine: &mut Engine,
        request: Request,
        sink: &mut dyn FnMut(&Emitted),
    ) -> Result<Completion, RuntimeError> {
        let mut generation = engine.start_from(request, &mut self.kept)?;
        loop {
            match engine.step(&mut generation, sink) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    engine.finish(generation);
                    return Err(error);
                }
            }
        }
        generation.conclude();
        let super::Generation { id, sequence, tokens, completion, request, .. } = generation;
        let tenant = request.tenant;
        let engine = Arc::clone(&engine.identity);
        self.kept = sequence.map(|sequence| Kept { id, engine, sequence, tenant, tokens });
        Ok(completion)
    }

    /// Forgets the text, here and in the engine's drafter.
    pub fn clear(&mut self, engine: &mut Engine) {
        if let (Some(kept), Some(drafter)) = (self.kept.take(), &mut engine.drafter)
            && Arc::ptr_eq(&kept.engine, &engine.identity)
        {
            drafter.forget(kept.id);
        }
    }
}

impl Engine {
    /// The sequence and the identity for a generation from `prompt` on, cut to what it shares with the text before.
    pub(super) fn resume(&mut self, kept: Kept, request: &Request) -> Result<(GenerationId, Sequence), RuntimeError> {
        let Kept { id, engine, sequence, tenant, tokens } = kept;
        let prompt = &request.prompt;
        let is_own = Arc::ptr_eq(&engine, &self.identity);
        // What the caches hold for one tenant is not another's.
        if !Arc::ptr_eq(sequence.model(), &self.target) || tenant != request.tenant {
            if let Some(drafter) = self.drafter.as_mut().filter(|_| is_own) {
                drafter.forget(id);
            }
            drop(sequence);
            return Ok((self.fresh_id(), Sequence::open(&self.target)?));
        }
        let id = if is_own { id } else { self.fresh_id() };
        let common = tokens.iter().zip(prompt).take_while(|(old, new)| old == new).count();
        // The prompt's last token is fed in any case: its row has the logits of the first token.
        let needed = common.min(prompt.len() - 1);
        if let Some(drafter) = &mut self.drafter {
            drafter.resume(id, common)?;
        }
        if sequence.truncate(needed)? {
            return Ok((id, sequence));
        }
        // Closed first: the model may have room for one sequence only.
        drop(sequence);
        Ok((id, Sequence::open(&self.target)?))
    }
}
