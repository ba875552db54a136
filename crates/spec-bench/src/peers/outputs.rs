//! What llama.cpp's programs print, as far as it is used here.

use anyhow::{Context, Result};
use serde::Deserialize;

/// One answer of a program that decodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Decoded {
    /// Tokens of the prompt, by its own count.
    pub(crate) prompt_tokens: usize,
    pub(crate) tokens_per_second: f64,
    /// Draft tokens and how many of them were accepted, where the program drafts.
    pub(crate) drafts: Option<(usize, usize)>,
}

/// The figures among a program's messages, in whichever of the two forms it prints them. Lines may have a prefix.
pub(crate) fn decoded(messages: &str) -> Result<Decoded> {
    speculative(messages).or_else(|| completion(messages)).context("it printed no figures that are known here")
}

/// `decoded 205 tokens in 5.000 seconds, speed: 41.000 t/s`, with the drafting in the time.
fn speculative(messages: &str) -> Option<Decoded> {
    // The count and the speed of a line of this form.
    let speed = |verb: &str| {
        messages.lines().filter_map(|line| line.split_once(verb)).find_map(|(_, rest)| {
            let (_, speed) = rest.split_once("speed:")?;
            Some((first(rest)?, first(speed)?))
        })
    };
    let count = |name: &str| {
        messages
            .lines()
            .filter_map(|line| line.split_once('='))
            .find_map(|(left, right)| (left.split_whitespace().next_back() == Some(name)).then(|| first(right))?)
    };
    let (prompt_tokens, _): (usize, f64) = speed("encoded")?;
    let (_, tokens_per_second): (usize, f64) = speed("decoded")?;
    Some(Decoded { prompt_tokens, tokens_per_second, drafts: count("n_drafted").zip(count("n_accept")) })
}

/// `eval time = 5000.00 ms / 199 runs ( 25.13 ms per token, 39.80 tokens per second)`, with no sampling in the time.
fn completion(messages: &str) -> Option<Decoded> {
    let times = |prompt: bool| {
        messages.lines().filter(|line| line.contains("prompt eval time") == prompt).find_map(|line| {
            let (_, values) = line.split_once("eval time")?;
            let (_, count) = values.split_once('/')?;
            let (before, _) = values.split_once("tokens per second")?;
            Some((first(count)?, before.split_whitespace().next_back()?.parse().ok()?))
        })
    };
    let (prompt_tokens, _): (usize, f64) = times(true)?;
    let (_, tokens_per_second): (usize, f64) = times(false)?;
    Some(Decoded { prompt_tokens, tokens_per_second, drafts: None })
}

fn first<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.split_whitespace().next()?.parse().ok()
}

/// Tokens per second of `llama-bench`, with JSON as its output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bench {
    pub(crate) decode: f64,
    pub(crate) prefill: f64,
}

pub(crate) fn bench(printed: &str) -> Result<Bench> {
    #[derive(Deserialize)]
    struct Entry {
        n_prompt: usize,
        n_gen: usize,
        avg_ts: f64,
    }
    let entries: Vec<Entry> = serde_json::from_str(printed.trim()).context("it printed something other than JSON")?;
    let find = |what: &str, wanted: fn(&Entry) -> bool| {
        let entry = entries.iter().find(|entry| wanted(entry));
        entry.map(|entry| entry.avg_ts).with_context(|| format!("it timed no {what}"))
    };
    Ok(Bench {
        decode: find("decoding", |entry| entry.n_prompt == 0 && entry.n_gen > 0)?,
        prefill: find("prompt", |entry| entry.n_prompt > 0 && entry.n_gen == 0)?,
    })
}

/// Tokens per second of all sequences together, of `llama-batched-bench` with lines of JSON as its output.
pub(crate) fn batched(printed: &str, sequences: usize) -> Result<f64> {
    #[derive(Deserialize)]
    struct Line {
        pl: usize,
        speed_tg: f64,
    }
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    let lines = lines.filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let line = lines.into_iter().find(|line| line.pl == sequences);
    line.map(|line| line.speed_tg).with_context(|| format!("it timed no {sequences} sequences"))
}

#[cfg(test)]
mod tests {
    use super::{Bench, Decoded, batched, bench, decoded};

    #[test]
    fn the_figures_of_a_drafting_program_are_found_with_and_without_prefixes() {
        let messages = "\
0.01.234 I loading
encoded   61 tokens in    0.412 seconds, speed:  148.058 t/s
0.09.111 I decoded  205 tokens in    8.000 seconds, speed:   25.625 t/s

n_draft   = 3
n_predict = 205
n_drafted = 180
n_accept  = 131
accept    = 72.778%
        eval time =    99.00 ms /     3 runs   (   33.00 ms per token,    30.30 tokens per second)
";
        let expected = Decoded { prompt_tokens: 61, tokens_per_second: 25.625, drafts: Some((180, 131)) };
        assert_eq!(decoded(messages).unwrap(), expected);
    }

    #[test]
    fn the_decoding_of_a_completion_is_not_mistaken_for_its_prompt() {
        let messages = "\
common_perf_print:        load time =    1000.00 ms
common_perf_print: prompt eval time =     400.00 ms /    61 tokens (    6.56 ms per token,   152.50 tokens per second)
common_perf_print:        eval time =    5000.00 ms /   199 runs   (   25.13 ms per token,    39.80 tokens per second)
common_perf_print:       total time =    5500.00 ms /   260 tokens
";
        let expected = Decoded { prompt_tokens: 61, tokens_per_second: 39.8, drafts: None };
        assert_eq!(decoded(messages).unwrap(), expected);
        assert!(decoded("error: no model").is_err());
    }

    #[test]
    fn passes_alone_are_read_from_json() {
        let printed = r#"[{"n_prompt": 512, "n_gen": 0, "avg_ts": 153.5, "x": 1},
            {"n_prompt": 0, "n_gen": 64, "avg_ts": 37.25}]"#;
        assert_eq!(bench(printed).unwrap(), Bench { decode: 37.25, prefill: 153.5 });
        assert!(bench("[]").unwrap_err().to_string().contains("decoding"));
        let lines = "\n{\"pp\": 16, \"tg\": 48, \"pl\": 8, \"speed_tg\": 66.5}\nllama_perf: x\n";
        assert_eq!(batched(lines, 8).unwrap(), 66.5);
        assert!(batched(lines, 4).is_err());
    }
}
