//! What fails, and what goes on.

use std::time::Duration;

use serde_json::json;

use crate::Setup;

#[test]
fn a_failing_pass_fails_its_request_and_no_other() {
    let server = Setup::default().start();
    let body = json!({ "prompt": "one two ", "max_tokens": 20, "temperature": 0 });
    let before = server.post("/v1/completions", &body).ok();
    server.target.fail_at(server.target.passes() + 2);
    let failed = server.post("/v1/completions", &body);
    assert_eq!((failed.status, &failed.json()["error"]["type"]), (503, &json!("server_error")));
    assert_eq!(server.post("/v1/completions", &body).ok()["choices"], before["choices"]);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn logits_that_are_no_numbers_fail_their_request_and_leave_the_others() {
    let server = Setup::default().start();
    let tokens = server.post("/tokenize", &json!({ "prompt": "x" })).ok();
    let spoilt = tokens["tokens"][0].as_u64().expect("a token");
    server.target.spoil(u32::try_from(spoilt).expect("an id"));
    // It does not say the token by itself.
    let body = |prompt: &str| json!({ "prompt": prompt, "max_tokens": 30, "temperature": 0, "logit_bias": { spoilt.to_string(): -100 } });
    let before = server.post("/v1/completions", &body("one two ")).ok();
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (0..3).map(|_| scope.spawn(|| server.post("/v1/completions", &body("one two ")).ok())).collect();
        let failed = server.post("/v1/completions", &body("one x"));
        assert_eq!((failed.status, &failed.json()["error"]["type"]), (500, &json!("server_error")));
        let message = failed.json()["error"]["message"].to_string();
        assert!(message.to_lowercase().contains("nan"), "{message}");
        for other in others {
            assert_eq!(other.join().expect("it ended")["choices"], before["choices"]);
        }
    });
    assert_eq!(server.get("/health").status, 200);
    assert!(server.comes_to_rest());
}

#[test]
fn report_169_a_device_that_fails_again_and_again_turns_health_red_until_it_works() {
    let server = Setup::default().start();
    let body = json!({ "prompt": "one ", "max_tokens": 5 });
    server.target.fail_in(0..usize::MAX);
    for _ in 0..3 {
        assert_eq!(server.post("/v1/completions", &body).status, 503);
    }
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("device lost")));
    assert_eq!(server.get("/ready").status, 503);
    server.target.fail_in(0..0);
    // One at a time is let through, to see whether it works again.
    assert_eq!(server.post("/v1/completions", &body).status, 200);
    assert!(server.comes_to_rest());
    assert_eq!([server.get("/health").status, server.get("/ready").status], [200, 200]);
}

#[test]
fn draining_waits_for_answers_and_not_for_idle_connections() {
    use std::io::{Read as _, Write as _};
    let mut server = Setup::default().start();
    let mut idle = server.connect();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    let mut answer = [0; 512];
    assert!(idle.read(&mut answer).expect("an answer") > 0);
    let mut busy = server.begin(&json!({ "prompt": "one ", "stream": true, "max_tokens": 150, "temperature": 0, "logit_bias": { "107": -100 } }));
    server.stop();
    let mut rest = String::new();
    busy.read_to_string(&mut rest).expect("the answer goes on");
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"), "{rest}");
    assert!(server.ended(Duration::from_secs(5)));
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn a_connection_too_many_is_told_so_and_one_that_ends_makes_room() {
    let options = spec_server::ServerOptions { max_connections: 2, ..Default::default() };
    let server = Setup { options, ..Setup::default() }.start();
    let idle = [server.connect(), server.connect()];
    // A long body is heard to its end: a client that is still sending when the connection is closed would not see why.
    for prompt in ["one ".to_owned(), "one ".repeat(1 << 18)] {
        let refusal = server.post("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 3 }));
        assert_eq!((refusal.status, &refusal.json()["error"]["code"]), (503, &json!("too_many_connections")));
        assert!(
            refusal.head.contains("retry-after: 1") && refusal.head.contains("connection: close"),
            "{}",
            refusal.head
        );
    }
    drop(idle);
    assert!(server.comes_to_rest());
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "one ", "max_tokens": 3 })).status, 200);
}

#[test]
fn a_panic_is_an_answer_and_the_server_goes_on() {
    let server = Setup::default().start();
    let body = |text: &str| json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 3 });
    let failed = server.post("/v1/chat/completions", &body("panic, please"));
    assert_eq!((failed.status, &failed.json()["error"]["code"]), (500, &json!("internal_error")));
    assert_eq!(server.post("/v1/chat/completions", &body("hello")).status, 200);
}
