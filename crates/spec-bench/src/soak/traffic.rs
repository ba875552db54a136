//! The kinds of clients that a soak sends: most ask well, and the rest do everything that clients do to servers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::arrivals::Chance;
use crate::asking::{Answered, CHAT, COMPLETIONS, Ending, Refusal, ask};
use crate::events::Events;
use crate::http::{Answer, Endpoint};

/// A refusal of a bad request comes at once: before any model is asked.
const BAD_ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// A request that never becomes whole is given up by a server that guards itself.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(60);
const BETWEEN_DRIPS: Duration = Duration::from_millis(250);
const SLOWLY_FOR: Duration = Duration::from_secs(4);

/// A kind of client.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// How often it comes, relative to the others.
    pub(super) weight: u32,
    pub(super) act: fn(&Endpoint, &mut Chance) -> Result<End>,
}

/// How a client's visit ended well; everything else is an error, and a fault of the server's.
#[derive(Debug)]
pub(super) enum End {
    /// With the request, to repeat it.
    Answered(Request, Box<Answered>),
    Refused(Refusal),
    /// The client left, or was sent away for its slowness.
    Left,
}

/// A request whose answer follows from it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) path: &'static str,
    pub(super) body: Value,
}

/// Which of [`KINDS`] fills a small cache when a few of it come at once.
pub(super) const LONG_ANSWER: usize = 0;

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "asks for a long answer", weight: 14, act: asks_for_much },
    Kind { name: "asks and reads", weight: 40, act: asks },
    Kind { name: "asks with a long prompt", weight: 5, act: asks_at_length },
    Kind { name: "leaves while it reads", weight: 14, act: leaves },
    Kind { name: "leaves before the answer", weight: 6, act: vanishes },
    Kind { name: "leaves within its request", weight: 4, act: breaks_off },
    Kind { name: "reads slowly", weight: 4, act: reads_slowly },
    Kind { name: "sends no JSON", weight: 4, act: |endpoint, chance| bad(endpoint, &pick(chance, &no_json())) },
    Kind {
        name: "sends wrong values",
        weight: 8,
        act: |endpoint, chance| bad(endpoint, &pick(chance, &wrong_values())),
    },
    Kind { name: "sends 10 MB", weight: 1, act: |endpoint, _| bad(endpoint, prompt_of(10_000_000).as_bytes()) },
    Kind { name: "sends too many tokens", weight: 2, act: |endpoint, _| bad(endpoint, prompt_of(600_000).as_bytes()) },
    Kind { name: "sends a schema bomb", weight: 1, act: schema_bomb },
    Kind { name: "has a wrong key or path", weight: 3, act: astray },
    Kind { name: "floods with headers", weight: 1, act: floods },
    Kind { name: "never ends its headers", weight: 1, act: |endpoint, _| drips(endpoint, &endpoint.head(CHAT, None)) },
    Kind { name: "never ends its body", weight: 1, act: drips_a_body },
];

/// A chat or a completion with settings of every sort; greedy or seeded, so that it can be asked again.
pub(super) fn request(chance: &mut Chance) -> Request {
    const SUBJECTS: [&str; 8] = [
        "a lost parcel",
        "two teapots",
        "the river at night",
        "a sorting function",
        "退货的规则",
        "prime numbers",
        "a b a b a b a b",
        "an invoice from May",
    ];
    let subject = SUBJECTS[chance.below(SUBJECTS.len())];
    let number = chance.below(1000);
    let mut body = json!({ "model": "any", "max_tokens": 4 + chance.below(40) });
    match chance.below(3) {
        0 => body["temperature"] = json!(0),
        1 => {
            body["temperature"] = json!(0.8);
            body["seed"] = json!(chance.below(1 << 20));
        }
        _ => {
            body["temperature"] = json!(1.1);
            body["top_p"] = json!(0.9);
            body["seed"] = json!(chance.below(1 << 20));
        }
    }
    match chance.below(8) {
        0 => body["stop"] = json!(["the", "。"]),
        1 => body["frequency_penalty"] = json!(0.7),
        2 => body["logit_bias"] = json!({ "30": -50 }),
        3 => body["presence_penalty"] = json!(0.5),
        _ => {}
    }
    match chance.below(6) {
        0 => body["speculation"] = json!({ "enabled": false }),
        1 => body["speculation"] = json!({ "draft_len": 1 + chance.below(6) }),
        2 => body["speculation"] = json!({ "drafter": "auto" }),
        _ => {}
    }
    let text = format!("({number}) Write about {subject}. Then write about {subject} again.");
    if chance.below(2) == 0 {
        body["prompt"] = json!(text);
        return Request { path: COMPLETIONS, body };
    }
    body["messages"] = json!([
        { "role": "system", "content": "You are brief and exact, and you answer every question that you are asked." },
        { "role": "user", "content": text },
    ]);
    if chance.below(6) == 0 {
        let schema = json!({
            "type": "object",
            "properties": { "mood": { "type": "string", "enum": ["good", "bad", "unknown"] } },
            "required": ["mood"],
            "additionalProperties": false,
        });
        body["response_format"] = json!({ "type": "json_schema", "json_schema": { "name": "mood", "schema": schema } });
    }
    Request { path: CHAT, body }
}

