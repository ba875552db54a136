//! What `cargo xtask bench serve` writes and prints.

use std::path::Path;

use anyhow::Result;
use serde_json::json;
use spec_figures::{Percentiles, Plot, Spread, Table};

use super::peak::{Figures as Peak, Terms};
use super::plots::{Gains, Waits};
use super::{Measured, peer};
use crate::contention::Contention;
use crate::engine::Models;
use crate::options::{Common, file_name, write as write_file};

/// What the article says of its fleet: requests per second at the peak, before and after; and labels that agree.
const ARTICLE: (f64, f64, &str) = (120.0, 410.0, "98 %");

pub(super) fn write(measured: &Measured, common: &Common, models: &Models, terms: &Terms, out: &Path) -> Result<()> {
    let machine = common.machine();
    let mut title = file_name(&models.target);
    if let Some(draft) = &models.draft {
        title += &format!(" with {}", file_name(draft));
    }
    let heading = format!(
        "# Serving {title}\n\n{}. Greedy, at most {} tokens an answer; both modes on one server in one run, ratios of one round \
         with their least and most; every answer with drafts was equal to the one without.{}\n",
        machine.describe(),
        common.max_tokens(),
        Contention::describe(measured.contention)
    );
    let text = heading + &markdown(measured, terms);
    print!("{text}");
    write_file(&out.join("serve.md"), &text)?;
    let json = json!({
        "machine": machine,
        "target": file_name(&models.target),
        "draft_model": models.draft.as_deref().map(file_name),
        "max_tokens": common.max_tokens(),
        "contention": measured.contention,
        "throughput": measured.throughput,
        "peer": measured.peer,
        "peer_failures": measured.peer_failures,
        "dialogues": measured.dialogues,
        "intents": measured.intents,
        "peak": measured.peak,
    });
    write_file(&out.join("serve.json"), &serde_json::to_string_pretty(&json)?)?;
    if !measured.throughput.is_empty() {
        Gains(&measured.throughput).save(&out.join("serve-gains"))?;
    }
    if let Some(peak) = &measured.peak {
        Waits { title: "time to the first text", peak, of: |trial| trial.first }.save(&out.join("serve-first"))?;
        Waits { title: "time to the whole answer", peak, of: |trial| trial.whole }.save(&out.join("serve-whole"))?;
    }
    eprintln!("table, JSON and plots are in {}", out.display());
    Ok(())
}

fn markdown(measured: &Measured, terms: &Terms) -> String {
    let mut text = String::new();
    if !measured.throughput.is_empty() {
        let mut table = Table::new(["prompt", "at once", "plain tokens/s", "speculative tokens/s", "ratio", "ceiling"]);
        for figures in &measured.throughput {
            let ceiling = figures
                .ceiling
                .map_or(String::new(), |ceiling| format!("{:.2} with {} drafts", ceiling.ratio, ceiling.draft_len));
            table.row([
                figures.prompt.clone(),
                figures.clients.to_string(),
                spread(&figures.plain, 1),
                spread(&figures.speculative, 1),
                spread(&figures.ratio, 2),
                ceiling,
            ]);
        }
        section(&mut text, "Throughput", &table);
        text.push_str(
            "\nThe ceiling is what drafts would bring that cost nothing: tokens that survive, as often as they did for one client,\n\
             over the measured time of a pass of all their rows.\n",
        );
    }
    if !measured.peer.is_empty() {
        let mut table = Table::new(["prompt", "at once", "ours", "llama.cpp", "its setting", "ratio"]);
        for figures in &measured.peer {
            table.row([
                figures.prompt.clone(),
                figures.clients.to_string(),
                spread(&figures.ours, 1),
                spread(&figures.theirs, 1),
                figures.setting.to_owned(),
                spread(&figures.ratio, 2),
            ]);
        }
        section(&mut text, "Beside llama.cpp's server", &table);
        if let Some(mean) = peer::mean(&measured.peer) {
            text.push_str(&format!("\nGeometric mean: {mean:.2}.\n"));
        }
        for (setting, reason) in &measured.peer_failures {
            text.push_str(&format!("\nIts setting `{setting}` failed: {reason}\n"));
        }
    }
    if let Some(figures) = &measured.dialogues {
        let mut table = Table::new(["seconds", "plain p50", "p95", "p99", "speculative p50", "p95", "p99", "ratio"]);
        for (name, both, ratio) in [
            ("to the first text", &figures.first, &figures.first_ratio),
            ("to the whole answer", &figures.whole, &figures.whole_ratio),
        ] {
            let columns = both.iter().flat_map(|of| seconds(*of));
            table.row(std::iter::once(name.to_owned()).chain(columns).chain([spread(ratio, 2)]));
        }
        section(&mut text, "Dialogues", &table);
        text.push_str(&format!(
            "\n{} turns; {} did not reuse what was said before; {:.0} % of all tokens of prompts were not read again.\n",
            figures.turns,
            figures.without_reuse,
            figures.cached_share * 100.0
        ));
    }
    if let Some(figures) = &measured.intents {
        let share = |count: usize| format!("{:.0} %", count as f64 / figures.queries.max(1) as f64 * 100.0);
        let mut table = Table::new([
            "queries",
            "same label as plain",
            "right",
            "plain queries/s",
            "speculative queries/s",
            "article",
        ]);
        table.row([
            figures.queries.to_string(),
            share(figures.agreed),
            share(figures.right),
            format!("{:.2}", figures.per_second[0]),
            format!("{:.2}", figures.per_second[1]),
            ARTICLE.2.to_owned(),
        ]);
        section(&mut text, "Labels", &table);
    }
    if let Some(figures) = &measured.peak {
        peaks(&mut text, figures, terms);
    }
    text
}

