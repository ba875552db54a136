//! The plots of a study: speed against quality lost, speed against length, and how far into a draft tokens stand.

use std::path::Path;

use anyhow::Result;
use plotters::prelude::SeriesLabelPosition;
use spec_figures::{Lines, Plot};

use super::figures::{Figures, Study};

type Line = (String, Vec<(f64, f64)>);

/// Writes speed-quality, speed-length and survival, each as SVG and PNG.
pub(super) fn write(study: &Study, folder: &Path) -> Result<()> {
    for (name, plot) in [
        ("speed-quality", speed_by_loss(study)),
        ("speed-length", speed_by_length(study)),
        ("survival", survival(study)),
    ] {
        plot.save(&folder.join(name))?;
    }
    Ok(())
}

/// The settings of each rule, as points of a line.
fn by_rule(study: &Study, point: impl Fn(&Figures) -> (f64, f64)) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for figures in &study.settings {
        match lines.iter_mut().find(|(rule, _)| *rule == figures.rule) {
            Some((_, line)) => line.push(point(figures)),
            None => lines.push((figures.rule.clone(), vec![point(figures)])),
        }
    }
    lines
}

/// Where texts are compared the loss is that of BLEU, else that of the mean log-probability.
fn speed_by_loss(study: &Study) -> Lines<'_> {
    let compared = study.settings.iter().all(|figures| figures.text.is_some());
    let loss = |figures: &Figures| match figures.text.filter(|_| compared) {
        Some(text) => 100.0 - text.bleu.value,
        None => study.plain.logprob.value - figures.logprob.value,
    };
    let mut lines = by_rule(study, |figures| (loss(figures), figures.speedup.value));
    if compared {
        lines.insert(0, the_article(study, |line| (line.bleu_drop, line.speedup)));
    }
    Lines {
        title: "speed against quality lost",
        axes: (
            if compared { "BLEU drop, %" } else { "log-probability lost, nats a token" },
            "speed over plain decoding",
        ),
        lines,
        level: Some(1.0),
        legend: SeriesLabelPosition::UpperRight,
    }
}

fn speed_by_length(study: &Study) -> Lines<'_> {
    let mut lines = by_rule(study, |figures| (figures.length as f64, figures.speedup.value));
    lines.insert(0, the_article(study, |line| (line.length as f64, line.speedup)));
    Lines {
        title: "speed against draft length",
        axes: ("tokens drafted a round", "speed over plain decoding"),
        lines,
        level: Some(1.0),
        legend: SeriesLabelPosition::UpperLeft,
    }
}

fn survival(study: &Study) -> Lines<'_> {
    let line = |figures: &Figures| {
        let points = figures.survival.iter().enumerate().map(|(at, share)| ((at + 1) as f64, 100.0 * share));
        (format!("{}, length {}", figures.rule, figures.length), points.collect())
    };
    Lines {
        title: "how far into a draft tokens stand",
        axes: ("position in the draft", "% of the rounds that drafted"),
        lines: study.settings.iter().map(line).collect(),
        level: None,
        legend: SeriesLabelPosition::UpperRight,
    }
}

fn the_article(study: &Study, point: impl Fn(&super::figures::ArticleLine) -> (f64, f64)) -> Line {
    ("the article".to_owned(), study.article.iter().map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::study;
    use super::write;

    #[test]
    fn each_plot_is_written_with_the_articles_line_beside_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        write(&study(), folder.path()).expect("plots");
        for (name, texts) in [
            ("speed-quality", ["the article", "epsilon:0.1", "BLEU drop"]),
            ("speed-length", ["the article", "greedy", "tokens drafted a round"]),
            ("survival", ["greedy, length 3", "epsilon:0.1, length 3", "position in the draft"]),
        ] {
            let path = folder.path().join(name);
            let svg = std::fs::read_to_string(path.with_extension("svg")).expect(name);
            assert!(texts.iter().all(|text| svg.contains(text)), "{name}: {svg}");
            let png = std::fs::read(path.with_extension("png")).expect(name);
            assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n", "{name}");
        }
    }
}
