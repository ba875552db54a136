//! Draft models whose vocabulary is not the target's.

use std::borrow::Cow;
use std::sync::Mutex;

use spec_core::RuleName;
use spec_runtime::{
    Batch, DraftContext, GenerationId, ModelConfig, Pass, Rows, SeqId, Stream, TokenRole, TokenText, VocabularyMap,
};

use super::*;

/// A vocabulary as it is written: `<...` are markers, an empty text is a hole. What begins with `=` is written otherwise than it
/// is spelled: `=x` is the text `x`.
#[derive(Clone)]
struct Written(Vec<String>);

impl Written {
    fn new(tokens: &[&str]) -> Arc<Self> {
        Arc::new(Self(tokens.iter().map(|&token| token.to_owned()).collect()))
    }

    /// The letters that [`Letters`] has.
    fn letters(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count as Token).map(|id| Letters(count).label(id).into_owned()).collect()))
    }

    fn with(&self, id: usize, token: &str) -> Arc<Self> {
        let mut tokens = self.0.clone();
        tokens.resize(tokens.len().max(id + 1), String::new());
        token.clone_into(&mut tokens[id]);
        Arc::new(Self(tokens))
    }
}

fn is_marker(token: &str) -> bool {
    token.len() > 1 && token.starts_with('<')
}

impl TokenText for Written {
    fn vocab(&self) -> usize {
        self.0.iter().rposition(|token| !token.is_empty()).map_or(0, |last| last + 1)
    }
    fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
        let token = &self.0[token as usize];
        Cow::Borrowed(if is_marker(token) { b"" } else { token.trim_start_matches('=').as_bytes() })
    }
    fn label(&self, token: Token) -> Cow<'_, str> {
        Cow::Borrowed(&self.0[token as usize])
    }
    fn role(&self, token: Token) -> TokenRole {
        match self.0[token as usize].as_str() {
            "" => TokenRole::Unused,
            token if is_marker(token) => TokenRole::Marker,
            _ => TokenRole::Text,
        }
    }
}

/// A model under other ids: own id to the inner model's, `None` where it has only rubbish.
struct Renumbered {
    inner: Arc<HashModel>,
    config: ModelConfig,
    ids: Vec<Option<Token>>,
}

impl Renumbered {
    fn new(spec: HashSpec, ids: Vec<Option<Token>>) -> Arc<Self> {
        let inner = HashModel::new(spec);
        let config = ModelConfig { vocab: ids.len(), ..inner.config().clone() };
        Arc::new(Self { inner, config, ids })
    }
}

struct RenumberedPass(Box<dyn Pass>, Vec<Option<Token>>);
struct RenumberedRows(Vec<Option<Vec<f32>>>);

impl Pass for RenumberedPass {
    fn wait(self: Box<Self>) -> Result<Box<dyn Rows>, RuntimeError> {
        let rows = self.0.wait()?;
        let mut own = Vec::new();
        for row in 0..64 {
            let logits = rows.logits(row).ok();
            // What has no token is the likeliest of all.
            let logit = |logits: &[f32], id: &Option<Token>| id.map_or(1000.0, |id| logits[id as usize]);
            own.push(logits.map(|logits| self.1.iter().map(|id| logit(logits, id)).collect()));
        }
        Ok(Box::new(RenumberedRows(own)))
    }
}

impl Rows for RenumberedRows {
    fn logits(&self, row: usize) -> Result<&[f32], RuntimeError> {
        self.0[row].as_deref().ok_or(RuntimeError::NotWanted { row })
    }
}

