//! A server whose model is still to come.

use std::time::Duration;

use serde_json::{Value, json};
use spec_server::{Keys, ServerError, ServerOptions};

use crate::{Running, Setup};

fn asked(server: &Running) -> [(u16, Value); 2] {
    ["/health", "/ready"].map(|path| {
        let reply = server.get(path);
        (reply.status, reply.json())
    })
}

#[test]
fn who_asks_before_the_model_is_there_is_told_how_far_it_has_come() {
    let (server, loading, parts) = Setup::default().listen();
    let state = |progress: Value| json!({ "status": "loading", "progress": progress, "ready": false, "running": 0, "queued": 0 });
    assert_eq!(asked(&server), [(503, state(Value::Null)), (503, state(Value::Null))]);
    // The work of a slow disk: a part now and then, while clients come and ask.
    let loader = std::thread::spawn(move || {
        for part in 1..=4 {
            loading.progress(part, 5);
            std::thread::sleep(Duration::from_millis(150));
        }
        parts.fulfil(loading);
    });
    // No end token: three tokens are three.
    let body = json!({ "prompt": "one ", "max_tokens": 3, "logit_bias": { "107": -100 } });
    let chat = json!({ "messages": [{ "role": "user", "content": "x" }] });
    let mut shares = Vec::new();
    let mut refused = 0;
    loop {
        let health = server.get("/health");
        if health.status == 200 {
            break;
        }
        assert_eq!((health.status, &health.json()["status"]), (503, &json!("loading")));
        assert!(health.head.contains("retry-after: "), "{}", health.head);
        shares.extend(health.json()["progress"].as_f64());
        for reply in [
            server.post("/v1/completions", &body),
            server.post("/v1/chat/completions", &chat),
            server.post("/tokenize", &json!({ "prompt": "a" })),
            server.post("/detokenize", &json!({ "tokens": [1] })),
            server.get("/v1/models"),
        ] {
            // It may have come between the two requests.
            if reply.status == 200 {
                continue;
            }
            let error = reply.json()["error"].clone();
            assert_eq!(
                (reply.status, &error["code"], &error["type"]),
                (503, &json!("loading"), &json!("server_error"))
            );
            assert!(reply.head.contains("retry-after: "), "{}", reply.head);
            refused += 1;
        }
        for path in ["/", "/metrics", "/openapi.json"] {
            assert_eq!(server.get(path).status, 200, "{path}");
        }
    }
    loader.join().expect("it is loaded");
    assert!(refused > 4, "{refused} were refused");
    assert!(shares.is_sorted() && shares.first() < shares.last(), "{shares:?}");
    assert_eq!(asked(&server).map(|(status, _)| status), [200, 200]);
    assert_eq!(server.post("/v1/completions", &body).ok()["usage"]["completion_tokens"], 3);
}

#[test]
fn keys_are_asked_for_before_the_model_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys");
    std::fs::write(&file, "secret-key\n").expect("a file");
    let options = ServerOptions { keys: Some(Keys::read(&file).expect("keys")), ..ServerOptions::default() };
    let (server, loading, parts) = Setup { options, ..Setup::default() }.listen();
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "a" })).status, 401);
    assert_eq!(server.get("/ready").status, 503);
    parts.fulfil(loading);
    assert_eq!(server.get("/ready").status, 200);
}

#[test]
fn a_model_that_does_not_come_ends_the_server_and_so_does_who_stops_it() {
    let (mut server, loading, _) = Setup::default().listen();
    assert_eq!(server.get("/health").status, 503);
    drop(loading);
    assert!(server.ended(Duration::from_secs(5)));
    assert!(matches!(server.outcome(), Err(ServerError::NotLoaded)));

    let (mut server, loading, _) = Setup::default().listen();
    assert_eq!(server.get("/health").status, 503);
    server.stop();
    assert!(server.ended(Duration::from_secs(5)), "it waits for no model");
    assert!(server.outcome().is_ok());
    drop(loading);
}
