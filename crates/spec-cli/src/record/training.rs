//! What a draft model can be trained on later: the texts, what was drafted, and what the target says of the positions that it verified.
//! The one kind of record that holds token ids, for which it has to be asked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use serde::Serialize;
use spec_core::{Token, top_log_probabilities};
use spec_runtime::{RoundObserver, RoundReport};

use super::{Lines, VERSION};

/// Most probable tokens of a position that are kept.
pub(crate) const TOP: usize = 16;

/// What the first line begins with.
const OPENING: &str = r#"{"kind":"training","#;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    /// First, and again where another drafter goes on.
    Training { version: u32, target: &'a str, drafter: &'a str, vocab: usize, top: usize },
    /// The tokens of a request before its first round.
    Context { request: usize, tokens: &'a [Token] },
    Round {
        request: usize,
        round: usize,
        /// Tokens before it: those of the context line and of the rounds before.
        length: usize,
        /// Each node's token, and the number of the node that it continues, from 0; the text, where there is none.
        drafted: Vec<(Token, Option<usize>)>,
        emitted: &'a [Token],
        /// Those of them that were drafted.
        accepted: usize,
        /// For each emitted token, the most probable ones in its place: id and natural log-probability, of the row as the target gave it.
        targets: Vec<Vec<(Token, f64)>>,
        /// The same behind each node that did not stand, with its number: what the target would have said to it.
        refused: Vec<(usize, Vec<(Token, f64)>)>,
    },
}

/// A training record under way.
#[derive(Clone, Debug)]
pub(crate) struct Training(Arc<Writing>);

#[derive(Debug)]
struct Writing {
    lines: Lines,
    vocab: usize,
    requests: AtomicUsize,
}

impl Training {
    /// Begins the file that `--record-training` names, in the place of an older one; it is the user's own to read.
    pub(crate) fn create(path: &Path, limit: u64, vocab: usize) -> Result<Self> {
        let lines = Lines::create("--record-training", path, OPENING, limit)?.private()?;
        Ok(Self(Arc::new(Writing { lines, vocab, requests: AtomicUsize::new(0) })))
    }

    pub(crate) fn begin(&self, target: &str, drafter: &str) {
        let vocab = self.0.vocab;
        self.0.lines.write(&Line::Training { version: VERSION, target, drafter, vocab, top: TOP });
    }

    /// Records one request.
    pub(crate) fn observer(&self) -> Box<dyn RoundObserver> {
        let request = self.0.requests.fetch_add(1, Ordering::Relaxed) + 1;
        Box::new(Observer { training: self.clone(), request })
    }
}

struct Observer {
    training: Training,
    request: usize,
}

impl RoundObserver for Observer {
    fn round(&mut self, report: &RoundReport<'_>) {
        let (request, Writing { lines, vocab, .. }) = (self.request, &*self.training.0);
        if !lines.is_open() {
            return;
        }
        if report.round == 0 {
            lines.write(&Line::Context { request, tokens: report.text });
        }
        let top = |row: usize| -> Vec<(Token, f64)> {
            let law = top_log_probabilities(report.rows.row(row), *vocab, 0, TOP);
            // A row without a law, where it counted, would have ended the generation.
            law.map_or_else(|_| Vec::new(), |law| law.top.into_iter().filter(|(_, log)| log.is_finite()).collect())
        };
        // Row 0 is behind the text, and that of a node behind it.
        let path = report.outcome.accepted.iter().map(|node| node.index() + 1);
        let targets = std::iter::once(0).chain(path).zip(report.emitted).map(|(row, _)| top(row));
        let stands = |node: usize| report.outcome.accepted.iter().any(|accepted| accepted.index() == node);
        let refused = (0..report.tree.len()).filter(|&node| !stands(node)).map(|node| (node, top(node + 1)));
        lines.write(&Line::Round {
            request,
            round: report.round,
            length: report.text.len(),
            drafted: report
                .tree
                .nodes()
                .map(|(_, node)| (node.token, node.parent.map(|parent| parent.index())))
                .collect(),
            emitted: report.emitted,
            accepted: report.accepted,
            targets: targets.collect(),
            refused: refused.collect(),
        });
    }

    fn reads_rows(&self) -> bool {
        true
    }
}
