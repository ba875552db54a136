//! What `cargo xtask bench` writes: tables, plots, JSON.

use std::path::Path;

use anyhow::Result;
use serde_json::json;
use spec_figures::{Plot, Spread, Table};

use super::Measured;
use crate::contention::Contention;
use crate::drafters::{DRAFT_FREE, PLAIN, WITH_DRAFT_MODEL};
use crate::engine::{Models, Sampling};
use crate::generations::{CaseFigures, Generations};
use crate::options::{Common, file_name, write as write_file};
use crate::passes::PassFigures;
use crate::plots::{Acceptance, RowTimes, Speeds};
use crate::reach::{self, Figure, Judged, judge};

/// The context that the reach of decoding is set for.
const DECODE_CONTEXT: usize = 512;
/// Positions in the draft that a table has room for.
const POSITIONS: usize = 12;

/// Writes bench.json, bench.md and the plots to `out`, and prints the tables.
pub(super) fn write(measured: &Measured, common: &Common, models: &Models, out: &Path) -> Result<()> {
    let passes = measured.passes.figures()?;
    let cases = measured.generations.figures();
    let judged = reach::unless_spoilt(verdicts(measured, &passes, models)?, measured.contention);
    let machine = common.machine();

    let heading = Heading {
        machine: machine.describe(),
        device: passes.device.clone(),
        target: file_name(&models.target),
        draft: models.draft.as_deref().map(file_name),
        repeats: common.repeats(),
        max_tokens: common.max_tokens(),
        contention: Contention::describe(measured.contention),
    };
    let text = markdown(&heading, &passes, &cases, &measured.generations, &judged);
    print!("{text}");
    write_file(&out.join("bench.md"), &text)?;

    let json = json!({
        "machine": machine,
        "target": heading.target,
        "draft_model": heading.draft,
        "repeats": heading.repeats,
        "max_tokens": heading.max_tokens,
        "contention": measured.contention,
        "passes": passes,
        "generations": cases,
        "startup": {
            "seconds": Spread::of(&measured.startup.seconds),
            "peak_bytes": measured.startup.peak_bytes,
        },
        "judged": judged,
    });
    write_file(&out.join("bench.json"), &serde_json::to_string_pretty(&json)?)?;

    RowTimes(&passes).save(&out.join("rows"))?;
    let drafters = measured.generations.drafters();
    let panels = present_samplings(&cases)
        .map(|sampling| {
            let of_it = cases.iter().filter(|case| case.sampling == sampling).collect();
            (sampling_title(sampling).to_owned(), of_it)
        })
        .collect();
    Speeds { title: format!("{}: tokens per second by drafter", heading.models()), drafters, panels }
        .save(&out.join("tokens-per-second"))?;
    let sampling = present_samplings(&cases).next().unwrap_or(Sampling::Greedy);
    let lines = drafters.iter().enumerate().skip(1);
    let lines = lines.map(|(at, name)| (*name, at, measured.generations.by_position(name, sampling)));
    Acceptance {
        title: format!("{}: acceptance by position, {}", heading.models(), sampling.name()),
        drafters: lines.filter(|(_, _, positions)| !positions.is_empty()).collect(),
    }
    .save(&out.join("acceptance"))?;
    eprintln!("tables, plots and JSON are in {}", out.display());
    Ok(())
}

struct Heading {
    machine: String,
    device: String,
    target: String,
    draft: Option<String>,
    repeats: usize,
    max_tokens: usize,
    /// A sentence, or nothing.
    contention: String,
}

impl Heading {
    fn models(&self) -> String {
        match &self.draft {
            Some(draft) => format!("{} with {draft}", self.target),
            None => self.target.clone(),
        }
    }
}

fn present_samplings(cases: &[CaseFigures]) -> impl Iterator<Item = Sampling> + '_ {
    Sampling::ALL.into_iter().filter(|sampling| cases.iter().any(|case| case.sampling == *sampling))
}

fn sampling_title(sampling: Sampling) -> &'static str {
    match sampling {
        Sampling::Greedy => "greedy",
        Sampling::Seeded => "temperature 0.8, seed 1",
    }
}

fn markdown(
    heading: &Heading,
    passes: &PassFigures,
    cases: &[CaseFigures],
    generations: &Generations,
    judged: &[Judged],
) -> String {
    let mut text = format!(
        "# {}\n\n{}; {}. Medians of {} interleaved rounds, {} tokens an answer; a ratio is taken within a round, and \
         stands with its least and most. Every answer had the same token ids with and without drafts.{}\n\n",
        heading.models(),
        heading.machine,
        heading.device,
        heading.repeats,
        heading.max_tokens,
        heading.contention
    );
    text += &format!(
        "## A pass by its rows, all logits, milliseconds\n\n{}\nRead bandwidth {}, register-only int8 rate {}.{}\n",
        rows_table(passes).markdown(),
        spread(passes.bandwidth, 1e9, "GB/s"),
        spread(passes.peak_int8_macs, 1e9, "GMAC/s"),
        passes.draft_cost.map_or(String::new(), |cost| {
            format!(" A draft token costs {} passes of one row of the target.", ratio(cost))
        })
    );
    for sampling in present_samplings(cases) {
        text += &format!(
            "\n## Tokens per second, {}\n\n{}",
            sampling_title(sampling),
            speeds_table(cases, generations, sampling).markdown()
        );
        let table = acceptance_table(generations, sampling);
        if !table.is_empty() {
            text += &format!(
                "\nAccepted of drafted, by position in the draft, {}:\n\n{}",
                sampling.name(),
                table.markdown()
            );
        }
    }
    text += "\n## Reach\n\nSet for Qwen2.5-Coder 1.5B with the 0.5B as its draft model, both Q4_K_M.\n\n";
    text + &reach::table(judged).markdown()
}

