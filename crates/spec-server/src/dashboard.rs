//! The dashboard of the documents asks for metrics that there are.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::metrics::Metrics;
use spec_runtime::Status;

/// Words of expressions that begin as names of metrics do.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("spec_"))
}

#[test]
fn every_metric_of_the_dashboard_is_served() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana/spec.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("the dashboard")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut asked: BTreeSet<&str> = BTreeSet::new();
    for target in panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
        let before = asked.len();
        let expression = target["expr"].as_str().expect("an expression");
        asked.extend(names(expression));
        assert!(asked.len() > before || names(expression).next().is_some(), "{expression} asks for nothing of ours");
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        asked.extend(variable["definition"].as_str().into_iter().flat_map(names));
    }
    let text = Metrics::default().text(&Status::default(), None);
    // Series without a sample yet are announced all the same.
    let announced = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let served: BTreeSet<String> =
        announced.flat_map(|name| ["", "_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"))).collect();
    assert!(asked.len() > 20, "{asked:?}");
    for name in
        ["spec_kv_blocks_used", "spec_draft_kv_blocks_used", "spec_draft_cache_hits_total", "spec_preemptions_total"]
    {
        assert!(asked.contains(name), "{name} is on no panel");
    }
    let missing: Vec<&&str> = asked.iter().filter(|name| !served.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} of the dashboard are not among the metrics");
}
