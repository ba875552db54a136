//! Verifies draft tokens against rows of logits that another engine wrote to a file, with this crate alone:
//! `cargo run --example verify_file -- --rows FILE [--rule NAME[:x]] [--temperature T] [--seed S]`.
//!
//! The file is text: a line `draft` with the draft token ids, then one line `row` per scored token with its logits, the first for
//! the committed text and one for each draft token after it. Lines that begin with `#` are left out. Without `--rows` a small file
//! that comes with the example is used.
//!
//! A draft whose drafter's probabilities are not in the file is judged as given: one-hot.

use std::str::FromStr;
use std::sync::Arc;

use spec_core::{
    DraftTree, KeyedChoices, Noise, NoiseScan, Origin, PathLaws, Pipeline, RuleName, SamplingParams, ScalarScan, Token,
};

type Failure = Box<dyn std::error::Error>;

/// The value behind a flag.
fn flag<T: FromStr>(name: &str, otherwise: T) -> Result<T, Failure>
where
    T::Err: std::error::Error + 'static,
{
    let arguments: Vec<String> = std::env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == name) else { return Ok(otherwise) };
    let value = arguments.get(at + 1).ok_or_else(|| format!("{name} needs a value"))?;
    Ok(value.parse()?)
}

fn numbers<T: FromStr>(line: usize, text: &str) -> Result<Vec<T>, Failure> {
    let number = |word: &str| word.parse().map_err(|_| format!("line {line}: `{word}` is not a number").into());
    text.split_whitespace().map(number).collect()
}

/// Draft tokens, and rows of logits.
fn parse(text: &str) -> Result<(Vec<Token>, Vec<Vec<f32>>), Failure> {
    let (mut draft, mut rows) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        match line.trim().split_once(' ') {
            _ if line.trim().is_empty() || line.starts_with('#') => {}
            Some(("draft", rest)) => draft = numbers(index + 1, rest)?,
            Some(("row", rest)) => rows.push(numbers(index + 1, rest)?),
            _ => return Err(format!("line {}: it begins with neither `draft` nor `row`", index + 1).into()),
        }
    }
    if rows.len() != draft.len() + 1 {
        return Err(
            format!("{} draft tokens need {} rows, there are {}", draft.len(), draft.len() + 1, rows.len()).into()
        );
    }
    Ok((draft, rows))
}

fn main() -> Result<(), Failure> {
    let path: String = flag("--rows", String::new())?;
    let text = if path.is_empty() { include_str!("rows.txt").to_owned() } else { std::fs::read_to_string(&path)? };
    let (draft, rows) = parse(&text)?;
    let rule: RuleName = flag("--rule", "rejection".parse()?)?;
    let (temperature, seed) = (flag("--temperature", 0.8)?, flag("--seed", 1)?);

    let params = SamplingParams { temperature, ..SamplingParams::default() };
    let mut pipeline = Pipeline::new(params, rows[0].len())?;
    let scan: Arc<dyn NoiseScan> = Arc::new(ScalarScan);
    let judge = rule.build(Noise::new(seed), &scan);
    let tree = DraftTree::chain(&draft, Origin::Fixed);
    // The engine that brings the rows keeps the committed text; here it counts as empty.
    let mut laws = PathLaws::new(&tree, &rows, &mut pipeline, 0, None);
    let outcome = judge.verify(&tree, &mut laws, &mut KeyedChoices::new(seed, 0))?;

    let accepted: Vec<Token> = outcome.accepted.iter().map(|&node| tree.node(node).token).collect();
    println!("rule {rule}, {}", if judge.lossless() { "lossless" } else { "lossy" });
    println!("drafted  {draft:?}");
    println!("accepted {accepted:?}, then {}", outcome.next);
    if let Some(rejection) = outcome.rejection {
        println!("token {} at position {} refused: {:?}", rejection.token, rejection.position, rejection.reason);
        if let Some(p) = rejection.p {
            println!("the target gives it {p:.4}");
        }
    }
    Ok(())
}
