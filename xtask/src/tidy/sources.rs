//! Rules about Rust source: length, unsafe code, unfinished work, module names.

use super::Problem;
use super::lexer::{self, Line};
use super::text::EMPTY_NAMES;

const MAX_LINES: usize = 600;

/// How far above an unsafe block its SAFETY line may stand: a statement that rustfmt broke is rarely longer.
const SAFETY_REACH: usize = 6;

const UNFINISHED_COMMENTS: &[&str] = &["TODO", "FIXME", "XXX"];
const UNFINISHED_CODE: &[&str] = &["todo!", "unimplemented!"];

pub(crate) fn check(file: &str, source: &str) -> Vec<Problem> {
    let lines = lexer::split(source);
    let mut problems = Vec::new();
    if lines.len() > MAX_LINES {
        let message = format!("{} lines, and {MAX_LINES} are the limit; split it by subject", lines.len());
        problems.push(Problem::new(file, 0, message));
    }
    for (at, line) in lines.iter().enumerate() {
        let mut report = |message: String| problems.push(Problem::new(file, at + 1, message));
        match unsafe_item(&lines, at) {
            Some(Unsafe::Block) if !has_safety_line(&lines, at) => {
                report("unsafe code without a `// SAFETY:` line above it; say why it is sound".into());
            }
            Some(Unsafe::Function) if !has_safety_section(&lines, at) && !is_in_trait_impl(&lines, at) => {
                report("an unsafe fn without a `# Safety` section; say what callers have to hold".into());
            }
            _ => {}
        }
        for word in UNFINISHED_COMMENTS.iter().filter(|word| has_word(&line.comment, word)) {
            report(format!("`{word}` marks unfinished work; finish it, or write an issue"));
        }
        for word in UNFINISHED_CODE.iter().filter(|word| line.code.contains(**word)) {
            report(format!("`{word}` is unfinished work"));
        }
        if let Some(name) = declared_module(&line.code).filter(|name| EMPTY_NAMES.contains(name)) {
            report(format!("a module named `{name}` says nothing about what is in it; name its subject"));
        }
    }
    problems
}

#[derive(Debug, PartialEq)]
enum Unsafe {
    /// A block or an `unsafe impl`.
    Block,
    Function,
}

/// What the word `unsafe` on this line introduces, if it is there.
fn unsafe_item(lines: &[Line], at: usize) -> Option<Unsafe> {
    let code = &lines[at].code;
    let start = code.match_indices("unsafe").map(|(start, _)| start).find(|&start| is_word(code, start, "unsafe"))?;
    // rustfmt may leave the word alone at a line's end.
    let below = lines.get(at + 1).map_or("", |line| line.code.trim());
    let rest = format!("{} {below}", code[start + "unsafe".len()..].trim());
    let mut words = rest.split_whitespace();
    match words.next()? {
        word if word.starts_with('{') || word.starts_with("impl") => Some(Unsafe::Block),
        // `unsafe(no_mangle)`, `unsafe trait` and extern blocks promise nothing here; `unsafe fn(..)` is a type.
        "fn" => Some(Unsafe::Function),
        "extern" => words.any(|word| word == "fn").then_some(Unsafe::Function),
        _ => None,
    }
}

fn has_safety_line(lines: &[Line], at: usize) -> bool {
    lines[at.saturating_sub(SAFETY_REACH)..=at].iter().any(|line| line.comment.contains("SAFETY:"))
}

/// Looks through the documentation and attributes above an item.
fn has_safety_section(lines: &[Line], at: usize) -> bool {
    lines[..at]
        .iter()
        .rev()
        .take_while(|line| {
            let code = line.code.trim();
            let attribute = code.starts_with("#[") || code.ends_with(")]") || code == "]";
            (code.is_empty() && !line.comment.is_empty()) || attribute
        })
        .any(|line| line.comment.contains("# Safety"))
}

/// Whether the method on this line belongs to a trait, whose own section holds for all its implementations.
///
/// rustfmt's indentation tells: the first line above that stands further left opens what encloses it.
fn is_in_trait_impl(lines: &[Line], at: usize) -> bool {
    let indentation = |line: &Line| line.code.len() - line.code.trim_start().len();
    let own = indentation(&lines[at]);
    let outer = lines[..at].iter().rev().filter(|line| !line.code.trim().is_empty() && indentation(line) < own);
    // The brace of an impl with a where clause stands alone, below the clause.
    let mut header = outer.map(|line| line.code.trim()).skip_while(|code| *code == "{" || *code == "where");
    header.next().is_some_and(|code| {
        let code = code.strip_prefix("unsafe ").unwrap_or(code);
        code.starts_with("impl") && code.contains(" for ")
    })
}

fn declared_module(code: &str) -> Option<&str> {
    let code = code.trim();
    let item = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => code,
    };
    Some(item.strip_prefix("mod ")?.trim_end_matches([';', '{', '}', ' ']))
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| is_word(text, start, word))
}

/// Whether `word`, found at `start`, stands alone there.
fn is_word(text: &str, start: usize, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..start].ends_with(part_of_word) && !text[start + word.len()..].starts_with(part_of_word)
}