impl Model for Renumbered {
    fn config(&self) -> &ModelConfig {
        &self.config
    }
    spec_testing::sequences_of!(inner);
    fn adopt(&self, seq: SeqId, scope: u64, tokens: &[Token]) -> Result<usize, RuntimeError> {
        let known = |&token: &Token| self.ids[token as usize].expect("a draft model is fed tokens that it knows");
        self.inner.adopt(seq, scope, &tokens.iter().map(known).collect::<Vec<_>>())
    }
    fn submit(&self, stream: &dyn Stream, batch: &Batch) -> Result<Box<dyn Pass>, RuntimeError> {
        let mut batch = batch.clone();
        for row in &mut batch.rows {
            row.token = self.ids[row.token as usize].expect("a draft model is fed tokens that it knows");
        }
        Ok(Box::new(RenumberedPass(self.inner.submit(stream, &batch)?, self.ids.clone())))
    }
}

fn target_of(vocabulary: &Arc<Written>, spec: &HashSpec) -> Engine {
    Engine::new(HashModel::new(spec.clone()), Arc::clone(vocabulary) as Arc<dyn TokenText>)
}

fn map(target: &Arc<Written>, draft: &Arc<Written>) -> Result<VocabularyMap, RuntimeError> {
    VocabularyMap::new(Arc::clone(target) as Arc<dyn TokenText>, &**draft)
}

fn intersection(target: &Arc<Written>, draft: &Arc<Written>) -> VocabularyMap {
    VocabularyMap::intersection(Arc::clone(target) as Arc<dyn TokenText>, &**draft).expect("they share tokens")
}

const RULES: [(&str, f32); 5] =
    [("greedy", 0.0), ("coupled", 0.0), ("coupled", 0.9), ("rejection", 0.9), ("block", 0.9)];

#[test]
fn a_models_own_copy_under_other_ids_is_accepted_whole() {
    let spec = HashSpec { order: 4, ..HashSpec::default() };
    let target = Written::letters(32);
    // Every id moved, two ids of padding at the front and five behind: 39 rows wide.
    let mut ids: Vec<Option<Token>> = vec![None, None];
    ids.extend((0..32).map(|id| Some((id * 7 + 3) % 32)));
    ids.extend([None; 5]);
    let name = |id: &Option<Token>| id.map_or(String::new(), |id| target.0[id as usize].clone());
    let draft = Arc::new(Written(ids.iter().map(name).collect()));
    let found = map(&target, &draft).expect("the same tokens");
    assert_eq!((found.is_identity(), found.shared(), found.draft_id(3)), (false, 32, Some(2)));
    assert_eq!(found.notes(), ["32 tokens with other ids in the draft model"]);
    for (rule, temperature) in RULES {
        for k in [1, 4, 7] {
            let model = Renumbered::new(spec.clone(), ids.clone());
            let drafter = ModelDrafter::new(Arc::clone(&model) as Arc<dyn Model>);
            let drafter = drafter.with_vocabulary(map(&target, &draft).expect("the same tokens")).with_shortlist();
            let mut engine = target_of(&target, &spec).with_drafter(Box::new(drafter));
            let rule_of = rule.parse::<RuleName>().expect("a rule");
            let with = || Request { sampling: sampled(temperature), rule: Some(rule_of.into()), ..request(200, k) };
            let got = run(&mut engine, with());
            assert_eq!(got.speculation.accepted, got.speculation.drafted, "{rule} at {temperature}, k {k}");
            assert!(got.speculation.drafted >= 99, "{rule} at {temperature}, k {k}: {:?}", got.speculation);
            if !matches!(rule, "rejection" | "block") {
                assert_eq!(got.tokens, plain(&spec, with()).tokens, "{rule} at {temperature}, k {k}");
            }
            assert_eq!(model.inner.free_blocks(), spec.blocks, "blocks leak");
        }
    }
}

