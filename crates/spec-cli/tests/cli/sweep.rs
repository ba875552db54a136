//! `spec bench sweep`, on tiny models.

use super::*;

impl Files {
    /// A folder of prompts, one of them Chinese, and where a study goes.
    fn study(&self) -> (String, PathBuf) {
        let prompts = self.path("prompts");
        std::fs::create_dir(&prompts).expect("a folder");
        for (name, text) in [
            ("letters", "abcabcabcabcabc"),
            ("words", "the cat and the dog and the cat and the"),
            ("chinese", "今天天气很好，我们去公园散步吧。今天天气"),
        ] {
            std::fs::write(prompts.join(name).with_extension("txt"), text).expect("a prompt");
        }
        (prompts.display().to_string(), self.path("study"))
    }

    fn sweep(&self, flags: &str, prompts: &str, out: &std::path::Path) -> Ran {
        let out = out.display().to_string();
        let line = format!("bench sweep --model target.gguf -n 24 --repeats 1 --lengths 2,4 {flags}");
        let mut words: Vec<&str> = line.split_whitespace().collect();
        words.extend(["--prompts", prompts, "--out", &out]);
        self.spec_words(&words)
    }
}

fn study(folder: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("sweep.json")).expect("sweep.json")).expect("JSON")
}

#[test]
fn greedy_loses_nothing_and_a_lossy_rule_shows_its_price() {
    let files = Files::new();
    let (prompts, out) = files.study();
    let flags = "--draft model --draft-model draft.gguf --rules greedy,epsilon:0.9";
    let ran = files.sweep(flags, &prompts, &out).ok();
    let text = ran.out();
    assert!(text.contains("greedy: lossless, checked: 6 of 6 answers"), "{text}");
    assert!(text.contains("epsilon:0.9: LOSSY"), "{text}");
    let json = study(&out);
    assert_eq!(json["prompts"], serde_json::json!(["chinese", "letters", "words"]));
    let settings = json["settings"].as_array().expect("a list");
    let named: Vec<(&str, u64)> = settings
        .iter()
        .map(|setting| (setting["rule"].as_str().unwrap_or_default(), setting["length"].as_u64().unwrap_or_default()))
        .collect();
    assert_eq!(named, [("greedy", 2), ("greedy", 4), ("epsilon:0.9", 2), ("epsilon:0.9", 4)]);
    for setting in settings {
        assert!(setting["speedup"]["value"].as_f64() > Some(0.0) && setting["drafted"].as_u64() > Some(0), "{setting}");
        let survival: Vec<f64> =
            setting["survival"].as_array().expect("shares").iter().filter_map(Value::as_f64).collect();
        assert!(survival.len() as u64 <= setting["length"].as_u64().unwrap_or(0));
        assert!(survival.windows(2).all(|pair| pair[0] >= pair[1]) && survival[0] <= 1.0, "{survival:?}");
    }
    for greedy in &settings[..2] {
        assert_eq!(
            (&greedy["text"]["exact_match"]["low"], &greedy["text"]["bleu"]["value"]),
            (&1.0.into(), &100.0.into())
        );
        assert_eq!((&greedy["verdict"], &greedy["forgiven"]["count"]), (&"lossless-checked".into(), &0.into()));
        assert_eq!(greedy["logprob"], json["plain"]["logprob"]);
    }
    for lossy in &settings[2..] {
        // Random weights agree on little: nearly every token is forgiven, and the texts part.
        assert!(lossy["text"]["exact_match"]["value"].as_f64() < Some(1.0), "{lossy}");
        assert!(lossy["text"]["bleu"]["value"].as_f64() < Some(100.0), "{lossy}");
        assert!(lossy["forgiven"]["count"].as_u64() > Some(0) && lossy["forgiven"]["log_ratio"].as_f64() > Some(0.0));
        assert!(lossy["logprob"]["value"].as_f64() < json["plain"]["logprob"]["value"].as_f64(), "{lossy}");
    }
    assert_eq!(std::fs::read_to_string(out.join("sweep.csv")).expect("a table").lines().count(), 5);
    for name in ["speed-quality", "speed-length", "survival"] {
        let svg = std::fs::read_to_string(out.join(name).with_extension("svg")).expect(name);
        assert!(svg.trim_end().ends_with("</svg>"), "{name}");
        let png = std::fs::read(out.join(name).with_extension("png")).expect(name);
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 2000, "{name}");
    }
}

#[test]
fn samples_are_compared_as_texts_only_where_they_are_the_same_sample() {
    let files = Files::new();
    let (prompts, out) = files.study();
    let flags = "--draft model --draft-model draft.gguf --rules coupled,rejection,typical --temperature 0.9 --seeds 2";
    let text = files.sweep(flags, &prompts, &out).ok().out();
    assert!(text.contains("coupled: lossless, checked: 12 of 12 answers"), "{text}");
    assert!(text.contains("rejection: samples of the same law"), "{text}");
    let json = study(&out);
    for setting in json["settings"].as_array().expect("a list") {
        let is_coupled = setting["rule"] == "coupled";
        assert_eq!(setting["text"].is_object(), is_coupled, "{setting}");
        if is_coupled {
            assert_eq!(setting["logprob"], json["plain"]["logprob"]);
        }
    }
}

