//! What the measured figures should reach: data, and the verdict on a value.

use serde::Serialize;

use crate::contention::Contention;

/// A figure that something is expected of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Figure {
    DecodeOfBandwidth,
    EightRowsOverFloor,
    SixteenRowsOverFloor,
    WithDraftModel,
    DraftFree,
    SlowestWithDraftModel,
    SlowestDraftFree,
    SeededWithDraftModel,
    SeededDraftFree,
    OverheadGreedy,
    OverheadSeeded,
    Load,
    Memory,
    DecodeOverPeer,
    EightRowsOverPeer,
    PrefillOverPeer,
    CodeWriteOverPeer,
    CodeEditOverPeer,
    SmallerDecodeOverPeer,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Times,
    Percent,
    Seconds,
}

struct Reach {
    figure: Figure,
    what: &'static str,
    unit: Unit,
    bound: Bound,
    /// The wish beyond it.
    stretch: Option<f64>,
}

use Bound::{AtLeast, AtMost};
use Unit::{Percent, Seconds, Times};
use spec_figures::Table;

/// Set for Qwen2.5-Coder 1.5B with the 0.5B as its draft model, both Q4_K_M, except where the figure names others.
#[rustfmt::skip]
const REACH: &[Reach] = &[
    reach(Figure::DecodeOfBandwidth, "decode, 1 row, context 512: file bytes per second over read bandwidth", Times, AtLeast(0.8), Some(0.9)),
    reach(Figure::EightRowsOverFloor, "T(8), all logits, over max(T(1), floor(8))", Times, AtMost(1.4), Some(1.25)),
    reach(Figure::SixteenRowsOverFloor, "T(16), all logits, over max(T(1), floor(16))", Times, AtMost(1.4), Some(1.2)),
    reach(Figure::WithDraftModel, "all prompts, greedy, with the draft model over plain, geometric mean", Times, AtLeast(1.6), Some(1.8)),
    reach(Figure::DraftFree, "all prompts, greedy, draft-free over plain, geometric mean", Times, AtLeast(1.3), None),
    reach(Figure::SlowestWithDraftModel, "the slowest prompt, greedy, with the draft model over plain", Times, AtLeast(0.97), None),
    reach(Figure::SlowestDraftFree, "the slowest prompt, greedy, draft-free over plain", Times, AtLeast(0.97), None),
    reach(Figure::SeededWithDraftModel, "temperature 0.8 with a seed, with the draft model, over the greedy gain", Times, AtLeast(0.9), None),
    reach(Figure::SeededDraftFree, "temperature 0.8 with a seed, draft-free, over the greedy gain", Times, AtLeast(0.9), None),
    reach(Figure::OverheadGreedy, "engine overhead, greedy: share of decoding in which no model computes", Percent, AtMost(0.02), None),
    reach(Figure::OverheadSeeded, "engine overhead, temperature 0.8", Percent, AtMost(0.06), None),
    reach(Figure::Load, "start to the first token, warm page cache", Seconds, AtMost(1.5), None),
    reach(Figure::Memory, "peak memory that no file backs, over file + KV cache", Times, AtMost(1.25), None),
    reach(Figure::DecodeOverPeer, "decode over llama.cpp's", Times, AtLeast(1.2), Some(1.5)),
    reach(Figure::EightRowsOverPeer, "8 rows, all logits, over llama-batched-bench at 8 sequences", Times, AtLeast(3.5), Some(4.5)),
    reach(Figure::PrefillOverPeer, "prefill of 512, last logits, over llama.cpp's", Times, AtLeast(1.7), Some(2.5)),
    reach(Figure::CodeWriteOverPeer, "code-write, greedy, over llama.cpp's best setting", Times, AtLeast(2.0), Some(2.5)),
    reach(Figure::CodeEditOverPeer, "code-edit, greedy, over llama.cpp's best setting", Times, AtLeast(4.0), Some(5.0)),
    reach(Figure::SmallerDecodeOverPeer, "decode over llama.cpp's, a smaller model", Times, AtLeast(1.2), Some(1.5)),
];

const fn reach(figure: Figure, what: &'static str, unit: Unit, bound: Bound, stretch: Option<f64>) -> Reach {
    Reach { figure, what, unit, bound, stretch }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Pass,
    Short,
    /// Something else had too much of the machine for a verdict.
    Void,
}

/// A value beside what it should reach.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    figure: Figure,
    what: String,
    value: f64,
    /// The measured values behind it, in words.
    from: String,
    reach: f64,
    stretch: Option<f64>,
    pub(crate) verdict: Verdict,
    #[serde(skip)]
    cells: [String; 3],
}

