//! Records of rounds, what is tuned by them, and controllers seen at work in them.

use super::*;

const PROMPT: &str = "65,66,67,68,65,66,67,68,65,66,67,68,65,66";

impl Files {
    /// The lines of a file, of one kind.
    fn lines(&self, name: &str, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(name)).expect("the file");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["kind"] == kind).collect()
    }
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count")) as usize
}

#[test]
fn a_record_has_the_figures_of_the_answer_and_none_of_its_tokens() {
    let files = Files::new();
    let base =
        format!("generate --model target.gguf --draft-model draft.gguf --draft model --ids {PROMPT} -n 40 --json");
    let alone = files.spec(&base).json();
    let got = files.spec(&format!("{base} --record rounds.jsonl")).json();
    assert_eq!(got["tokens"], alone["tokens"]);

    let [run] = &files.lines("rounds.jsonl", "run")[..] else { panic!("one run") };
    assert_eq!((&run["command"], number(&run["prompt_tokens"])), (&"generate".into(), 14));
    assert_eq!(
        number(&run["draft"]["file_bytes"]),
        std::fs::metadata(files.path("draft.gguf")).expect("it").len() as usize
    );
    let rounds = files.lines("rounds.jsonl", "round");
    let sum = |field: &str| rounds.iter().map(|round| number(&round[field])).sum::<usize>();
    assert_eq!(rounds.len() - 1, number(&got["speculation"]["rounds"]));
    assert_eq!(sum("accepted"), number(&got["speculation"]["accepted"]));
    assert_eq!(sum("emitted"), number(&got["completion_tokens"]));
    let [end] = &files.lines("rounds.jsonl", "end")[..] else { panic!("one end") };
    let figures = |json: &Value| {
        let fields = ["rounds", "drafted", "accepted", "accepted_by_position"];
        fields.map(|field| json["speculation"][field].clone())
    };
    assert_eq!((figures(end), &end["finish"]), (figures(&got), &got["finish_reason"]));
    assert!(number(&end["speculation"]["drafted"]) > 0, "{end}");

    // Ids and text are under no name at all.
    let text = std::fs::read_to_string(files.path("rounds.jsonl")).expect("the file");
    for name in ["\"tokens\"", "\"text\"", "\"ids\"", "\"token\"", "\"prompt\"", "\"drafted\":["] {
        assert!(!text.contains(name), "{name}");
    }
    assert!(!files.path("training.jsonl").exists());
}

#[test]
fn a_demo_records_each_of_its_requests() {
    let files = Files::new();
    std::fs::create_dir(files.path("prompts")).expect("a folder");
    for (name, text) in [("one", "aba aba aba"), ("two", "go on and on and on")] {
        std::fs::write(files.path(&format!("prompts/{name}.txt")), text).expect("a file");
    }
    let prompts = files.path("prompts").display().to_string();
    let demo = ["demo", "--model", "target.gguf", "--draft-model", "draft.gguf", "--prompts", &prompts, "-n", "24"];
    files.spec_words(&[&demo[..], &["--draft-len", "4", "--record", "demo.jsonl"]].concat()).ok();
    let budgets = |request: usize| -> usize {
        let rounds = files.lines("demo.jsonl", "round");
        rounds.iter().filter(|round| number(&round["request"]) == request).map(|round| number(&round["budget"])).sum()
    };
    assert_eq!([1, 2, 3, 4].map(|request| budgets(request) > 0), [false, true, false, true], "plain, then speculative");
    assert_eq!(files.lines("demo.jsonl", "end").len(), 4);
}

