use std::io::Write as _;

use super::*;

/// What a small model on a small machine would say.
pub(crate) fn run() -> Run {
    Run {
        version: VERSION,
        command: "generate".to_owned(),
        target: ModelFacts {
            name: "a model".to_owned(),
            file_bytes: 93_000_000,
            parameters: 135_000_000,
            tensor_type: "Q4_1".to_owned(),
        },
        draft: None,
        drafter: "suffix".to_owned(),
        rule: Some("greedy".to_owned()),
        length_policy: "fixed:5".to_owned(),
        temperature: Some(0.0),
        prompt_tokens: Some(12),
        threads: Some(2),
        cores: 2,
        device: "cpu".to_owned(),
        context: 64,
        memory_limit: None,
        machine_memory: None,
        storage: None,
        shared_vocabulary: None,
    }
}

fn round(request: usize, round: usize) -> Round {
    let times = Seconds { draft: 0.25, submit_to_passed: 0.5, late: 0.125, ..Seconds::default() };
    Round {
        request,
        round,
        length: 12 + round,
        read: 1,
        by_depth: vec![2, 1],
        accepted: 1,
        emitted: 2,
        forced: false,
        budget: 5,
        company: 3,
        ahead: 0,
        confidences: Some(vec![Some(0.5), None, Some(0.25)]),
        rejection: Some(Rejection { reason: "chance".to_owned(), p: Some(0.25), q: Some(0.5), depth: 2 }),
        seconds: times,
    }
}

fn end(request: usize) -> End {
    End {
        request,
        finish: "stop".to_owned(),
        completion_tokens: 4,
        speculation: serde_json::json!({ "rounds": 2 }),
        timings: serde_json::json!({ "decode_ms": 1.5 }),
        preempted: 1,
        peak_resident_bytes: Some(1 << 24),
    }
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect()
}

fn refusal(text: &str) -> String {
    format!("{:#}", read::parse(text.as_bytes()).expect_err("refused"))
}

#[test]
fn what_is_written_is_read_back_by_request() {
    let lines = [
        Line::Run(run()),
        Line::Round(round(1, 0)),
        Line::Round(round(2, 0)),
        Line::Round(round(1, 1)),
        Line::End(end(1)),
        Line::Run(Run { drafter: "ngram".to_owned(), ..run() }),
        Line::Round(round(3, 0)),
    ];
    let record = read::parse(text(&lines).as_bytes()).expect("a record");
    let kept = |run, number, rounds, end| RequestRecord { run, number, rounds, end };
    assert_eq!(record.runs, [run(), Run { drafter: "ngram".to_owned(), ..run() }]);
    assert_eq!(
        record.requests,
        [
            kept(0, 1, vec![round(1, 0), round(1, 1)], Some(end(1))),
            kept(0, 2, vec![round(2, 0)], None),
            kept(1, 3, vec![round(3, 0)], None),
        ]
    );
    assert!(!record.is_cut);
    assert_eq!((round(1, 1).drafted(), round(1, 1).rows()), (3, 7));
    assert_eq!((round(1, 1).seconds.pass(), round(1, 1).seconds.round()), (0.375, 0.75));
}

#[test]
fn a_record_that_was_cut_off_is_read_up_to_there() {
    let whole = text(&[Line::Run(run()), Line::Round(round(1, 0)), Line::Round(round(1, 1))]);
    let record = read::parse(&whole.as_bytes()[..whole.len() - 40]).expect("a record");
    assert!(record.is_cut);
    assert_eq!(record.requests[0].rounds, [round(1, 0)]);
}

#[test]
fn what_is_no_record_or_a_damaged_one_is_said_with_its_line() {
    let begun = text(&[Line::Run(run())]);
    let bad = |change: fn(&mut Round)| {
        let mut round = round(1, 0);
        change(&mut round);
        begun.clone() + &text(&[Line::Round(round)])
    };
    for (text, said) in [
        (String::new(), "it is empty"),
        ("GGUF\n".to_owned(), "no record of rounds"),
        ("{\"kind\":\"round\"}\n".to_owned(), "no record of rounds"),
        ("[1, 2]\n".to_owned(), "no record of rounds"),
        (begun.replace("\"version\":1", "\"version\":2"), "use a newer `spec`"),
        (begun.replace("\"cores\":2,", ""), "line 1 is damaged: missing field `cores`"),
        (format!("{begun}{{\"kind\":\"tree\"}}\n"), "line 2 is damaged"),
        (format!("{begun}half\n{begun}"), "line 2 is damaged"),
        (begun.clone() + &text(&[Line::End(end(7))]), "request 7 ends and has no rounds"),
        (bad(|round| round.accepted = 3), "3 of them drafted, from 2 depths"),
        (bad(|round| round.emitted = 9), "9 tokens"),
        (bad(|round| round.by_depth[0] = 0), "a depth of no nodes"),
        (bad(|round| round.seconds.draft = -1.0), "a time that is none"),
        (bad(|round| round.seconds.submit_to_passed = 1e20), "a time that is none"),
        (bad(|round| round.company = 1_000_000_000_000), "more rows than any has"),
        (bad(|round| round.read = usize::MAX), "more rows than any has"),
        (bad(|round| round.by_depth = vec![1 << 16; 32]), "more rows than any has"),
    ] {
        assert!(refusal(&text).contains(said), "{text}\n{}\nlacks {said}", refusal(&text));
    }
}

#[test]
fn a_record_takes_the_place_of_an_older_one_and_of_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rounds.jsonl");
    for _ in 0..2 {
        let recorder = Recorder::create("--record", &path, u64::MAX).expect("a record");
        recorder.run(&run());
        assert_eq!(read(&path).expect("a record").runs, [run()]);
    }
    std::fs::File::create(&path).and_then(|mut file| file.write_all(b"GGUF")).expect("a file");
    let error = format!("{:#}", Recorder::create("--record", &path, u64::MAX).expect_err("refused"));
    assert!(error.contains("--record") && error.contains("rounds.jsonl") && error.contains("name another"), "{error}");
    assert_eq!(std::fs::read(&path).expect("the file"), b"GGUF", "it is as it was");
    let nowhere = folder.path().join("nowhere").join("rounds.jsonl");
    assert!(Recorder::create("--record", &nowhere, u64::MAX).is_err());
}

#[test]
fn what_is_longer_than_its_limit_ends_with_a_whole_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rounds.jsonl");
    let line = text(&[Line::Run(run())]).len() as u64;
    let recorder = Recorder::create("--record", &path, 2 * line + 10).expect("a record");
    (0..5).for_each(|_| recorder.run(&run()));
    let record = read(&path).expect("a record");
    assert_eq!((record.runs.len(), record.is_cut), (2, false));
}
