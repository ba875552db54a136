//! Tool calls in a text that is still being generated.
//!
//! A call stands between tags: `<tool_call>{"name": NAME, "arguments": {...}}</tool_call>`. The parser is fed with the text as it
//! leaves the engine, cut anywhere, and gives the same answer however it is cut. Arguments are passed on while they come. What
//! turns out to be no call is content, tag and all: nothing is lost.

use std::ops::Range;

use serde_json::{Value, json};

use super::{CLOSE, OPEN};

/// A piece of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delta {
    /// Text beside the calls.
    Content(String),
    /// A call begins.
    Call {
        /// Its number in the answer, from 0.
        index: usize,
        /// What its result will refer to.
        id: String,
        /// The function.
        name: String,
    },
    /// More of the arguments of the last call: JSON, as the model wrote it.
    Arguments {
        /// The call's number.
        index: usize,
        /// The text.
        text: String,
    },
}

/// Calls of an answer, or of a part of it that is streamed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    calls: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    index: usize,
    /// Id and name, where the call begins in this part.
    begins: Option<(String, String)>,
    arguments: String,
}

impl Collected {
    /// Whether there is nothing of any call.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes a piece in; content belongs elsewhere and does nothing.
    pub fn take(&mut self, delta: Delta) {
        match delta {
            Delta::Content(_) => {}
            Delta::Call { index, id, name } => {
                self.calls.push(Part { index, begins: Some((id, name)), arguments: String::new() });
            }
            Delta::Arguments { index, text } => match self.calls.last_mut() {
                Some(call) if call.index == index => call.arguments += &text,
                _ => self.calls.push(Part { index, begins: None, arguments: text }),
            },
        }
    }

    /// The `tool_calls` of a whole message.
    pub fn whole(&self) -> Value {
        let call = |Part { begins, arguments, .. }: &Part| {
            let (id, name) = begins.as_ref()?;
            Some(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }))
        };
        self.calls.iter().filter_map(call).collect()
    }

    /// The `tool_calls` of a chunk's `delta`.
    pub fn part(&self) -> Value {
        let call = |Part { index, begins, arguments }: &Part| match begins {
            Some((id, name)) => json!({
                "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
            }),
            None => json!({ "index": index, "function": { "arguments": arguments } }),
        };
        self.calls.iter().map(call).collect()
    }
}

/// Where the parser is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// Outside calls; what is held may be the beginning of a tag.
    Content,
    /// Behind a tag, where not yet all is there that the arguments stand behind.
    Head,
    /// In the arguments.
    Arguments(Nesting),
    /// Behind the arguments, where the object has still to be closed.
    Tail,
    /// Behind the object, where the tag has still to be closed.
    Close,
    /// Behind a call: space is dropped if another call or the end follows.
    Between,
}

/// A parser of one answer.
#[derive(Clone, Debug)]
pub struct ToolParser {
    names: Vec<String>,
    id: String,
    calls: usize,
    state: State,
    /// Text that cannot be judged yet.
    held: String,
}

impl ToolParser {
    /// A parser of calls of these functions. Calls are called `call_ID_0`, `call_ID_1` and so on.
    pub fn new(names: impl IntoIterator<Item = String>, id: &str) -> Self {
        let names = names.into_iter().collect();
        Self { names, id: id.to_owned(), calls: 0, state: State::Content, held: String::new() }
    }

