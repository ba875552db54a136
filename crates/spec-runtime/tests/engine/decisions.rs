//! What is logged of decisions is what happened.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use spec_core::RuleName;
use spec_runtime::{DECISIONS, DecisionDetail, DecisionLog, RequestRule, RoundObserver};
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Lines that were written, as JSON.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic holds it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// What was logged of decisions while `work` ran.
    fn of<T>(work: impl FnOnce() -> T) -> (T, Vec<Value>) {
        let lines = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_writer(lines.clone())
            .finish();
        let result = tracing::subscriber::with_default(subscriber, work);
        let written = lines.0.lock().expect("no panic holds it");
        let lines = String::from_utf8_lossy(&written);
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        (result, lines.filter(|line| line["target"] == DECISIONS).collect())
    }
}

fn logged(spec: &HashSpec, rule: Option<&str>, temperature: f32, detail: Option<DecisionDetail>) -> Request {
    let text = Arc::new(Letters(spec.vocab));
    let log = |detail| Box::new(DecisionLog::new(detail, text)) as Box<dyn RoundObserver>;
    Request {
        rule: rule.map(|rule| RequestRule::from(rule.parse::<RuleName>().expect("a rule"))),
        sampling: sampled(temperature),
        observers: detail.map(log).into_iter().collect(),
        ..request(60, 4)
    }
}

fn message(line: &Value) -> &str {
    line["message"].as_str().expect("a message")
}

#[test]
fn tokens_rollbacks_and_sums_in_the_log_are_those_of_the_completion() {
    let spec = HashSpec::default();
    let rules = [
        (None, 0.0, "target argmax "),
        (Some("coupled"), 1.0, "target sample "),
        (Some("rejection"), 1.0, "u "),
        (Some("block"), 1.0, "u "),
        (Some("entropy"), 1.0, "u "),
        (Some("typical"), 1.0, "target prob "),
        (Some("epsilon:0.1"), 1.0, "target prob "),
        (Some("epsilon-published:0.01"), 1.0, "draft prob "),
    ];
    for (rule, temperature, compared) in rules {
        let similar = || model_drafter(HashSpec { noise: 0.4, ..spec.clone() });
        let mut unseen = engine(&HashModel::new(spec.clone())).with_drafter(similar());
        let expected = run(&mut unseen, logged(&spec, rule, temperature, None));
        let detail = DecisionDetail::from_digit("3").expect("a digit");
        let (got, lines) = Lines::of(|| {
            let mut engine = engine(&HashModel::new(spec.clone())).with_drafter(similar());
            run(&mut engine, logged(&spec, rule, temperature, detail))
        });
        assert_eq!(got.tokens, expected.tokens, "{rule:?}: a log changes nothing");

        let count = |wanted: &str| lines.iter().filter(|line| message(line) == wanted).count();
        let speculation = &got.speculation;
        assert_eq!(count("accepted"), speculation.accepted, "{rule:?}");
        assert!(speculation.accepted > 0 && speculation.accepted < speculation.drafted, "{rule:?}");
        let rejected: Vec<&Value> = lines.iter().filter(|line| message(line).starts_with(compared)).collect();
        assert_eq!(count("accepted") + count("dropped") + rejected.len(), speculation.drafted, "{rule:?}");

        // Where a token was rejected, the block is rolled back, and another follows.
        let rollbacks: Vec<&Value> =
            lines.iter().filter(|line| message(line).starts_with("rollback at position ")).collect();
        assert_eq!(rollbacks.len(), rejected.len(), "{rule:?}");
        assert_eq!(count("corrected"), rejected.len(), "{rule:?}");
        for (rejected, rollback) in rejected.iter().zip(&rollbacks) {
            assert_eq!(message(rollback), format!("rollback at position {}", rejected["position"]));
            assert_eq!((&rejected["at"], &rejected["round"]), (&rollback["at"], &rollback["round"]));
        }

        // The tokens that stand make up the answer, each in its place and with its text.
        let stands = |line: &&Value| ["first", "accepted", "corrected", "bonus"].contains(&message(line));
        let standing: Vec<&Value> = lines.iter().filter(stands).collect();
        assert_eq!(standing.len(), got.tokens.len(), "{rule:?}");
        let mut text = String::new();
        for (index, (line, token)) in standing.iter().zip(&got.tokens).enumerate() {
            assert_eq!((&line["at"], &line["token"]), (&(PROMPT.len() + index).into(), &(*token).into()), "{rule:?}");
            text += line["text"].as_str().expect("a text");
        }
        assert_eq!(text, got.text, "{rule:?}");

        let last = lines.last().expect("an end");
        assert!(message(last).starts_with("request ends"), "{last}");
        assert_eq!(
            (&last["rounds"], &last["drafted"], &last["accepted"], &last["tokens"]),
            (
                &speculation.rounds.into(),
                &speculation.drafted.into(),
                &speculation.accepted.into(),
                &got.completion_tokens.into()
            )
        );
    }
}

#[test]
fn each_digit_tells_what_the_one_before_it_tells_and_more() {
    let spec = HashSpec::default();
    let lines = |digit: &str| {
        let detail = DecisionDetail::from_digit(digit).expect("a digit");
        Lines::of(|| {
            let drafter = model_drafter(HashSpec { noise: 0.4, ..spec.clone() });
            run(&mut engine(&HashModel::new(spec.clone())).with_drafter(drafter), logged(&spec, None, 0.0, detail))
        })
    };
    let levels = |lines: &[Value]| {
        let mut levels: Vec<String> = lines.iter().map(|line| line["level"].to_string()).collect();
        levels.sort();
        levels.dedup();
        levels
    };
    assert!(lines("0").1.is_empty());
    let (_, requests) = lines("1");
    assert_eq!(requests.iter().map(message).next(), Some("request begins"));
    assert_eq!(requests.len(), 2);
    let (completion, rounds) = lines("2");
    assert_eq!(levels(&rounds), ["\"DEBUG\"", "\"INFO\""]);
    let of_rounds = rounds.iter().filter(|line| message(line).ends_with(" emitted")).count();
    assert_eq!(of_rounds, completion.speculation.rounds);
    assert_eq!(levels(&lines("3").1), ["\"DEBUG\"", "\"INFO\"", "\"TRACE\""]);
    for wrong in ["", "4", "-1", "true", "03"] {
        let refused = DecisionDetail::from_digit(wrong).expect_err("no digit of ours").to_string();
        assert!(refused.contains("SPEC_DECODE_DEBUG") && refused.contains("give 0"), "{refused}");
    }
}