fn rows_table(passes: &PassFigures) -> Table {
    let mut headings = vec!["rows".to_owned()];
    for context in &passes.contexts {
        headings.extend([format!("context {}", context.context), "x one row".to_owned(), "GMAC/s".to_owned()]);
    }
    let mut table = Table::with_headings(headings);
    let Some(first) = passes.contexts.first() else { return table };
    for (at, row) in first.rows.iter().enumerate() {
        let cells = passes.contexts.iter().filter_map(|context| context.rows.get(at)).flat_map(|row| {
            [
                format!("{:.1}", row.ms.median),
                format!("{:.2}", row.of_one_row.median),
                format!("{:.0}", row.macs_per_second / 1e9),
            ]
        });
        table.row(std::iter::once(row.rows.to_string()).chain(cells));
    }
    table
}

fn speeds_table(cases: &[CaseFigures], generations: &Generations, sampling: Sampling) -> Table {
    let drafters = generations.drafters();
    let mut headings = vec!["prompt".to_owned(), "tokens".to_owned(), PLAIN.name.to_owned()];
    for drafter in &drafters[1..] {
        headings.extend([(*drafter).to_owned(), "x plain".to_owned(), "accepted".to_owned(), "a round".to_owned()]);
    }
    let mut table = Table::with_headings(headings);
    for case in cases.iter().filter(|case| case.sampling == sampling) {
        let mut cells = vec![case.prompt.clone(), case.tokens.to_string()];
        for setting in &case.settings {
            cells.push(format!("{:.1}", setting.tokens_per_second.median));
            if setting.drafter != PLAIN.name {
                let accepted = match setting.drafted {
                    0 => "nothing drafted".to_owned(),
                    drafted => format!("{:.0} %", 100.0 * setting.accepted as f64 / drafted as f64),
                };
                cells.extend([ratio(setting.speed_up), accepted, format!("{:.2}", setting.tokens_per_round)]);
            }
        }
        table.row(cells);
    }
    let mut means = vec!["geometric mean".to_owned(), String::new(), String::new()];
    for drafter in &drafters[1..] {
        let mean = generations.mean_speed_up(drafter, sampling).map_or(String::new(), |mean| format!("{mean:.2}"));
        means.extend([String::new(), mean, String::new(), String::new()]);
    }
    table.row(means);
    table
}

fn acceptance_table(generations: &Generations, sampling: Sampling) -> Table {
    let mut headings = vec!["drafter".to_owned()];
    headings.extend((1..=POSITIONS).map(|position| position.to_string()));
    let mut table = Table::with_headings(headings);
    for drafter in &generations.drafters()[1..] {
        let positions = generations.by_position(drafter, sampling);
        if positions.iter().any(|position| position.drafted > 0) {
            let cells = positions.iter().filter(|position| position.drafted > 0).map(|position| {
                format!("{:.0} % of {}", 100.0 * position.accepted as f64 / position.drafted as f64, position.drafted)
            });
            table.row(std::iter::once((*drafter).to_owned()).chain(cells));
        }
    }
    table
}

fn ratio(ratio: Spread) -> String {
    format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.least, ratio.most)
}

fn spread(spread: Spread, unit: f64, name: &str) -> String {
    format!("{:.1} {name} ({:.1}-{:.1})", spread.median / unit, spread.least / unit, spread.most / unit)
}

