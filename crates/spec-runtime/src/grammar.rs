//! JSON schemas, and texts around them, as constraints, through the `llguidance` parser.
//!
//! A schema says which bytes may come next. The parser walks the vocabulary, kept as a trie of bytes, beside the schema's grammar and
//! marks the tokens that stay within it: any way of cutting an allowed text into tokens is allowed.

use std::fmt;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use spec_core::Token;
use std::sync::Arc;

use crate::{Constraint, RuntimeError, TokenRole, TokenSet, TokenText};

/// White space between JSON's marks: none, a space, or a new line and an indentation. The grammar of JSON has no limit there, and a
/// small model may fill a page with it.
const WHITE_SPACE: &str = r" |\n[ \t]{0,20}";

/// What the parser's trie has room for. Published vocabularies have a quarter of it, and no token of text that is so long.
const MOST_IDS: usize = 1 << 24;
const MOST_BYTES: usize = 1 << 22;
const LONGEST_TOKEN: usize = 1000;

/// The form of an answer, from parts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Form {
    /// This text, cut into tokens in any way.
    Text(String),
    /// This token, text or marker, as a whole.
    Token(Token),
    /// JSON that a schema describes, given as its text. References lead within the schema.
    Json(String),
    /// One behind the other.
    Sequence(Vec<Form>),
    /// One of these; at least one.
    Either(Vec<Form>),
    /// The form once or several times.
    Repeated(Box<Form>),
}

impl Form {
    /// Writes it in the parser's language. Parts stand in brackets where precedence could tear them apart.
    fn write(&self, out: &mut String) -> Result<(), RuntimeError> {
        match self {
            // The language writes texts as JSON does.
            Self::Text(text) => out.push_str(&json!(text).to_string()),
            Self::Token(token) => out.push_str(&format!("<[{token}]>")),
            Self::Json(schema) => out.push_str(&format!("%json {}", checked(schema)?)),
            Self::Sequence(forms) => Self::write_all(forms, " ", out)?,
            Self::Either(forms) => Self::write_all(forms, " | ", out)?,
            Self::Repeated(form) => {
                Self::write_all(std::slice::from_ref(form), "", out)?;
                out.push('+');
            }
        }
        Ok(())
    }

    fn write_all(forms: &[Form], between: &str, out: &mut String) -> Result<(), RuntimeError> {
        out.push('(');
        for (index, form) in forms.iter().enumerate() {
            if index > 0 {
                out.push_str(between);
            }
            form.write(out)?;
        }
        if forms.is_empty() {
            out.push_str("\"\"");
        }
        out.push(')');
        Ok(())
    }
}

/// A schema as the parser takes it, from its text.
fn checked(schema: &str) -> Result<Value, RuntimeError> {
    let bad = |reason: String| RuntimeError::BadRequest { field: "json_schema", reason };
    let mut schema: Value = serde_json::from_str(schema).map_err(|error| bad(format!("it is no JSON: {error}")))?;
    match &mut schema {
        Value::Object(fields) => {
            fields.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": WHITE_SPACE }));
        }
        Value::Bool(true) => schema = json!({ "x-guidance": { "whitespace_pattern": WHITE_SPACE } }),
        Value::Bool(false) => return Err(bad("nothing satisfies it".into())),
        _ => return Err(bad("a schema is an object, true or false".into())),
    }
    Ok(schema)
}

/// What a vocabulary needs to be constrained by grammars: built once, some tenths of a second for 150,000 tokens, and shared by
/// requests.
pub struct Grammars {
    factory: ParserFactory,
    trie: Arc<TokTrie>,
}

