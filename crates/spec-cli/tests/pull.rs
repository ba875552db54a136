//! `spec pull` and `--model hf:...`, against a hub on this host that fails in every way that hubs fail.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use spec_testing::tiny::{self, TinySpec};

/// A request: its path with the query, and the headers that matter.
#[derive(Clone, Debug, PartialEq)]
struct Request {
    path: String,
    range: Option<u64>,
    authorization: Option<String>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Bytes of the body after which the connection ends.
    cut: Option<usize>,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None }
    }

    /// A file as asked for: whole, or from a byte on.
    fn file(content: &[u8], request: &Request) -> Self {
        match request.range {
            None => Self::new(200, content),
            Some(start) if (start as usize) < content.len() => {
                let range = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
                Self { headers: vec![("Content-Range", range)], ..Self::new(206, &content[start as usize..]) }
            }
            Some(_) => Self::new(416, ""),
        }
    }
}

/// A server on this host. It answers until the test ends.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn start(mut answer: impl FnMut(&Request) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                        break;
                    }
                    lines.push(line.trim().to_owned());
                }
                let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)) else { continue };
                let headers: HashMap<String, String> = lines[1..]
                    .iter()
                    .filter_map(|line| line.split_once(": "))
                    .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                    .collect();
                let range = headers
                    .get("range")
                    .map(|range| range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap());
                let request =
                    Request { path: path.to_owned(), range, authorization: headers.get("authorization").cloned() };
                log.lock().unwrap().push(request.clone());
                let answer = answer(&request);
                let mut text = format!("HTTP/1.1 {} x\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
                for (name, value) in &answer.headers {
                    text += &format!("{name}: {value}\r\n");
                }
                text += "Connection: close\r\n\r\n";
                let sent = answer.cut.unwrap_or(answer.body.len()).min(answer.body.len());
                // A client that has gone is no failure of the server.
                let _ = reader.get_mut().write_all(&[text.as_bytes(), &answer.body[..sent]].concat());
            }
        });
        Self { port, seen }
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Requests for files, by their first byte.
    fn ranges(&self) -> Vec<Option<u64>> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|request| request.path.contains("/resolve/")).map(|request| request.range).collect()
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry of the list, as hubs write it for large files.
fn large(path: &str, content: &[u8]) -> Value {
    let lfs = json!({ "oid": sha256(content), "size": content.len(), "pointerSize": 134 });
    json!({ "type": "file", "oid": "0", "size": content.len(), "path": path, "lfs": lfs })
}

fn small(path: &str, content: &[u8]) -> Value {
    json!({ "type": "file", "oid": "0", "size": content.len(), "path": path })
}

fn is_list(request: &Request) -> bool {
    request.path.starts_with("/api/models/")
}

