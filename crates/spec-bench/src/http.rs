//! As much of HTTP/1.1 as measuring a server needs: a connection for each request, which shows what a new client meets, and
//! bytes as they come, since their times are what is measured.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Of a header, its lines, and a chunk's length: what is longer comes from no server that is measured here.
const LONGEST_LINE: u64 = 64 * 1024;

/// A server on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// Sent as a bearer's, where there is one.
    pub(crate) key: Option<String>,
    /// How long one reading or writing may take.
    pub(crate) patience: Duration,
}

/// The head of an answer, and its body still to be read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: BufReader<Body>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// Seconds after which a refused client may come again.
    pub(crate) retry_after: Option<u64>,
}

impl Endpoint {
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, self.patience)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The lines before a body of `length` bytes; without one, of a GET.
    pub(crate) fn head(&self, path: &str, length: Option<usize>) -> String {
        let mut head = format!(
            "{} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            if length.is_some() { "POST" } else { "GET" },
            self.address
        );
        if let Some(key) = &self.key {
            head.push_str(&format!("Authorization: Bearer {key}\r\n"));
        }
        if let Some(length) = length {
            head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"));
        }
        head + "\r\n"
    }

    /// Sends a request and reads the head of its answer.
    pub(crate) fn send(&self, path: &str, body: Option<&[u8]>) -> Result<Answer> {
        let mut stream = self.connect().with_context(|| format!("{} takes no connection", self.address))?;
        let sent = stream
            .write_all(self.head(path, body.map(<[u8]>::len)).as_bytes())
            .and_then(|()| stream.write_all(body.unwrap_or_default()));
        // A server that refuses a body early may close before it has read all of it; its answer is there nevertheless.
        match (sent, Answer::read(stream)) {
            (_, Ok(answer)) => Ok(answer),
            (Err(error), Err(_)) => Err(error).with_context(|| format!("{path}: the request cannot be sent")),
            (Ok(()), Err(error)) => Err(error).with_context(|| path.to_owned()),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Whole> {
        self.send(path, None)?.whole()
    }

    pub(crate) fn post(&self, path: &str, body: &serde_json::Value) -> Result<Whole> {
        self.send(path, Some(body.to_string().as_bytes()))?.whole()
    }
}

impl Answer {
    /// Reads the head of an answer.
    ///
    /// # Errors
    /// The connection ends or stays silent, or what comes is no HTTP.
    pub(crate) fn read(stream: TcpStream) -> Result<Self> {
        Self::parse(Source::Socket(stream))
    }

    fn parse(source: Source) -> Result<Self> {
        let mut reader = BufReader::new(source);
        let first = line(&mut reader)?;
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let status: u16 = status.with_context(|| format!("`{first}` is no HTTP answer"))?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut reader)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').with_context(|| format!("`{line}` is no header"))?;
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let left = if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            Left::Chunks { of_this: 0, begun: false }
        } else if let Some(length) = header("content-length") {
            Left::Bytes(length.parse().with_context(|| format!("a length of `{length}` bytes"))?)
        } else {
            Left::Everything
        };
        Ok(Self { status, headers, body: BufReader::new(Body { reader, left }) })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn whole(mut self) -> Result<Whole> {
        let retry_after = self.header("retry-after").and_then(|seconds| seconds.parse().ok());
        let mut text = String::new();
        self.body.read_to_string(&mut text).context("the answer broke off")?;
        Ok(Whole { status: self.status, text, retry_after })
    }
}

impl Whole {
    /// The words of an error of OpenAI's form, else the text.
    pub(crate) fn reason(&self) -> String {
        let error: Option<serde_json::Value> = serde_json::from_str(&self.text).ok();
        let message = error.as_ref().and_then(|error| error["error"]["message"].as_str());
        message.unwrap_or(self.text.trim()).to_owned()
    }
}

/// Where bytes come from: the network, or a test's text.
enum Source {
    Socket(TcpStream),
    #[cfg(test)]
    Text(io::Cursor<Vec<u8>>),
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.read(into),
            #[cfg(test)]
            Self::Text(text) => text.read(into),
        }
    }
}

/// A body, freed of its framing; it ends early with an error when the connection does.
pub(crate) struct Body {
    reader: BufReader<Source>,
    left: Left,
}

