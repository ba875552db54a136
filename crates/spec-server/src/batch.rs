//! Many requests from a file, answered into a file: the lines that OpenAI's batch interface reads and writes.
//!
//! A line of the input is `{custom_id, method, url, body}`, a line of the output `{id, custom_id, response: {status_code, request_id,
//! body}, error}`, written whole, in the order in which answers are complete. A run that was interrupted goes on where it stopped: what
//! has a line in the output is not asked again, and a line that was not written to its end is.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use serde_json::{Value, json};

use crate::ServerError;

/// Bytes of a line; longer ones are answered with an error and not kept.
const LONGEST_LINE: u64 = 16 << 20;
/// Urls that can be asked for.
const URLS: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// An answer to a request: its status, and its body.
pub struct Answer {
    /// The status that the service would answer with.
    pub status: u16,
    /// The body: an answer, or an object with `error`.
    pub body: Value,
}

/// What a run is about.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The requests.
    pub input: PathBuf,
    /// Where the answers go; what is there is kept.
    pub output: PathBuf,
    /// Requests that are asked at once; at least 1.
    pub at_once: usize,
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Lines of the input.
    pub lines: usize,
    /// Of those, the ones answered by an earlier run.
    pub before: usize,
    /// Answered now, those that failed among them.
    pub answered: usize,
    /// Answered with an error, now or before.
    pub failed: usize,
}

impl Batch {
    /// Asks `answer`, on threads of its own, for everything that is not yet answered. `progress` hears of each line. Once `stop` is set
    /// nothing new is asked; what was asked is written.
    ///
    /// # Errors
    /// [`ServerError::Batch`] for files that cannot be read or written, and for an output that is not one of a batch. What is
    /// wrong with a request is said in its line.
    pub fn run(
        &self,
        answer: &(dyn Fn(&str, &Value) -> Answer + Sync),
        progress: &mut dyn FnMut(Progress),
        stop: &AtomicBool,
    ) -> Result<Progress, ServerError> {
        let fault = |file: &Path| {
            let file = file.display().to_string();
            move |error: io::Error| ServerError::Batch { file, reason: error.to_string() }
        };
        // The input first: an output is not made for one that is not there.
        let input = File::open(&self.input).map_err(fault(&self.input))?;
        let lines = count_lines(&input).map_err(fault(&self.input))?;
        let (mut output, done) = Done::open(&self.output)?;
        let mut state = Progress { lines, failed: done.failed, ..Progress::default() };

        let (ask, asked) = mpsc::sync_channel::<Asked>(self.at_once.max(1));
        // The workers' alone: when they have left, nobody waits for a place to ask.
        let asked = Arc::new(Mutex::new(asked));
        let (tell, told) = mpsc::sync_channel::<Told>(self.at_once.max(1));
        let reader = Reader { input: BufReader::new(input), done: done.ids, seen: HashSet::new() };
        std::thread::scope(|scope| {
            let reading = tell.clone();
            scope.spawn(move || reader.read(&ask, &reading, stop));
            for _ in 0..self.at_once.max(1) {
                let (asked, tell) = (Arc::clone(&asked), tell.clone());
                scope.spawn(move || work(&asked, &tell, answer));
            }
            drop((asked, tell));
            for told in told {
                match told {
                    Told::Before => state.before += 1,
                    Told::Failure(error) => return Err(fault(&self.input)(error)),
                    Told::Line { failed, line } => {
                        // One call for a line: an interrupted run leaves at most one that is torn.
                        output.write_all(line.as_bytes()).map_err(fault(&self.output))?;
                        state.answered += 1;
                        state.failed += usize::from(failed);
                    }
                }
                progress(state);
            }
            output.sync_all().map_err(fault(&self.output))
        })?;
        Ok(state)
    }
}

/// What an earlier run has answered.
struct Done {
    ids: HashSet<String>,
    failed: usize,
}

impl Done {
    /// Opens an output to append to, without the line that was not written to its end.
    fn open(path: &Path) -> Result<(File, Self), ServerError> {
        let fault = |reason: String| ServerError::Batch { file: path.display().to_string(), reason };
        let failed = |error: io::Error| fault(error.to_string());
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        let mut done = Self { ids: HashSet::new(), failed: 0 };
        let mut reader = BufReader::new(&file);
        let (mut whole, mut line, mut number) = (0_u64, Vec::new(), 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(failed)?;
            if !line.ends_with(b"\n") {
                break;
            }
            number += 1;
            let value: Option<Value> = serde_json::from_slice(&line).ok();
            let Some((value, id)) =
                value.as_ref().and_then(|value| Some((value, value.get("custom_id")?.as_str()?.to_owned())))
            else {
                let what = format!("line {number} is no answer of a batch; name another output, or take the line out");
                return Err(fault(what));
            };
            done.failed += usize::from(has_failed(value));
            done.ids.insert(id);
            whole += length as u64;
        }
        file.set_len(whole).map_err(failed)?;
        Ok((file, done))
    }
}

fn has_failed(line: &Value) -> bool {
    let status = line.pointer("/response/status_code").and_then(Value::as_u64);
    !line["error"].is_null() || status.is_none_or(|status| status >= 400)
}

struct Asked {
    id: String,
    url: String,
    body: Value,
}

