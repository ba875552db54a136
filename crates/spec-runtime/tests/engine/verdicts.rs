//! Models that say themselves which token of a row is the most probable.

use std::sync::atomic::{AtomicUsize, Ordering};

use spec_core::Greedy;
use spec_runtime::{Batch, ModelConfig, Pass, RequestRule, Rows, Stream, Want};

use super::*;

/// A model with coarse logits, so that rows have ties, which perhaps gives verdicts.
struct Coarse {
    inner: Arc<HashModel>,
    gives_verdicts: bool,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Verdicts that named a token, and those that did not.
    decided: AtomicUsize,
    undecided: AtomicUsize,
    /// Rows whose logits were read.
    read: AtomicUsize,
}

impl Counts {
    fn all(&self) -> (usize, usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.decided), of(&self.undecided), of(&self.read))
    }
}

impl Coarse {
    fn new(spec: HashSpec, gives_verdicts: bool) -> (Arc<Self>, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        (Arc::new(Self { inner: HashModel::new(spec), gives_verdicts, counts: Arc::clone(&counts) }), counts)
    }
}

impl Model for Coarse {
    fn config(&self) -> &ModelConfig {
        self.inner.config()
    }

    spec_testing::sequences_of!(inner);
    spec_testing::prefixes_of!(inner);

    fn gives_verdicts(&self) -> bool {
        self.gives_verdicts
    }

    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        assert!(self.gives_verdicts || batch.rows.iter().all(|row| row.want != Want::Verdict));
        let rows = self.inner.submit(stream, batch)?.wait()?;
        let coarse = |(at, row): (usize, &spec_runtime::Row)| match row.want {
            Want::Nothing => None,
            _ => rows.logits(at).ok().map(|row| row.iter().map(|logit| (logit * 12.0).round() / 12.0).collect()),
        };
        let logits = batch.rows.iter().enumerate().map(coarse).collect();
        Ok(Box::new(CoarseRows { logits, counts: Arc::clone(&self.counts) }))
    }
}

struct CoarseRows {
    logits: Vec<Option<Vec<f32>>>,
    counts: Arc<Counts>,
}

impl Pass for CoarseRows {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        Ok(self)
    }
}

impl Rows for CoarseRows {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        self.counts.read.fetch_add(1, Ordering::Relaxed);
        self.logits.get(row).and_then(Option::as_deref).ok_or(RuntimeError::NotWanted { row })
    }

    /// As a device would that sorts with the highest id first: what ties is not decided.
    fn verdict(&self, row: usize) -> Result<Option<Token>, RuntimeError> {
        let row = self.logits[row].as_deref().ok_or(RuntimeError::NotWanted { row })?;
        let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut leaders = (0..).zip(row).filter(|(_, logit)| **logit == greatest).map(|(token, _)| token);
        let (first, second) = (leaders.next(), leaders.next());
        let count = if second.is_none() { &self.counts.decided } else { &self.counts.undecided };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(first.filter(|_| second.is_none()))
    }
}

/// Generates with a drafter or without, and counts.
fn generate(
    spec: &HashSpec,
    gives_verdicts: bool,
    drafter: Option<Box<dyn Drafter>>,
    request: Request,
) -> (Completion, (usize, usize, usize)) {
    let (model, counts) = Coarse::new(spec.clone(), gives_verdicts);
    let mut engine = Engine::new(Arc::clone(&model) as Arc<dyn Model>, Arc::new(Letters(32)));
    if let Some(drafter) = drafter {
        engine = engine.with_drafter(drafter);
    }
    let completion = run(&mut engine, request);
    assert_eq!(model.inner.free_blocks(), spec.blocks, "blocks leak");
    (completion, counts.all())
}

#[test]
fn verdicts_change_nothing_but_the_rows_that_are_read() {
    // Rows wider than the vocabulary: their padding may be the most probable, and is no token.
    for vocab in [32, 36] {
        let spec = HashSpec { vocab, order: 6, ..HashSpec::default() };
        let (mut drafted, mut accepted, mut decided, mut undecided) = (0, 0, 0, 0);
        for k in [1, 4, 7] {
            let (expected, _) = generate(&spec, false, None, request(120, k));
            let (alone, (_, ties, read)) = generate(&spec, true, None, request(120, k));
            assert_eq!((&alone.tokens, &alone.finish), (&expected.tokens, &expected.finish));
            // Without a draft there is a row a token, and the prompt's.
            assert!(ties > 5 && read < 100, "{ties} ties, {read} rows read");
            for (name, drafter) in drafters(&HashSpec { vocab: 32, ..spec.clone() }) {
                let (got, counts) = generate(&spec, true, Some(drafter), request(120, k));
                let what = format!("{name}, k {k}, {vocab} wide");
                assert_eq!((&got.tokens, &got.text), (&expected.tokens, &expected.text), "{what}");
                assert_eq!(got.rule, "greedy");
                drafted += got.speculation.drafted;
                accepted += got.speculation.accepted;
                decided += counts.0;
                undecided += counts.1;
                // The prompt's row, those that tie, and those whose winner is padding.
                assert!(counts.2 >= counts.1, "{what}: {counts:?}");
                assert!(vocab > 32 || counts.2 == counts.1 + 1, "{what}: {counts:?}");
            }
        }
        assert!(drafted > 1000 && accepted > 100 && decided > 500 && undecided > 100);
    }
}

#[test]
fn verdicts_are_asked_only_where_they_say_all_there_is_to_know() {
    let spec = HashSpec { order: 2, ..HashSpec::default() };
    let asked = |request: Request| {
        let (_, (decided, undecided, _)) = generate(&spec, true, Some(model_drafter(spec.clone())), request);
        decided + undecided
    };
    let with = |sampling: SamplingParams| Request { sampling, ..request(30, 4) };
    let greedy = || "greedy".parse::<spec_core::RuleName>().unwrap();
    assert!(asked(with(sampled(0.0))) > 0);
    assert!(asked(with(SamplingParams { top_k: 3, ..sampled(0.0) })) > 0);
    assert!(asked(Request { rule: Some(RequestRule::Named(greedy())), ..request(30, 4) }) > 0);
    assert_eq!(asked(with(sampled(0.7))), 0);
    assert_eq!(asked(with(SamplingParams { repeat_penalty: 1.2, ..sampled(0.0) })), 0);
    assert_eq!(asked(with(SamplingParams { logit_bias: vec![(3, 1.0)], ..sampled(0.0) })), 0);
    assert_eq!(asked(Request { logprobs: Some(2), ..request(30, 4) }), 0);
    // A rule of the caller's may look at anything, whatever it is called.
    assert_eq!(asked(Request { rule: Some(RequestRule::Own(Box::new(Greedy))), ..request(30, 4) }), 0);
}
