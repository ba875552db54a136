//! What answers are, however they are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};
use spec_runtime::{RoundObserver, RoundReport};
use spec_server::ServerOptions;

use crate::Setup;

const WORDS: &str = "one two one two one two ";

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

fn plain(body: &Value) -> Value {
    with(body.clone(), &json!({ "speculation": { "enabled": false } }))
}

fn drafted(answer: &Value) -> u64 {
    answer["timings"]["draft_n"].as_u64().expect("a number")
}

#[test]
fn report_187_speculation_shows_in_the_timings_and_leaves_the_text_as_it_is() {
    let server = Setup::default().start();
    for more in [
        json!({ "temperature": 0 }),
        json!({ "temperature": 1, "seed": 7 }),
        json!({ "temperature": 0, "presence_penalty": 0.5, "frequency_penalty": 0.2 }),
        json!({ "temperature": 0, "stop": ["ab", "~"], "logit_bias": { "3": 1.5 } }),
    ] {
        let body = with(json!({ "prompt": WORDS, "max_tokens": 150 }), &more);
        let speculative = server.post("/v1/completions", &body).ok();
        let alone = server.post("/v1/completions", &plain(&body)).ok();
        assert_eq!(speculative["choices"], alone["choices"], "{body}");
        assert_eq!(drafted(&alone), 0);
        assert_eq!([&alone["speculation"]["drafter"], &alone["speculation"]["draft_len"]], [&json!("none"), &json!(0)]);
        assert_eq!(speculative["timings"]["draft_n"], speculative["speculation"]["drafted"]);
        if more == json!({ "temperature": 0 }) {
            assert!(
                drafted(&speculative) > 0 && speculative["timings"]["draft_n_accepted"].as_u64() > Some(0),
                "{speculative}"
            );
        }
    }
}

#[test]
fn a_lossy_answer_says_what_it_forgave_and_keeps_its_budget() {
    let server = Setup::default().start();
    let ask = |speculation: Value| {
        // Three tokens in random order: there is always something to copy, and it is often wrong.
        let bias = json!({ "3": 30, "4": 30, "5": 30 });
        let body =
            json!({ "prompt": WORDS, "max_tokens": 120, "seed": 7, "logit_bias": bias, "speculation": speculation });
        server.post("/v1/completions", &body).ok()
    };
    // With this tolerance every proposal stands.
    let lossy = |budget: Option<f64>| ask(json!({ "rule": "epsilon:1", "draft_len": 4, "loss_budget": budget }));
    let spent = |answer: &Value| answer["speculation"]["forgiven"]["log_ratio"].as_f64().expect("a number");
    let (exact, free) = (ask(json!({ "rule": "rejection", "draft_len": 4 })), lossy(None));
    assert!(drafted(&exact) > 0 && spent(&exact) == 0.0, "{exact}");
    assert!(spent(&free) > 1.0 && free["choices"] != exact["choices"], "{free}");
    let held = lossy(Some(spent(&free) / 2.0));
    assert!(spent(&held) > 0.0 && spent(&held) <= spent(&free) / 2.0, "{held}");
    assert_eq!(lossy(Some(0.0))["choices"], exact["choices"]);
    // What was asked for comes back as it was asked.
    assert_eq!(
        (&held["speculation"]["rule"], &exact["speculation"]["rule"]),
        (&json!("epsilon:1"), &json!("rejection"))
    );
    assert_eq!(held["speculation"]["loss_budget"], spent(&free) / 2.0);
}

#[test]
fn a_seed_comes_back_as_requests_give_it() {
    let server = Setup::default().start();
    for seed in [-1, 7, i64::MIN] {
        let mut body = json!({ "prompt": WORDS, "max_tokens": 20, "temperature": 1, "seed": seed });
        let answer = server.post("/v1/completions", &body).ok();
        assert_eq!(answer["speculation"]["seed"], seed);
        body["seed"] = answer["speculation"]["seed"].clone();
        assert_eq!(server.post("/v1/completions", &body).ok()["choices"], answer["choices"]);
    }
}

#[test]
fn report_19_concurrent_seeds_give_what_each_gives_alone() {
    let server = Setup::default().start();
    let body = |seed: i64| json!({ "prompt": WORDS, "max_tokens": 80, "temperature": 1, "seed": seed });
    let alone: Vec<Value> =
        (-4..4).map(|seed| server.post("/v1/completions", &body(seed)).ok()["choices"].clone()).collect();
    assert!(alone.windows(2).all(|two| two[0] != two[1]), "seeds tell answers apart");
    std::thread::scope(|scope| {
        let server = &server;
        let asked: Vec<_> =
            (-4..4).map(|seed| scope.spawn(move || server.post("/v1/completions", &body(seed)).ok())).collect();
        for (asked, alone) in asked.into_iter().zip(&alone) {
            assert_eq!(&asked.join().expect("an answer")["choices"], alone);
        }
    });
}

