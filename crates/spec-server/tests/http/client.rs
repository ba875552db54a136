//! HTTP by hand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::Running;

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The answer, which is one.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The chunks of a stream that ends in order.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let mut events: Vec<&str> = self
            .text()
            .split("\n\n")
            .filter(|line| !line.is_empty())
            .map(|line| line.strip_prefix("data: ").expect("an event"))
            .collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{}", self.text());
        events.into_iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let rest = &bytes[at + 4..];
        let body = if head.contains("transfer-encoding: chunked") { joined(rest) } else { rest.to_vec() };
        Self { status, head, body }
    }
}

fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..at]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size @ 1..) = size else { break };
        body.extend_from_slice(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 4 + size..];
    }
    body
}

impl Running {
    pub(crate) fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        socket
    }

    /// A connection that takes in little while nobody reads.
    pub(crate) fn connect_narrow(&self) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let socket = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(4 << 10)?;
            socket.connect(self.address).await?.into_std()
        });
        let socket = socket.expect("it listens");
        socket.set_nonblocking(false).expect("a socket that waits");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        socket
    }

    /// Sends bytes as they are and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Reply {
        let mut socket = self.connect();
        // What refuses early reads no more.
        let _ = socket.write_all(bytes);
        let mut reply = Vec::new();
        let _ = socket.read_to_end(&mut reply);
        Reply::parse(&reply)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    pub(crate) fn post_bytes(&self, path: &str, body: &[u8]) -> Reply {
        self.raw(&[head(path, body.len(), "Connection: close\r\n").as_bytes(), body].concat())
    }

    /// A stream whose first part has been read.
    pub(crate) fn begin(&self, body: &Value) -> TcpStream {
        let mut socket = ask(self.connect(), "/v1/completions", body);
        let mut first = [0; 256];
        assert!(socket.read(&mut first).expect("an answer") > 0);
        assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
        socket
    }
}

/// Sends a request; the server closes the connection behind its answer.
pub(crate) fn ask(mut socket: TcpStream, path: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    socket.write_all(head(path, body.len(), "Connection: close\r\n").as_bytes()).expect("sent");
    socket.write_all(body.as_bytes()).expect("sent");
    socket
}

pub(crate) fn head(path: &str, length: usize, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n"
    )
}