/// Content that tells its places apart.
fn content() -> Vec<u8> {
    (0..50_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// A hub with the one file `m.gguf`, given by `file`.
fn hub(mut file: impl FnMut(&Request) -> Answer + Send + 'static) -> Server {
    Server::start(move |request| match is_list(request) {
        true => Answer::new(200, json!([large("m.gguf", &content()), small("README.md", b"x")]).to_string()),
        false => file(request),
    })
}

struct Cache(tempfile::TempDir);

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Cache {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("hf/o/r/main").join(name)
    }

    fn spec(&self, endpoint: &str, token: Option<&str>, words: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spec"));
        command.env("SPEC_CONFIG", "none").env("SPEC_NO_LAST_RUN", "1");
        command.args(words).env("HF_ENDPOINT", endpoint).env("SPEC_MODELS", self.0.path());
        for name in [
            "HF_TOKEN",
            "SSL_CERT_FILE",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
        ] {
            command.env_remove(name);
        }
        if let Some(token) = token {
            command.env("HF_TOKEN", token);
        }
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn pull(&self, server: &Server, source: &str) -> Ran {
        self.spec(&server.address(), None, &["pull", source])
    }
}

impl Ran {
    #[track_caller]
    fn ok(self) -> PathBuf {
        assert_eq!(self.code, Some(0), "{}", self.err);
        assert_eq!(self.err, "", "no progress is drawn where nobody looks");
        PathBuf::from(self.out.trim_end())
    }

    /// Refused in one line that holds all of these.
    #[track_caller]
    fn refused(self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.err.trim_end().lines().count()), (Some(code), 1), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
        assert_eq!(self.out, "");
    }
}

#[test]
fn a_broken_connection_is_resumed_at_its_byte_and_what_is_there_needs_no_network() {
    let cuts = Mutex::new(vec![Some(70_000), Some(1)]);
    let server = hub(move |request| {
        let cut = cuts.lock().unwrap().pop().flatten();
        Answer { cut, ..Answer::file(&content(), request) }
    });
    let cache = Cache::new();
    let path = cache.pull(&server, "hf:o/r").ok();
    assert_eq!(path, cache.file("m.gguf"));
    assert_eq!(std::fs::read(&path).unwrap(), content());
    assert_eq!(server.ranges(), [None, Some(1), Some(70_001)]);
    let requests = server.requests();
    assert_eq!(cache.pull(&server, "hf:o/r").ok(), path);
    assert_eq!(server.requests(), requests, "a second time nobody is asked");
}

#[test]
fn a_later_run_goes_on_where_one_that_gave_up_broke_off() {
    let cache = Cache::new();
    let first = Mutex::new(true);
    let server = hub(move |request| {
        let cut = if std::mem::take(&mut *first.lock().unwrap()) { 1000 } else { 0 };
        Answer { cut: Some(cut), ..Answer::file(&content(), request) }
    });
    cache.pull(&server, "hf:o/r").refused(1, &["m.gguf", "1000 of 200000 bytes", "run this again"]);
    assert!(!cache.file("m.gguf").exists(), "half a file never has a whole one's name");
    let server = hub(|request| Answer::file(&content(), request));
    let path = cache.pull(&server, "hf:o/r").ok();
    assert_eq!(std::fs::read(path).unwrap(), content());
    assert_eq!(server.ranges(), [Some(1000)]);
    assert!(!cache.file("m.gguf.partial").exists());
}

#[test]
fn a_server_that_ignores_ranges_starts_the_file_over() {
    let cache = Cache::new();
    std::fs::create_dir_all(cache.file("")).unwrap();
    std::fs::write(cache.file("m.gguf.partial"), &content()[..500]).unwrap();
    let server = hub(|_| Answer::new(200, content()));
    assert_eq!(std::fs::read(cache.pull(&server, "hf:o/r").ok()).unwrap(), content());
    assert_eq!(server.ranges(), [Some(500)]);
}

#[test]
fn a_range_that_cannot_be_had_starts_the_file_over() {
    for refusal in [416, 206] {
        let cache = Cache::new();
        std::fs::create_dir_all(cache.file("")).unwrap();
        std::fs::write(cache.file("m.gguf.partial"), &content()[..500]).unwrap();
        let server = hub(move |request| match request.range {
            None => Answer::file(&content(), request),
            // For 206 another part than was asked for.
            Some(_) => {
                Answer { headers: vec![("Content-Range", "bytes 7-9/10".into())], ..Answer::new(refusal, "abc") }
            }
        });
        assert_eq!(std::fs::read(cache.pull(&server, "hf:o/r").ok()).unwrap(), content());
        assert_eq!(server.ranges(), [Some(500), None]);
    }
}

#[test]
fn wrong_content_is_deleted_and_named() {
    let wrong = || content().iter().map(|byte| byte ^ 1).collect::<Vec<u8>>();
    let server = hub(move |request| Answer::file(&wrong(), request));
    let cache = Cache::new();
    cache.pull(&server, "hf:o/r").refused(1, &["m.gguf", &sha256(&content()), "deleted", "run this again"]);
    assert!(!cache.file("m.gguf").exists() && !cache.file("m.gguf.partial").exists());
    // The same from a part that an earlier run left damaged.
    std::fs::write(cache.file("m.gguf.partial"), vec![0; 500]).unwrap();
    let server = hub(|request| Answer::file(&content(), request));
    cache.pull(&server, "hf:o/r").refused(1, &["SHA-256"]);
    cache.pull(&server, "hf:o/r").ok();
}

#[test]
fn refusals_say_what_to_do() {
    let cache = Cache::new();
    let cases: [(u16, &[&str]); 5] = [
        (401, &["HF_TOKEN", "hf:o/r"]),
        (403, &["HF_TOKEN"]),
        (404, &["not found", "revision"]),
        (429, &["too many requests"]),
        (500, &["500", "try again"]),
    ];
    for (status, words) in cases {
        let server = Server::start(move |_| Answer::new(status, "{}"));
        cache.pull(&server, "hf:o/r").refused(1, words);
        let server = hub(move |_| Answer::new(status, "{}"));
        cache.pull(&server, "hf:o/r").refused(1, words);
    }
    let server = Server::start(|_| Answer::new(200, "<html>"));
    cache.pull(&server, "hf:o/r").refused(1, &["list of files"]);
    cache.spec("ftp://x", None, &["pull", "hf:o/r"]).refused(1, &["HF_ENDPOINT"]);
    cache.spec("http://127.0.0.1:1", None, &["pull", "o/r"]).refused(2, &["hf:ORG/REPO"]);
    cache.spec("http://127.0.0.1:1", None, &["pull", "hf:o/../r"]).refused(2, &["hf:ORG/REPO"]);
}

#[test]
fn offline_is_one_line_and_keeps_what_there_is() {
    let cache = Cache::new();
    std::fs::create_dir_all(cache.file("")).unwrap();
    std::fs::write(cache.file("m.gguf.partial"), "abc").unwrap();
    // Bound and closed again: nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let words = ["cannot be reached", "HF_ENDPOINT"];
    cache.spec(&format!("http://127.0.0.1:{port}"), None, &["pull", "hf:o/r"]).refused(1, &words);
    assert_eq!(std::fs::read_to_string(cache.file("m.gguf.partial")).unwrap(), "abc");
}

#[test]
fn the_token_goes_to_the_hub_and_to_nobody_else() {
    let storage = Server::start(|request| Answer::file(&content(), request));
    let elsewhere = format!("http://localhost:{}/x", storage.port);
    let server = hub(move |_| Answer { headers: vec![("Location", elsewhere.clone())], ..Answer::new(302, "") });
    let cache = Cache::new();
    let path = cache.spec(&server.address(), Some("hf_secret"), &["pull", "hf:o/r@v1:m.gguf"]).ok();
    assert_eq!(path, cache.0.path().join("hf/o/r/v1/m.gguf"));
    let seen = server.seen.lock().unwrap();
    assert!(seen.iter().all(|request| request.authorization.as_deref() == Some("Bearer hf_secret")), "{seen:?}");
    assert!(seen[1].path == "/o/r/resolve/v1/m.gguf", "{seen:?}");
    let seen = storage.seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|request| request.authorization.is_none()), "{seen:?}");
}