#[test]
fn padding_holes_kinds_and_markers_may_differ_and_are_mentioned() {
    let target = Written::new(&["a", "b", "", "c", "<end>", "<tool>"]);
    for (draft, identity, notes) in [
        (&["a", "b", "", "c", "<end>", "<tool>", "", ""][..], true, &[][..]),
        (&["a", "b", "<own>", "c", "<end>", "<tool>"], false, &["1 token of the draft model's own"]),
        (&["a", "b", "", "c", "<end>"], false, &["1 token unknown to the draft model and never drafted"]),
        (&["a", "c", "b", "<end>", "<tool>"], false, &["4 tokens with other ids in the draft model"]),
        (&["=a", "=b", "", "=c", "<end>", "<tool>"], true, &[]),
        (&["=c", "=b", "", "=a", "<end>", "<tool>"], false, &["2 tokens with other ids in the draft model"]),
    ] {
        let map = map(&target, &Written::new(draft)).unwrap_or_else(|error| panic!("{draft:?}: {error}"));
        assert_eq!(
            (map.is_identity(), map.notes().iter().map(String::as_str).collect::<Vec<_>>()),
            (identity, notes.to_vec()),
            "{draft:?}"
        );
    }
    // Only what a file says of its kind differs: a marker here is text there.
    struct AllText(Arc<Written>);
    impl TokenText for AllText {
        fn vocab(&self) -> usize {
            self.0.vocab()
        }
        fn bytes(&self, token: Token) -> Cow<'_, [u8]> {
            Cow::Owned(self.0.label(token).into_owned().into_bytes())
        }
        fn label(&self, token: Token) -> Cow<'_, str> {
            self.0.label(token)
        }
    }
    let whole = Written::new(&["a", "b", "<end>"]);
    let map = VocabularyMap::new(Arc::clone(&whole) as Arc<dyn TokenText>, &AllText(whole)).expect("the same tokens");
    assert!(map.is_identity());
    assert_eq!(map.notes(), ["1 token of other kinds in the draft model"]);
}

#[test]
fn different_tokenizers_are_refused_with_the_first_difference() {
    let target = Written::letters(32);
    assert!(map(&target, &Written::letters(32)).is_ok());
    for (draft, words) in [
        (target.with(5, "other"), ["id 5", "\"other\" against \"f\""]),
        (Written::letters(30), ["id 30", "no such token against \"e1\""]),
        (target.with(40, "more"), ["id 40", "\"more\" against no such token"]),
        (target.with(5, ""), ["id 5", "no such token against \"f\""]),
    ] {
        let message = map(&target, &draft).expect_err("they differ").to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message} lacks one of {words:?}");
    }
    let nothing = Written::new(&["<a>", "1", "2"]);
    let error = VocabularyMap::intersection(target as Arc<dyn TokenText>, &*nothing).expect_err("nothing is shared");
    assert!(error.to_string().contains("id 0"), "{error}");
}

/// Letters, pairs of letters and a marker, of which the draft model has the letters and a text of its own.
fn pairs() -> (Arc<Written>, Arc<Written>, Vec<Option<Token>>) {
    let pairs = ["ab", "cd", "ef", "gh", "ij"];
    let letters: Vec<String> = Written::letters(26).0.clone();
    let marker = "<z>".to_owned();
    let target = letters.iter().cloned().chain(pairs.map(str::to_owned)).chain([marker]).collect();
    let spelled = ["zz", "<", ">"].map(str::to_owned);
    let draft: Vec<String> = spelled.into_iter().chain(letters.into_iter().rev()).collect();
    let ids = (0..draft.len() as Token).map(Some).collect();
    (Arc::new(Written(target)), Arc::new(Written(draft)), ids)
}

/// The target's text as the draft model of [`pairs`] reads it.
fn spelled(target: &Written, draft: &Written, text: &[Token]) -> Vec<Token> {
    let id = |letter: char| draft.0.iter().position(|token| *token == letter.to_string()).expect("a letter") as Token;
    text.iter().flat_map(|&token| target.0[token as usize].chars().map(id)).collect()
}

type Seen = Arc<Mutex<Vec<(Vec<Token>, Vec<Token>)>>>;

/// Notes what is drafted behind which text.
struct Spy(ModelDrafter, Seen);