#[test]
fn a_batch_records_each_of_its_requests() {
    let files = Files::new();
    let body = |seed: u32| format!(r#"{{"model":"m","prompt":"go on and on","max_tokens":12,"seed":{seed}}}"#);
    let line = |seed: u32| {
        format!(r#"{{"custom_id":"{seed}","method":"POST","url":"/v1/completions","body":{}}}"#, body(seed)) + "\n"
    };
    std::fs::write(files.path("requests.jsonl"), line(1) + &line(2) + &line(3)).expect("a file");
    files
        .spec(
            "batch --model target.gguf --input requests.jsonl --output results.jsonl --context 64 --record batch.jsonl",
        )
        .ok();
    let ends = files.lines("batch.jsonl", "end");
    let said: usize = ends.iter().map(|end| number(&end["completion_tokens"])).sum();
    let results = std::fs::read_to_string(files.path("results.jsonl")).expect("the file");
    let results = results.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let answered: usize = results.map(|line| number(&line["response"]["body"]["usage"]["completion_tokens"])).sum();
    assert_eq!((ends.len(), said), (3, answered));
}

#[test]
fn what_cannot_be_recorded_or_tuned_by_is_refused_in_one_line() {
    let files = Files::new();
    std::fs::write(files.path("foreign.jsonl"), "{\"custom_id\": 1}\n").expect("a file");
    let base = format!("generate --model target.gguf --ids {PROMPT}");
    files.spec(&format!("{base} --record foreign.jsonl")).refused(2, &["--record", "foreign.jsonl", "name another"]);
    files.spec(&format!("{base} --record target.gguf")).refused(2, &["target.gguf", "name another"]);
    files.spec(&format!("{base} --record-training foreign.jsonl")).refused(2, &["--record-training", "name another"]);
    files.spec(&format!("{base} --record nowhere/r.jsonl")).refused(1, &["--record", "r.jsonl"]);
    files.spec("tune foreign.jsonl").refused(1, &["foreign.jsonl", "no record of rounds"]);
    files.spec("tune target.gguf").refused(1, &["target.gguf", "no record of rounds"]);
    files.spec("tune nowhere.jsonl").refused(1, &["nowhere.jsonl"]);
    files.spec(&format!("{base} -n 8 --draft none --record plain.jsonl")).ok();
    files.spec("tune plain.jsonl").refused(1, &["nothing was drafted", "plain.jsonl", "--length-policy survey"]);
}

#[test]
fn a_record_is_tuned_by() {
    let files = Files::new();
    let base =
        format!("generate --model target.gguf --draft-model draft.gguf --draft model --ids {PROMPT} -n 120 --json");
    files.spec(&format!("{base} --length-policy survey --record rounds.jsonl")).json();
    let tuned = files.spec("tune rounds.jsonl --json").json();
    let [drafter] = &tuned["drafters"].as_array().expect("a list")[..] else { panic!("one drafter: {tuned}") };
    let settings = drafter["settings"].as_array().expect("a list");
    assert_eq!(settings.len(), 12, "fixed 0 to 8, and three that adapt");
    assert_eq!(settings[0]["speedup"], 1.0);
    assert!(settings.iter().all(|setting| setting["tokens_per_second"].as_f64() > Some(0.0)), "{settings:?}");
    let end = &files.lines("rounds.jsonl", "end")[0];
    assert_eq!(number(&drafter["tokens"]), number(&end["completion_tokens"]) - 1, "the first is of the prompt");
    let shown = files.spec("tune rounds.jsonl").ok().out();
    let flags = drafter["recommended"]["flags"].as_str().expect("flags");
    assert!(shown.contains(&format!("recommended: {flags}")), "{shown}");
}

/// The article's rule over a window of four rounds, written down anew.
fn adjusted(rounds: &[(usize, usize)], most: usize) -> Vec<usize> {
    let mut length: usize = 5;
    let mut lengths = vec![length];
    for index in 0..rounds.len() {
        let window = &rounds[index.saturating_sub(3)..=index];
        let (drafted, accepted) = window.iter().fold((0, 0), |sum, round| (sum.0 + round.0, sum.1 + round.1));
        length = if accepted as f64 / drafted as f64 > 0.8 { (length + 1).min(most) } else { (length - 1).max(1) };
        lengths.push(length);
    }
    lengths
}

#[test]
fn every_length_policy_drafts_as_it_says() {
    let files = Files::new();
    let answer = |draft: &str, policy: &str, prompt: &str| {
        let base = format!("generate --model target.gguf --ids {prompt} -n 100 --json {draft}");
        let got = files.spec(&format!("{base} --length-policy {policy} --record rounds.jsonl")).json();
        let plain =
            files.spec(&format!("generate --model target.gguf --ids {prompt} -n 100 --json --draft none")).json();
        assert_eq!(got["tokens"], plain["tokens"], "{policy}");
        assert!(number(&got["speculation"]["drafted"]) > 0, "{policy}");
        let rounds = files.lines("rounds.jsonl", "round").split_off(1);
        // The last rounds may have no room for more.
        let asked = rounds.iter().filter(|round| number(&round["length"]) + 20 < 100 + prompt.split(',').count());
        asked
            .map(|round| {
                let drafted = round["by_depth"].as_array().expect("a list").iter().map(number).sum();
                (number(&round["budget"]), (drafted, number(&round["accepted"])))
            })
            .unzip::<usize, (usize, usize), Vec<_>, Vec<_>>()
    };
    let model = "--draft model --draft-model draft.gguf --draft-width 1";
    for (draft, policy) in [("--draft self", "additive:7"), (model, "additive:8"), (model, "additive:2")] {
        let most = number(&policy[9..].parse().expect("a number"));
        let (budgets, rounds) = answer(draft, policy, PROMPT);
        let (first, expected) = (5.min(most), adjusted(&rounds, most));
        assert_eq!(budgets[0], first, "{policy}");
        if first == 5 {
            assert_eq!(budgets, expected[..budgets.len()], "{draft} {policy}: {rounds:?}");
        }
        assert!(budgets.len() > 8 && budgets.iter().any(|&budget| budget != first), "{policy}: {budgets:?}");
    }
    for (prompt, length) in [("65,66,67", 3), (PROMPT, 5)] {
        let (budgets, _) = answer(model, "by-prompt-length:10", prompt);
        assert!(budgets.iter().all(|&budget| budget == length), "{budgets:?}");
    }
    let (budgets, _) = answer(model, "fixed:4", PROMPT);
    assert!(budgets.iter().all(|&budget| budget == 4), "{budgets:?}");
    let (budgets, _) = answer(model, "survey:2", PROMPT);
    assert_eq!(budgets[..8], [0, 2, 1, 2, 2, 2, 0, 2]);
    let (budgets, _) = answer("--draft self", "goodput:6", PROMPT);
    assert!(budgets.iter().all(|&budget| budget <= 6) && budgets.iter().any(|&budget| budget > 0), "{budgets:?}");
}

#[test]
fn an_epsilon_follows_latency_from_0_to_its_maximum() {
    let files = Files::new();
    let base = format!(
        "generate --model target.gguf --draft model --draft-model draft.gguf --ids {PROMPT} -n 60 --draft-len 4 --json"
    );
    let answer = |flags: &str| files.spec(&format!("{base} {flags}")).json();
    let (exact, open) = (answer("--rule epsilon:0"), answer("--rule epsilon:1"));
    assert_ne!(exact["tokens"], open["tokens"], "a tolerance of 1 keeps what one of 0 does not");
    let in_time = answer("--rule epsilon:1 --epsilon-latency 1000000");
    assert_eq!(in_time["tokens"], exact["tokens"], "nothing is late: it stays at 0");
    let late = answer("--rule epsilon:1 --epsilon-latency 0.000001");
    assert_ne!(late["tokens"], exact["tokens"], "everything is late: it opens");
    let accepted = |answer: &Value| answer["speculation"]["acceptance_rate"].as_f64().expect("a rate");
    assert!(accepted(&exact) < accepted(&late) && accepted(&late) < accepted(&open), "step by step");

    let bound = answer("--rule epsilon:1 --epsilon-latency 0.000001 --loss-budget 0");
    assert_eq!(bound["tokens"], answer("--rule greedy")["tokens"], "the budget binds, however late tokens are");
    assert!(number(&bound["speculation"]["drafted"]) > 0);

    for rule in ["--draft-width 1", "--rule greedy", "--rule typical"] {
        files.spec(&format!("{base} {rule} --epsilon-latency 20")).refused(2, &["--epsilon-latency", "epsilon:x"]);
    }
    files
        .spec(&format!("{base} --rule epsilon:0.1 --epsilon-latency 0"))
        .refused(2, &["--epsilon-latency", "milliseconds"]);
}

#[test]
fn training_data_is_written_when_it_is_asked_for_up_to_its_limit() {
    let files = Files::new();
    let base =
        format!("generate --model target.gguf --draft model --draft-model draft.gguf --ids {PROMPT} -n 40 --json");
    let got = files.spec(&format!("{base} --logprobs 16 --record-training training.jsonl")).json();
    let [context] = &files.lines("training.jsonl", "context")[..] else { panic!("one context") };
    let ids = |list: &Value| -> Vec<usize> { list.as_array().expect("a list").iter().map(number).collect() };
    assert_eq!(ids(&context["tokens"]), PROMPT.split(',').map(|id| id.parse().expect("an id")).collect::<Vec<usize>>());
    let (mut emitted, mut tops, mut drafted, mut refused) = (Vec::new(), Vec::new(), 0, 0);
    for round in files.lines("training.jsonl", "round") {
        assert_eq!(number(&round["length"]), 14 + emitted.len());
        emitted.extend(ids(&round["emitted"]));
        tops.extend(round["targets"].as_array().expect("a list").clone());
        drafted += round["drafted"].as_array().expect("a list").len();
        for node in round["refused"].as_array().expect("a list") {
            assert!(number(&node[0]) < round["drafted"].as_array().expect("a list").len());
            assert_eq!(node[1].as_array().expect("a list").len(), 16, "the target's row behind it");
            refused += 1;
        }
    }
    // What stood behind an end token was not emitted.
    let stood = drafted - refused;
    assert!(
        (0..=5).contains(&(stood - number(&got["speculation"]["accepted"]))),
        "every row that was verified is there"
    );
    // An end token is emitted and not shown.
    let shown = ids(&got["tokens"]);
    assert_eq!(emitted[..shown.len()], shown);
    assert!(emitted.len() <= shown.len() + 1, "{emitted:?}");
    assert_eq!(drafted, number(&got["speculation"]["drafted"]));
    let reported: Vec<Value> = got["logprobs"].as_array().expect("a list").iter().map(|l| l["top"].clone()).collect();
    assert_eq!(tops[..shown.len()], reported, "the target's own, as --logprobs has them");

    let ran = files.spec(&format!("{base} --record-training short.jsonl --record-limit 8kB"));
    let warnings = ran.err().lines().filter(|line| line.contains("--record-training")).count();
    assert_eq!((warnings, &ran.json()["tokens"]), (1, &got["tokens"]), "{}", ran.err());
    let bytes = std::fs::metadata(files.path("short.jsonl")).expect("the file").len();
    assert!((4000..=8000).contains(&bytes), "{bytes}");
    assert!(!files.lines("short.jsonl", "round").is_empty(), "whole lines");
}

#[test]
fn the_largest_epsilon_within_a_limit_of_bleu_is_found() {
    let files = Files::new();
    std::fs::create_dir(files.path("prompts")).expect("a folder");
    for (name, text) in [("one", "aba aba aba"), ("two", "go on and on and on")] {
        std::fs::write(files.path(&format!("prompts/{name}.txt")), text).expect("a file");
    }
    let prompts = files.path("prompts").display().to_string();
    let tuned = |limit: &str| {
        let line = "tune epsilon --model target.gguf --draft model --draft-model draft.gguf -n 30 --json --prompts";
        let words: Vec<&str> = line.split(' ').chain([&*prompts, "--max-bleu-drop", limit]).collect();
        files.spec_words(&words).json()
    };
    let any = tuned("100%");
    assert_eq!(any["recommended"]["epsilon"], 1.0, "{any}");
    let drop = |figures: &Value| figures["bleu_drop"].as_f64().expect("a number");
    assert_eq!((drop(&any["greedy"]), &any["greedy"]["same"]), (0.0, &1.0.into()), "greedy is exact");
    let tried = any["tried"].as_array().expect("a list");
    let most = tried.iter().map(|tried| drop(&tried["figures"])).fold(0.0, f64::max);
    assert!(most > 1.0, "a tolerance of 1 keeps what a foreign draft model says: {any}");
    // A limit between what is free and what that costs.
    let some = tuned(&format!("{}%", most / 2.0));
    for tried in some["tried"].as_array().expect("a list") {
        let is_within = drop(&tried["figures"]) <= most / 2.0;
        let best = some["recommended"]["epsilon"].as_f64().unwrap_or(-1.0);
        let epsilon = tried["epsilon"].as_f64().expect("a number");
        assert!(is_within || epsilon > best, "{epsilon} costs too much, and {best} was recommended: {some}");
    }
    // Look-ups draw from no law that epsilon could judge, and an answer of one token has no round.
    for flags in ["--draft auto", "--draft ngram", "--draft model --draft-model draft.gguf -n 1"] {
        let line = format!("tune epsilon --model target.gguf {flags} --prompts {prompts}");
        files.spec(&line).refused(1, &["nothing was drafted", "--draft-model"]);
    }
    let line = "tune epsilon --model target.gguf --draft none --prompts";
    let words: Vec<&str> = line.split(' ').chain([&*prompts]).collect();
    files.spec_words(&words).refused(2, &["--draft none"]);
    let words: Vec<&str> = line.split(' ').chain([&*prompts, "--max-bleu-drop", "much"]).collect();
    files.spec_words(&words).refused(2, &["--max-bleu-drop", "0.3%"]);
}
