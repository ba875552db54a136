//! The hot spots of a trace, and the directions in which to go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::ProfileStatsArgs;

pub(crate) fn run(args: &ProfileStatsArgs) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&args.trace).with_context(|| args.trace.display().to_string())?;
    let report = Report::of(&parse(&args.trace, &text)?)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(ExitCode::SUCCESS)
}

/// A trace as it is read. Fields that others' traces have beside are passed over.
#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "otherData", default)]
    about: About,
}

#[derive(Default, Deserialize)]
struct About {
    target: Option<String>,
    device: Option<String>,
    /// Bytes of the file that a pass of one row reads.
    pass_bytes: Option<f64>,
    /// Bytes per second that the machine reads at most.
    bandwidth: Option<f64>,
}

#[derive(Deserialize)]
struct Event {
    ph: String,
    name: String,
    #[serde(default)]
    tid: u64,
    /// Microseconds.
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Value,
}

fn parse(path: &Path, text: &str) -> Result<Trace> {
    serde_json::from_str(text).map_err(|error| {
        let path = path.display();
        if error.is_eof() {
            let whole = text.lines().filter(|line| line.contains("\"ph\":\"X\"") && line.ends_with("},")).count();
            anyhow!(
                "{path} is cut off in the middle, behind {whole} whole spans: what wrote it was ended before its time; trace again, \
                 and let the command end"
            )
        } else {
            anyhow!("{path} is no trace of `spec profile`: {error}")
        }
    })
}

/// What a trace comes to.
#[derive(Serialize)]
struct Report {
    target: Option<String>,
    /// From the first span's beginning to the last one's end.
    milliseconds: f64,
    spans: Vec<HotSpot>,
    drafted: f64,
    accepted: f64,
    directions: Directions,
}

/// All spans of a name in a lane.
#[derive(Serialize)]
struct HotSpot {
    lane: String,
    name: String,
    count: usize,
    total_ms: f64,
    /// Of the trace's time.
    percent: f64,
    mean_ms: f64,
    p95_ms: f64,
    longest_ms: f64,
}

/// The three directions in which speculation is made faster, as shares.
#[derive(Serialize)]
struct Directions {
    /// Of the rounds' time, spent in settling the caches. On a processor there is one memory, between the models go tokens alone, and
    /// nothing else is copied. Copies within a pass on another device count there to the pass.
    copies_percent: f64,
    /// Tokens whose keys and values were moved within the cache.
    moved_tokens: f64,
    /// Of the rows that the target scored behind prompts, those that took no pass of their own: 1 - passes / rows.
    parallelism_percent: f64,
    rows_per_pass: f64,
    /// How much longer a pass of several rows takes than one of a single row; needs both in the trace.
    cost_of_more_rows: Option<f64>,
    /// Of the rounds' time, with the target under way.
    target_busy_percent: f64,
    /// Of the machine's read bandwidth, in passes of the target; needs both figures in the trace.
    hardware_percent: Option<f64>,
    bytes_per_second: Option<f64>,
    bandwidth: Option<f64>,
    device: Option<String>,
}

impl Report {
    fn of(trace: &Trace) -> Result<Self> {
        let spans: Vec<&Event> = trace.events.iter().filter(|event| event.ph == "X").collect();
        let (Some(first), Some(last)) = (earliest(&spans), latest(&spans)) else {
            bail!("there is no span in the trace: the command had no rounds");
        };
        let lanes: BTreeMap<u64, &str> = trace
            .events
            .iter()
            .filter(|event| event.ph == "M" && event.name == "thread_name")
            .filter_map(|event| Some((event.tid, event.args["name"].as_str()?)))
            .collect();
        let mut by_name: BTreeMap<(u64, &str), Vec<f64>> = BTreeMap::new();
        for span in &spans {
            by_name.entry((span.tid, &span.name)).or_default().push(span.dur);
        }
        let wall = last - first;
        let mut hot: Vec<HotSpot> = by_name
            .into_iter()
            .map(|((tid, name), durations)| {
                let lane = lanes.get(&tid).map_or_else(|| format!("lane {tid}"), |&lane| lane.to_owned());
                HotSpot::of(lane, name, durations, wall)
            })
            .collect();
        hot.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms));
        let sum = |name: &str, field: &str| -> f64 {
            spans.iter().filter(|span| span.name == name).filter_map(|span| span.args[field].as_f64()).sum()
        };
        let accepted = sum("sample", "accepted");
        Ok(Self {
            target: trace.about.target.clone(),
            milliseconds: wall / 1e3,
            spans: hot,
            drafted: accepted + sum("rollback", "dropped"),
            accepted,
            directions: Directions::of(&spans, &trace.about),
        })
    }

    fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        _ = writeln!(
            out,
            "target {}: {:.1} ms, {} of {} draft tokens accepted\n",
            self.target.as_deref().unwrap_or("unknown"),
            self.milliseconds,
            self.accepted,
            self.drafted
        );
        _ = writeln!(
            out,
            "{:<15} {:<12} {:>7} {:>11} {:>7} {:>10} {:>10} {:>10}",
            "lane", "span", "count", "total ms", "share", "mean ms", "p95 ms", "longest ms"
        );
        for spot in &self.spans {
            let HotSpot { lane, name, count, total_ms, percent, mean_ms, p95_ms, longest_ms } = spot;
            _ = writeln!(
                out,
                "{lane:<15} {name:<12} {count:>7} {total_ms:>11.2} {percent:>5.1} % {mean_ms:>10.3} {p95_ms:>10.3} {longest_ms:>10.3}"
            );
        }
        out + "\n" + &self.directions.lines()
    }
}

