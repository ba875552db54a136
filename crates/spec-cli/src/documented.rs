//! What the documents say of the command line, against its parser.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use spec_core::{LengthPolicyName, RuleName};

use crate::args::{Cli, DraftLen};

/// Documents with commands in them. The changelog writes of commands in a shorthand of its own.
const DOCUMENTS: &[(&str, &str)] = &[
    ("README.md", include_str!("../../../README.md")),
    ("docs/README.zh-CN.md", include_str!("../../../docs/README.zh-CN.md")),
    ("docs/ARCHITECTURE.md", include_str!("../../../docs/ARCHITECTURE.md")),
    ("docs/audit.md", include_str!("../../../docs/audit.md")),
    ("docs/ascend.md", include_str!("../../../docs/ascend.md")),
    ("docs/explain.md", include_str!("../../../docs/explain.md")),
    ("docs/memory.md", include_str!("../../../docs/memory.md")),
    ("docs/observability.md", include_str!("../../../docs/observability.md")),
    ("docs/performance.md", include_str!("../../../docs/performance.md")),
    ("docs/tuning.md", include_str!("../../../docs/tuning.md")),
    ("docs/testing.md", include_str!("../../../docs/testing.md")),
    ARTICLE,
];

const ARTICLE: (&str, &str) = ("docs/from-the-article.md", include_str!("../../../docs/from-the-article.md"));

/// The words of a command as a shell sees them, up to a comment or the next command.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None;
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_with(String::new);
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#' | '|' | '>' | ';' | '&') if word.is_none() => break,
            _ => word.get_or_insert_with(String::new).push(character),
        }
    }
    words.extend(word);
    words
}

/// Every command of a document that starts `spec`: in blocks of code and between backquotes.
fn commands(document: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let candidates: Vec<&str> = match in_code || line.starts_with("    ") {
            true => vec![line.trim()],
            false => line.split('`').skip(1).step_by(2).collect(),
        };
        for candidate in candidates {
            // Variables may stand before the program.
            let words = candidate.split(' ').skip_while(|word| word.contains('='));
            let line = words.collect::<Vec<_>>().join(" ");
            let line = line.strip_prefix("target/release/").unwrap_or(&line);
            if line.starts_with("spec ") {
                found.push(line.to_owned());
            }
        }
    }
    found
}

/// Why the parser refuses a command; one that is cut short is not refused for what it leaves out.
fn refusal(words: Vec<String>) -> Option<String> {
    const INCOMPLETE: &[ErrorKind] = &[
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelp,
        ErrorKind::DisplayVersion,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let error = Cli::try_parse_from(&words).err()?;
    (!INCOMPLETE.contains(&error.kind())).then(|| format!("{}: {error}", words.join(" ")))
}

#[test]
fn every_command_of_the_documents_is_understood() {
    let mut refused = Vec::new();
    let mut count = 0;
    for (name, document) in DOCUMENTS {
        for command in commands(document) {
            count += 1;
            refused.extend(refusal(words(&command)).map(|why| format!("{name}: {why}")));
        }
    }
    assert!(count > 20, "{count} commands were found");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_flag_that_the_article_is_answered_with_is_understood() {
    let (_, document) = ARTICLE;
    let ours = document.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(2));
    let flags: Vec<&str> =
        ours.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter(|s| s.starts_with('-')).collect();
    assert!(flags.len() > 10, "{flags:?}");
    let refused: Vec<String> =
        flags.iter().filter_map(|flag| refusal(words(&format!("spec generate {flag}")))).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn what_is_not_there_is_refused() {
    for line in ["spec conjure", "spec generate --frobnicate", "spec generate --draft wings", "spec generate -n many"] {
        assert!(refusal(words(line)).is_some(), "{line}");
    }
    assert_eq!(words("spec a 'b c' d=\"e f\"   # g"), ["spec", "a", "b c", "d=e f"]);
    assert_eq!(commands("use `spec pull`\n```\nX=1 target/release/spec bench\n```\n"), ["spec pull", "spec bench"]);
}

#[test]
fn every_command_and_flag_says_what_it_does() {
    let mut silent = Vec::new();
    let mut left = vec![Cli::command()];
    while let Some(command) = left.pop() {
        if command.get_about().is_none() {
            silent.push(command.get_name().to_owned());
        }
        for argument in command.get_arguments() {
            if argument.get_help().is_none() && !argument.is_hide_set() {
                silent.push(format!("{} {}", command.get_name(), argument.get_id()));
            }
        }
        left.extend(command.get_subcommands().cloned());
    }
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn drafting_has_a_part_of_the_help_of_its_own() {
    let program = Cli::command();
    let generate = program.find_subcommand("generate").expect("it is there");
    for name in ["draft", "draft_model", "draft_len", "rule"] {
        let argument = generate.get_arguments().find(|argument| argument.get_id() == name).expect(name);
        assert_eq!(argument.get_help_heading(), Some("Speculation"), "{name}");
    }
    assert!(DOCUMENTS[0].1.contains("--draft-model SMALLER.gguf"), "the README shows how to switch it on");
}

#[test]
fn an_answer_has_a_limit_that_nobody_asked_for() {
    let mut matches = Cli::command().try_get_matches_from(words("spec generate -m M -p x")).unwrap();
    let (_, generate) = matches.remove_subcommand().expect("a subcommand");
    assert_eq!(generate.get_one("max_tokens"), Some(&512_usize));
}

#[test]
fn numbers_on_the_command_line_arrive_as_they_were_typed() {
    let parse = |line: &str| {
        let mut matches = Cli::command().try_get_matches_from(words(line)).unwrap();
        matches.remove_subcommand().expect("a subcommand").1
    };
    for k in [0, 1, 3, 63, 64] {
        let (width, threads) = (k.max(1), k + 1);
        let matches =
            parse(&format!("spec generate -m M -p x --draft-len {k} --draft-width {width} --threads {threads}"));
        assert_eq!(matches.get_one("draft_len"), Some(&DraftLen::Tokens(k)));
        assert_eq!(matches.get_one("draft_width"), Some(&width));
        assert_eq!(matches.get_one("threads"), Some(&threads));
    }
    let matches = parse(
        "spec generate -m M -p x -n 3 --context 77 --top-k 5 --top-p 0.25 --min-p 0.125 --temperature 0.75 \
         --repeat-penalty 1.5 --seed 9 --logprobs 4 --stop-id 6 --length-policy additive:3 --rule epsilon:0.5",
    );
    for (name, value) in [("max_tokens", 3_usize), ("context", 77), ("top_k", 5), ("logprobs", 4)] {
        assert_eq!(matches.get_one(name), Some(&value), "{name}");
    }
    for (name, value) in [("top_p", 0.25_f32), ("min_p", 0.125), ("temperature", 0.75), ("repeat_penalty", 1.5)] {
        assert_eq!(matches.get_one(name), Some(&value), "{name}");
    }
    assert_eq!(matches.get_one("seed"), Some(&9_u64));
    assert_eq!(matches.get_one("stop_id"), Some(&6_u32));
    assert_eq!(matches.get_one("length_policy"), Some(&"additive:3".parse::<LengthPolicyName>().unwrap()));
    assert_eq!(matches.get_one("rule"), Some(&"epsilon:0.5".parse::<RuleName>().unwrap()));
}
