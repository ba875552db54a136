//! Plots, each as SVG and as PNG, lettered with a font that is compiled in: nothing of the system is needed.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use thiserror::Error;

/// The family that all text is set in.
pub const FONT: &str = "sans-serif";

/// Told apart also by eyes that see few colours, after Okabe and Ito.
const COLOURS: [RGBColor; 7] = [
    RGBColor(86, 86, 86),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

/// Why a plot is not there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The font that is compiled in is none.
    #[error("the font of the plots cannot be read")]
    Font,
    /// The backend failed.
    #[error("a plot cannot be drawn: {reason}")]
    Drawing {
        /// What the backend said. Its own errors live no longer than it does.
        reason: String,
    },
    /// A file cannot be written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<PlotError>,
    },
}

/// What drawing gives.
pub type Drawn = Result<(), PlotError>;

/// A backend's error without the backend.
pub fn plain<E: std::fmt::Display>(error: E) -> PlotError {
    PlotError::Drawing { reason: error.to_string() }
}

/// A colour for the line or bar number `at`; the first is a grey.
pub fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

/// Something to draw on any backend of `plotters`; [`Lines`] is what most are.
pub trait Plot {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws it.
    ///
    /// # Errors
    /// What the backend reports.
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn;

    /// Writes `stem` with the endings svg and png.
    ///
    /// # Errors
    /// With the name of the file that cannot be drawn or written.
    fn save(&self, stem: &Path) -> Drawn {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        let registered =
            REGISTERED.get_or_init(|| register_font(FONT, FontStyle::Normal, notosans::REGULAR_TTF).is_ok());
        if !registered {
            return Err(PlotError::Font);
        }
        let named = |path: &Path, drawn: Drawn| {
            drawn.map_err(|source| PlotError::File { path: path.to_owned(), source: Box::new(source) })
        };
        let svg = stem.with_extension("svg");
        named(&svg, self.draw(&SVGBackend::new(&svg, self.size()).into_drawing_area()))?;
        let png = stem.with_extension("png");
        named(&png, self.draw(&BitMapBackend::new(&png, self.size()).into_drawing_area()))
    }
}

/// Axes that numbers are drawn between.
pub type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A line with a dot at each of its points, named in the legend.
///
/// # Errors
/// What the backend reports.
pub fn dotted<'a, B: DrawingBackend + 'a>(
    chart: &mut Chart<'a, B>,
    colour: RGBColor,
    name: impl Into<String>,
    line: Vec<(f64, f64)>,
) -> Drawn {
    let style = colour.stroke_width(2);
    chart
        .draw_series(LineSeries::new(line.iter().copied(), style))
        .map_err(plain)?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    let dots = line.into_iter().map(|point| Circle::new(point, 3, colour.filled()));
    chart.draw_series(dots).map_err(plain)?;
    Ok(())
}

/// The names of what was drawn.
///
/// # Errors
/// What the backend reports.
pub fn legend<'a, B: DrawingBackend + 'a>(chart: &mut Chart<'a, B>, position: SeriesLabelPosition) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .margin(10)
        .label_font((FONT, 14))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(plain)
}

/// Lines with dots between two axes that begin at 0, or at what is below it.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// What the axes tell: across, and up.
    pub axes: (&'a str, &'a str),
    /// Each line's name and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// A height to compare with, such as 1 for ratios: a thin line across.
    pub level: Option<f64>,
    /// Where the names of the lines stand.
    pub legend: SeriesLabelPosition,
}

impl Plot for Lines<'_> {
    fn size(&self) -> (u32, u32) {
        (900, 520)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn {
        let points = || self.lines.iter().flat_map(|(_, line)| line);
        let (left, right) = range(points().map(|point| point.0), 1.05);
        let (bottom, top) = range(points().map(|point| point.1).chain(self.level), 1.15);
        area.fill(&WHITE).map_err(plain)?;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, (FONT, 20))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d(left..right, bottom..top)
            .map_err(plain)?;
        chart
            .configure_mesh()
            .x_desc(self.axes.0)
            .y_desc(self.axes.1)
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .light_line_style(WHITE)
            .draw()
            .map_err(plain)?;
        for (at, (name, line)) in self.lines.iter().enumerate() {
            dotted(&mut chart, colour(at), name, line.clone())?;
        }
        if let Some(level) = self.level {
            chart.draw_series(LineSeries::new([(left, level), (right, level)], BLACK.mix(0.4))).map_err(plain)?;
        }
        legend(&mut chart, self.legend.clone())?;
        area.present().map_err(plain)
    }
}

/// From 0, or the least that is below it, to the greatest, with some room.
fn range(values: impl Iterator<Item = f64>, room: f64) -> (f64, f64) {
    let (least, most) =
        values.fold((0.0, 1e-3), |(least, most): (f64, f64), value| (least.min(value), most.max(value)));
    (least * room, most * room)
}

#[cfg(test)]
mod tests {
    use super::{Lines, Plot};
    use plotters::chart::SeriesLabelPosition;

    #[test]
    fn lines_are_written_as_svg_with_their_names_and_as_png() {
        let folder = tempfile::tempdir().unwrap();
        let line = |name: &str, end: f64| (name.to_owned(), vec![(0.0, 0.5), (2.0, end)]);
        let plot = Lines {
            title: "both",
            axes: ("length", "speed-up"),
            lines: vec![line("one", 1.5), line("other", -0.5)],
            level: Some(1.0),
            legend: SeriesLabelPosition::UpperLeft,
        };
        plot.save(&folder.path().join("lines")).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("lines.svg")).unwrap();
        assert!(["both", "length", "speed-up", "one", "other", "-0."].iter().all(|text| svg.contains(text)), "{svg}");
        let png = std::fs::read(folder.path().join("lines.png")).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let plot =
            Lines { title: "", axes: ("", ""), lines: Vec::new(), level: None, legend: SeriesLabelPosition::UpperLeft };
        let error = plot.save(&folder.path().join("nowhere").join("plot")).unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("plot.svg"), "{error}");
    }
}