enum Told {
    /// A line that was answered before.
    Before,
    /// A line of the output.
    Line { failed: bool, line: String },
    /// The input could not be read on.
    Failure(io::Error),
}

impl Told {
    fn line(id: &str, response: Value, error: Value) -> Self {
        let line = json!({ "id": format!("batch_req_{id}"), "custom_id": id, "response": response, "error": error });
        Self::Line { failed: has_failed(&line), line: format!("{line}\n") }
    }

    fn refused(id: &str, code: &str, message: String) -> Self {
        Self::line(id, Value::Null, json!({ "code": code, "message": message }))
    }
}

/// Answers what is asked until nothing more is.
fn work(
    asked: &Mutex<mpsc::Receiver<Asked>>,
    tell: &mpsc::SyncSender<Told>,
    answer: &(dyn Fn(&str, &Value) -> Answer + Sync),
) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Asked { id, url, body }) = next else { return };
        let Answer { status, body } = answer(&url, &body);
        let request = body.get("id").cloned().unwrap_or_else(|| format!("req_{id}").into());
        let response = json!({ "status_code": status, "request_id": request, "body": body });
        if tell.send(Told::line(&id, response, Value::Null)).is_err() {
            return;
        }
    }
}

struct Reader {
    input: BufReader<File>,
    done: HashSet<String>,
    seen: HashSet<String>,
}

impl Reader {
    /// Reads lines, as fast as they are asked for. Ends when nobody listens any more.
    fn read(mut self, ask: &mpsc::SyncSender<Asked>, tell: &mpsc::SyncSender<Told>, stop: &AtomicBool) {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            let line = match next_line(&mut self.input) {
                Ok(Some(line)) => line,
                Ok(None) => return,
                Err(error) => {
                    let _ = tell.send(Told::Failure(error));
                    return;
                }
            };
            number += 1;
            let goes_on = match self.judge(number, line) {
                None => true,
                Some(Ok(asked)) => ask.send(asked).is_ok(),
                Some(Err(told)) => tell.send(told).is_ok(),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// What a line asks for, or what is to be said of it; `None` for an empty one.
    fn judge(&mut self, number: usize, line: Line) -> Option<Result<Asked, Told>> {
        // What has no id of its own is called by its line, so that it is not asked again either.
        let by_line = format!("line-{number}");
        let told = |done: &HashSet<String>, id: &str, code: &str, message: String| {
            Some(Err(if done.contains(id) { Told::Before } else { Told::refused(id, code, message) }))
        };
        let bytes = match line {
            Line::Whole(bytes) if bytes.trim_ascii().is_empty() => return None,
            Line::Whole(bytes) => bytes,
            Line::TooLong => {
                let message = format!("line {number} has more than {LONGEST_LINE} bytes");
                return told(&self.done, &by_line, "line_too_long", message);
            }
        };
        let mut fields = match serde_json::from_slice(&bytes) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return told(&self.done, &by_line, "invalid_json", format!("line {number} is no JSON object")),
            Err(error) => {
                return told(&self.done, &by_line, "invalid_json", format!("line {number} is no JSON: {error}"));
            }
        };
        let Some(Value::String(id)) = fields.remove("custom_id") else {
            return told(
                &self.done,
                &by_line,
                "invalid_request",
                format!("line {number}: `custom_id` is missing or no text"),
            );
        };
        if !self.seen.insert(id.clone()) {
            let message = format!("line {number}: `custom_id` {id} is that of an earlier line");
            return told(&self.done, &format!("{by_line}-{id}"), "duplicate_custom_id", message);
        }
        if self.done.contains(&id) {
            return Some(Err(Told::Before));
        }
        let refused =
            |message: String| Some(Err(Told::refused(&id, "invalid_request", format!("line {number}: {message}"))));
        if let Some(method) = fields.get("method").filter(|method| *method != "POST") {
            return refused(format!("`method` is {method}; POST alone is supported"));
        }
        let url = match fields.remove("url") {
            Some(Value::String(url)) if URLS.contains(&url.as_str()) => url,
            Some(url) => return refused(format!("`url` is {url}; {} are supported", URLS.join(" and "))),
            None => return refused("`url` is missing".into()),
        };
        let Some(body @ Value::Object(_)) = fields.remove("body") else {
            return refused("`body` is missing or no object".into());
        };
        if body.get("stream") == Some(&Value::Bool(true)) {
            return refused("`body.stream` is true; a batch has no streams".into());
        }
        if let Some(other) = fields.keys().find(|key| *key != "method") {
            return refused(format!("`{other}` is not supported"));
        }
        Some(Ok(Asked { id, url, body }))
    }
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line, of which no more is kept than a line may have.
fn next_line(input: &mut BufReader<File>) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    input.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() as u64 <= LONGEST_LINE {
        return Ok(Some(Line::Whole(bytes)));
    }
    if !bytes.ends_with(b"\n") {
        input.skip_until(b'\n')?;
    }
    Ok(Some(Line::TooLong))
}

/// Lines that are not empty; the file is at its start before and afterwards.
fn count_lines(mut file: &File) -> io::Result<usize> {
    let mut buffer = vec![0; 1 << 16];
    let (mut count, mut filled) = (0, false);
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        for &byte in &buffer[..length] {
            count += usize::from(byte == b'\n' && filled);
            filled = byte != b'\n' && (filled || !byte.is_ascii_whitespace());
        }
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(count + usize::from(filled))
}
