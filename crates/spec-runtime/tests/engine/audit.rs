//! The audit of the engine's law: what it finds, and how seldom it cries without reason.

use spec_core::mutant::{self, Mutant};
use spec_core::{DraftTree, NodeId, RuleName, Scratch};
use spec_runtime::audit::{Audit, Guesses, PlainLaws, ShadowAudit, Verdict};
use spec_runtime::{DraftContext, GenerationId};

use super::*;

const TEXT: usize = 60;

/// Draws so many children of every node, level by level: several siblings are what no shipped drafter draws.
struct Wide {
    model: Arc<HashModel>,
    widths: &'static [usize],
    scratch: Scratch,
}

impl Drafter for Wide {
    fn name(&self) -> &str {
        "wide"
    }

    fn has_laws(&self) -> bool {
        true
    }

    fn draft(&mut self, context: DraftContext<'_>) -> Result<DraftTree, RuntimeError> {
        let mut tree = DraftTree::new();
        let committed = context.pipeline.len();
        let mut level: Vec<(Option<NodeId>, Vec<Token>)> = vec![(None, context.tokens.to_vec())];
        for &width in self.widths {
            let mut below = Vec::new();
            for (parent, text) in level {
                if tree.len() + width > context.budget {
                    continue;
                }
                context.pipeline.extend(&text[committed..]);
                let row = self.model.logits_of(&text);
                let law = context.pipeline.law(&row, None, &mut self.scratch)?;
                let proposal = context.proposal;
                let drawn = proposal.propose(&mut tree, parent, &law, width, text.len(), context.choices);
                context.pipeline.truncate(committed);
                let drawn = drawn.map_err(|source| RuntimeError::Draft { drafter: "wide".into(), source })?;
                below.extend(drawn.iter().map(|&node| {
                    let text = text.iter().copied().chain([tree.node(node).token]).collect();
                    (Some(node), text)
                }));
            }
            level = below;
        }
        Ok(tree)
    }

    fn observe(&mut self, _: GenerationId, _: &[Token], _: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn forget(&mut self, _: GenerationId) {}
}

struct Setting {
    rule: &'static str,
    widths: &'static [usize],
    sampling: SamplingParams,
    /// Share of the drafter that is not the target's.
    noise: f32,
    /// Tokens: among few, a fault of siblings shows sooner.
    vocab: usize,
}

impl Setting {
    fn drawn(rule: &'static str, widths: &'static [usize]) -> Self {
        Self { rule, widths, sampling: sampled(0.5), noise: 0.4, vocab: 32 }
    }

    fn target(&self) -> HashSpec {
        HashSpec { order: 2, vocab: self.vocab, ..HashSpec::default() }
    }

    /// A draft model with a share of another's opinion.
    fn draft(&self) -> HashSpec {
        HashSpec { noise: self.noise, ..self.target() }
    }

    fn request(&self, seed: u64) -> Request {
        let rule: RuleName = self.rule.parse().expect("a rule");
        let stop = spec_runtime::StopRules { end_ids: vec![31], max_tokens: TEXT, ..Default::default() };
        let prompt = PROMPT.map(|token| token % self.vocab as Token).to_vec();
        let sampling = self.sampling.clone();
        Request { prompt, rule: Some(rule.into()), sampling, stop, seed: Some(seed), ..request(TEXT, 7) }
    }