    /// Calls so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Takes the next piece of the text; what can be passed on.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        let mut out = Vec::new();
        self.held.push_str(text);
        while self.step(&mut out) {}
        out
    }

    /// The text has ended; what was held.
    pub fn finish(&mut self) -> Vec<Delta> {
        let mut out = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Head => content(&mut out, OPEN.to_owned() + &held),
            State::Between | State::Close if held.trim().is_empty() => {}
            State::Arguments(_) => {}
            _ => content(&mut out, held),
        }
        self.state = State::Content;
        out
    }

    /// Goes on by one state; whether there is more to do.
    fn step(&mut self, out: &mut Vec<Delta>) -> bool {
        let (next, used) = match &mut self.state {
            State::Content | State::Between => return self.outside(out),
            State::Head => return self.head(out),
            State::Arguments(nesting) => {
                let (used, ended) = nesting.walk(&self.held);
                let text: String = self.held.drain(..used).collect();
                if !text.is_empty() {
                    out.push(Delta::Arguments { index: self.calls - 1, text });
                }
                if !ended {
                    return false;
                }
                (State::Tail, 0)
            }
            State::Tail => match tail(&self.held) {
                Scan::More => return false,
                Scan::Found(used) => (State::Close, used),
                Scan::Wrong => (State::Close, 0),
            },
            State::Close => {
                let text = self.held.trim_start();
                let space = self.held.len() - text.len();
                if text.starts_with(CLOSE) {
                    (State::Between, space + CLOSE.len())
                } else if CLOSE.starts_with(text) {
                    return false;
                } else {
                    (State::Between, 0)
                }
            }
        };
        self.held.drain(..used);
        self.state = next;
        true
    }

    fn outside(&mut self, out: &mut Vec<Delta>) -> bool {
        let between = self.state == State::Between;
        let (text, tag) = match self.held.find(OPEN) {
            Some(at) => (at, true),
            None => (self.held.len() - longest_beginning(&self.held, OPEN), false),
        };
        if between && self.held[..text].trim().is_empty() {
            // Space between calls belongs to the form; in front of other text it belongs to that.
            if !tag {
                return false;
            }
            self.held.drain(..text);
        } else {
            content(out, self.held.drain(..text).collect());
            self.state = State::Content;
        }
        if tag {
            self.held.drain(..OPEN.len());
            self.state = State::Head;
        }
        tag
    }

    fn head(&mut self, out: &mut Vec<Delta>) -> bool {
        match head(&self.held) {
            Scan::More => false,
            Scan::Found(Head { name, arguments, used }) if self.names.contains(&name) => {
                let index = self.calls;
                self.calls += 1;
                out.push(Delta::Call { index, id: format!("call_{}_{index}", self.id), name });
                self.state = State::Arguments(Nesting::default());
                if let Some(range) = arguments {
                    let text = if range.is_empty() { "{}".to_owned() } else { self.held[range].to_owned() };
                    out.push(Delta::Arguments { index, text });
                    self.state = State::Tail;
                }
                self.held.drain(..used);
                true
            }
            Scan::Found(_) | Scan::Wrong => {
                content(out, OPEN.to_owned());
                self.state = State::Content;
                true
            }
        }
    }
}

fn content(out: &mut Vec<Delta>, text: String) {
    if !text.is_empty() {
        out.push(Delta::Content(text));
    }
}

/// Length of the longest end of `text` that `word` begins with, `word` itself left out.
fn longest_beginning(text: &str, word: &str) -> usize {
    let lengths = (1..word.len()).rev().filter(|&length| word.is_char_boundary(length));
    lengths.into_iter().find(|&length| text.ends_with(&word[..length])).unwrap_or(0)
}

/// What was looked for in a text that may not be all there yet.
enum Scan<T> {
    /// It may come.
    More,
    /// It is there.
    Found(T),
    /// It cannot come any more.
    Wrong,
}

/// Goes on with what was found, else gives that up.
macro_rules! found {
    ($scan:expr) => {
        match $scan {
            Scan::Found(found) => found,
            Scan::More => return Scan::More,
            Scan::Wrong => return Scan::Wrong,
        }
    };
}

/// A call as far as its arguments.
struct Head {
    name: String,
    /// Where the arguments are, when they are already there as a whole; empty when there are none.
    arguments: Option<Range<usize>>,
    /// The text up to what comes next: the arguments, or what stands behind them.
    used: usize,
}