impl Grammars {
    /// Grammars over the tokens of `text`; an answer that is complete ends with one of `end_ids`. Markers are in no answer.
    ///
    /// # Errors
    /// [`RuntimeError::BadRequest`] when there is no end id, or a token list that the parser does not take.
    pub fn new(text: &dyn TokenText, end_ids: &[Token]) -> Result<Self, RuntimeError> {
        let bad = |reason: String| RuntimeError::BadRequest { field: "grammar", reason };
        let vocab = text.vocab();
        let ends: Vec<Token> = end_ids.iter().copied().filter(|&id| (id as usize) < vocab).collect();
        let Some(&first) = ends.first() else {
            return Err(bad("the model has no end token, which a complete answer would end with".into()));
        };
        let word = |id: Token| match text.role(id) {
            TokenRole::Text if !ends.contains(&id) => {
                let bytes = text.bytes(id);
                if bytes.len() <= LONGEST_TOKEN { bytes.into_owned() } else { Vec::new() }
            }
            // A token without bytes is in no text.
            _ => Vec::new(),
        };
        let words: Vec<Vec<u8>> = (0..vocab as Token).map(word).collect();
        if vocab >= MOST_IDS || words.iter().map(Vec::len).sum::<usize>() > MOST_BYTES {
            return Err(bad(format!(
                "the vocabulary is too large: {MOST_IDS} ids and {MOST_BYTES} bytes are the most"
            )));
        }
        let trie = TokTrie::from(&TokRxInfo::new(vocab as u32, first), &words).with_eos_tokens(&ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie.clone()));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
            .map_err(|error| bad(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
        Ok(Self { factory, trie: Arc::new(trie) })
    }

    /// Answers that a JSON schema describes, given as its text. References lead within the schema.
    ///
    /// # Errors
    /// [`RuntimeError::BadRequest`] for a text that is no JSON, and for a schema that is none, that nothing satisfies, or that uses
    /// what cannot be enforced: nothing of it is left out in silence.
    pub fn json_schema(&self, schema: &str) -> Result<Grammar, RuntimeError> {
        self.grammar("json_schema", TopLevelGrammar::from_json_schema(checked(schema)?))
    }

    /// Answers of a form, such as JSON between tags.
    ///
    /// # Errors
    /// [`RuntimeError::BadToken`] for a token past the vocabulary, and for schemas in it as [`json_schema`](Self::json_schema).
    pub fn form(&self, form: &Form) -> Result<Grammar, RuntimeError> {
        self.check_tokens(form)?;
        let mut text = String::from("start: ");
        form.write(&mut text)?;
        self.grammar("grammar", TopLevelGrammar::from_lark(text))
    }

    fn check_tokens(&self, form: &Form) -> Result<(), RuntimeError> {
        match form {
            Form::Token(token) if *token as usize >= self.trie.vocab_size() => {
                Err(RuntimeError::BadToken { token: *token, vocab: self.trie.vocab_size() })
            }
            Form::Text(_) | Form::Token(_) | Form::Json(_) => Ok(()),
            Form::Sequence(forms) | Form::Either(forms) => forms.iter().try_for_each(|form| self.check_tokens(form)),
            Form::Repeated(form) => self.check_tokens(form),
        }
    }

    fn grammar(&self, field: &'static str, grammar: TopLevelGrammar) -> Result<Grammar, RuntimeError> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(RuntimeError::BadRequest { field, reason: said(&error) }),
            None => Ok(Grammar { matcher, trie: Arc::clone(&self.trie) }),
        }
    }

    /// Answers that are a JSON object.
    ///
    /// # Errors
    /// As [`json_schema`](Self::json_schema).
    pub fn json_object(&self) -> Result<Grammar, RuntimeError> {
        self.json_schema(r#"{ "type": "object" }"#)
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").field("vocab", &self.trie.vocab_size()).finish_non_exhaustive()
    }
}

/// A grammar under way in one answer. A copy goes its own way from where this one is, without the work of reading the grammar.
#[derive(Clone)]
pub struct Grammar {
    matcher: Matcher,
    trie: Arc<TokTrie>,
}

impl Grammar {
    /// Cuts forced bytes into tokens. Tokens that are demanded as a whole stand there as a mark and their number in brackets.
    fn tokenize(&self, bytes: &[u8]) -> Vec<Token> {
        let mut tokens = Vec::new();
        for (index, part) in bytes.split(|&byte| byte == TokTrie::SPECIAL_TOKEN_MARKER).enumerate() {
            let whole = (index > 0).then(|| numbered(part)).flatten();
            let text = whole.map_or(part, |(token, text)| {
                tokens.push(token);
                text
            });
            tokens.extend(self.trie.greedy_tokenize(text));
        }
        tokens
    }

    fn result<T>(outcome: Result<T, impl fmt::Display>) -> Result<T, RuntimeError> {
        outcome.map_err(|error| RuntimeError::Constraint { reason: said(&error.to_string()) })
    }
}

impl Constraint for Grammar {
    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), RuntimeError> {
        let mask = Self::result(self.matcher.compute_mask_or_eos())?;
        allowed.insert_words(mask.as_slice());
        Ok(())
    }

    fn advance(&mut self, token: Token) -> Result<(), RuntimeError> {
        Self::result(self.matcher.consume_token(token))
    }

    fn roll_back(&mut self, tokens: usize) {
        // A parser that fails stays failed, and says so when it is asked next.
        let _ = self.matcher.rollback(tokens);
    }

    fn forced(&mut self, limit: usize, _: usize, _: &[Token]) -> Result<Vec<Token>, RuntimeError> {
        if self.matcher.is_stopped() {
            return Ok(Vec::new());
        }
        let bytes = self.matcher.compute_ff_bytes();
        let mut tokens = self.tokenize(&bytes);
        tokens.truncate(limit);
        Ok(tokens)
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

/// The number in brackets that a text begins with, and the rest of it.
fn numbered(bytes: &[u8]) -> Option<(Token, &[u8])> {
    let inner = bytes.strip_prefix(b"[")?;
    let end = inner.iter().position(|&byte| byte == b']')?;
    let token = std::str::from_utf8(&inner[..end]).ok()?.parse().ok()?;
    Some((token, &inner[end + 1..]))
}

/// The parser's words on one line, without its own marks.
fn said(error: &str) -> String {
    let text =
        ["<non-verbose/>", "<backtrace>"].iter().fold(error, |text, mark| text.split(mark).next().unwrap_or(text));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
