//! The plots of passes and drafters.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use spec_figures::{Drawn, FONT, Plot, colour, dotted, legend, plain};

use crate::engine::Position;
use crate::generations::CaseFigures;
use crate::passes::PassFigures;

/// Positions with fewer drafted tokens say nothing about their acceptance.
const LEAST_DRAFTED: usize = 10;

/// Milliseconds by rows, a line for each context, beside the two ceilings.
pub(crate) struct RowTimes<'a>(pub(crate) &'a PassFigures);

impl Plot for RowTimes<'_> {
    fn size(&self) -> (u32, u32) {
        (900, 560)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        let figures = self.0;
        let points = || figures.contexts.iter().flat_map(|context| &context.rows);
        let most_rows = points().map(|row| row.rows).max().unwrap_or(1) as f64;
        let most_ms = points().map(|row| row.ms.median).fold(0.0, f64::max) * 1.1;
        area.fill(&WHITE).map_err(plain)?;
        let mut chart = ChartBuilder::on(area)
            .caption(format!("{}: a pass by its rows, all logits", figures.model), (FONT, 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..most_rows * 1.03, 0.0..most_ms.max(1e-3))
            .map_err(plain)?;
        chart
            .configure_mesh()
            .x_desc("rows")
            .y_desc("milliseconds")
            .x_label_formatter(&|rows| format!("{rows:.0}"))
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .light_line_style(WHITE)
            .draw()
            .map_err(plain)?;
        for (at, context) in figures.contexts.iter().enumerate() {
            let line: Vec<(f64, f64)> = context.rows.iter().map(|row| (row.rows as f64, row.ms.median)).collect();
            dotted(&mut chart, colour(at + 1), format!("context {}", context.context), line)?;
        }
        let reading = [(0.0, figures.reading_ms), (most_rows, figures.reading_ms)];
        let until = most_rows.min(most_ms / figures.computing_row_ms);
        let computing = [(0.0, 0.0), (until, until * figures.computing_row_ms)];
        for (line, dash, label) in [
            (reading, 6, format!("reading the file's bytes at {:.1} GB/s", figures.bandwidth.median / 1e9)),
            (computing, 2, format!("multiplying at {:.0} GMAC/s", figures.peak_int8_macs.median / 1e9)),
        ] {
            let style = colour(0).stroke_width(1);
            chart
                .draw_series(DashedLineSeries::new(line, dash, 4, style))
                .map_err(plain)?
                .label(label)
                .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 22, y)], dash, 4, style));
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
        area.present().map_err(plain)
    }
}

/// Tokens per second by prompt, a bar for each drafter, with the spread of the repeats; a panel for each sampling.
pub(crate) struct Speeds<'a> {
    pub(crate) title: String,
    pub(crate) drafters: &'a [&'static str],
    /// A heading and its prompts.
    pub(crate) panels: Vec<(String, Vec<&'a CaseFigures>)>,
}

impl Plot for Speeds<'_> {
    fn size(&self) -> (u32, u32) {
        (1100, 60 + 380 * self.panels.len() as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        area.fill(&WHITE).map_err(plain)?;
        let area = area.titled(&self.title, (FONT, 20)).map_err(plain)?;
        for ((heading, cases), area) in self.panels.iter().zip(area.split_evenly((self.panels.len().max(1), 1))) {
            self.panel(heading, cases, &area)?;
        }
        area.present().map_err(plain)
    }
}

impl Speeds<'_> {
    fn panel<B: DrawingBackend>(&self, heading: &str, cases: &[&CaseFigures], area: &DrawingArea<B, Shift>) -> Drawn {
        let settings = || cases.iter().flat_map(|case| &case.settings);
        let most = settings().map(|setting| setting.tokens_per_second.most).fold(1e-3, f64::max) * 1.3;
        let mut chart = ChartBuilder::on(area)
            .caption(heading, (FONT, 16))
            .margin(12)
            .x_label_area_size(34)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..cases.len().max(1) as f64, 0.0..most)
            .map_err(plain)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc("tokens per second")
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .light_line_style(WHITE)
            .draw()
            .map_err(plain)?;
        let width = 0.8 / self.drafters.len().max(1) as f64;
        for (at, &drafter) in self.drafters.iter().enumerate() {
            let rates = cases.iter().enumerate().filter_map(|(case, figures)| {
                let setting = figures.settings.iter().find(|setting| setting.drafter == drafter)?;
                Some((case as f64 + 0.1 + width * at as f64, setting.tokens_per_second))
            });
            let rates: Vec<_> = rates.collect();
            let style = colour(at).filled();
            let bars = rates
                .iter()
                .map(|&(left, rate)| Rectangle::new([(left, 0.0), (left + width * 0.9, rate.median)], style));
            chart
                .draw_series(bars)
                .map_err(plain)?
                .label(drafter)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], style));
            let spreads = rates.iter().map(|&(left, rate)| {
                let middle = left + width * 0.45;
                PathElement::new([(middle, rate.least), (middle, rate.most)], BLACK.stroke_width(1))
            });
            chart.draw_series(spreads).map_err(plain)?;
        }
        // The axis itself could only count.
        let below = TextStyle::from((FONT, 14).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        let names = cases.iter().enumerate().map(|(case, figures)| {
            EmptyElement::at((case as f64 + 0.5, 0.0)) + Text::new(figures.prompt.clone(), (0, 8), below.clone())
        });
        chart.draw_series(names).map_err(plain)?;
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    }
}

