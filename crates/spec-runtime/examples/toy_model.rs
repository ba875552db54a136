//! A model of your own under the engine: `Model` in a page, with `spec-runtime` and `spec-core` alone.
//!
//! The "model" continues a text by a table of bigrams; its cache keeps the tokens it was fed.
//! Run it with `cargo run -p spec-runtime --example toy_model`.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use spec_core::Token;
use spec_runtime::kv::{Move, PagedKv};
use spec_runtime::{
    Batch, Engine, KvUsage, Model, ModelConfig, NgramDrafter, Pass, Request, Rows, RuntimeError, SeqId, Stream,
    TokenText, Want,
};

const TEXT: &str = "the cat sat on the mat and the dog sat on the log and the cat saw the dog";
const BLOCK_TOKENS: usize = 16;
const BLOCKS: usize = 32;

/// Words as tokens.
struct Words(Vec<String>);

impl TokenText for Words {
    fn vocab(&self) -> usize {
        self.0.len()
    }
    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        Cow::Owned(format!(" {}", self.0[token as usize]).into_bytes())
    }
    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Borrowed(&self.0[token as usize])
    }
}

struct Bigrams {
    config: ModelConfig,
    /// `counts[a][b]`: how often `b` followed `a`.
    counts: Vec<Vec<f32>>,
    state: Mutex<(PagedKv, Vec<Token>)>,
}

impl Bigrams {
    fn with_state<T>(&self, action: impl FnOnce(&mut PagedKv, &mut [Token]) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (kv, slots) = &mut *state;
        action(kv, slots)
    }
}

impl Model for Bigrams {
    fn config(&self) -> &ModelConfig {
        &self.config
    }
    fn open(&self) -> Result<SeqId, RuntimeError> {
        Ok(self.with_state(|kv, _| kv.open()))
    }
    fn close(&self, seq: SeqId) {
        self.with_state(|kv, _| kv.close(seq));
    }
    fn kv_len(&self, seq: SeqId) -> Result<usize, RuntimeError> {
        self.with_state(|kv, _| kv.committed(seq))
    }
    fn reserve(&self, seq: SeqId, rows: usize) -> Result<(), RuntimeError> {
        self.with_state(|kv, slots| kv.reserve(seq, rows).map(|moves| follow(slots, &moves)))
    }
    fn settle(&self, seq: SeqId, path: &[u32]) -> Result<(), RuntimeError> {
        self.with_state(|kv, slots| kv.settle(seq, path).map(|moves| follow(slots, &moves)))
    }
    fn truncate(&self, seq: SeqId, length: usize) -> Result<bool, RuntimeError> {
        self.with_state(|kv, _| kv.truncate(seq, length)).map(|()| true)
    }
    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        self.with_state(|kv, slots| {
            let adopted = kv.adopt(seq, scope, tokens)?;
            follow(slots, &adopted.moves);
            Ok(adopted.length)
        })
    }
    fn kv_usage(&self) -> Option<KvUsage> {
        Some(self.with_state(|kv, _| kv.usage()))
    }
    fn submit(&self, _: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        self.with_state(|kv, slots| {
            for (row, place) in batch.rows.iter().zip(kv.append(&batch.rows)?) {
                slots[place.slot] = row.token;
            }
            Ok::<(), RuntimeError>(())
        })?;
        // A bigram looks at its own row only; an attention would gather `blocks` and `path` here.
        let logits = |row: &spec_runtime::Row| self.counts[row.token as usize].iter().map(|c| c.ln()).collect();
        let rows = batch.rows.iter().map(|row| (row.want == Want::Logits).then(|| logits(row))).collect();
        Ok(Box::new(Ready(rows)))
    }
}

/// Copies what the bookkeeping has moved.
fn follow(slots: &mut [Token], moves: &[Move]) {
    for step in moves {
        slots[step.to] = slots[step.from];
    }
}

struct Ready(Vec<Option<Vec<f32>>>);

impl Pass for Ready {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        Ok(self)
    }
}

impl Rows for Ready {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        self.0.get(row).and_then(Option::as_deref).ok_or(RuntimeError::NotWanted { row })
    }
}

fn main() -> Result<(), RuntimeError> {
    let mut words = Words(Vec::new());
    let mut ids = Vec::new();
    for word in TEXT.split(' ') {
        let id = words.0.iter().position(|known| known == word).unwrap_or_else(|| {
            words.0.push(word.to_owned());
            words.0.len() - 1
        });
        ids.push(id);
    }
    let vocab = words.0.len();
    let mut counts = vec![vec![0.1_f32; vocab]; vocab];
    for pair in ids.windows(2) {
        counts[pair[0]][pair[1]] += 1.0;
    }
    let model: Arc<dyn Model> = Arc::new(Bigrams {
        config: ModelConfig {
            name: "bigrams".into(),
            device: "host".into(),
            vocab,
            context: BLOCKS * BLOCK_TOKENS,
            max_rows: 64,
        },
        counts,
        state: Mutex::new((PagedKv::new(BLOCKS, BLOCK_TOKENS, BLOCKS * BLOCK_TOKENS), vec![0; BLOCKS * BLOCK_TOKENS])),
    });
    let text: Arc<dyn TokenText> = Arc::new(words);
    let prompt: Vec<Token> = ids.iter().map(|&id| id as Token).collect();

    let plain =
        Engine::new(Arc::clone(&model), Arc::clone(&text)).generate(Request::new(prompt.clone(), 24), &mut |_| {})?;
    let mut engine = Engine::new(model, text).with_drafter(Box::new(NgramDrafter::new()));
    let speculative = engine.generate(Request::new(prompt, 24), &mut |emitted| print!("{}", emitted.text))?;

    println!(
        "\n{} tokens in {} passes instead of {}, acceptance {:.0} %",
        speculative.completion_tokens,
        1 + speculative.speculation.rounds,
        1 + plain.speculation.rounds,
        100.0 * speculative.speculation.acceptance_rate(),
    );
    assert_eq!(plain.tokens, speculative.tokens);
    Ok(())
}
