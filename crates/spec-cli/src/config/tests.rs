use std::collections::BTreeMap;

use super::*;

/// Values of which every flag takes one.
const SAMPLES: &[&str] =
    &["1", "2", "0.5", "0", "7=1.5", "300MB", "1,2", "greedy", "fixed", "additive", "cpu", "ascend", "a text"];

fn read(words: &[String], environment: &[(String, String)]) -> Result<CommandLine, Refusal> {
    let words = std::iter::once("spec".to_owned()).chain(words.iter().cloned());
    CommandLine::read(words.map(OsString::from).collect(), environment.iter().cloned().collect())
}

/// What the program would see, without where it came from.
fn seen(words: &[String], environment: &[(String, String)]) -> Result<String, String> {
    let line = read(words, environment).map_err(|refusal| format!("{refusal:?}"))?;
    line.parsed().map(|cli| format!("{:?}", cli.command)).map_err(|refusal| format!("{refusal:?}"))
}

/// Commands with flags worth keeping, and what they cannot do without.
fn commands() -> [(Vec<&'static str>, Vec<&'static str>); 13] {
    [
        (vec!["generate"], vec!["--model=m.gguf", "--prompt=p"]),
        (vec!["chat"], vec!["--model=m.gguf"]),
        (vec!["serve"], vec!["--model=m.gguf"]),
        (vec!["batch"], vec!["--model=m.gguf", "--input=i", "--output=o"]),
        (vec!["audit"], vec!["--model=m.gguf", "--prompt=p"]),
        (vec!["inspect"], vec!["--model=m.gguf"]),
        (vec!["demo"], vec!["--model=m.gguf", "--prompts=p"]),
        (vec!["bench", "forward"], vec!["--model=m.gguf"]),
        (vec!["tune", "epsilon"], vec!["--model=m.gguf", "--prompts=p"]),
        (vec!["bench", "sweep"], vec!["--model=m.gguf", "--prompts=p", "--out=o"]),
        (vec!["quantize"], vec!["--type=q8_0", "in.gguf", "out.gguf"]),
        (vec!["doctor"], vec![]),
        (vec!["explain"], vec![]),
    ]
}

#[test]
fn every_flag_means_the_same_from_the_line_the_environment_and_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.toml");
    let root = Cli::command();
    let mut tried = 0;
    for (path, needed) in commands() {
        let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
        let command = leaf(&root, &path);
        for (arg, long) in flags(command) {
            // What excludes a needed flag stands in its place.
            let needed: Vec<&str> = needed
                .iter()
                .copied()
                .filter(|word| {
                    let other = word[2..].split('=').next().unwrap_or_default();
                    other != long && !excludes(command, arg.get_id().as_str(), other)
                })
                .collect();
            let words = |more: &[String]| -> Vec<String> {
                path.iter().cloned().chain(needed.iter().map(|word| (*word).to_owned())).chain(more.to_vec()).collect()
            };
            let switch = matches!(arg.get_action(), ArgAction::SetTrue);
            let samples: Vec<String> = match (switch, arg.get_possible_values().last()) {
                (true, _) => vec!["true".to_owned()],
                (false, Some(value)) => vec![value.get_name().to_owned()],
                (false, None) => SAMPLES.iter().map(|&sample| sample.to_owned()).collect(),
            };
            let given = |sample: &String| if switch { format!("--{long}") } else { format!("--{long}={sample}") };
            let plain = seen(&words(&[]), &[]);
            // A value that the flag takes and that shows.
            let fits = |sample: &&String| seen(&words(&[given(sample)]), &[]).is_ok_and(|line| Ok(line) != plain);
            let sample = samples.iter().find(fits);
            let sample = sample.unwrap_or_else(|| panic!("{path:?} --{long}: add a value to SAMPLES"));
            let expected = seen(&words(&[given(sample)]), &[]);
            let environment = [(variable(long), sample.clone())];
            assert_eq!(seen(&words(&[]), &environment), expected, "{path:?} {}", environment[0].0);
            for value in [serde_json::Value::from(sample.as_str()).to_string(), sample.clone()] {
                let text = format!("[{}]\n{long} = {value}\n", path.join("."));
                if toml::de::DeTable::parse(&text).is_err() {
                    continue; // no number: it needs its quotes
                }
                std::fs::write(&file, &text).expect("a file");
                let environment = [("SPEC_CONFIG".to_owned(), file.display().to_string())];
                assert_eq!(seen(&words(&[]), &environment), expected, "{path:?}: {text}");
            }
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried} flags");
}

#[test]
fn printed_values_are_read_back_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("printed.toml");
    let odd =
        ["--stop=a \"quoted\" \\ text", "--stop=tab\tand\nline", "--prompt=-1e3", "--seed=007", "--temperature=.5"];
    let mut words: Vec<String> = ["generate", "--model=m #1.gguf", "--json"].map(str::to_owned).to_vec();
    words.extend(odd.map(str::to_owned));
    let line = read(&words, &[]).expect("a legal line");
    std::fs::write(&file, line.print()).expect("a file");
    let environment = [("SPEC_CONFIG".to_owned(), file.display().to_string())];
    assert_eq!(seen(&["generate".to_owned()], &environment), seen(&words, &[]), "{}", line.print());
}

#[test]
fn variables_of_two_flags_are_never_one() {
    fn collect(command: &Command, names: &mut BTreeMap<String, String>) {
        for (_, long) in flags(command) {
            let before = names.insert(variable(long), long.to_owned());
            assert!(before.is_none_or(|before| before == long), "{long}");
        }
        command.get_subcommands().for_each(|below| collect(below, names));
    }
    let mut names = BTreeMap::new();
    collect(&Cli::command(), &mut names);
    // Variables that mean something else.
    for name in [
        "SPEC_CPU_ISA",
        "SPEC_MODELS",
        "SPEC_ASCEND_SIM",
        "SPEC_ATB_MAX_WS_SIZE",
        "SPEC_CONFIG",
        "SPEC_LOG",
        "SPEC_LOG_FORMAT",
        "SPEC_DECODE_DEBUG",
    ] {
        assert!(!names.contains_key(name), "{name}");
    }
}
