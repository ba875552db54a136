//! A study as a table, as JSON and as CSV.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use spec_figures::Table;

use super::bootstrap::Interval;
use super::figures::{Figures, Study, Verdict};

/// Writes sweep.json and sweep.csv.
pub(super) fn write(study: &Study, folder: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(study)?;
    for (name, text) in [("sweep.json", json + "\n"), ("sweep.csv", csv(study))] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The study in Markdown: what was run, the article's columns beside ours, the other figures, and what may be said.
pub(super) fn table(study: &Study) -> String {
    let mut text = format!(
        "{}, {}; drafter {}\n{} prompts, {} of each, at most {} tokens, temperature {}, {} repeats{}\n\
         plain decoding: {:.1} tokens/s, {:.3} nats a token\n\
         in brackets: what 95 % of {} resamples of the prompts give, seed {}\n\n",
        study.target,
        study.device,
        study.drafter,
        study.prompts.len(),
        if study.seeds == 1 { "an answer".to_owned() } else { format!("{} answers", study.seeds) },
        study.max_tokens,
        study.temperature,
        study.repeats,
        study.loss_budget.map_or(String::new(), |budget| format!(", a loss budget of {budget} nats")),
        study.plain.tokens_per_second.value,
        study.plain.logprob.value,
        super::bootstrap::RESAMPLES,
        super::bootstrap::SEED,
    );
    let mut article =
        Table::new(["rule", "length", "x plain", "the article", "BLEU drop, %", "the article", "its scenario"]);
    let mut others = Table::new([
        "rule",
        "length",
        "tokens/s",
        "accepted",
        "a round",
        "exact match",
        "edit similarity",
        "nats a token",
        "forgiven",
    ]);
    for figures in &study.settings {
        article.row(article_row(study, figures));
        others.row(other_row(figures));
    }
    text += &format!("{}\n{}\n", article.markdown(), others.markdown());
    let mut rules: Vec<&str> = Vec::new();
    for figures in &study.settings {
        if !rules.contains(&&*figures.rule) {
            rules.push(&figures.rule);
        }
    }
    for rule in rules {
        let settings: Vec<&Figures> = study.settings.iter().filter(|figures| figures.rule == rule).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{rule}: {}", said(study, rule, &settings));
    }
    text
}

/// The article's columns: length, speed-up, BLEU drop, scenario.
fn article_row(study: &Study, figures: &Figures) -> Vec<String> {
    let article = study.article.iter().find(|line| line.length == figures.length);
    let none = || "-".to_owned();
    let drop = figures.text.map(|text| text.bleu.map(|bleu| 100.0 - bleu));
    vec![
        figures.rule.clone(),
        figures.length.to_string(),
        shown(&figures.speedup, 2),
        article.map_or_else(none, |line| format!("{:.1}", line.speedup)),
        drop.map_or_else(none, |drop| shown(&drop, 1)),
        article.map_or_else(none, |line| format!("{:.1}", line.bleu_drop)),
        article.map_or_else(none, |line| line.scenario.to_owned()),
    ]
}

fn other_row(figures: &Figures) -> Vec<String> {
    let none = || "-".to_owned();
    let percent = |interval: Interval| interval.map(|share| 100.0 * share);
    vec![
        figures.rule.clone(),
        figures.length.to_string(),
        format!("{:.1}", figures.tokens_per_second.value),
        format!("{:.0} %", 100.0 * figures.acceptance_rate.value),
        format!("{:.2}", figures.mean_accepted_length.value),
        figures.text.map_or_else(none, |text| shown(&percent(text.exact_match), 0) + " %"),
        figures.text.map_or_else(none, |text| shown(&percent(text.edit_similarity), 1) + " %"),
        shown(&figures.logprob, 3),
        match figures.forgiven.count {
            _ if figures.lossless => none(),
            count => format!("{count}, {:.1} nats", figures.forgiven.log_ratio),
        },
    ]
}

/// What may be said of a rule, over its lengths.
fn said(study: &Study, rule: &str, settings: &[&Figures]) -> String {
    let drafted: usize = settings.iter().map(|figures| figures.drafted).sum();
    let any = |verdict| settings.iter().any(|figures| figures.verdict == verdict);
    let plain = &study.plain.logprob;
    if any(Verdict::NothingDrafted) {
        let hint = if rule.starts_with("epsilon") { "; it is for drafts of a draft model" } else { "" };
        format!("at some length nothing was drafted, which shows nothing{hint}")
    } else if any(Verdict::LosslessChecked) {
        let answers = settings.len() * study.prompts.len() * study.seeds as usize;
        format!(
            "lossless, checked: {answers} of {answers} answers have the plain ones' token ids; {drafted} tokens were drafted"
        )
    } else if any(Verdict::SameLawOutside) {
        format!(
            "samples of the same law, so that texts are not compared; at some length the mean log-probability is NOT that of plain \
             sampling ({:.3}) within the interval of the difference, prompt by prompt: about once in twenty times by chance, `spec audit` \
             tells a fault from it",
            plain.value
        )
    } else if any(Verdict::SameLawWithin) {
        format!(
            "samples of the same law, so that texts are not compared; mean log-probabilities are that of plain sampling, {:.3}, within the \
             interval of the difference, prompt by prompt",
            plain.value
        )
    } else if any(Verdict::SameLawUnjudged) {
        "samples of the same law, so that texts are not compared; too few prompts to compare log-probabilities"
            .to_owned()
    } else {
        let forgiven: usize = settings.iter().map(|figures| figures.forgiven.count).sum();
        format!(
            "LOSSY, its price is in the table; {forgiven} of {drafted} drafted tokens were kept that the exact rule keeps less often"
        )
    }
}

/// A figure with its interval, or alone where nothing varies.
fn shown(interval: &Interval, digits: usize) -> String {
    let Interval { value, low, high } = interval;
    match low == high {
        true => number(*value, digits),
        false => format!("{} ({} to {})", number(*value, digits), number(*low, digits), number(*high, digits)),
    }
}

/// A number, and no minus before zeros.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|character| matches!(character, '0' | '.')) => rest.to_owned(),
        _ => text,
    }
}