/// The share of drafted tokens that were accepted, by depth below the committed text.
pub(crate) struct Acceptance {
    pub(crate) title: String,
    /// A drafter, its place among all, and its positions.
    pub(crate) drafters: Vec<(&'static str, usize, Vec<Position>)>,
}

impl Plot for Acceptance {
    fn size(&self) -> (u32, u32) {
        (900, 480)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        let lines = self.drafters.iter().map(|(name, at, positions)| (*name, *at, shares(positions)));
        let lines: Vec<_> = lines.filter(|(_, _, line)| !line.is_empty()).collect();
        let deepest = lines.iter().map(|(_, _, line)| line.len()).max().unwrap_or(0).max(1) as f64;
        area.fill(&WHITE).map_err(plain)?;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d(0.5..deepest + 0.5, 0.0..1.0)
            .map_err(plain)?;
        chart
            .configure_mesh()
            .x_desc("position in the draft")
            .y_desc("accepted")
            .x_labels(deepest.min(16.0) as usize)
            .x_label_formatter(&|position| format!("{position:.0}"))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .light_line_style(WHITE)
            .draw()
            .map_err(plain)?;
        for (name, at, line) in lines {
            dotted(&mut chart, colour(at), name, line)?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerLeft)?;
        area.present().map_err(plain)
    }
}

/// Positions, counted from 1, with the share that was accepted.
fn shares(positions: &[Position]) -> Vec<(f64, f64)> {
    let enough = positions.iter().take_while(|position| position.drafted >= LEAST_DRAFTED);
    enough
        .enumerate()
        .map(|(at, position)| ((at + 1) as f64, position.accepted as f64 / position.drafted as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Acceptance, RowTimes, Speeds, shares};
    use crate::engine::Position;
    use crate::{generations, passes};
    use spec_figures::Plot;
    use std::fs;

    #[test]
    fn each_plot_is_written_as_svg_with_its_labels_and_as_png() {
        let folder = tempfile::tempdir().unwrap();
        let rows = passes::tests::runs().figures().unwrap();
        RowTimes(&rows).save(&folder.path().join("rows")).unwrap();
        let generations = generations::tests::two_rounds();
        let figures = generations.figures();
        let panels = vec![("greedy".to_owned(), figures.iter().collect())];
        let speeds = Speeds { title: "speeds".into(), drafters: generations.drafters(), panels };
        speeds.save(&folder.path().join("speeds")).unwrap();
        let positions = vec![Position { drafted: 40, accepted: 30 }, Position { drafted: 20, accepted: 5 }];
        let acceptance = Acceptance { title: "acceptance".into(), drafters: vec![("ngram", 1, positions)] };
        acceptance.save(&folder.path().join("acceptance")).unwrap();
        for (stem, labels) in [
            ("rows", ["context 512", "50.0 GB/s", "800 GMAC/s"]),
            ("speeds", ["plain", "ngram", "greedy"]),
            ("acceptance", ["ngram", "100 %", "position in the draft"]),
        ] {
            let svg = fs::read_to_string(folder.path().join(stem).with_extension("svg")).unwrap();
            for label in labels {
                assert!(svg.contains(label), "{stem}.svg lacks {label}");
            }
            let png = fs::read(folder.path().join(stem).with_extension("png")).unwrap();
            assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n", "{stem}.png");
            assert!(png.len() > 2000, "{stem}.png has {} bytes", png.len());
        }
    }

    #[test]
    fn positions_with_few_drafts_are_not_plotted() {
        let position = |drafted, accepted| Position { drafted, accepted };
        assert_eq!(shares(&[position(20, 15), position(10, 5), position(9, 9)]), [(1.0, 0.75), (2.0, 0.5)]);
        assert_eq!(shares(&[]), []);
    }
}