fn asks(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    send(endpoint, request(chance))
}

fn asks_at_length(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    let mut request = request(chance);
    // Some models have a token for every digit: this stays within four hundred.
    let words = 25 + chance.below(35);
    let text: String = (0..words).map(|at| format!("entry {} ", (at * 7919 + words) % 1009)).collect();
    match request.path {
        COMPLETIONS => request.body["prompt"] = json!(text),
        _ => request.body["messages"][1]["content"] = json!(text),
    }
    send(endpoint, request)
}

/// Two of them fill a small cache together.
fn asks_for_much(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    let mut request = request(chance);
    let body = request.body.as_object_mut().expect("a request's body is an object");
    for ends_early in ["stop", "response_format"] {
        body.remove(ends_early);
    }
    request.body["max_tokens"] = json!(300 + chance.below(60));
    send(endpoint, request)
}

fn send(endpoint: &Endpoint, request: Request) -> Result<End> {
    Ok(match ask(endpoint, request.path, &request.body)? {
        Ending::Answered(answered) => End::Answered(request, answered),
        Ending::Refused(refusal) => End::Refused(with_reason(refusal)?),
    })
}

/// A good request may be refused for want of room, with a reason and, when the queue is full, a time.
fn with_reason(refusal: Refusal) -> Result<Refusal> {
    ensure!(matches!(refusal.status, 429 | 503), "a good request got {}: {}", refusal.status, refusal.reason);
    ensure!(!refusal.reason.is_empty(), "refused with {} and no reason", refusal.status);
    ensure!(refusal.status != 429 || refusal.retry_after.is_some(), "429 without a time to come again");
    Ok(refusal)
}

fn begin(endpoint: &Endpoint, chance: &mut Chance) -> Result<Result<Answer, Refusal>> {
    let Request { path, mut body } = request(chance);
    body["stream"] = json!(true);
    body["max_tokens"] = json!(200);
    let answer = endpoint.send(path, Some(body.to_string().as_bytes()))?;
    if answer.status == 200 {
        return Ok(Ok(answer));
    }
    let status = answer.status;
    let whole = answer.whole()?;
    with_reason(Refusal { status, reason: whole.reason(), retry_after: whole.retry_after }).map(Err)
}

fn leaves(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    let events = 1 + chance.below(6);
    match begin(endpoint, chance)? {
        Err(refusal) => Ok(End::Refused(refusal)),
        Ok(answer) => {
            for event in Events::new(answer.body).take(events) {
                event.context("the stream broke off")?;
            }
            Ok(End::Left)
        }
    }
}

fn vanishes(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    let body = request(chance).body.to_string();
    let mut stream = endpoint.connect()?;
    stream.write_all(endpoint.head(CHAT, Some(body.len())).as_bytes())?;
    stream.write_all(body.as_bytes())?;
    std::thread::sleep(Duration::from_millis(chance.below(300) as u64));
    Ok(End::Left)
}

fn breaks_off(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    let body = request(chance).body.to_string();
    let mut stream = endpoint.connect()?;
    stream.write_all(endpoint.head(CHAT, Some(body.len())).as_bytes())?;
    stream.write_all(&body.as_bytes()[..body.len() / 2])?;
    stream.shutdown(Shutdown::Both)?;
    Ok(End::Left)
}

fn reads_slowly(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    match begin(endpoint, chance)? {
        Err(refusal) => Ok(End::Refused(refusal)),
        Ok(mut answer) => {
            let begun = Instant::now();
            let mut bytes = [0; 16];
            while begun.elapsed() < SLOWLY_FOR {
                // An end, or a break: a server may send away whom it would wait for.
                if !matches!(answer.body.read(&mut bytes), Ok(1..)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(40));
            }
            Ok(End::Left)
        }
    }
}

