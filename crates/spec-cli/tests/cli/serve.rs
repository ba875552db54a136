//! `spec serve`, from its start to its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spec_testing::tiny::{self, TinySpec};

use crate::Files;

/// A server that ends with the test.
struct Serving {
    process: Child,
    address: String,
}

impl Serving {
    fn start(files: &Files, line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = files.command(&words);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let mut first = String::new();
        let out = process.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut first).expect("a line");
        let address = first.trim_end().split_once("http://").unwrap_or_else(|| panic!("{first}")).1.to_owned();
        Self { process, address }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut socket = TcpStream::connect(&self.address).expect("it listens");
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nConnection: close\r\n");
        write!(socket, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
        let mut reply = String::new();
        socket.read_to_string(&mut reply).expect("an answer");
        let (_, body) = reply.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}"))
    }

    fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
    }

    /// The exit code behind a signal.
    fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn report_135_the_server_answers_as_the_command_line_does() {
    let files = Files::new();
    let serving = Serving::start(&files, "serve --model target.gguf --draft ngram --port 0 --max-batch 2");
    let ids: Vec<u32> = (0..60).map(|i| 65 + i % 7).collect();
    let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    for (temperature, seed) in [(0.0, 1), (0.8, 7)] {
        let line = format!(
            "generate --model target.gguf --draft none --ids {list} -n 30 --temperature {temperature} --seed {seed} --logprobs 1 --json"
        );
        let alone = files.spec(&line).json();
        let body = json!({ "prompt": ids, "max_tokens": 30, "temperature": temperature, "seed": seed, "logprobs": 1,
            "speculation": { "draft_len": 3 } });
        let served = serving.post("/v1/completions", &body);
        assert_eq!(served["choices"][0]["text"], alone["text"], "{served}");
        let logprobs = alone["logprobs"].as_array().expect("a list").iter().map(|token| token["logprob"].clone());
        assert_eq!(served["choices"][0]["logprobs"]["token_logprobs"], Value::Array(logprobs.collect()));
        if temperature == 0.0 {
            assert!(served["timings"]["draft_n"].as_u64() > Some(0), "{served}");
        }
    }
    assert_eq!(serving.end("-TERM"), Some(0));
}

#[test]
fn what_cannot_be_served_is_refused_in_a_line() {
    let files = Files::new();
    let serving = Serving::start(&files, "serve --model target.gguf --port 0 --served-model-name tiny");
    let port = serving.address.rsplit(':').next().expect("a port");
    files.spec(&format!("serve --model target.gguf --port {port}")).refused(1, &["cannot listen", port, "--port"]);
    std::fs::write(files.path("keys.txt"), "# none\n").expect("a file");
    files.spec("serve --model target.gguf --port 0 --api-keys keys.txt").refused(1, &["keys.txt", "no key"]);
    files.spec("serve --model target.gguf --port 0 --context 999999").refused(2, &["--context 999999", "trained"]);
    files.spec("serve --model target.gguf --port 0 --max-tokens 0").refused(2, &["--max-tokens 0"]);
    assert_eq!(serving.end("-INT"), Some(0));
}

#[test]
fn a_second_signal_ends_the_server_without_waiting_for_answers() {
    let files = Files::new();
    for signals in [["-TERM", "-TERM"], ["-INT", "-TERM"]] {
        let mut serving = Serving::start(&files, "serve --model target.gguf --port 0");
        // A request whose body does not come is under way for half a minute. The server says when it waits for it.
        let mut socket = TcpStream::connect(&serving.address).expect("it listens");
        let head =
            "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n";
        write!(socket, "{head}Content-Length: 100\r\n\r\n").expect("sent");
        let mut goes_on = [0; 12];
        socket.read_exact(&mut goes_on).expect("an answer");
        assert_eq!(&goes_on, b"HTTP/1.1 100");
        serving.signal(signals[0]);
        while TcpStream::connect(&serving.address).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        assert!(serving.process.try_wait().expect("a state").is_none(), "it waits for the answer");
        let begun = Instant::now();
        assert_eq!(serving.end(signals[1]), Some(1));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[test]
fn report_125_the_plan_of_memory_counts_both_models_for_every_answer_under_way() {
    let files = Files::new();
    let spec = TinySpec { context: 65_536, ..TinySpec::llama() };
    std::fs::write(files.path("wide.gguf"), tiny::gguf(spec)).expect("a file");
    std::fs::write(files.path("wide-draft.gguf"), tiny::gguf(TinySpec { layers: 1, ..spec })).expect("a file");
    // Megabytes of keys and values that the refusal lists.
    let planned = |rest: &str| -> f64 {
        let line = format!("serve --model wide.gguf --port 0 --context 50000 --mem-limit 1MB {rest}");
        let ran = files.spec(&line);
        ran.refused_after_a_plan();
        let said = ran.err();
        let lines = said.lines().filter(|line| line.trim().starts_with("keys and values"));
        let bytes = lines.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number: f64 = words[words.len() - 2].parse().unwrap_or_else(|_| panic!("{said}"));
            number * if words[words.len() - 1] == "GB" { 1000.0 } else { 1.0 }
        });
        bytes.sum()
    };
    let draft = "--draft model --draft-model wide-draft.gguf";
    let (one, four) = (planned(&format!("--parallel 1 {draft}")), planned(&format!("--parallel 4 {draft}")));
    assert!((four / one - 4.0).abs() < 0.1, "{one} MB for one, {four} MB for four");
    let alone = planned("--parallel 4 --draft none");
    assert!((four / alone - 1.5).abs() < 0.1, "{alone} MB for two layers, {four} MB with the draft's one");
}

#[test]
fn report_126_a_draft_has_the_whole_context_of_every_answer_under_way() {
    let files = Files::new();
    let serving = Serving::start(
        &files,
        "serve --model target.gguf --draft-model draft.gguf --draft model --port 0 --parallel 4 --context 256",
    );
    // The vocabulary's last, which ends answers.
    const END: &str = "330";
    let body = |seed: usize| {
        json!({ "prompt": (0..13).map(|at| 65 + (at * 5 + seed) % 20).collect::<Vec<_>>(), "max_tokens": 200,
            "temperature": 0, "logit_bias": { END: -100 }, "speculation": { "draft_len": 3 } })
    };
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let (serving, body) = (&serving, &body);
        let asked: Vec<_> =
            (0..4).map(|seed| scope.spawn(move || serving.post("/v1/completions", &body(seed)))).collect();
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    for (seed, answer) in answers.iter().enumerate() {
        assert_eq!(answer["usage"]["completion_tokens"], 200, "{answer}");
        // Three a round for the 51 positions that a fourth of the context leaves would be half as many.
        assert!(answer["speculation"]["drafted"].as_u64() > Some(300), "{}", answer["speculation"]);
        let mut plain = body(seed);
        plain["speculation"] = json!({ "enabled": false });
        assert_eq!(serving.post("/v1/completions", &plain)["choices"], answer["choices"]);
    }
    assert_eq!(serving.end("-TERM"), Some(0));
}
