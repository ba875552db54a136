//! What `cargo xtask bench peers` writes and prints.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use spec_figures::{Spread, Table, ratios};

use super::rivals::{Rival, Rivals, State};
use super::{Measured, PassRates, Sides, build};
use crate::contention::Contention;
use crate::drafters::{DRAFT_FREE, WITH_DRAFT_MODEL};
use crate::engine::{Models, Sampling};
use crate::generations::{CaseFigures, Generations};
use crate::options::{Common, file_name, write as write_file};
use crate::reach::{self, Figure, Judged, judge};

pub(super) fn write(measured: &Measured, common: &Common, models: &Models, out: &Path) -> Result<()> {
    let machine = common.machine();
    let cases = measured.generations.figures();
    let judged = reach::unless_spoilt(verdicts(measured), measured.contention);
    let mut title = file_name(&models.target);
    if let Some(draft) = &models.draft {
        title += &format!(" with {}", file_name(draft));
    }
    let heading = format!(
        "# {title} beside llama.cpp {}\n\n{}. Medians of {} interleaved rounds, {} tokens an answer, greedy; a ratio is \
         taken within a round, and stands with its least and most.{}\n",
        build::COMMIT,
        machine.describe(),
        common.repeats(),
        common.max_tokens(),
        Contention::describe(measured.contention)
    );
    let text = heading + &markdown(measured, &cases, &judged);
    print!("{text}");
    write_file(&out.join("peers.md"), &text)?;
    let json = json!({
        "machine": machine,
        "peer": format!("llama.cpp {}", build::COMMIT),
        "target": file_name(&models.target),
        "draft_model": models.draft.as_deref().map(file_name),
        "repeats": common.repeats(),
        "max_tokens": common.max_tokens(),
        "contention": measured.contention,
        "passes": measured.passes.iter().map(passes_json).collect::<Vec<_>>(),
        "ours": cases,
        "theirs": measured.rivals.iter().map(|(prompt, rivals)| rivals_json(prompt, rivals)).collect::<Vec<_>>(),
        "judged": judged,
    });
    write_file(&out.join("peers.json"), &serde_json::to_string_pretty(&json)?)?;
    eprintln!("table and JSON are in {}", out.display());
    Ok(())
}

fn markdown(measured: &Measured, cases: &[CaseFigures], judged: &[Judged]) -> String {
    let mut text = String::new();
    let mut table = Table::new(["model", "what", "ours", "llama.cpp", "ratio"]);
    for rates in &measured.passes {
        for (what, sides) in rates.kinds() {
            let (Some(ours), Some(theirs), Some(ratio)) =
                (Spread::of(&sides.ours), Spread::of(&sides.theirs), sides.ratio())
            else {
                continue;
            };
            table.row([rates.model.clone(), what.to_owned(), rate(ours), rate(theirs), show(ratio)]);
        }
    }
    if !table.is_empty() {
        text += &format!("\n## Passes, tokens per second\n\n{}", table.markdown());
    }
    for (prompt, rivals) in &measured.rivals {
        let Some((best, _)) = rivals.best() else { continue };
        let case = cases.iter().find(|case| case.prompt == *prompt);
        text += &format!("\n## {prompt}, tokens per second\n\n");
        let mut table = Table::new(["engine", "setting", "tokens/s", "rounds", "accepted", "over llama.cpp's best"]);
        for setting in case.iter().flat_map(|case| &case.settings) {
            let ratio = over_best(&measured.generations, prompt, setting.drafter, best);
            table.row([
                "ours".to_owned(),
                setting.drafter.to_owned(),
                rate(setting.tokens_per_second),
                setting.tokens_per_second.count.to_string(),
                accepted(setting.drafted, setting.accepted),
                ratio.map_or(String::new(), show),
            ]);
        }
        for rival in rivals.all() {
            let (name, note) = match &rival.state {
                State::Running => (rival.setting.name.to_owned(), String::new()),
                State::Dropped => (rival.setting.name.to_owned(), "dropped after the trial rounds".to_owned()),
                State::Failed(reason) => (rival.setting.name.to_owned(), format!("failed: {reason}")),
            };
            let is_best = std::ptr::eq(rival, best);
            table.row([
                "llama.cpp".to_owned(),
                if is_best { format!("{name} (its best)") } else { name },
                Spread::of(&rival.rates).map_or(String::new(), rate),
                rival.rates.len().to_string(),
                accepted(rival.drafted, rival.accepted),
                note,
            ]);
        }
        text += &table.markdown();
    }
    text += "\n## Reach\n\nSet for Qwen2.5-Coder 1.5B with the 0.5B as its draft model, both Q4_K_M, and for the decoding of \
             the models named.\n\n";
    text + &reach::table(judged).markdown()
}

fn verdicts(measured: &Measured) -> Vec<Judged> {
    let mut judged = Vec::new();
    let mut add = |figure, sides: &Sides, model: &str| {
        if let (Some(ours), Some(theirs), Some(ratio)) =
            (Spread::of(&sides.ours), Spread::of(&sides.theirs), sides.ratio())
        {
            let from = format!("{model}: {:.1} / {:.1} tokens/s", ours.median, theirs.median);
            judged.push(judge(figure, ratio.median, from));
        }
    };
    if let Some((target, others)) = measured.passes.split_first() {
        add(Figure::DecodeOverPeer, &target.decode, &target.model);
        add(Figure::EightRowsOverPeer, &target.eight, &target.model);
        add(Figure::PrefillOverPeer, &target.prefill, &target.model);
        for other in others {
            add(Figure::SmallerDecodeOverPeer, &other.decode, &other.model);
        }
    }
    // What a user gets who names the models and nothing else; our other settings stand in the table.
    let is_measured = |name: &&str| measured.generations.drafters().contains(name);
    let ours = [WITH_DRAFT_MODEL].into_iter().chain(DRAFT_FREE).find(is_measured);
    for (prompt, rivals) in &measured.rivals {
        let figure = match prompt.as_str() {
            "code-write" => Figure::CodeWriteOverPeer,
            "code-edit" => Figure::CodeEditOverPeer,
            _ => continue,
        };
        let Some(((best, theirs), ours)) = rivals.best().zip(ours) else { continue };
        if let Some(ratio) = over_best(&measured.generations, prompt, ours, best) {
            let from = format!("{ours}, over {} at {:.1} tokens/s", best.setting.name, theirs.median);
            judged.push(judge(figure, ratio.median, from));
        }
    }
    judged
}

