//! `spec serve`, from its start to its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

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

    /// The exit code behind a signal.
    fn end(mut self, signal: &str) -> Option<i32> {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
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