#[test]
fn report_22_json_holds_while_it_is_drafted() {
    let server = Setup::default().start();
    let schema = json!({ "type": "object", "properties": { "name": { "const": "你好 🎉" }, "names": { "type": "array", "items": { "const": "name" }, "minItems": 3, "maxItems": 3 } },
        "required": ["name", "names"], "additionalProperties": false });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "strict": true, "schema": schema } });
    let body = json!({ "messages": [{ "role": "user", "content": "x" }], "temperature": 0, "response_format": format });
    let answer = server.post("/v1/chat/completions", &body).ok();
    let content = answer["choices"][0]["message"]["content"].as_str().expect("a text");
    let parsed: Value = serde_json::from_str(content).expect("JSON");
    assert_eq!(parsed, json!({ "name": "你好 🎉", "names": ["name", "name", "name"] }));
    assert!(drafted(&answer) > 0);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(server.post("/v1/chat/completions", &plain(&body)).ok()["choices"], answer["choices"]);
}

#[test]
fn report_54_log_probabilities_are_those_without_drafts() {
    let server = Setup::default().start();
    let body = json!({ "prompt": WORDS, "max_tokens": 60, "temperature": 0, "logprobs": 3 });
    let speculative = server.post("/v1/completions", &body).ok();
    let alone = server.post("/v1/completions", &plain(&body)).ok();
    assert!(drafted(&speculative) > 0);
    let logprobs = &speculative["choices"][0]["logprobs"];
    assert_eq!(logprobs, &alone["choices"][0]["logprobs"]);
    let values = logprobs["token_logprobs"].as_array().expect("a list");
    assert!(
        values.len() == 60 && values.iter().all(|value| value.as_f64().is_some_and(|value| value < 0.0)),
        "{logprobs}"
    );
}

#[test]
fn report_135_chat_reports_log_probabilities_with_drafts() {
    let server = Setup::default().start();
    let body = json!({ "messages": [{ "role": "user", "content": WORDS }], "max_completion_tokens": 40, "temperature": 0,
        "logprobs": true, "top_logprobs": 2 });
    let answer = server.post("/v1/chat/completions", &body).ok();
    let content = answer["choices"][0]["logprobs"]["content"].as_array().expect("a list").clone();
    assert_eq!(content.len() as u64, answer["usage"]["completion_tokens"].as_u64().expect("a number"));
    for token in &content {
        assert_eq!(token["top_logprobs"][0]["logprob"], token["logprob"], "greedy takes the first: {token}");
    }
}

#[test]
fn report_39_no_token_is_no_token_and_less_is_refused() {
    let server = Setup::default().start();
    let body = |max: i64| json!({ "prompt": "a", "max_tokens": max });
    let answer = server.post("/v1/completions", &body(0)).ok();
    assert_eq!((&answer["choices"][0]["text"], &answer["usage"]["completion_tokens"]), (&json!(""), &json!(0)));
    let refusal = server.post("/v1/completions", &body(-1));
    assert_eq!((refusal.status, &refusal.json()["error"]["param"]), (400, &json!("max_tokens")));
}

#[test]
fn report_37_drafts_stay_within_the_context() {
    let server = Setup { context: 64, ..Setup::default() }.start();
    let prompt = "Hello ".repeat(9);
    let answer = server.post("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 10, "temperature": 0 })).ok();
    assert_eq!(answer["usage"]["total_tokens"], 64);
    let refusal = server.post("/v1/completions", &json!({ "prompt": prompt, "max_tokens": 11 }));
    let message = refusal.json()["error"]["message"].to_string();
    assert_eq!(refusal.status, 400);
    assert!(["54", "11", "64"].iter().all(|number| message.contains(number)), "{message}");
}

#[test]
fn report_121_an_answer_without_a_limit_gets_the_servers() {
    let server = Setup { max_tokens: 30, ..Setup::default() }.start();
    let body = json!({ "prompt": WORDS, "temperature": 0, "logit_bias": { "107": -100 } });
    let answer = server.post("/v1/completions", &body).ok();
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &answer["choices"][0]["finish_reason"]),
        (&json!(30), &json!("length"))
    );
}

#[test]
fn several_prompts_and_choices_come_in_order_and_are_told_apart_by_the_seed() {
    let server = Setup::default().start();
    let body = json!({ "prompt": ["one ", "two "], "n": 2, "max_tokens": 30, "temperature": 1, "seed": 3 });
    let answer = server.post("/v1/completions", &body).ok();
    let choices = answer["choices"].as_array().expect("a list");
    assert_eq!(
        choices.iter().map(|choice| choice["index"].as_u64()).collect::<Vec<_>>(),
        (0..4).map(Some).collect::<Vec<_>>()
    );
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    assert_eq!(answer["usage"]["prompt_tokens"], 8);
    assert_eq!(server.post("/v1/completions", &body).ok()["choices"], answer["choices"]);
    let first = with(body, &json!({ "prompt": "one ", "n": 1 }));
    assert_eq!(server.post("/v1/completions", &first).ok()["choices"][0]["text"], choices[0]["text"]);
}