fn verdicts(measured: &Measured, passes: &PassFigures, models: &Models) -> Result<Vec<Judged>> {
    let mut judged = Vec::new();
    if let Some(share) = measured.passes.share_of_bandwidth(DECODE_CONTEXT)? {
        let from = format!("{:.1} GB/s to be had", passes.bandwidth.median / 1e9);
        judged.push(judge(Figure::DecodeOfBandwidth, share.median, from));
    }
    for (figure, rows) in [(Figure::EightRowsOverFloor, 8), (Figure::SixteenRowsOverFloor, 16)] {
        if let Some(over) = measured.passes.rows_over_floor(0, rows)? {
            judged.push(judge(figure, over.median, measured.passes.arithmetic(0, rows)?));
        }
    }
    let generations = &measured.generations;
    let is_measured = |name: &str| generations.drafters().contains(&name);
    let with_model = models.draft.as_ref().map(|_| WITH_DRAFT_MODEL).filter(|name| is_measured(name));
    let draft_free = DRAFT_FREE.into_iter().find(|name| is_measured(name));
    for (drafter, [mean, slowest, seeded]) in [
        (with_model, [Figure::WithDraftModel, Figure::SlowestWithDraftModel, Figure::SeededWithDraftModel]),
        (draft_free, [Figure::DraftFree, Figure::SlowestDraftFree, Figure::SeededDraftFree]),
    ] {
        let Some(drafter) = drafter else { continue };
        let greedy = generations.mean_speed_up(drafter, Sampling::Greedy);
        if let Some(gain) = greedy {
            let prompts = generations.speed_ups(drafter, Sampling::Greedy).len();
            judged.push(judge(mean, gain, format!("{drafter}, {prompts} prompts")));
            let (worst, prompt) = slowest_prompt(generations, drafter);
            judged.push(judge(slowest, worst, format!("{drafter}, {prompt}")));
        }
        if let (Some(greedy), Some(gain)) = (greedy, generations.mean_speed_up(drafter, Sampling::Seeded)) {
            judged.push(judge(seeded, gain / greedy, format!("{drafter}, {gain:.2} / {greedy:.2}")));
        }
    }
    if let Some(drafter) = with_model.or(draft_free) {
        for (figure, sampling) in
            [(Figure::OverheadGreedy, Sampling::Greedy), (Figure::OverheadSeeded, Sampling::Seeded)]
        {
            if let Some(overhead) = generations.overhead(drafter, sampling) {
                let from = format!("{drafter}, at most {:.1} %", overhead.most * 100.0);
                judged.push(judge(figure, overhead.median, from));
            }
        }
    }
    if let Some(seconds) = Spread::of(&measured.startup.seconds) {
        let from = format!("{:.2}-{:.2} s, the whole command", seconds.least, seconds.most);
        judged.push(judge(Figure::Load, seconds.median, from));
    }
    if let Some(peak) = measured.startup.peak_bytes {
        let file = std::fs::metadata(&models.target)?.len();
        // The run holds a prompt of one token and its successor: their entries are nothing beside the file.
        let from = format!("{:.0} MB over {:.0} MB", peak as f64 / 1e6, file as f64 / 1e6);
        judged.push(judge(Figure::Memory, peak as f64 / file as f64, from));
    }
    Ok(judged)
}

fn slowest_prompt(generations: &Generations, drafter: &str) -> (f64, String) {
    let figures = generations.figures();
    let cases = figures.iter().filter(|case| case.sampling == Sampling::Greedy).filter_map(|case| {
        let setting = case.settings.iter().find(|setting| setting.drafter == drafter)?;
        Some((setting.speed_up.median, case.prompt.clone()))
    });
    cases.min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Heading, markdown, verdicts};
    use crate::contention::Contention;
    use crate::engine::Models;
    use crate::measure::{Measured, Startup};
    use crate::{generations, passes};

    fn measured() -> Measured {
        let mut passes = passes::tests::runs();
        for forward in passes.target.values_mut().flatten() {
            let mut sixteen = forward.pass(8).unwrap();
            sixteen.rows = 16;
            forward.rows.push(sixteen);
        }
        Measured {
            passes,
            generations: generations::tests::two_rounds(),
            startup: Startup { seconds: vec![1.2, 1.6, 1.4], peak_bytes: Some(1_100) },
            contention: Some(Contention { other_programs: 0.25, other_machines: 0.0 }),
        }
    }

    #[test]
    fn the_report_has_every_part_and_judges_what_was_measured_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 1_000]).unwrap();
        let models = Models { target: file.path().into(), draft: None };
        let measured = measured();
        let passes = measured.passes.figures().unwrap();
        let judged = verdicts(&measured, &passes, &models).unwrap();
        let heading = Heading {
            machine: "a machine".into(),
            device: "cpu".into(),
            target: "t.gguf".into(),
            draft: None,
            repeats: 2,
            max_tokens: 3,
            contention: Contention::describe(measured.contention),
        };
        let cases = measured.generations.figures();
        let text = markdown(&heading, &passes, &cases, &measured.generations, &judged);
        for part in [
            "# t.gguf",
            "a machine; cpu. Medians of 2 interleaved rounds, 3 tokens an answer",
            "other programs used 25 % of the processors",
            "| context 512 |",
            "Read bandwidth 50.0 GB/s (50.0-50.0)",
            "A draft token costs 0.32 (0.24-0.40) passes",
            "| a              | 3      | 15.0",
            "2.00 (2.00-2.00)",
            "| geometric mean |",
            "| ngram   | 75 % of 16 |",
            "ngram, 2 prompts",
            "0.50     | >= 0.97",
            "ngram, b",
            "1.40 s   | <= 1.50 s",
            "1.10     | <= 1.25",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        // No draft model, no seeded answers: nothing is said of them.
        assert!(!text.contains("with the draft model over plain"), "{text}");
        assert!(!text.contains("temperature 0.8 with a seed"), "{text}");
    }
}
