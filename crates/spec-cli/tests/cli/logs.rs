//! Logs and traces: what they tell is what was done, and they never stand among answers.

use super::*;

/// With a draft model of its own mind: most of what it proposes is rejected.
const GENERATE: [&str; 13] = [
    "generate",
    "--model",
    "target.gguf",
    "--ids",
    "65,66,67,65,66,67,65,66,67,65,66",
    "-n",
    "40",
    "--draft",
    "model",
    "--draft-model",
    "draft.gguf",
    "--draft-len",
    "4",
];

/// Lines of a log in JSON; other lines, such as the one below the answer, are none.
fn objects(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(Value::is_object).collect()
}

#[test]
fn decisions_are_told_on_standard_error_and_the_answer_is_the_same() {
    let files = Files::new();
    let plain = files.spec_words(&GENERATE).ok();
    assert!(!plain.err().contains("request"), "{}", plain.err());
    let told = files.spec_with(&GENERATE, &[("SPEC_DECODE_DEBUG", "3"), ("SPEC_LOG_FORMAT", "json")]).ok();
    assert_eq!(told.out(), plain.out());
    let lines = objects(&told.err());
    let of = |message: &str| lines.iter().filter(|line| line["message"] == message).count();
    assert_eq!((of("request begins"), of("first")), (1, 1), "{}", told.err());
    let end = lines.last().expect("an end");
    assert!(end["drafted"].as_u64().is_some_and(|drafted| drafted > 0), "{end}");
    assert_eq!(end["accepted"], of("accepted"));
    let rejected = lines.iter().filter(|line| line["message"].as_str().is_some_and(|text| text.contains(" != draft ")));
    let rejected: Vec<&Value> = rejected.collect();
    assert!(rejected.iter().all(|line| line["text"].is_string() && line["at"].is_u64() && line["request"] == 1));
    assert_eq!(rejected.len(), of("corrected"));
    let texts = ["first", "accepted", "corrected", "bonus"];
    let stands = |line: &&Value| line["message"].as_str().is_some_and(|message| texts.contains(&message));
    let standing = lines.iter().filter(stands).count();
    assert_eq!(end["tokens"], standing);

    // For people, and on a sampled answer under another rule.
    let sampled =
        [&GENERATE[..], &["--temperature", "1", "--seed", "3", "--rule", "rejection", "--log-format", "text"]];
    let told = files.spec_with(&sampled.concat(), &[("SPEC_DECODE_DEBUG", "3")]).ok();
    let err = told.err();
    assert!(
        err.contains("rollback at position ") && err.contains(" >= target prob ") && err.contains("text=\""),
        "{err}"
    );
}

#[test]
fn every_command_logs_what_is_asked_for() {
    let files = Files::new();
    let silent = files.spec("inspect --model target.gguf").ok();
    assert_eq!(silent.err(), "");
    let words: Vec<&str> = "tokenize --model target.gguf hello --log-format json".split(' ').collect();
    files.spec_with(&words, &[("SPEC_LOG", "trace")]).ok();
    let loaded = files.spec_with(&GENERATE, &[("SPEC_LOG", "spec_cpu=debug")]).ok();
    assert!(loaded.err().contains("model loaded") && loaded.err().contains("threads="), "{}", loaded.err());
}

#[test]
fn variables_that_mean_nothing_are_refused_in_one_line() {
    let files = Files::new();
    for (name, value) in [
        ("SPEC_DECODE_DEBUG", "4"),
        ("SPEC_DECODE_DEBUG", "verbose"),
        ("SPEC_LOG", "inof"),
        ("SPEC_LOG_FORMAT", "xml"),
        ("ASCEND_LOG", "2"),
    ] {
        files.spec_with(&GENERATE, &[(name, value)]).refused(2, &[name, value, "give"]);
    }
    files.spec("inspect --model target.gguf --log-format xml").refused(2, &["xml", "text, json"]);
}

#[test]
fn a_traced_command_answers_as_ever_and_its_trace_is_summed_up() {
    let files = Files::new();
    let plain = files.spec_words(&[&GENERATE[..], &["--json"]].concat()).json();
    let traced = files.spec_words(&[&["profile", "-o", "trace.json", "--"], &GENERATE[..], &["--json"]].concat()).ok();
    assert!(traced.err().contains("trace.json"), "{}", traced.err());
    let traced = traced.json();
    assert_eq!(traced["tokens"], plain["tokens"]);

    let text = std::fs::read_to_string(files.path("trace.json")).expect("a trace");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
    for lane in ["host", "draft stream", "target stream"] {
        assert!(named("thread_name").iter().any(|event| event["args"]["name"] == lane), "{lane}");
    }
    assert_eq!(named("prefill").len(), 1);
    for name in ["draft step", "verify", "sample", "rollback", "acceptance", "memory"] {
        assert!(!named(name).is_empty(), "{name}");
    }
    // Spans of a lane follow each other.
    for lane in 1..=3 {
        let mut end = 0.0;
        for span in events.iter().filter(|event| event["ph"] == "X" && event["tid"] == lane) {
            let (from, long) = (span["ts"].as_f64().expect("a time"), span["dur"].as_f64().expect("a time"));
            // A nanosecond, for sums of microseconds.
            assert!(from + 1e-3 >= end, "{span}: the one before ends at {end}");
            end = from + long;
        }
    }

    let table = files.spec("profile stats trace.json").ok().out();
    for words in ["target stream", "verify", "copies between draft and target ", "verification parallelism"] {
        assert!(table.contains(words), "{table}\nlacks {words}");
    }
    let figures = files.spec("profile stats trace.json --json").json();
    // Of the same run: how much is drafted is told by the clock.
    assert_eq!(figures["drafted"], traced["speculation"]["drafted"].as_f64().expect("a number"));
    assert_eq!(figures["accepted"], traced["speculation"]["accepted"].as_f64().expect("a number"));

    std::fs::write(files.path("half.json"), &text[..text.len() / 2]).expect("a file");
    files.spec("profile stats half.json").refused(1, &["half.json", "cut off in the middle", "trace again"]);
    files.spec("profile stats target.gguf").refused(1, &["target.gguf"]);
    files.spec("profile stats absent.json").refused(1, &["absent.json"]);
    files.spec("profile -o x.json -- inspect --model target.gguf").refused(2, &["generate", "demo"]);
    files.spec("profile -o x.json -- generate").refused(2, &["--model"]);
    files.spec("profile").refused(2, &["--out"]);
}