impl PassRates {
    fn kinds(&self) -> [(&'static str, &Sides); 3] {
        [("decode", &self.decode), ("8 at once", &self.eight), ("prefill 512", &self.prefill)]
    }
}

impl Sides {
    /// Ours over theirs, round by round.
    fn ratio(&self) -> Option<Spread> {
        Spread::of(&ratios(&self.ours, &self.theirs))
    }
}

/// Ours over the peer's best, round by round.
fn over_best(generations: &Generations, prompt: &str, drafter: &str, best: &Rival) -> Option<Spread> {
    let ours = generations.rates(prompt, Sampling::Greedy, drafter)?;
    Spread::of(&ratios(ours, &best.rates))
}

fn accepted(drafted: usize, accepted: usize) -> String {
    match drafted {
        0 => String::new(),
        drafted => format!("{:.0} % of {drafted}", 100.0 * accepted as f64 / drafted as f64),
    }
}

fn rate(rate: Spread) -> String {
    format!("{:.1} ({:.1}-{:.1})", rate.median, rate.least, rate.most)
}

fn show(ratio: Spread) -> String {
    format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.least, ratio.most)
}

fn passes_json(rates: &PassRates) -> Value {
    let kinds = rates.kinds().map(|(what, sides)| {
        let sides = json!({ "ours": sides.ours, "theirs": sides.theirs, "ratio": sides.ratio() });
        (what.to_owned(), sides)
    });
    json!({ "model": rates.model, "tokens_per_second": serde_json::Map::from_iter(kinds) })
}

fn rivals_json(prompt: &str, rivals: &Rivals) -> Value {
    let settings = rivals.all().iter().map(|rival| {
        json!({
            "setting": rival.setting.name,
            "program": rival.setting.program,
            "arguments": rival.setting.arguments,
            "tokens_per_second": rival.rates,
            "drafted": rival.drafted,
            "accepted": rival.accepted,
            "state": match &rival.state {
                State::Running => "measured",
                State::Dropped => "dropped",
                State::Failed(reason) => reason,
            },
        })
    });
    json!({
        "prompt": prompt,
        "best": rivals.best().map(|(rival, _)| rival.setting.name),
        "settings": settings.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{markdown, rivals_json, verdicts};
    use crate::generations;
    use crate::peers::{Measured, PassRates, Sides, rivals};

    fn measured() -> Measured {
        let sides = |ours: &[f64], theirs: &[f64]| Sides { ours: ours.to_vec(), theirs: theirs.to_vec() };
        let passes = vec![
            PassRates {
                model: "big.gguf".into(),
                decode: sides(&[30.0, 15.0], &[20.0, 10.0]),
                prefill: sides(&[100.0, 80.0], &[80.0, 80.0]),
                eight: sides(&[160.0, 160.0], &[40.0, 40.0]),
            },
            PassRates { model: "small.gguf".into(), decode: sides(&[90.0], &[100.0]), ..PassRates::default() },
        ];
        // Its prompt `a` is answered by n-grams at 40 and 20 tokens a second.
        let mut generations = generations::tests::two_rounds();
        generations.rename("a", "code-edit");
        Measured {
            passes,
            generations,
            rivals: vec![("code-edit".into(), rivals::tests::two_rounds())],
            contention: None,
        }
    }

    #[test]
    fn ratios_are_of_one_round_and_against_the_peers_best_setting() {
        let measured = measured();
        let judged = verdicts(&measured);
        let text = markdown(&measured, &measured.generations.figures(), &judged);
        for part in [
            "| big.gguf   | decode      | 22.5 (15.0-30.0)    | 15.0 (10.0-20.0)    | 1.50 (1.50-1.50) |",
            "| big.gguf   | 8 at once   | 160.0 (160.0-160.0) | 40.0 (40.0-40.0)    | 4.00 (4.00-4.00) |",
            "## code-edit, tokens per second",
            "ngram-simple (its best)",
            "dropped after the trial rounds",
            "40 % of 20",
            // 40 / 40 and 20 / 44.
            "0.73 (0.45-1.00)",
            "ngram, over ngram-simple at 42.0 tokens/s",
            "big.gguf: 22.5 / 15.0 tokens/s",
            "small.gguf: 90.0 / 100.0 tokens/s",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert_eq!(judged.len(), 5, "{text}");
    }

    #[test]
    fn the_json_says_how_each_setting_was_run_and_what_became_of_it() {
        let json = rivals_json("code-edit", &rivals::tests::two_rounds());
        assert_eq!(json["best"], "ngram-simple");
        assert_eq!(json["settings"][2]["state"], "dropped");
        assert_eq!(json["settings"][2]["program"], "llama-lookup");
        assert_eq!(json["settings"][0]["tokens_per_second"][1], 28.0);
    }
}