fn head(text: &str) -> Scan<Head> {
    let mut at = found!(mark(text, 0, b'{'));
    let (mut name, mut arguments) = (None, None);
    loop {
        let key;
        (key, at) = found!(string(text, at));
        at = space(text, found!(mark(text, at, b':')));
        match key.as_str() {
            "name" => {
                let given;
                (given, at) = found!(string(text, at));
                name = Some(given);
            }
            // The second is what some models were shown.
            "arguments" | "parameters" => {
                if text[at..].is_empty() {
                    return Scan::More;
                }
                if !text[at..].starts_with('{') {
                    return Scan::Wrong;
                }
                if let Some(name) = name {
                    return Scan::Found(Head { name, arguments: None, used: at });
                }
                let start = at;
                at = found!(value(text, at));
                arguments = Some(start..at);
            }
            _ => at = found!(value(text, at)),
        }
        if let (Some(name), Some(arguments)) = (&name, &arguments) {
            return Scan::Found(Head { name: name.clone(), arguments: Some(arguments.clone()), used: at });
        }
        at = space(text, at);
        match (text.as_bytes().get(at), &name) {
            (None, _) => return Scan::More,
            (Some(b','), _) => at += 1,
            // A function without arguments.
            (Some(b'}'), Some(name)) => {
                return Scan::Found(Head { name: name.clone(), arguments: Some(at..at), used: at });
            }
            _ => return Scan::Wrong,
        }
    }
}

/// What may stand behind the arguments: other members, and the end of the object. Its length.
fn tail(text: &str) -> Scan<usize> {
    let mut at = 0;
    loop {
        at = space(text, at);
        match text.as_bytes().get(at) {
            None => return Scan::More,
            Some(b'}') => return Scan::Found(at + 1),
            Some(b',') => {
                (_, at) = found!(string(text, at + 1));
                at = found!(value(text, space(text, found!(mark(text, at, b':')))));
            }
            _ => return Scan::Wrong,
        }
    }
}

fn space(text: &str, at: usize) -> usize {
    at + text[at..].bytes().take_while(|byte| b" \t\r\n".contains(byte)).count()
}

/// Behind a mark that stands at `at`, or behind space there.
fn mark(text: &str, at: usize, mark: u8) -> Scan<usize> {
    let at = space(text, at);
    match text.as_bytes().get(at) {
        None => Scan::More,
        Some(&byte) if byte == mark => Scan::Found(at + 1),
        Some(_) => Scan::Wrong,
    }
}

/// A string of JSON at `at`, or behind space there, and where it ends.
fn string(text: &str, at: usize) -> Scan<(String, usize)> {
    let at = space(text, at);
    match text.as_bytes().get(at) {
        None => Scan::More,
        Some(b'"') => {
            let end = found!(value(text, at));
            match serde_json::from_str(&text[at..end]) {
                Ok(string) => Scan::Found((string, end)),
                Err(_) => Scan::Wrong,
            }
        }
        Some(_) => Scan::Wrong,
    }
}

/// The end of the value of JSON that begins at `at`.
fn value(text: &str, at: usize) -> Scan<usize> {
    let rest = &text[at..];
    match rest.bytes().next() {
        None => Scan::More,
        Some(b'{' | b'[' | b'"') => {
            let (used, ended) = Nesting::default().walk(rest);
            match (ended, serde_json::from_str::<serde::de::IgnoredAny>(&rest[..used])) {
                (false, _) => Scan::More,
                (true, Ok(_)) => Scan::Found(at + used),
                (true, Err(_)) => Scan::Wrong,
            }
        }
        // A number or a word ends where something else begins.
        Some(_) => match rest.find([',', '}', ']', ' ', '\n', '<']) {
            None => Scan::More,
            Some(end) if serde_json::from_str::<serde::de::IgnoredAny>(&rest[..end]).is_ok() => Scan::Found(at + end),
            Some(_) => Scan::Wrong,
        },
    }
}

/// How deep in a value of JSON a text has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Goes on over `text`: how much of it belongs to the value, and whether the value has ended there.
    fn walk(&mut self, text: &str) -> (usize, bool) {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                // Outside strings JSON has no such character: a tag begins too early.
                b'<' => return (at, true),
                _ => {}
            }
            if self.depth == 0 && !self.in_string {
                return (at + 1, true);
            }
        }
        (text.len(), false)
    }
}