impl HotSpot {
    fn of(lane: String, name: &str, mut durations: Vec<f64>, wall: f64) -> Self {
        durations.sort_by(f64::total_cmp);
        let total: f64 = durations.iter().sum();
        let at =
            |share: f64| durations[((durations.len() as f64 * share).ceil() as usize).clamp(1, durations.len()) - 1];
        Self {
            lane,
            name: name.to_owned(),
            count: durations.len(),
            total_ms: total / 1e3,
            percent: percent(total, wall),
            mean_ms: total / durations.len() as f64 / 1e3,
            p95_ms: at(0.95) / 1e3,
            longest_ms: at(1.0) / 1e3,
        }
    }
}

impl Directions {
    fn of(spans: &[&Event], about: &About) -> Self {
        let named =
            |names: &'static [&'static str]| spans.iter().copied().filter(move |span| names.contains(&&*span.name));
        let passes: Vec<&Event> = named(&["verify", "decode"]).collect();
        let busy: f64 = passes.iter().map(|span| span.dur).sum();
        // The rounds: all but prompts, and the time between answers.
        let decode = covered(named(&["verify", "decode", "draft step", "draft ahead", "sample", "rollback"]));
        let rows: f64 = passes.iter().filter_map(|pass| pass.args["rows"].as_f64()).sum();
        let mean = |name: &'static str| {
            let all: Vec<f64> = spans.iter().filter(|span| span.name == name).map(|span| span.dur).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let bytes_per_second =
            about.pass_bytes.filter(|_| busy > 0.0).map(|bytes| bytes * passes.len() as f64 / (busy / 1e6));
        Self {
            copies_percent: percent(named(&["rollback"]).map(|span| span.dur).sum(), decode),
            moved_tokens: named(&["rollback"]).filter_map(|span| span.args["moved"].as_f64()).sum(),
            parallelism_percent: percent(rows - passes.len() as f64, rows),
            rows_per_pass: if passes.is_empty() { 0.0 } else { rows / passes.len() as f64 },
            cost_of_more_rows: mean("verify").zip(mean("decode")).map(|(several, one)| several / one),
            target_busy_percent: percent(busy, decode),
            hardware_percent: bytes_per_second.zip(about.bandwidth).map(|(rate, most)| percent(rate, most)),
            bytes_per_second,
            bandwidth: about.bandwidth,
            device: about.device.clone(),
        }
    }

    fn lines(&self) -> String {
        let elsewhere = if self.device.as_deref() == Some("cpu") { "" } else { "; copies of the device: msprof" };
        let cost = match self.cost_of_more_rows {
            Some(cost) => format!("which take {cost:.2} times as long as one row alone"),
            None => "beside which there was no pass of one row to compare with".to_owned(),
        };
        let hardware = match (self.hardware_percent, self.bytes_per_second, self.bandwidth) {
            (Some(share), Some(rate), Some(most)) => {
                format!(
                    "{share:>5.1} %  {:.1} of the {:.1} GB/s that memory gives, while the target runs",
                    rate / 1e9,
                    most / 1e9
                )
            }
            _ => "      -  the trace has no bandwidth to compare with".to_owned(),
        };
        format!(
            "copies between draft and target  {:>5.1} %  of the rounds' time settled the caches, in which {} tokens moved{elsewhere}\n\
             verification parallelism         {:>5.1} %  of the rows needed no pass of their own: {:.2} rows a pass, {cost}\n\
             hardware use                     {hardware}\n\
             target under way                 {:>5.1} %  of the rounds' time; the rest is drafting, judging and bookkeeping\n",
            self.copies_percent,
            self.moved_tokens,
            self.parallelism_percent,
            self.rows_per_pass,
            self.target_busy_percent,
        )
    }
}

/// Microseconds in which at least one of the spans goes on.
fn covered<'a>(spans: impl Iterator<Item = &'a Event>) -> f64 {
    let mut spans: Vec<(f64, f64)> = spans.map(|span| (span.ts, span.ts + span.dur)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut total, mut end) = (0.0, f64::NEG_INFINITY);
    for (from, to) in spans {
        total += (to - from.max(end)).max(0.0);
        end = end.max(to);
    }
    total
}