fn peaks(text: &mut String, figures: &Peak, terms: &Terms) {
    let headings =
        ["mode", "requests/s", "clients", "refused", "first p50", "p95", "p99", "whole p50", "p95", "p99", "in time"];
    let mut table = Table::new(headings);
    for trial in &figures.trials {
        let start = [
            trial.mode.name().to_owned(),
            format!("{:.2}", trial.rate),
            trial.clients.to_string(),
            trial.refused.to_string(),
        ];
        let waits = [trial.first, trial.whole]
            .into_iter()
            .flat_map(|of| of.map_or_else(|| vec!["-".to_owned(); 3], |of| seconds(of).to_vec()));
        table.row(start.into_iter().chain(waits).chain([if trial.in_time { "yes" } else { "no" }.to_owned()]));
    }
    section(text, "Peak", &table);
    let [plain, speculative] = figures.peak;
    let ratio = if plain > 0.0 { format!("{:.2}", speculative / plain) } else { "none".to_owned() };
    text.push_str(&format!(
        "\nIn time: p95 at most {} s to the first text and {} s to the last, nobody refused. Peak: {plain:.2} requests/s plain, \
         {speculative:.2} speculative, ratio {ratio}; the article's fleet, {} to {}, ratio {:.2}.\n",
        terms.first,
        terms.whole,
        ARTICLE.0,
        ARTICLE.1,
        ARTICLE.1 / ARTICLE.0
    ));
}

fn section(text: &mut String, heading: &str, table: &Table) {
    text.push_str(&format!("\n## {heading}\n\n{}", table.markdown()));
}

fn spread(of: &Spread, digits: usize) -> String {
    if of.count == 1 {
        return format!("{:.digits$}", of.median);
    }
    format!("{:.digits$} ({:.digits$} to {:.digits$})", of.median, of.least, of.most)
}

fn seconds(of: Percentiles) -> [String; 3] {
    [of.p50, of.p95, of.p99].map(|seconds| format!("{seconds:.2}"))
}

#[cfg(test)]
mod tests {
    use super::markdown;
    use crate::serve::client::Mode;
    use crate::serve::peak::{Figures as Peak, Terms, Trial};
    use crate::serve::{Measured, intents};
    use spec_figures::Percentiles;
    use std::time::Duration;

    #[test]
    fn what_was_measured_is_shown_and_nothing_else() {
        let terms = Terms { first: 2.0, whole: 9.5, trial: Duration::from_secs(1), start: 1.0, max_tokens: 8 };
        assert_eq!(markdown(&Measured::default(), &terms), "");
        let waits = Percentiles::of(&[0.25, 0.5]);
        let trial =
            Trial { mode: Mode::Plain, rate: 1.5, clients: 2, refused: 0, first: waits, whole: None, in_time: true };
        let measured = Measured {
            intents: Some(intents::Figures { queries: 4, agreed: 4, right: 3, per_second: [1.0, 2.0] }),
            peak: Some(Peak { trials: vec![trial], peak: [1.5, 3.0] }),
            ..Measured::default()
        };
        let text = markdown(&measured, &terms);
        for part in ["100 %", "75 %", "98 %", "ratio 2.00", "120 to 410", "9.5 s to the last", "0.25"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("Throughput") && !text.contains("llama.cpp"), "{text}");
    }
}