#[test]
fn texts_become_tokens_and_texts_again() {
    let server = Setup::default().start();
    let tokens = server.post("/tokenize", &json!({ "prompt": "é 你好 🎉" })).ok();
    assert_eq!(tokens["count"], 14);
    let text = server.post("/detokenize", &json!({ "tokens": tokens["tokens"] })).ok();
    assert_eq!(text["prompt"], "é 你好 🎉");
    let by_ids = json!({ "prompt": tokens["tokens"], "max_tokens": 9, "temperature": 0 });
    let by_text = json!({ "prompt": "é 你好 🎉", "max_tokens": 9, "temperature": 0 });
    let ask = |body| server.post("/v1/completions", body).ok()["choices"].clone();
    assert_eq!(ask(&by_ids), ask(&by_text));
    assert_eq!(server.get("/v1/models").ok()["data"][0]["id"], "hash");
    assert_eq!(server.get("/v1/models/any/name").ok()["id"], "hash");
}

#[test]
fn reports_189_190_191_metrics_count_what_was_emitted_and_name_both_lengths() {
    let server = Setup::default().start();
    let body = json!({ "prompt": WORDS, "max_tokens": 60, "temperature": 0 });
    let answers: Vec<Value> = (0..3).map(|_| server.post("/v1/completions", &body).ok()).collect();
    let page = server.get("/metrics");
    let value = |name: &str| -> f64 {
        let line = page.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {}", page.text())).parse().expect("a number")
    };
    let sum =
        |name: &str| answers.iter().map(|answer| answer["speculation"][name].as_f64().expect("a number")).sum::<f64>();
    assert!(sum("accepted") > 0.0);
    assert_eq!(value("spec_decode_num_accepted_tokens_total"), sum("accepted"));
    assert_eq!(value("spec_decode_num_draft_tokens_total"), sum("drafted"));
    assert_eq!(value("spec_decode_mean_accepted_length"), sum("accepted") / sum("rounds"));
    assert_eq!(value("spec_request_acceptance_rate_count"), 3.0);
    assert_eq!(value("spec_requests_total{finish=\"length\"}"), 3.0);
    assert_eq!(value("spec_time_to_first_token_seconds_count"), 3.0);
    let (now, peak) = (value("spec_process_resident_memory_bytes"), value("spec_process_peak_memory_bytes"));
    assert!(now > 0.0 && peak >= 0.9 * now, "{now}, at most {peak}");
    assert!(value("spec_kv_blocks_total") > 0.0 && value("spec_draft_kv_blocks_total") >= 0.0);
    for words in ["without the corrected or bonus token", "with the corrected or bonus token"] {
        assert!(page.text().contains(words), "{words}");
    }
}

#[test]
fn report_81_prefixes_are_kept_while_drafting_and_told() {
    let server = Setup::default().start();
    let body = json!({ "prompt": WORDS.repeat(4), "max_tokens": 200, "temperature": 0 });
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
    let first = server.post("/v1/completions", &body).ok();
    let second = server.post("/v1/completions", &body).ok();
    assert_eq!((cached(&first), second["choices"].clone()), (0, first["choices"].clone()));
    assert!(cached(&second) > 48 && drafted(&second) > 0, "{second}");
}

#[test]
fn one_drafter_alone_can_be_asked_for_and_one_that_is_not_there_is_refused() {
    let server = Setup::default().start();
    let body =
        |name: &str| json!({ "prompt": WORDS, "max_tokens": 60, "temperature": 0, "speculation": { "drafter": name } });
    let answer = server.post("/v1/completions", &body("ngram")).ok();
    assert_eq!(answer["speculation"]["drafter"], "ngram");
    assert!(drafted(&answer) > 0);
    let refusal = server.post("/v1/completions", &body("model"));
    assert_eq!(
        (refusal.status, &refusal.json()["error"]["param"]),
        (400, &json!("speculation.drafter")),
        "{}",
        refusal.text()
    );
}

/// Tokens that the rounds of all generations emitted.
struct Counted(Arc<AtomicUsize>);

impl RoundObserver for Counted {
    fn round(&mut self, report: &RoundReport<'_>) {
        self.0.fetch_add(report.emitted.len(), Relaxed);
    }
}

#[test]
fn every_generation_of_a_request_is_observed() {
    let (made, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let observers = {
        let (made, told) = (Arc::clone(&made), Arc::clone(&told));
        move || {
            made.fetch_add(1, Relaxed);
            vec![Box::new(Counted(Arc::clone(&told))) as Box<dyn RoundObserver>]
        }
    };
    let options = ServerOptions { observers: Some(Arc::new(observers)), ..ServerOptions::default() };
    let server = Setup { options, ..Setup::default() }.start();
    let body = json!({ "prompt": ["one ", "two "], "n": 2, "max_tokens": 30, "temperature": 1, "seed": 3 });
    let answer = server.post("/v1/completions", &body).ok();
    assert_eq!(made.load(Relaxed), 4);
    assert_eq!(answer["usage"]["completion_tokens"], told.load(Relaxed));
    let unseen = Setup::default().start().post("/v1/completions", &body).ok();
    assert_eq!(unseen["choices"], answer["choices"]);
}