/// Sends what cannot be understood; it has to be refused with a reason, and soon.
fn bad(endpoint: &Endpoint, body: &[u8]) -> Result<End> {
    let begun = Instant::now();
    let answer = endpoint.send(CHAT, Some(body))?;
    let status = answer.status;
    let whole = answer.whole()?;
    let start = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
    client_error(status, &whole.reason(), begun).with_context(|| format!("sent {start}"))?;
    Ok(End::Refused(Refusal { status, reason: whole.reason(), retry_after: None }))
}

fn client_error(status: u16, reason: &str, begun: Instant) -> Result<()> {
    ensure!((400..500).contains(&status), "a bad request got {status}: {reason}");
    ensure!(!reason.is_empty(), "a bad request got {status} and no reason");
    ensure!(begun.elapsed() < BAD_ANSWERED_WITHIN, "a bad request got {status} after {:?}", begun.elapsed());
    Ok(())
}

fn pick(chance: &mut Chance, bodies: &[Vec<u8>]) -> Vec<u8> {
    bodies[chance.below(bodies.len())].clone()
}

fn no_json() -> Vec<Vec<u8>> {
    let nested = "[".repeat(200_000);
    [&b"{\"messages\":"[..], b"", b"null", b"hello", b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}"]
        .into_iter()
        .chain([nested.as_bytes()])
        .map(<[u8]>::to_vec)
        .collect()
}

fn wrong_values() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        json!({ "messages": 5 }),
        json!({ "messages": [] }),
        json!({ "messages": [{ "content": "x" }] }),
        json!({ "messages": [{ "role": "user", "content": [1, 2] }] }),
        json!([1, 2, 3]),
    ]
    .iter()
    .map(|body| body.to_string().into_bytes())
    .collect();
    for (field, value) in [
        ("max_tokens", "\"many\""),
        ("max_tokens", "-4"),
        ("max_tokens", "99999999999999999999999999"),
        ("temperature", "1e400"),
        ("temperature", "-1"),
        ("top_p", "7"),
        ("n", "100000"),
        ("seed", "\"x\""),
        ("stop", "{}"),
        ("logit_bias", "{\"a\":1}"),
        ("logit_bias", "{\"99999999\":1}"),
        ("response_format", "{\"type\":\"poem\"}"),
        ("speculation", "{\"drafter\":\"oracle\"}"),
        ("speculation", "{\"draft_len\":-1}"),
        ("no_such_field", "true"),
    ] {
        let body = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],\"{field}\":{value}}}");
        bodies.push(body.into_bytes());
    }
    bodies
}

fn prompt_of(bytes: usize) -> String {
    let text = "word ".repeat(bytes / 5);
    json!({ "messages": [{ "role": "user", "content": text }] }).to_string()
}

/// Small to send, and exponential to whom expands it: answered or refused, but soon.
fn schema_bomb(endpoint: &Endpoint, _: &mut Chance) -> Result<End> {
    let mut definitions = serde_json::Map::new();
    for level in 0..40 {
        let next = format!("#/$defs/l{}", level + 1);
        definitions.insert(
            format!("l{level}"),
            json!({ "anyOf": [{ "$ref": next }, { "type": "array", "items": { "$ref": next } }] }),
        );
    }
    definitions.insert("l40".to_owned(), json!({ "type": "string", "pattern": "(a{1,200}){1,200}" }));
    let schema = json!({ "$defs": definitions, "$ref": "#/$defs/l0" });
    let body = json!({
        "messages": [{ "role": "user", "content": "x" }],
        "max_tokens": 4,
        "response_format": { "type": "json_schema", "json_schema": { "name": "bomb", "schema": schema } },
    });
    let answer = endpoint.send(CHAT, Some(body.to_string().as_bytes()))?;
    let status = answer.status;
    let whole = answer.whole()?;
    ensure!(
        status == 200 || status == 503 || (400..500).contains(&status),
        "a schema got {status}: {}",
        whole.reason()
    );
    if status == 200 {
        return Ok(End::Left);
    }
    Ok(End::Refused(Refusal { status, reason: whole.reason(), retry_after: None }))
}

fn astray(endpoint: &Endpoint, chance: &mut Chance) -> Result<End> {
    let begun = Instant::now();
    let (answer, expected) = match chance.below(3) {
        0 => (endpoint.with_key("wrong").post(CHAT, &request(chance).body)?, 401),
        1 => (endpoint.get("/v1/no/such/thing")?, 404),
        _ => (endpoint.get(CHAT)?, 405),
    };
    client_error(answer.status, &format!("status {}", answer.status), begun)?;
    ensure!(answer.status == expected, "{expected} was due, and {} came", answer.status);
    Ok(End::Refused(Refusal { status: answer.status, reason: answer.reason(), retry_after: None }))
}