#[test]
fn several_models_are_listed_and_long_lists_read_to_their_end() {
    let next = Arc::new(Mutex::new(String::new()));
    let link = Arc::clone(&next);
    let server = Server::start(move |request| {
        if !is_list(request) {
            return Answer::file(&content(), request);
        }
        if request.path.contains("cursor") {
            return Answer::new(200, json!([large("b/q8.gguf", &content())]).to_string());
        }
        let headers = vec![("Link", format!("<{}>; rel=\"next\"", link.lock().unwrap()))];
        Answer { headers, ..Answer::new(200, json!([large("a.gguf", &content())]).to_string()) }
    });
    *next.lock().unwrap() = format!("{}/api/models/o/r/tree/main?cursor=2", server.address());
    let cache = Cache::new();
    cache.pull(&server, "hf:o/r").refused(1, &["2 models", "hf:o/r:a.gguf, hf:o/r:b/q8.gguf"]);
    cache.pull(&server, "hf:o/r:c.gguf").refused(1, &["no such file", "b/q8.gguf"]);
    assert_eq!(cache.pull(&server, "hf:o/r:b/q8.gguf").ok(), cache.file("b/q8.gguf"));
}

#[test]
fn a_folder_of_safetensors_comes_with_what_describes_it_and_nothing_else() {
    let files = [("config.json", "{}"), ("model.safetensors", "weights"), ("tokenizer.json", "{}"), ("logo.png", "x")];
    let server = Server::start(move |request| {
        if is_list(request) {
            let mut entries: Vec<Value> = files.iter().map(|(name, text)| small(name, text.as_bytes())).collect();
            entries[1] = large("model.safetensors", b"weights");
            // Names that would leave the folder are no files.
            entries.push(small("../outside.safetensors", b"x"));
            return Answer::new(200, json!(entries).to_string());
        }
        let name = request.path.rsplit('/').next().unwrap();
        Answer::file(files.iter().find(|file| file.0 == name).unwrap().1.as_bytes(), request)
    });
    let cache = Cache::new();
    let folder = cache.pull(&server, "hf:o/r").ok();
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json"]);
}

#[test]
fn commands_take_a_repository_where_they_take_a_file() {
    let model = tiny::gguf(TinySpec::llama());
    let entry = large("tiny.gguf", &model);
    let server = Server::start(move |request| match is_list(request) {
        true => Answer::new(200, json!([entry]).to_string()),
        false => Answer::file(&model, request),
    });
    let cache = Cache::new();
    let words = ["generate", "--model", "hf:o/r", "--draft", "none", "-n", "3", "--ids", "1,2", "--output", "ids"];
    let first = cache.spec(&server.address(), None, &words);
    assert_eq!(first.code, Some(0), "{}", first.err);
    let again = cache.spec("http://127.0.0.1:1", None, &words);
    assert_eq!((again.code, again.out), (Some(0), first.out), "{}", again.err);
    let inspected = cache.spec("http://127.0.0.1:1", None, &["inspect", "--model", "hf:o/r"]);
    assert_eq!(inspected.code, Some(0), "{}", inspected.err);
}