#[test]
fn the_targets_opinion_is_what_it_says_while_it_writes() {
    let files = Files::new();
    let (prompts, out) = files.study();
    for name in ["letters", "words"] {
        std::fs::remove_file(PathBuf::from(&prompts).join(name).with_extension("txt")).expect("it was there");
    }
    files.sweep("--draft self --rules greedy", &prompts, &out).ok();
    let prompt = PathBuf::from(&prompts).join("chinese.txt").display().to_string();
    let words =
        ["generate", "--model", "target.gguf", "--draft", "none", "-n", "24", "--logprobs", "0", "--json", "-f"];
    let answer = files.spec_words(&[&words[..], &[&prompt]].concat()).json();
    let logprobs: Vec<f64> =
        answer["logprobs"].as_array().expect("a list").iter().filter_map(|token| token["logprob"].as_f64()).collect();
    let expected = logprobs.iter().sum::<f64>() / logprobs.len() as f64;
    let found = study(&out)["plain"]["logprob"]["value"].as_f64().expect("a number");
    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
}

#[test]
fn a_budget_bounds_what_a_study_forgives() {
    let files = Files::new();
    let (prompts, out) = files.study();
    let flags = "--draft model --draft-model draft.gguf --rules epsilon:0.9 --loss-budget 0";
    files.sweep(flags, &prompts, &out).ok();
    for setting in study(&out)["settings"].as_array().expect("a list") {
        assert_eq!((&setting["text"]["exact_match"]["value"], &setting["forgiven"]["count"]), (&1.0.into(), &0.into()));
    }
    let line =
        "generate --model target.gguf -p hello -n 40 --json --draft model --draft-model draft.gguf --draft-len 4";
    let plain = files.spec(&format!("{line} --draft-width 1")).json();
    let lossy = |budget: &str| files.spec(&format!("{line} --draft-width 1 --rule epsilon:0.9{budget}")).json();
    let free = lossy("");
    assert!(free["speculation"]["forgiven"]["log_ratio"].as_f64() > Some(2.0), "{}", free["speculation"]);
    assert_ne!(free["tokens"], plain["tokens"]);
    assert_eq!(lossy(" --loss-budget 0")["tokens"], plain["tokens"]);
    let held = lossy(" --loss-budget 2");
    let spent = held["speculation"]["forgiven"]["log_ratio"].as_f64().expect("a number");
    assert!(spent > 0.0 && spent <= 2.0, "{spent}");
    let footer = files
        .spec("generate --model target.gguf -p hello -n 40 --draft model --draft-model draft.gguf --rule epsilon:0.9");
    assert!(footer.err().contains("forgiven") && footer.err().contains("nats"), "{}", footer.err());
}

#[test]
fn a_rule_under_which_nothing_is_drafted_is_no_result() {
    let files = Files::new();
    let (prompts, out) = files.study();
    let text = files.sweep("--draft ngram --rules epsilon:0.9,typical -n 80", &prompts, &out).ok().out();
    assert!(text.contains("epsilon:0.9: at some length nothing was drafted"), "{text}");
    assert!(text.contains("typical: LOSSY"), "{text}");
    assert_eq!(study(&out)["settings"][0]["verdict"], "nothing-drafted");
}

#[test]
fn studies_that_cannot_be_made_are_refused_in_one_line() {
    let files = Files::new();
    let (prompts, out) = files.study();
    for (flags, code, words) in [
        ("--draft none", 2, &["--draft none"][..]),
        ("--draft-len 4", 2, &["--lengths"]),
        ("--preset speed", 2, &["--lengths"]),
        ("--rules greedy --temperature 0.5", 2, &["greedy", "--temperature 0"]),
        ("--rules rejecton", 2, &["rejecton", "rejection"]),
        ("--seeds 2", 2, &["--seeds"]),
        ("--loss-budget -1", 2, &["--loss-budget", "nats"]),
        ("--draft ngram --rules epsilon-published", 2, &["epsilon-published", "ngram"]),
        ("--max-tokens 300", 2, &["--max-tokens 300", "256 positions"]),
    ] {
        files.sweep(flags, &prompts, &out).refused(code, words);
    }
    files.sweep("--lengths 0", &prompts, &out).refused(2, &["--lengths", "1 to 64"]);
    files.sweep("", &files.path("nowhere").display().to_string(), &out).refused(1, &["nowhere"]);
}

#[test]
fn presets_are_the_articles_lengths() {
    let files = Files::new();
    let line = "generate --model target.gguf --ids 70,71,72 -n 40 --json --draft model --draft-model draft.gguf";
    for (preset, length) in [("quality", 3), ("general", 5), ("speed", 7)] {
        let named = files.spec(&format!("{line} --preset {preset}")).json();
        let counted = files.spec(&format!("{line} --draft-len {length}")).json();
        assert_eq!(named["speculation"], counted["speculation"], "{preset}");
        assert_eq!(named["tokens"], counted["tokens"]);
    }
    files.spec(&format!("{line} --preset speed --draft-len 3")).refused(2, &["--preset", "--draft-len"]);
}