enum Left {
    Bytes(u64),
    Chunks { of_this: u64, begun: bool },
    Everything,
    Nothing,
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Left::Chunks { of_this: 0, begun } = self.left {
            if begun {
                // The line's end behind a chunk's bytes.
                line(&mut self.reader).map_err(io::Error::other)?;
            }
            let size = line(&mut self.reader).map_err(io::Error::other)?;
            let digits = size.split(';').next().unwrap_or_default().trim();
            let of_this = u64::from_str_radix(digits, 16)
                .map_err(|_| io::Error::other(format!("`{size}` is no length of a chunk")))?;
            self.left = if of_this == 0 { Left::Nothing } else { Left::Chunks { of_this, begun: true } };
        }
        let most = match self.left {
            Left::Bytes(left) | Left::Chunks { of_this: left, .. } => {
                into.len().min(usize::try_from(left).unwrap_or(usize::MAX))
            }
            Left::Everything => into.len(),
            Left::Nothing => 0,
        };
        if most == 0 {
            return Ok(0);
        }
        let read = self.reader.read(&mut into[..most])?;
        match &mut self.left {
            Left::Bytes(left) | Left::Chunks { of_this: left, .. } => {
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= read as u64;
            }
            Left::Everything | Left::Nothing => {}
        }
        Ok(read)
    }
}

/// A line without its end.
fn line(reader: &mut impl BufRead) -> Result<String> {
    let mut bytes = Vec::new();
    reader.take(LONGEST_LINE).read_until(b'\n', &mut bytes).context("no answer came")?;
    match bytes.pop() {
        None => bail!("the connection was closed before an answer"),
        Some(b'\n') => {}
        Some(_) => bail!("the connection was closed within a line"),
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).context("a line of the answer is no text")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Answer, Endpoint, Source};
    use std::io::{Cursor, Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    /// The answer that these bytes are.
    pub(crate) fn answer(text: &str) -> anyhow::Result<Answer> {
        Answer::parse(Source::Text(Cursor::new(text.as_bytes().to_vec())))
    }

    /// A server on this machine that answers every request with what `answer` makes of its body, until the test ends.
    pub(crate) fn scripted(answer: impl Fn(&str) -> String + Send + 'static) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = Vec::new();
                let mut buffer = [0; 4096];
                let body = loop {
                    let read = stream.read(&mut buffer).unwrap();
                    asked.extend_from_slice(&buffer[..read]);
                    let text = String::from_utf8_lossy(&asked).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                    if length.is_none_or(|length| body.len() >= length.parse().unwrap()) {
                        break body.to_owned();
                    }
                };
                stream.write_all(answer(&body).as_bytes()).unwrap();
            }
        });
        Endpoint { address, key: None, patience: Duration::from_secs(10) }
    }

    /// A streamed answer with this text, its words a token each, and drafts or none.
    pub(crate) fn streamed(text: &str, drafted: usize) -> String {
        let tokens = text.split_whitespace().count();
        let body = format!(
            "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
            serde_json::json!({
                "choices": [{ "delta": { "content": text }, "finish_reason": "stop" }],
                "speculation": { "drafted": drafted, "by_position": [{ "drafted": drafted, "accepted": drafted / 2 }] },
            }),
            serde_json::json!({ "choices": [], "usage": { "prompt_tokens": 9, "completion_tokens": tokens } }),
        );
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn a_request_arrives_whole_and_its_answer_too() {
        let endpoint = scripted(|body| format!("HTTP/1.1 200 OK\r\n\r\nasked {body}"));
        assert_eq!(endpoint.post("/x", &serde_json::json!({ "a": "é" })).unwrap().text, r#"asked {"a":"é"}"#);
        assert_eq!(endpoint.get("/x").unwrap().text, "asked ");
    }

    #[test]
    fn a_body_ends_by_its_length_by_its_chunks_or_with_the_connection() {
        let cases = [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellobeyond",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\nhello",
        ];
        for case in cases {
            let whole = answer(case).unwrap().whole().unwrap();
            assert_eq!((whole.status, whole.text.as_str()), (200, "hello"), "{case}");
        }
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error_and_no_short_answer() {
        for case in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        ] {
            let mut text = String::new();
            assert!(answer(case).unwrap().body.read_to_string(&mut text).is_err(), "{case} gave {text:?}");
        }
        for case in ["", "HTTP/1.1 200", "SMTP ready\r\n", "HTTP/1.1 200 OK\r\nno header\r\n\r\n"] {
            assert!(answer(case).is_err(), "{case:?}");
        }
    }

    #[test]
    fn a_refusal_gives_its_reason_and_when_to_come_again() {
        let body = r#"{"error":{"message":"the queue is full","type":"overloaded"}}"#;
        let text = format!("HTTP/1.1 429 No\r\nRetry-After: 2\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let whole = answer(&text).unwrap().whole().unwrap();
        assert_eq!((whole.retry_after, whole.reason().as_str()), (Some(2), "the queue is full"));
    }
}
