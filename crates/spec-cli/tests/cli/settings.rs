//! Flags from the environment and from a file, and what the command line says of itself.

use super::*;

impl Files {
    /// The user's configuration file.
    fn configure(&self, text: &str) {
        let folder = self.path("spec");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("config.toml"), text).expect("a file");
    }

    /// The value and its origin that `--print-config` shows for a flag.
    fn shown(&self, words: &[&str], environment: &[(&str, &str)], flag: &str) -> (String, String) {
        let out = self.spec_with(&[words, &["--print-config"]].concat(), environment).ok().out();
        let line = out.lines().find(|line| line.starts_with(&format!("{flag} = ")));
        let line = line.unwrap_or_else(|| panic!("no {flag} in\n{out}"));
        let (setting, origin) = line.split_once(" # ").expect("an origin");
        (setting.split_once(" = ").expect("a value").1.trim().to_owned(), origin.to_owned())
    }
}

#[test]
fn the_command_line_comes_before_the_environment_the_file_and_the_default() {
    let files = Files::new();
    let show = |words: &[&str], environment: &[(&str, &str)]| {
        let (value, origin) = files.shown(&[&["generate"], words].concat(), environment, "temperature");
        (value, origin.rsplit('/').next().unwrap_or_default().to_owned())
    };
    let is = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(show(&[], &[]), is("0", "default"));
    files.configure("temperature = 0.25\n[chat]\ntemperature = 0.9\n");
    assert_eq!(show(&[], &[]), is("0.25", "config.toml:1"));
    assert_eq!(files.shown(&["chat"], &[], "temperature").0, "0.9", "a command's own table comes first");
    let environment = [("SPEC_TEMPERATURE", "0.5")];
    assert_eq!(show(&[], &environment), is("0.5", "SPEC_TEMPERATURE"));
    assert_eq!(show(&["--temperature", "0.75"], &environment), is("0.75", "command line"));
    assert_eq!(show(&["--config", "none"], &[]), is("0", "default"));
    assert_eq!(show(&[], &[("SPEC_CONFIG", "none")]), is("0", "default"));
    assert_eq!(show(&[], &[("SPEC_TEMPERATURE", "")]), is("0.25", "config.toml:1"), "an empty variable is none");
    std::fs::write(files.path("other.txt"), "temperature = 1").expect("a file");
    assert_eq!(show(&["--config", "other.txt"], &[]), is("1", "other.txt:1"));
}

#[test]
fn settings_do_what_flags_do() {
    let files = Files::new();
    let flags =
        "generate --model target.gguf -p hello -n 12 --json --temperature 0.8 --seed 9 --stop zq --stop qz --threads 1";
    let expected = files.spec(flags).json();
    let model = files.path("target.gguf").display().to_string();
    files.configure(&format!(
        "model = {model:?}\ntemperature = 0.8\nseed = 9\nstop = [\"zq\", \"qz\"]\nthreads = 1\n\
         [generate]\nmax_tokens = 12\njson = true\n"
    ));
    assert_eq!(files.spec("generate -p hello").json()["tokens"], expected["tokens"]);
    let text = files.spec("generate -p hello --json=false").ok().out();
    assert_eq!(text, expected["text"].as_str().expect("text"), "a switch of the file is turned off");
    // Flags that exclude each other: the command line's wins.
    let environment = [("SPEC_PROMPT", "other"), ("SPEC_DRAFT", "ngram"), ("SPEC_MAX_TOKENS", "5")];
    let environed = files.spec_with(&["generate", "--ids", "70,71"], &environment).json();
    assert_eq!((&environed["completion_tokens"], &environed["prompt_tokens"]), (&Value::from(5), &Value::from(2)));
    let prompted = files.spec_with(&["generate"], &environment).json();
    assert_eq!(prompted["tokens"], files.spec("generate -p other -n 5").json()["tokens"]);
    // Printed, the settings are a file that sets the same.
    let printed = files.spec("generate -p hello --print-config").ok().out();
    std::fs::write(files.path("printed.txt"), printed).expect("a file");
    assert_eq!(files.spec("generate --config printed.txt").json()["tokens"], expected["tokens"]);
}