/// Judges the median `value` of a figure; `from` says what it was computed from.
pub(crate) fn judge(figure: Figure, value: f64, from: impl Into<String>) -> Judged {
    // A test sees to it that every figure is in the table.
    let reach = REACH.iter().find(|reach| reach.figure == figure).expect("the table has every figure");
    let (bound, sign) = match reach.bound {
        AtLeast(bound) => (bound, ">="),
        AtMost(bound) => (bound, "<="),
    };
    let meets = |limit: f64| match reach.bound {
        AtLeast(_) => value >= limit,
        AtMost(_) => value <= limit,
    };
    let verdict = if meets(bound) { Verdict::Pass } else { Verdict::Short };
    let stretched = reach.stretch.is_some_and(meets);
    let wish = reach.stretch.map_or(String::new(), |stretch| format!(" ({})", reach.unit.show(stretch)));
    let cells = [
        reach.unit.show(value),
        format!("{sign} {}{wish}", reach.unit.show(bound)),
        match verdict {
            Verdict::Pass if stretched => "pass, beyond".to_owned(),
            Verdict::Pass => "pass".to_owned(),
            Verdict::Short | Verdict::Void => "short".to_owned(),
        },
    ];
    let what = reach.what.to_owned();
    Judged { figure, what, value, from: from.into(), reach: bound, stretch: reach.stretch, verdict, cells }
}

impl Judged {
    fn void(&mut self) {
        self.verdict = Verdict::Void;
        self.cells[2] = "void: machine busy".to_owned();
    }
}

/// Takes the verdicts back when something else had too much of the machine: a ratio to a peer that suffers more from neighbours
/// than ours is no merit.
pub(crate) fn unless_spoilt(mut judged: Vec<Judged>, contention: Option<Contention>) -> Vec<Judged> {
    if contention.is_some_and(Contention::spoils) {
        judged.iter_mut().for_each(Judged::void);
    }
    judged
}

/// One row for each judged figure, in the order given.
pub(crate) fn table(judged: &[Judged]) -> Table {
    let mut table = Table::new(["figure", "measured", "reach", "verdict", "from"]);
    for judged in judged {
        let [value, reach, verdict] = judged.cells.clone();
        table.row([judged.what.clone(), value, reach, verdict, judged.from.clone()]);
    }
    table
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Times => format!("{value:.2}"),
            Percent => format!("{:.1} %", value * 100.0),
            Seconds => format!("{value:.2} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, REACH, Verdict, judge, table, unless_spoilt};
    use crate::contention::Contention;

    #[test]
    fn every_figure_stands_in_the_table_once() {
        for (at, reach) in REACH.iter().enumerate() {
            // The enumeration and the table have one order, so that a figure without a row shifts all behind it.
            assert_eq!(reach.figure as usize, at, "{:?}", reach.figure);
        }
        assert_eq!(Figure::SmallerDecodeOverPeer as usize + 1, REACH.len());
    }

    #[test]
    fn a_stretch_is_never_easier_than_its_reach() {
        for reach in REACH {
            let harder = match (reach.bound, reach.stretch) {
                (_, None) => true,
                (super::AtLeast(bound), Some(stretch)) => stretch > bound,
                (super::AtMost(bound), Some(stretch)) => stretch < bound,
            };
            assert!(harder, "{:?}", reach.figure);
        }
    }

    #[test]
    fn a_value_on_the_bound_passes_and_one_beyond_it_is_short() {
        let cases = [
            (Figure::DecodeOverPeer, 1.2, Verdict::Pass),
            (Figure::DecodeOverPeer, 1.19, Verdict::Short),
            (Figure::EightRowsOverFloor, 1.4, Verdict::Pass),
            (Figure::EightRowsOverFloor, 1.41, Verdict::Short),
            (Figure::OverheadGreedy, 0.021, Verdict::Short),
            (Figure::Load, f64::NAN, Verdict::Short),
        ];
        for (figure, value, verdict) in cases {
            assert_eq!(judge(figure, value, "").verdict, verdict, "{figure:?} {value}");
        }
    }

    #[test]
    fn a_busy_machine_has_no_verdicts() {
        let judged = || vec![judge(Figure::DecodeOverPeer, 24.9, "112 / 4.5")];
        let busy = Contention { other_programs: 0.44, other_machines: 0.0 };
        let spoilt = unless_spoilt(judged(), Some(busy));
        assert_eq!(spoilt[0].verdict, Verdict::Void);
        assert!(table(&spoilt).markdown().contains("void"));
        let quiet = Contention { other_programs: 0.02, ..busy };
        assert_eq!(unless_spoilt(judged(), Some(quiet))[0].verdict, Verdict::Pass);
    }

    #[test]
    fn the_table_shows_value_reach_stretch_and_where_the_value_is_from() {
        let text = table(&[judge(Figure::DecodeOverPeer, 1.62, "30 / 18"), judge(Figure::OverheadSeeded, 0.05, "")])
            .markdown();
        let expected = ["1.62", ">= 1.20 (1.50)", "pass, beyond", "30 / 18", "5.0 %", "<= 6.0 %"];
        for cell in expected {
            assert!(text.contains(cell), "{cell} is not in\n{text}");
        }
    }
}