    /// `tokens` of texts from seed `first` on.
    fn audit(&self, first: u64, tokens: usize) -> Verdict {
        let model = HashModel::new(self.target());
        let wide = Wide { model: HashModel::new(self.draft()), widths: self.widths, scratch: Scratch::default() };
        let mut engine = engine(&model).with_drafter(Box::new(wide));
        let vocab = model.config().vocab;
        let laws = PlainLaws::new(HashModel::new(self.target()) as Arc<dyn Model>, vocab);
        let mut audit = Audit::new(&mut engine, laws, first).with_guesses(Guesses::new(model_drafter(self.draft())));
        audit = audit.against_draft(PlainLaws::new(HashModel::new(self.draft()) as Arc<dyn Model>, vocab));
        if matches!(self.rule, "rejection" | "rejection-independent" | "block") {
            audit = audit.with_places();
        }
        if matches!(self.rule, "greedy" | "coupled") {
            audit = audit.equal_to(super::engine(&HashModel::new(self.target())));
        }
        let (mut left, mut seed) = (tokens, first);
        while left > 0 {
            left -= audit.text(&|| self.request(seed), left).expect("the text is written");
            seed += 1;
        }
        let speculation = audit.speculation();
        assert!(speculation.accepted > tokens / 10 && speculation.accepted < speculation.drafted, "{speculation:?}");
        assert_eq!(audit.evidence().tokens(), tokens as u64);
        audit.verdict(0.001)
    }
}

/// What each fault is looked for with, and in how many tokens it is found.
fn faults() -> Vec<(Mutant, Setting, usize)> {
    let nucleus = SamplingParams { top_p: 0.6, ..sampled(0.5) };
    let among = |vocab, temperature, noise, rule, widths| Setting {
        sampling: sampled(temperature),
        noise,
        vocab,
        ..Setting::drawn(rule, widths)
    };
    vec![
        (Mutant::RecordBeforeFilters, Setting { sampling: nucleus, ..Setting::drawn("rejection", &[1, 1, 1]) }, 10_000),
        (Mutant::ResidualNotNormalised, Setting::drawn("rejection", &[2, 2]), 10_000),
        (Mutant::SiblingLawNotNormalised, among(32, 0.3, 0.6, "rejection", &[3]), 20_000),
        (Mutant::WithheldByOwnProbability, Setting::drawn("rejection", &[1, 1]), 10_000),
        (Mutant::KeyWithoutRound, among(2, 4.0, 1.0, "block", &[1, 1, 1]), 40_000),
        // These move less than a hundredth of the probability, wherever they are looked for.
        (Mutant::WithheldSibling, among(5, 2.0, 0.8, "rejection", &[3]), 150_000),
        (Mutant::SharedAcceptKey, among(5, 4.0, 1.0, "rejection", &[2]), 200_000),
    ]
}

#[test]
fn the_audit_finds_every_fault_of_the_rules_and_passes_the_build_without_it() {
    let mut wrong = Vec::new();
    for (fault, setting, tokens) in faults() {
        let sound = setting.audit(1_000, tokens);
        let faulty = mutant::with(fault, || setting.audit(1_000, tokens));
        if sound.differs() || !faulty.differs() {
            wrong.push(format!("{fault:?}: without {sound:#?}\nwith {faulty:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_audit_of_a_sound_build_cries_as_seldom_as_its_level_says() {
    let setting = Setting::drawn("rejection", &[2, 1]);
    let alarms = (0..200).filter(|run| setting.audit(run * 1_000, 600).p.is_some_and(|p| p < 0.05)).count();
    // 10 of 200 at the most are to be expected, with a standard deviation of 3.
    assert!((1..=20).contains(&alarms), "{alarms} of 200 below 0.05");
}

#[test]
fn every_lossless_rule_passes_under_every_sampler() {
    let samplers = [
        sampled(0.8),
        SamplingParams { top_k: 5, ..sampled(1.0) },
        SamplingParams { top_p: 0.8, min_p: 0.05, ..sampled(0.7) },
        SamplingParams { repeat_penalty: 1.3, frequency_penalty: 0.1, penalty_window: 16, ..sampled(0.6) },
    ];
    for rule in ["coupled", "rejection", "rejection-independent", "block"] {
        let widths: &[usize] = if rule == "block" { &[1, 1, 1] } else { &[2, 1] };
        for sampling in &samplers {
            let verdict = Setting { sampling: sampling.clone(), ..Setting::drawn(rule, widths) }.audit(50_000, 3_000);
            assert!(!verdict.differs(), "{rule}, {sampling:?}: {verdict:#?}");
            assert!(verdict.questions.len() >= 4 && verdict.resolution.is_some(), "{rule}: {verdict:#?}");
            assert_eq!(verdict.compared > 0, rule == "coupled");
        }
    }
    let greedy =
        Setting { sampling: sampled(0.0), noise: 0.15, ..Setting::drawn("greedy", &[2, 1]) }.audit(50_000, 1_500);
    assert!(!greedy.differs() && greedy.compared >= 25 && greedy.open == 0, "{greedy:#?}");
}

#[test]
fn a_lossy_rule_is_told_by_how_much_it_is_off() {
    for (rule, sampling) in [("entropy", sampled(0.5)), ("epsilon:0.2", sampled(0.5)), ("typical", sampled(0.5))] {
        let verdict = Setting { sampling, ..Setting::drawn(rule, &[1, 1]) }.audit(0, 8_000);
        let (low, _) = verdict.distance.total_variation.interval();
        assert!(verdict.differs() && low > 0.005, "{rule}: {verdict:#?}");
    }
    // At temperature 0 it is the share of tokens that are not the target's own.
    let verdict = Setting { sampling: sampled(0.0), ..Setting::drawn("epsilon:0.3", &[1, 1]) }.audit(0, 2_000);
    let share = verdict.impossible as f64 / verdict.tokens as f64;
    let (low, high) = verdict.distance.total_variation.interval();
    assert!(share > 0.01 && (low..high).contains(&share), "{share}: {verdict:#?}");
}

/// Texts with a shadow beside them; gives their tokens, and the shadow.
fn shadowed(setting: &Setting, texts: u64, is_on: bool) -> (Vec<Vec<Token>>, ShadowAudit, usize) {
    let model = HashModel::new(setting.target());
    let wide = Wide { model: HashModel::new(setting.draft()), widths: setting.widths, scratch: Scratch::default() };
    let mut engine = engine(&model).with_drafter(Box::new(wide));
    let alarms = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&alarms);
    let shadow = ShadowAudit::new(5, 1e-6, move |status| {
        assert!(status.p_value < 1e-6);
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    let mut write = |seed| {
        let mut request = setting.request(seed);
        if is_on {
            request.observers.push(shadow.observer(&setting.sampling, model.config().vocab).expect("parameters"));
        }
        run(&mut engine, request).tokens
    };
    let tokens = (0..texts).map(&mut write).collect();
    let called = alarms.load(std::sync::atomic::Ordering::Relaxed);
    (tokens, shadow, called)
}

#[test]
fn a_shadow_changes_nothing_and_calls_once_when_a_rule_is_wrong() {
    let penalised = SamplingParams { repeat_penalty: 1.2, penalty_window: 8, ..sampled(0.5) };
    for setting in [
        Setting::drawn("rejection", &[2, 2]),
        Setting { sampling: penalised, ..Setting::drawn("coupled", &[2, 1]) },
        Setting { sampling: sampled(0.0), noise: 0.15, ..Setting::drawn("greedy", &[2, 1]) },
    ] {
        let (expected, unused, _) = shadowed(&setting, 60, false);
        let (seen, shadow, called) = shadowed(&setting, 60, true);
        assert_eq!(seen, expected, "{}", setting.rule);
        let status = shadow.status();
        assert_eq!((status.generations, status.impossible, called), (60, 0, 0), "{}: {status:?}", setting.rule);
        assert!(status.tokens as usize >= expected.iter().map(Vec::len).sum(), "{status:?}");
        assert!(status.p_value > 1e-3 && !status.alarmed, "{}: {status:?}", setting.rule);
        assert_eq!(unused.status().tokens, 0);
    }
    let (_, shadow, called) =
        mutant::with(Mutant::WithheldByOwnProbability, || shadowed(&Setting::drawn("rejection", &[1, 1]), 400, true));
    assert!(called == 1 && shadow.status().alarmed, "{:?}", shadow.status());
}