fn earliest(spans: &[&Event]) -> Option<f64> {
    spans.iter().map(|span| span.ts).min_by(f64::total_cmp)
}

fn latest(spans: &[&Event]) -> Option<f64> {
    spans.iter().map(|span| span.ts + span.dur).max_by(f64::total_cmp)
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds: one row in 10 ms, four rows in 12 ms of which two were accepted, and 2 ms of drafting between.
    const TRACE: &str = r#"{"traceEvents":[
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"draft stream"}},
{"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"target stream"}},
{"ph":"X","pid":1,"tid":3,"name":"prefill","ts":0,"dur":50000,"args":{"rows":9}},
{"ph":"X","pid":1,"tid":3,"name":"decode","ts":50000,"dur":10000,"args":{"rows":1}},
{"ph":"X","pid":1,"tid":1,"name":"sample","ts":60000,"dur":0,"args":{"accepted":0}},
{"ph":"X","pid":1,"tid":2,"name":"draft step","ts":60000,"dur":2000,"args":{}},
{"ph":"X","pid":1,"tid":3,"name":"verify","ts":62000,"dur":12000,"args":{"rows":4}},
{"ph":"X","pid":1,"tid":1,"name":"sample","ts":74000,"dur":500,"args":{"accepted":2}},
{"ph":"X","pid":1,"tid":1,"name":"rollback","ts":74500,"dur":500,"args":{"dropped":1,"moved":1}},
{"ph":"C","pid":1,"name":"acceptance","ts":75000,"args":{"percent":66.7}}
],"displayTimeUnit":"ms","otherData":{"target":"t","device":"cpu","pass_bytes":1100000,"bandwidth":200000000.0}}"#;

    fn report(text: &str) -> Result<Report> {
        Report::of(&parse(Path::new("NAME.json"), text)?)
    }

    #[test]
    fn directions_are_the_shares_of_what_was_measured() {
        let report = report(TRACE).expect("a trace");
        assert_eq!((report.milliseconds, report.drafted, report.accepted), (75.0, 3.0, 2.0));
        let longest: Vec<(&str, &str)> = report.spans.iter().map(|spot| (&*spot.lane, &*spot.name)).take(2).collect();
        assert_eq!(longest, [("target stream", "prefill"), ("target stream", "verify")]);
        let directions = &report.directions;
        assert_eq!((directions.copies_percent, directions.moved_tokens), (2.0, 1.0));
        assert_eq!((directions.rows_per_pass, directions.parallelism_percent), (2.5, 60.0));
        assert_eq!(directions.cost_of_more_rows, Some(1.2));
        assert!((directions.target_busy_percent - 88.0).abs() < 1e-9, "22 of 25 ms");
        // Two passes of 1.1 MB in 22 ms, of 200 MB/s.
        assert!(directions.hardware_percent.is_some_and(|share| (share - 50.0).abs() < 1e-9));
        let table = report.table();
        assert!(table.contains("50.0 %  0.1 of the 0.2 GB/s"), "{table}");
    }

    #[test]
    fn shares_are_of_the_rounds_and_not_of_what_is_between_answers() {
        let another = TRACE.replace(
            r#"{"ph":"C","pid":1,"name":"acceptance""#,
            r#"{"ph":"X","pid":1,"tid":3,"name":"prefill","ts":9000000,"dur":50000,"args":{"rows":9}},
{"ph":"X","pid":1,"tid":3,"name":"verify","ts":9050000,"dur":25000,"args":{"rows":4}},
{"ph":"C","pid":1,"name":"acceptance""#,
        );
        let report = report(&another).expect("a trace");
        assert!(
            (report.directions.target_busy_percent - 94.0).abs() < 1e-9,
            "47 of 50 ms, and nobody asked for nine seconds"
        );
        assert_eq!(report.directions.copies_percent, 1.0);
    }

    #[test]
    fn a_trace_that_was_cut_off_is_told_from_what_is_no_trace() {
        let cut = &TRACE[..TRACE.find("sample").expect("a span")];
        let message = report(cut).err().expect("half a trace").to_string();
        assert!(message.contains("NAME.json is cut off in the middle, behind 2 whole spans"), "{message}");
        for other in ["[1, 2]", "{\"traceEvents\": 3}", "hello"] {
            let message = report(other).err().expect("no trace").to_string();
            assert!(message.contains("is no trace of `spec profile`") && !message.contains('\n'), "{message}");
        }
        let empty = report(r#"{"traceEvents":[]}"#).err().expect("no span").to_string();
        assert!(empty.contains("no rounds"), "{empty}");
    }
}
