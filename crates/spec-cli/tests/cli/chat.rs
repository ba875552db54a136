//! `spec chat`, piped and at a terminal.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::terminal::{CTRL_C, CTRL_D, Terminal};
use super::*;

/// Files with a target whose context holds a conversation.
fn files() -> Files {
    let files = Files::new();
    let spec = TinySpec { context: 16_384, ..TinySpec::llama() };
    std::fs::write(files.path("long.gguf"), tiny::gguf(spec)).expect("a file");
    files
}

impl Files {
    /// Runs `spec` with these lines as its input.
    pub(crate) fn piped(&self, line: &str, input: &str) -> Ran {
        let mut command = self.command(&line.split(' ').collect::<Vec<_>>());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads its input");
        Ran { line: format!("{command:?}\n{input}"), output: child.wait_with_output().expect("it ends") }
    }

    /// A chat at a terminal, up to its first prompt.
    fn chat(&self, flags: &str) -> Terminal {
        let line = format!("chat --model long.gguf {flags}");
        let mut terminal = Terminal::start(self.command(&line.split_whitespace().collect::<Vec<_>>()));
        terminal.wait_for("/help lists commands");
        terminal.ready();
        terminal
    }
}

pub(crate) fn answers(ran: Ran) -> Vec<Value> {
    let out = ran.ok().out();
    out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

pub(crate) fn count(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

#[test]
fn piped_lines_are_turns_and_every_answer_is_that_of_a_cold_start() {
    let files = files();
    for sampling in ["", " --temperature 0.8 --seed 4", " --kv q8", " --kv f32"] {
        for draft in ["--draft self --draft-len 4", "--draft suffix", "--draft auto --draft-model draft.gguf"] {
            let base = format!("chat --model long.gguf -n 40 --json --system abc{sampling} {draft}");
            let saved = files.path("saved.txt");
            let turns = ["ababab", "and a second", "then the third"];
            let script = format!("{}\n{}\n/save {}\n{}\n", turns[0], turns[1], saved.display(), turns[2]);
            let warm = answers(files.piped(&base, &script));
            assert_eq!(warm.len(), 3, "{draft}");
            let kept = |answer: &Value| (count(&answer["cached_tokens"]), count(&answer["prompt_tokens"]));
            assert_eq!(kept(&warm[0]).0, 0);
            for pair in warm.windows(2) {
                // The text of an answer may be split otherwise when it is read again; what stands before it is not.
                assert!(kept(&pair[1]).0 >= kept(&pair[0]).1 - 1, "{draft}: {pair:?}");
            }
            let cold = answers(files.piped(&format!("{base} --load saved.txt"), turns[2]));
            assert_eq!(cold[0]["tokens"], warm[2]["tokens"], "{draft}{sampling}");
            assert_eq!(kept(&cold[0]), (0, kept(&warm[2]).1));
            let plain = base.replace(draft, "--draft none") + " --load saved.txt";
            assert_eq!(answers(files.piped(&plain, turns[2]))[0]["tokens"], cold[0]["tokens"], "{draft}{sampling}");
            let drafted: u64 = warm.iter().map(|answer| count(&answer["speculation"]["drafted"])).sum();
            assert!(
                drafted > 0 || (draft == "--draft suffix" && sampling.contains("temperature")),
                "{draft}{sampling}"
            );
        }
    }
}

#[test]
fn a_pipe_gets_answers_and_nothing_else() {
    let files = files();
    let ran = files.piped("chat --model long.gguf -n 12", "one\n\n/stats\ntwo\n").ok();
    let texts: Vec<Value> = answers(files.piped("chat --model long.gguf -n 12 --json", "one\ntwo\n"));
    let expected: String = texts
        .iter()
        .map(|answer| answer["text"].as_str().expect("text"))
        .map(|text| if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") })
        .collect();
    assert_eq!(ran.out(), expected);
    assert!(!ran.err().contains('\x1b') && !ran.err().contains("> "), "{}", ran.err());
    assert!(ran.err().contains("prefilled"), "{}", ran.err());
}

#[test]
fn commands_do_what_help_says() {
    let files = files();
    let chat = "chat --model long.gguf -n 8 --json --temperature 0.9 --seed 3";
    let fresh = answers(files.piped(chat, "one\n"));
    let again = answers(files.piped(chat, "two\n/undo\none\n/clear\none\n"));
    assert_eq!(again[1]["tokens"], fresh[0]["tokens"], "a turn that is taken back was never there");
    assert_eq!(again[2]["tokens"], fresh[0]["tokens"], "a cleared conversation is a new one");
    let retried = answers(files.piped(chat, "one\n/retry\n"));
    assert_eq!(retried[0]["tokens"], fresh[0]["tokens"]);
    assert_ne!(retried[1]["tokens"], fresh[0]["tokens"], "another answer to the same turn");
    assert_eq!(retried[1]["prompt_tokens"], fresh[0]["prompt_tokens"]);
    let told = answers(files.piped(&format!("{chat} --system brief"), "one\n"));
    assert_eq!(answers(files.piped(chat, "/system brief\none\n"))[0]["tokens"], told[0]["tokens"]);
    assert_eq!(answers(files.piped(chat, "/system brief\n/system off\none\n"))[0]["tokens"], fresh[0]["tokens"]);
    let cold = answers(files.piped("chat --model long.gguf -n 5 --json", "one\n"));
    let set = "/set temperature 0\n/set max-tokens 5\n/set draft none\none\n";
    let set = answers(files.piped(chat, set));
    assert_eq!((&set[0]["tokens"], &set[0]["speculation"]["drafter"]), (&cold[0]["tokens"], &Value::from("none")));
    let lists = files.piped(chat, "/help\n/set\n").ok().err();
    assert!(["/retry", "/load FILE", "temperature      0.9"].iter().all(|text| lists.contains(text)), "{lists}");
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_and_the_rest_goes_on() {
    let files = files();
    for (line, said) in [
        ("/hlep", "did you mean /help?"),
        ("/set temprature 1", "did you mean `temperature`?"),
        ("/set temperature -1", "temperature"),
        ("/set draft model", "--draft-model"),
        ("/load nowhere.json", "nowhere.json"),
        ("/undo", "nothing was asked yet"),
        ("/save", "/save needs FILE"),
    ] {
        let ran = files.piped("chat --model long.gguf -n 3 --json", &format!("{line}\none\n"));
        assert_eq!(ran.output.status.code(), Some(1), "{line}: a script is told");
        assert_eq!(ran.out().lines().count(), 1, "{line}: the turn behind it is answered");
        assert_eq!(ran.err().lines().count(), 1, "{line}: {}", ran.err());
        assert!(ran.err().contains(said), "{line}: {}", ran.err());
    }
    let long = "x ".repeat(200);
    let ran = files.piped("chat --model target.gguf -n 3 --json", &format!("{long}\none\n"));
    assert!(ran.err().contains("--context 256 leaves no room"), "{}", ran.err());
    assert_eq!(ran.out().lines().count(), 1, "a turn that was too long is not kept");
    files.patched("bare.gguf", "tokenizer.chat_templat", 0, b"f");
    files.piped("chat --model bare.gguf", "hi\n").refused(2, &["bare.gguf", "no chat template"]);
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let files = files();
    let mut terminal = files.chat("-n 16000 --context 16384 --draft none");
    terminal.enter("tell me everything");
    terminal.wait_for_bytes(400);
    terminal.press(CTRL_C);
    terminal.wait_for("[stopped; the answer stays as far as it came]");
    terminal.ready();
    terminal.enter("/set max-tokens 6");
    terminal.ready();
    terminal.enter("and more");
    terminal.wait_for("cut at --max-tokens 6");
    terminal.ready();
    terminal.enter("/stats");
    let stats = terminal.wait_for("positions\r\n");
    assert!(stats.contains("all 2 answers") && stats.contains("kept from before"), "{stats}");
    terminal.ready();
    terminal.press(CTRL_C);
    terminal.wait_for("Ctrl-C again, or Ctrl-D, leaves");
    terminal.ready();
    terminal.press(CTRL_C);
    let (status, seen) = terminal.end();
    assert!(status.success(), "{status}: {seen}");
}

#[test]
fn turns_of_several_lines_are_typed_with_backslashes_and_quotes() {
    let files = files();
    let saved = files.path("typed.txt");
    let mut terminal = files.chat("-n 3");
    terminal.enter("\"\"\"\rthree\r\rfour\r\"\"\"");
    terminal.wait_for("cut at --max-tokens 3");
    terminal.ready();
    terminal.enter("one\\\rtwo");
    terminal.wait_for("cut at --max-tokens 3");
    terminal.ready();
    terminal.enter(&format!("/save {}", saved.display()));
    terminal.wait_for("2 turns are in");
    terminal.ready();
    terminal.press(CTRL_D);
    assert!(terminal.end().0.success());
    let saved: Value = serde_json::from_slice(&std::fs::read(&saved).expect("it was saved")).expect("JSON");
    let said = |index: usize| saved["messages"][index]["content"].as_str().expect("text");
    assert_eq!((said(0), said(2)), ("three\n\nfour", "one\ntwo"));

    // The next chat remembers what was typed, and completes commands.
    let mut terminal = files.chat("-n 3");
    terminal.enter("\x1b[A\x1b[A");
    terminal.wait_for("cut at --max-tokens 3");
    terminal.ready();
    terminal.enter("/sta\t");
    let stats = terminal.wait_for("positions\r\n");
    let once = answers(files.piped("chat --model long.gguf -n 3 --json", "one\\\ntwo\n"));
    assert!(stats.contains(&format!("prompt of {} tokens", once[0]["prompt_tokens"])), "{stats}");
    terminal.ready();
    terminal.enter("/exit");
    assert!(terminal.end().0.success());
}

#[test]
fn drafts_are_coloured_on_a_terminal_and_plain_elsewhere() {
    let files = files();
    let line =
        ["generate", "--model", "long.gguf", "-p", "abcabcabc", "-n", "60", "--draft", "ngram", "--draft-len", "4"];
    let plain = files.spec_words(&line).ok().out();
    let shown = |flags: &[&str], environment: &[(&str, &str)]| {
        let mut command = files.command(&[&line[..], flags].concat());
        command.envs(environment.iter().copied());
        Terminal::start(command).end().1
    };
    let accepted = "\x1b[32m";
    let seen = shown(&["--show-accept"], &[]);
    assert!(seen.contains(accepted) && seen.contains("accepted draft"), "{seen}");
    assert!(!seen.contains("\x1b[2;31;9m"), "rejected ones are shown on request: {seen}");
    assert!(shown(&["--show-accept=all"], &[]).contains("\x1b[2;31;9m"));
    for (flags, environment) in [
        (&[][..], &[][..]),
        (&["--show-accept"], &[("NO_COLOR", "1")]),
        (&["--show-accept", "--color", "never"], &[]),
        (&["--show-accept"], &[("TERM", "dumb")]),
    ] {
        let seen = shown(flags, environment);
        assert!(!seen.contains(accepted), "{flags:?} {environment:?}: {seen}");
    }
    let piped = |flags: &[&str]| files.spec_words(&[&line[..], flags].concat()).ok().out();
    assert_eq!(piped(&["--show-accept"]), plain);
    let always = piped(&["--show-accept", "--color", "always"]);
    assert!(always.contains(accepted));
    let bare = ["\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[0m"].iter().fold(always, |text, code| text.replace(code, ""));
    assert_eq!(bare, plain, "colours are all that is added");
}

#[test]
fn loading_shows_a_bar_on_a_terminal_alone() {
    let files = files();
    let line = ["generate", "--model", "long.gguf", "-p", "abc", "-n", "2"];
    let (status, seen) = Terminal::start(files.command(&line)).end();
    assert!(status.success() && seen.contains("loading "), "{seen}");
    assert!(!files.spec_words(&line).ok().err().contains("loading "));
}