impl Drafter for Spy {
    fn name(&self) -> &str {
        "spy"
    }
    fn draft(&mut self, context: DraftContext<'_>) -> Result<spec_core::DraftTree, RuntimeError> {
        let text = context.tokens.to_vec();
        let tree = self.0.draft(context)?;
        let drafted = tree.nodes().map(|(_, node)| node.token).collect();
        self.1.lock().expect("one thread").push((text, drafted));
        Ok(tree)
    }
    fn observe(&mut self, generation: GenerationId, tokens: &[Token], accepted: usize) -> Result<(), RuntimeError> {
        self.0.observe(generation, tokens, accepted)
    }
    fn forget(&mut self, generation: GenerationId) {
        self.0.forget(generation);
    }
}

#[test]
fn an_intersection_drafts_what_both_have_behind_the_text_spelled_anew() {
    let (target, draft, ids) = pairs();
    let found = intersection(&target, &draft);
    assert_eq!((found.shared(), found.draft_id(0), found.draft_id(26)), (26, Some(28), None));
    for order in [3, usize::MAX] {
        let (spec, draft_spec) =
            (HashSpec { order, ..HashSpec::default() }, HashSpec { vocab: 29, seed: 5, order, ..HashSpec::default() });
        for (rule, temperature) in RULES {
            for k in [1, 3, 7] {
                let model = Renumbered::new(draft_spec.clone(), ids.clone());
                let drafter = ModelDrafter::new(Arc::clone(&model) as Arc<dyn Model>)
                    .with_vocabulary(intersection(&target, &draft));
                let seen = Seen::default();
                let mut engine = target_of(&target, &spec).with_drafter(Box::new(Spy(drafter, Arc::clone(&seen))));
                let rule_of = rule.parse::<RuleName>().expect("a rule");
                let with = || Request { sampling: sampled(temperature), rule: Some(rule_of.into()), ..request(100, k) };
                let got = run(&mut engine, with());
                if !matches!(rule, "rejection" | "block") {
                    assert_eq!(got.tokens, plain(&spec, with()).tokens, "{rule} at {temperature}, k {k}");
                }
                assert!(got.speculation.drafted >= 70, "{rule} at {temperature}, k {k}: {:?}", got.speculation);
                assert!(
                    got.tokens.iter().any(|&token| token >= 26),
                    "the text has tokens that the draft model has not"
                );
                assert_eq!(model.inner.free_blocks(), spec.blocks, "blocks leak");
                for (text, drafted) in seen.lock().expect("one thread").iter() {
                    assert!(drafted.iter().all(|&token| token < 26), "{drafted:?} are not in both");
                    if temperature == 0.0 {
                        // The likeliest token of both, behind all that was emitted and drafted, spelled in the draft's ids.
                        let mut text = spelled(&target, &draft, text);
                        for &token in drafted {
                            let logits = &model.inner.logits_of(&text)[3..];
                            let best = (0..26).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("letters");
                            assert_eq!(token, 25 - best as Token, "behind {text:?}");
                            text.push(best as Token + 3);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_spelled_ends_drafting_and_nothing_stands_in_for_it() {
    let (target, draft, ids) = pairs();
    // Without `h` there is no way to write `gh`, nor `h` itself.
    let draft = draft.with(28 - 7, "qq");
    let spec = HashSpec::default();
    let expected = plain(&spec, request(200, 5)).tokens;
    let first = expected.iter().position(|&token| token == 7 || token == 29).expect("it comes up");
    assert!(first > 3, "there is something to draft before");
    let model = Renumbered::new(HashSpec { vocab: 29, seed: 5, ..spec.clone() }, ids);
    let drafter = ModelDrafter::new(model as Arc<dyn Model>).with_vocabulary(intersection(&target, &draft));
    let seen = Seen::default();
    let mut engine = target_of(&target, &spec).with_drafter(Box::new(Spy(drafter, Arc::clone(&seen))));
    for _ in 0..2 {
        seen.lock().expect("one thread").clear();
        let got = run(&mut engine, request(200, 5));
        assert_eq!(got.tokens, expected);
        for (text, drafted) in seen.lock().expect("one thread").iter() {
            let readable = text.len() <= PROMPT.len() + first;
            assert_eq!(drafted.is_empty(), !readable, "behind {} tokens", text.len());
        }
    }
}

#[test]
fn a_request_that_forbids_all_that_both_have_is_answered_without_drafts() {
    let (target, draft, ids) = pairs();
    let spec = HashSpec::default();
    let ban = (0..26).map(|token| (token, f32::NEG_INFINITY)).collect();
    let sampling = SamplingParams { logit_bias: ban, ..sampled(0.8) };
    for rule in ["coupled", "rejection"] {
        let model = Renumbered::new(HashSpec { vocab: 29, seed: 5, ..spec.clone() }, ids.clone());
        let drafter = ModelDrafter::new(model as Arc<dyn Model>).with_vocabulary(intersection(&target, &draft));
        let mut engine = target_of(&target, &spec).with_drafter(Box::new(drafter));
        let rule = rule.parse::<RuleName>().expect("a rule");
        let with = || Request { sampling: sampling.clone(), rule: Some(rule.into()), ..request(50, 4) };
        let got = run(&mut engine, with());
        assert_eq!((got.tokens.len(), got.speculation.drafted), (50, 0));
    }
}

/// Three tokens of which the draft model lacks one, under the rules that draw: every text of four tokens.
#[test]
fn rules_that_draw_have_the_targets_law_over_an_intersection() {
    const RUNS: u64 = 60_000;
    let (target, draft) = (Written::new(&["a", "b", "bb"]), Written::new(&["b", "x", "a"]));
    let spec = HashSpec { vocab: 3, order: 2, blocks: 8, context: 64, ..HashSpec::default() };
    let model = HashModel::new(spec.clone());
    let law = |text: &[Token]| -> Vec<f64> {
        // An eighth of the logits: no text is rare.
        let weights: Vec<f64> = model.logits_of(text).iter().map(|&logit| (f64::from(logit) / 8.0).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    };
    let prompt = [0, 1];
    for rule in ["rejection", "block", "coupled"] {
        let draft_model = HashModel::new(HashSpec { seed: 3, ..spec.clone() });
        let drafter = ModelDrafter::new(draft_model as Arc<dyn Model>).with_vocabulary(intersection(&target, &draft));
        let mut engine = target_of(&target, &spec).with_drafter(Box::new(drafter));
        let name = rule.parse::<RuleName>().expect("a rule");
        let (mut counts, mut drafted, mut accepted) = ([0_u64; 81], 0, 0);
        for seed in 0..RUNS {
            let with = Request {
                sampling: sampled(8.0),
                rule: Some(name.into()),
                seed: Some(seed),
                draft_len: Box::new(spec_core::Fixed(2)),
                ..Request::new(prompt.to_vec(), 4)
            };
            let got = run(&mut engine, with);
            counts[got.tokens.iter().fold(0, |cell, &token| cell * 3 + token as usize)] += 1;
            drafted += got.speculation.drafted;
            accepted += got.speculation.accepted;
        }
        let mut statistic = 0.0;
        for (cell, &count) in counts.iter().enumerate() {
            let (mut text, mut expected) = (prompt.to_vec(), RUNS as f64);
            for token in [cell / 27, cell / 9 % 3, cell / 3 % 3, cell % 3] {
                expected *= law(&text)[token];
                text.push(token as Token);
            }
            assert!(expected > 20.0, "a text of {expected} runs");
            statistic += (count as f64 - expected).powi(2) / expected;
        }
        // 80 degrees of freedom; chance passes the limit once in about 10^6.
        let limit = 80.0 + 5.0 * (2.0 * 80.0_f64).sqrt();
        assert!(statistic < limit, "{rule}: chi-square {statistic}, limit {limit}");
        assert!(accepted > RUNS as usize / 4 && accepted < drafted, "{rule}: {accepted} of {drafted}");
    }
}