/// A connection that the server closes, or answers with a refusal.
fn floods(endpoint: &Endpoint, _: &mut Chance) -> Result<End> {
    let begun = Instant::now();
    let mut stream = endpoint.connect()?;
    let head = endpoint.head(CHAT, Some(2));
    let mut flood = head.trim_end_matches("\r\n").to_owned();
    for at in 0..2000 {
        flood.push_str(&format!("\r\nX-Flood-{at}: {}", "y".repeat(1000)));
    }
    flood.push_str("\r\n\r\n{}");
    // It may close before all of it is sent.
    let _ = stream.write_all(flood.as_bytes());
    match Answer::read(stream) {
        Err(_) => ensure!(begun.elapsed() < BAD_ANSWERED_WITHIN, "closed after {:?}", begun.elapsed()),
        Ok(answer) => client_error(answer.status, "of its status", begun)?,
    }
    Ok(End::Left)
}

fn drips_a_body(endpoint: &Endpoint, _: &mut Chance) -> Result<End> {
    let mut stream = endpoint.connect()?;
    stream.write_all(endpoint.head(CHAT, Some(100_000)).as_bytes())?;
    drip(stream, &"{\"messages\": ".bytes().chain(std::iter::repeat_n(b' ', 10_000)).collect::<Vec<u8>>())
}

fn drips(endpoint: &Endpoint, head: &str) -> Result<End> {
    let stream = endpoint.connect()?;
    let never_ending = head.trim_end_matches("\r\n").bytes().chain(std::iter::repeat_n(b'z', 10_000));
    drip(stream, &never_ending.collect::<Vec<u8>>())
}

/// Sends a byte now and then until the server gives up.
fn drip(mut stream: TcpStream, bytes: &[u8]) -> Result<End> {
    let begun = Instant::now();
    stream.set_read_timeout(Some(BETWEEN_DRIPS))?;
    let mut answer = Vec::new();
    for byte in bytes {
        let mut buffer = [0; 512];
        let closed = match stream.read(&mut buffer) {
            Ok(0) => true,
            Ok(read) => {
                answer.extend_from_slice(&buffer[..read]);
                false
            }
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        };
        if closed || stream.write_all(&[*byte]).is_err() {
            let status = String::from_utf8_lossy(&answer);
            ensure!(answer.is_empty() || status.starts_with("HTTP/1.1 4"), "it was answered with {status}");
            return Ok(End::Left);
        }
        if begun.elapsed() > GIVEN_UP_WITHIN {
            bail!("a request that never ends is still being waited for after {} s", GIVEN_UP_WITHIN.as_secs());
        }
    }
    bail!("the server took {} bytes at a byte each {BETWEEN_DRIPS:?}", bytes.len());
}

#[cfg(test)]
mod tests {
    use super::{KINDS, no_json, request, wrong_values};
    use crate::arrivals::Chance;
    use crate::asking::{CHAT, COMPLETIONS};

    #[test]
    fn every_request_can_be_asked_again() {
        let mut chance = Chance::new(4);
        let mut drawn = 0;
        for _ in 0..200 {
            let request = request(&mut chance);
            assert!(request.body["temperature"] == 0 || request.body["seed"].is_u64(), "{}", request.body);
            assert_eq!(request.path == CHAT, request.body["messages"].is_array(), "{}", request.body);
            assert_eq!(request.path == COMPLETIONS, request.body["prompt"].is_string(), "{}", request.body);
            drawn += usize::from(request.body["seed"].is_u64());
        }
        assert!((80..190).contains(&drawn), "{drawn}");
    }

    #[test]
    fn kinds_have_names_of_their_own_and_bad_bodies_are_bad_in_one_way() {
        for kind in KINDS {
            assert!(
                kind.weight > 0 && KINDS.iter().filter(|other| other.name == kind.name).count() == 1,
                "{}",
                kind.name
            );
        }
        let parsed = |body: &Vec<u8>| serde_json::from_slice::<serde_json::Value>(body);
        assert!(no_json().iter().all(|body| !parsed(body).is_ok_and(|value| value.is_object())));
        let valid = wrong_values().iter().filter(|body| parsed(body).is_ok()).count();
        // A number beyond all doubles is JSON that this parser refuses.
        assert_eq!(valid, wrong_values().len() - 1);
    }
}