/// A line for each setting; intervals as three columns.
fn csv(study: &Study) -> String {
    type Column = (&'static str, fn(&Figures) -> Option<Interval>);
    const INTERVALS: [Column; 8] = [
        ("tokens_per_second", |figures| Some(figures.tokens_per_second)),
        ("speedup", |figures| Some(figures.speedup)),
        ("acceptance_rate", |figures| Some(figures.acceptance_rate)),
        ("mean_accepted_length", |figures| Some(figures.mean_accepted_length)),
        ("exact_match", |figures| figures.text.map(|text| text.exact_match)),
        ("bleu", |figures| figures.text.map(|text| text.bleu)),
        ("edit_similarity", |figures| figures.text.map(|text| text.edit_similarity)),
        ("logprob", |figures| Some(figures.logprob)),
    ];
    let mut text = String::from("rule,lossless,length,rounds,drafted,accepted,forgiven,forgiven_log_ratio");
    for (name, _) in INTERVALS {
        let _ = write!(text, ",{name},{name}_low,{name}_high");
    }
    text.push('\n');
    for figures in &study.settings {
        let Figures { rule, lossless, length, rounds, drafted, accepted, forgiven, .. } = figures;
        let _ = write!(
            text,
            "{rule},{lossless},{length},{rounds},{drafted},{accepted},{},{}",
            forgiven.count, forgiven.log_ratio
        );
        for (_, of) in INTERVALS {
            match of(figures) {
                Some(Interval { value, low, high }) => _ = write!(text, ",{value},{low},{high}"),
                None => text += ",,,",
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::study;
    use super::*;

    #[test]
    fn the_table_has_the_articles_columns_beside_ours_and_says_what_was_checked() {
        let text = table(&study());
        let row = |rule: &str| text.lines().find(|line| line.starts_with(&format!("| {rule}"))).expect(rule).to_owned();
        let cells: Vec<String> = row("greedy").split('|').map(|cell| cell.trim().to_owned()).collect();
        assert_eq!(cells[1..8], ["greedy", "3", "1.00 (0.50 to 2.00)", "2.1", "0.0", "0.3", "quality first"]);
        assert!(row("epsilon:0.1").contains("(0.0 to"), "{text}");
        assert!(text.contains("greedy: lossless, checked: 2 of 2 answers"), "{text}");
        assert!(text.contains("epsilon:0.1: LOSSY"), "{text}");
    }

    #[test]
    fn json_and_csv_have_every_setting_and_can_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let study = study();
        write(&study, folder.path()).expect("files");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
        let json: serde_json::Value = serde_json::from_str(&read("sweep.json")).expect("JSON");
        assert_eq!(json["settings"][1]["rule"], "epsilon:0.1");
        assert_eq!(json["settings"][0]["verdict"], "lossless-checked");
        assert_eq!(json["article"][2]["speedup"], 4.5);
        let csv = read("sweep.csv");
        let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [32, 32, 32]);
        assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("greedy,true,3,8,16,12,0,0,")), "{csv}");
    }

    #[test]
    fn figures_that_do_not_vary_stand_alone() {
        assert_eq!(shown(&Interval::certain(-0.0), 1), "0.0");
        assert_eq!(shown(&Interval { value: 1.0, low: 0.5, high: 2.0 }, 1), "1.0 (0.5 to 2.0)");
        assert_eq!(
            ["-0.052", "-1.000", "0.000"],
            [number(-0.052, 3), number(-1.0, 3), number(-0.0004, 3)].each_ref().map(|n| &**n)
        );
    }
}
