//! The plots of serving.

use plotters::coord::Shift;
use plotters::prelude::*;
use spec_figures::{Drawn, Lines, Percentiles, Plot};

use super::client::Mode;
use super::peak::{Figures as Peak, Trial};
use super::throughput::Figures as Throughput;

/// A named line.
type Line = (String, Vec<(f64, f64)>);

/// Speculative over plain by the number of clients, a line for each kind of prompt.
pub(super) struct Gains<'a>(pub(super) &'a [Throughput]);

/// Seconds by the rate of arrival: p50, p95 and p99, of one mode beside the other.
pub(super) struct Waits<'a> {
    pub(super) title: &'static str,
    pub(super) peak: &'a Peak,
    pub(super) of: fn(&Trial) -> Option<Percentiles>,
}

impl Plot for Gains<'_> {
    fn size(&self) -> (u32, u32) {
        (900, 520)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        let mut lines: Vec<Line> = Vec::new();
        for figures in self.0 {
            let point = (figures.clients as f64, figures.ratio.median);
            match lines.iter_mut().find(|(name, _)| *name == figures.prompt) {
                Some((_, line)) => line.push(point),
                None => lines.push((figures.prompt.clone(), vec![point])),
            }
        }
        draw_lines(area, "speculative over plain", ("requests at once", "tokens per second, ratio"), lines, Some(1.0))
    }
}

impl Plot for Waits<'_> {
    fn size(&self) -> (u32, u32) {
        (900, 520)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        let mut lines: Vec<Line> = Vec::new();
        for mode in Mode::BOTH {
            let mut trials: Vec<(f64, Percentiles)> = self
                .peak
                .trials
                .iter()
                .filter(|trial| trial.mode == mode)
                .filter_map(|trial| Some((trial.rate, (self.of)(trial)?)))
                .collect();
            trials.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            for (name, value) in
                [("p50", (|of| of.p50) as fn(&Percentiles) -> f64), ("p95", |of| of.p95), ("p99", |of| of.p99)]
            {
                let line = trials.iter().map(|(rate, percentiles)| (*rate, value(percentiles)));
                lines.push((format!("{} {name}", mode.name()), line.collect()));
            }
        }
        draw_lines(area, self.title, ("requests per second", "seconds"), lines, None)
    }
}

fn draw_lines<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    axes: (&str, &str),
    lines: Vec<Line>,
    level: Option<f64>,
) -> Drawn {
    Lines { title, axes, lines, level, legend: SeriesLabelPosition::UpperLeft }.draw(area)
}

#[cfg(test)]
mod tests {
    use super::{Gains, Waits};
    use crate::serve::client::Mode;
    use crate::serve::peak::{Figures as Peak, Trial};
    use crate::serve::throughput::Figures as Throughput;
    use spec_figures::Plot;
    use spec_figures::{Percentiles, Spread};

    #[test]
    fn both_plots_carry_their_lines() {
        let folder = tempfile::tempdir().unwrap();
        let one = Spread::of(&[1.2]).unwrap();
        let throughput = [1, 8].map(|clients| Throughput {
            prompt: "code".into(),
            clients,
            plain: one,
            speculative: one,
            ratio: one,
            ceiling: None,
        });
        Gains(&throughput).save(&folder.path().join("gains")).unwrap();
        let waits = Percentiles::of(&[1.0, 2.0]);
        let trial =
            |mode, rate| Trial { mode, rate, clients: 2, refused: 0, first: waits, whole: waits, in_time: true };
        let trials = vec![trial(Mode::Plain, 1.0), trial(Mode::Plain, 2.0), trial(Mode::Speculative, 2.0)];
        let peak = Peak { trials, peak: [2.0, 2.0] };
        let plot = Waits { title: "time to the first text", peak: &peak, of: |trial| trial.first };
        plot.save(&folder.path().join("waits")).unwrap();
        for (stem, labels) in [("gains", ["code", "requests at once"]), ("waits", ["speculative p99", "plain p50"])] {
            let svg = std::fs::read_to_string(folder.path().join(stem).with_extension("svg")).unwrap();
            assert!(labels.iter().all(|label| svg.contains(label)), "{stem}");
            assert!(folder.path().join(stem).with_extension("png").is_file());
        }
    }
}