#[test]
fn wrong_settings_are_refused_in_one_line_with_their_place() {
    let files = Files::new();
    for (text, words) in [
        ("\ntemprature = 1", &["config.toml:2", "`temprature`", "`temperature`"][..]),
        ("[genrate]\n", &["config.toml:1", "`genrate`", "`generate`"]),
        ("[bench.foward]\n", &["`foward`", "`forward`"]),
        ("[chat]\ntop_kk = 1", &["config.toml:2", "`top_kk`", "flag of `spec chat`", "`top-k`"]),
        ("temperature = \"warm\"", &["config.toml:1", "warm"]),
        ("threads = [1, 2]", &["config.toml:1", "--threads", "one value"]),
        ("threads = {}", &["`threads`", "command"]),
        ("temperature = 2026-01-01", &["`temperature` takes text, a number"]),
        ("print-config = true", &["`print-config`"]),
        ("temperature = = 1", &["config.toml:1"]),
        ("json = 7", &["config.toml:1", "7"]),
    ] {
        files.configure(text);
        files.spec("generate --model target.gguf -p hi").refused(2, words);
    }
    files.configure("");
    let line = ["generate", "--model", "target.gguf", "-p", "hi"];
    files.spec_with(&line, &[("SPEC_THREADS", "many")]).refused(2, &["SPEC_THREADS", "many"]);
    files.spec_with(&line, &[("SPEC_CONFIG", "/nowhere/x.toml")]).refused(2, &["/nowhere/x.toml"]);
    let printed = files.spec_with(&["generate", "--print-config"], &[("SPEC_TEMPRATURE", "1")]).ok().out();
    assert!(printed.contains("SPEC_TEMPRATURE sets nothing; SPEC_TEMPERATURE would"), "{printed}");
}

#[test]
fn shells_complete_and_manuals_have_every_command() {
    let files = Files::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = files.spec(&format!("completions {shell}")).ok().out();
        assert!(script.contains("draft-model") && script.contains("print-config"), "{shell}");
    }
    assert!(files.spec("man").ok().out().contains(".TH spec"));
    let folder = files.path("pages");
    files.spec(&format!("man --out {}", folder.display())).ok();
    for page in ["spec.1", "spec-chat.1", "spec-generate.1", "spec-bench-forward.1"] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH"), "{page}");
    }
}

#[test]
fn help_answers_what_a_user_asks() {
    let files = Files::new();
    let help = files.spec("generate --help").ok().out();
    for text in ["Which drafter should I use?", "--draft-model SMALLER.gguf", "Examples:", "Speculation:", "Device:"] {
        assert!(help.contains(text), "{text}\n{help}");
    }
    assert!(!files.spec("generate -h").ok().out().contains("Which drafter"), "-h is short");
    assert!(files.spec("chat --help").ok().out().contains("Ctrl-C stops an answer"));
    assert!(files.spec("--help").ok().out().contains("--print-config"));
}

#[test]
fn a_limit_of_memory_refuses_with_a_plan_that_fits() {
    let files = Files::new();
    let spec = TinySpec { context: 65_536, ..TinySpec::llama() };
    std::fs::write(files.path("wide.gguf"), tiny::gguf(spec)).expect("a file");
    let line = "generate --model wide.gguf -p hi -n 2 --draft model --draft-model draft.gguf";
    let fits = |rest: &str| files.spec(&format!("{line} {rest}"));
    fits("--mem-limit 2GB").ok();
    let ran = fits("--context 60000 --mem-limit 45MB");
    let said = ran.err();
    assert_eq!((ran.output.status.code(), ran.out().as_str()), (Some(1), ""), "{said}");
    for text in [
        "weights of the draft model",
        "keys and values",
        "scratch",
        "--context ",
        "--draft ngram",
        "--kv q8",
        "--mem-limit allows 45.0 MB",
    ] {
        assert!(said.contains(text), "{text}\n{said}");
    }
    // Its first advice holds.
    let advised = said.lines().find_map(|line| line.trim().strip_prefix("--context ")).expect("an advice");
    let context: usize = advised.split(':').next().and_then(|text| text.parse().ok()).expect("a number");
    assert!((100..60_000).contains(&context), "{said}");
    // What the program takes for itself differs by some pages from run to run.
    fits(&format!("--context {} --mem-limit 45MB", context - context / 20)).ok();
}
