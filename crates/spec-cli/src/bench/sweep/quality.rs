//! How near a text is to another, and how probable the target holds it.

use anyhow::Result;
use bleuscore::{RefLenMethod, compute_score};
use spec_core::{Token, top_log_probabilities};
use spec_runtime::{Batch, KvGuard, Model, Sequence, Stream, Want};

use crate::session::Session;

/// n-grams of a BLEU score: one to four words, as usual.
const ORDER: usize = 4;

/// Rows of a pass that scores an answer: each brings its logits, and rows are as wide as the vocabulary.
const ROWS: usize = 32;

/// Corpus BLEU of texts against one reference each, 0 to 100, without smoothing; words as `mteval-v13a` splits them, characters where a
/// writing has no spaces. Texts that are equal have 100, also where they are too short for four words.
pub(crate) fn bleu(references: &[&str], texts: &[&str]) -> f64 {
    if references == texts {
        return 100.0;
    }
    let references: Vec<Vec<String>> = references.iter().map(|text| vec![spaced(text)]).collect();
    let texts: Vec<String> = texts.iter().map(|text| spaced(text)).collect();
    let score = compute_score(&references, &texts, ORDER, false, RefLenMethod::Closest);
    // Without a word in the references there is no ratio of lengths.
    if score.bleu.is_nan() { 0.0 } else { 100.0 * score.bleu }
}

/// 1 less the edit distance over the length of the longer text, both in characters.
pub(super) fn edit_similarity(reference: &str, text: &str) -> f64 {
    strsim::normalized_levenshtein(reference, text)
}

/// A text with spaces around each character of a writing that has none.
fn spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if stands_alone(character) {
            spaced.extend([' ', character, ' ']);
        } else {
            spaced.push(character);
        }
    }
    spaced
}

/// Chinese characters, kana, and the punctuation that goes with them.
fn stands_alone(character: char) -> bool {
    matches!(u32::from(character),
        0x3000..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0xFF00..=0xFFEF | 0x2_0000..=0x3_134F)
}

/// The target as a judge of answers.
pub(super) struct Teacher<'a> {
    model: &'a std::sync::Arc<dyn Model>,
    stream: Box<dyn Stream>,
    vocab: usize,
}

impl<'a> Teacher<'a> {
    pub(super) fn new(session: &'a Session, vocab: usize) -> Self {
        Self { model: &session.target, stream: session.stream(), vocab }
    }

    /// Sum of the log-probabilities of the answer's tokens behind the prompt, in nats: as the model gives them, at temperature 1,
    /// whatever the answer was sampled with.
    pub(super) fn score(&self, prompt: &[Token], answer: &[Token]) -> Result<f64> {
        let text: Vec<Token> = prompt.iter().chain(answer).copied().collect();
        let Some(read) = text.len().checked_sub(1).filter(|_| !answer.is_empty()) else { return Ok(0.0) };
        let first = prompt.len() - 1;
        let sequence = Sequence::open(self.model)?;
        let most = self.model.config().max_rows.min(ROWS);
        let (mut sum, mut done) = (0.0, 0);
        while done < read {
            let next = read.min(done + most);
            let mut batch = Batch::chain(sequence.id(), &text[done..next], done, None, Want::Nothing);
            for row in batch.rows.iter_mut().filter(|row| row.position >= first) {
                row.want = Want::Logits;
            }
            let guard = KvGuard::reserve(&sequence, next - done)?;
            let rows = self.model.submit(&*self.stream, &batch)?.wait()?;
            for at in done.max(first)..next {
                sum += top_log_probabilities(rows.logits(at - done)?, self.vocab, text[at + 1], 0)?.logprob;
            }
            drop(rows);
            guard.commit_chain(next - done)?;
            done = next;
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::{bleu, edit_similarity, spaced};

    #[test]
    fn bleu_is_that_of_the_definition() {
        // Of six words five are right, of five pairs three, of four triples two, of three quadruples one.
        let score = bleu(&["the cat sat on the mat"], &["the cat sat on a mat"]);
        let expected = 100.0 * (5.0 / 6.0 * 3.0 / 5.0 * 2.0 / 4.0 * 1.0 / 3.0_f64).powf(0.25);
        assert!((score - expected).abs() < 1e-9, "{score} {expected}");
        // Too short by a word, all of which are right: the penalty alone.
        let short = bleu(&["one two three four five"], &["one two three four"]);
        assert!((short - 100.0 * (1.0_f64 - 5.0 / 4.0).exp()).abs() < 1e-9, "{short}");
        assert_eq!(bleu(&["a b c d"], &["e f g h"]), 0.0);
    }

    #[test]
    fn a_corpus_is_scored_as_a_whole_and_not_by_the_mean_of_its_texts() {
        let corpus = bleu(&["a b c d e", "k l m n o"], &["a b c d e", "k l m n x"]);
        // 9 of 10, 7 of 8, 5 of 6, 3 of 4.
        let expected = 100.0 * (0.9 * 7.0 / 8.0 * 5.0 / 6.0 * 3.0 / 4.0_f64).powf(0.25);
        assert!((corpus - expected).abs() < 1e-9, "{corpus} {expected}");
    }

    #[test]
    fn chinese_is_scored_by_characters() {
        assert_eq!(spaced("你好world。"), " 你  好 world 。 ");
        // One of eight characters differs at the end: 7 of 8, 6 of 7, 5 of 6, 4 of 5.
        let score = bleu(&["今天天气非常好吗"], &["今天天气非常好吧"]);
        let expected = 100.0 * (7.0 / 8.0 * 6.0 / 7.0 * 5.0 / 6.0 * 4.0 / 5.0_f64).powf(0.25);
        assert!((score - expected).abs() < 1e-9, "{score} {expected}");
    }

    #[test]
    fn equal_texts_have_100_and_empty_ones_a_score() {
        assert_eq!(bleu(&["two words", ""], &["two words", ""]), 100.0);
        assert_eq!(bleu(&[""], &["something"]), 0.0);
        assert_eq!(bleu(&["something"], &[""]), 0.0);
    }

    #[test]
    fn edits_are_counted_in_characters() {
        assert!((edit_similarity("kitten", "sitting") - (1.0 - 3.0 / 7.0)).abs() < 1e-12);
        assert!((edit_similarity("你好吗", "你好") - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(edit_similarity("", ""), 1.0);
    }
}
