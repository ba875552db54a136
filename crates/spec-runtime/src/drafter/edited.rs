//! A stretch of earlier text that is being copied, and the edits that are made to it on the way.

use std::collections::HashMap;

use smallvec::SmallVec;
use spec_core::Token;

/// What the text put in the place of other tokens while it was copying. A renamed variable is renamed again: the same tokens are expected to be
/// replaced alike, behind the same token above all.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// By the first token that was replaced, latest last.
    by_first: HashMap<Token, SmallVec<[Edit; 1]>>,
}

/// Of an edit that left the tokens as they are, `new` is `old`.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    /// The text's token before it.
    before: Token,
    /// What stands in the original, and is not empty.
    pub(super) old: SmallVec<[Token; 4]>,
    /// What the text has in its place, perhaps nothing.
    pub(super) new: SmallVec<[Token; 4]>,
}

impl Edits {
    /// Edits of one token that are remembered: the latest.
    const EACH: usize = 4;

    /// What is expected to become of the `original`'s first tokens behind `before`, and whether that has been seen behind just this token.
    /// `None`: they stay.
    pub(super) fn find(&self, before: Token, original: &[Token]) -> Option<(&Edit, bool)> {
        let known = self.by_first.get(original.first()?)?;
        let fitting = || known.iter().rev().filter(|edit| original.starts_with(&edit.old));
        let here = fitting().find(|edit| edit.before == before);
        let edit = here.or_else(|| fitting().next())?;
        (edit.old != edit.new).then_some((edit, here.is_some()))
    }

    fn learn(&mut self, edit: Edit) {
        let known = self.by_first.entry(edit.old[0]).or_default();
        known.retain(|known| known.before != edit.before || known.old != edit.old);
        if known.len() == Self::EACH {
            known.remove(0);
        }
        known.push(edit);
    }
}

/// A stretch of the text that is being copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copying {
    /// The position whose token is expected next.
    pub(super) source: usize,
    /// Length of the text that it was expected behind.
    pub(super) at: usize,
    /// Tokens copied so far, or of the match that began it.
    run: usize,
    /// The same since the text was last found again behind an edit that was not expected.
    pub(super) agreed: usize,
    /// Where the text departed from the original; `None` while they agree.
    departed: Option<Departure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Departure {
    /// The first token of the original that was not copied.
    source: usize,
    /// The text's in its place.
    at: usize,
    /// [`Copying::agreed`] before it.
    agreed: usize,
}

impl Copying {
    /// Tokens that must have been copied for a departure to be taken for an edit.
    const RUN: usize = 4;
    /// Departed tokens after which the copy is given up.
    const LOST: usize = 8;
    /// How far before and behind the expected position the text is looked for.
    const NEAR: (usize, usize) = (3, 12);

    /// A text of length `at` that goes on as it does at `source`, which `run` equal tokens say.
    pub(super) fn new(source: usize, at: usize, run: usize) -> Self {
        Self { source, at, run, agreed: run, departed: None }
    }

    /// Tokens since the text departed from the original; 0 while they agree.
    pub(super) fn lost(&self) -> usize {
        self.departed.map_or(0, |departure| self.at - departure.at)
    }

    /// Whether it agrees with the text again after it did not, which a chance may be.
    pub(super) fn is_found_again(&self) -> bool {
        self.departed.is_none() && self.agreed < self.run
    }

    /// Follows the text as it has grown, and learns what is edited; `None` once the original is lost.
    pub(super) fn follow(mut self, tokens: &[Token], edits: &mut Edits) -> Option<Self> {
        while self.at < tokens.len() {
            if tokens[self.source] != tokens[self.at] {
                self.skip_deleted(tokens, edits);
            }
            if tokens[self.source] == tokens[self.at] {
                self.agree(tokens, edits);
            } else {
                self.depart(tokens)?;
            }
            self.at += 1;
            if let Some((edit, [], behind)) = self.edit_under_way(tokens, edits) {
                edits.learn(edit);
                self = behind;
            }
            if self.source >= self.at {
                return None;
            }
        }
        Some(self)
    }

    /// Goes past what is expected to be left out, where the text has what follows it.
    fn skip_deleted(&mut self, tokens: &[Token], edits: &mut Edits) {
        let before = tokens[self.at - 1];
        if self.departed.is_none()
            && let Some((edit, _)) = edits.find(before, &tokens[self.source..self.at])
            && edit.new.is_empty()
            && tokens[..self.at].get(self.source + edit.old.len()) == Some(&tokens[self.at])
        {
            let edit = Edit { before, ..edit.clone() };
            self.source += edit.old.len();
            edits.learn(edit);
        }
    }

    /// Takes the token that was expected.
    fn agree(&mut self, tokens: &[Token], edits: &mut Edits) {
        let before = tokens[self.at - 1];
        if let Some(Departure { source, at, agreed }) = self.departed.take() {
            // The replacement ends where both agree again, which may be some tokens before this was noticed.
            let (mut old, mut new) = (self.source, self.at);
            while old > source && new > at && tokens[old - 1] == tokens[new - 1] {
                (old, new) = (old - 1, new - 1);
            }
            if agreed >= Self::RUN && old > source && old - source <= Self::LOST {
                let (old, new) = (tokens[source..old].into(), tokens[at..new].into());
                edits.learn(Edit { before: tokens[at - 1], old, new });
            }
        } else if let Some((edit, _)) = edits.find(before, &tokens[self.source..self.at]) {
            let kept = Edit { before, old: edit.old.clone(), new: edit.old.clone() };
            edits.learn(kept);
        }
        self.source += 1;
        self.run += 1;
        self.agreed += 1;
    }

    /// Takes another token than the expected one; `None`: the original is lost.
    fn depart(&mut self, tokens: &[Token]) -> Option<()> {
        if self.run < Self::RUN || self.lost() == Self::LOST {
            return None;
        }
        // One token in the place of another is the likeliest edit. When that was not it, look around.
        let token = tokens[self.at];
        let from = self.source.saturating_sub(Self::NEAR.0);
        let near = (from..(self.source + Self::NEAR.1).min(self.at)).filter(|&place| tokens[place] == token);
        let nearest = near.min_by_key(|place| place.abs_diff(self.source));
        let departed = Departure { source: self.source, at: self.at, agreed: self.agreed };
        self.source = match nearest.filter(|_| self.departed.is_some()) {
            Some(place) => place + 1,
            None => self.source + 1,
        };
        self.departed.get_or_insert(departed);
        self.agreed = 0;
        Some(())
    }

    /// The known edit that the text is in the midst of making or has just made, what of it is to come, and the copy as it will be behind it.
    pub(super) fn edit_under_way<'e>(&self, tokens: &[Token], edits: &'e Edits) -> Option<(Edit, &'e [Token], Self)> {
        let Departure { source, at, agreed } = self.departed?;
        let before = tokens[at - 1];
        let (edit, _) = edits.find(before, &tokens[source..at])?;
        let rest = edit.new.strip_prefix(&tokens[at..self.at])?;
        let (source, copied) = (source + edit.old.len(), edit.new.len());
        let behind = Self { source, run: self.run + copied, agreed: agreed + copied, departed: None, ..*self };
        Some((Edit { before, ..edit.clone() }, rest, behind))
    }
}
