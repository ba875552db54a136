//! Drafting while the target verifies: what it gains on a virtual clock, that the text stays, and what is left behind when it fails.

mod device;
mod faults;
mod streams;

use super::*;

use spec_core::Goodput;
use spec_runtime::{
    CancelToken, Chooser, Clock, HostStream, Session, SpeculationStats, StopRules, Stream, SuffixDrafter, TokenText,
};

use device::{Device, DeviceModel, Fault};

/// Target and draft model on one device.
struct Pair {
    device: Arc<Device>,
    target: Arc<DeviceModel>,
    draft: Arc<DeviceModel>,
}

impl Pair {
    /// A pass of the draft model costs `cost`, one of the target 1.
    fn new(target: HashSpec, draft: HashSpec, cost: f64) -> Self {
        Self::with_rows(target, draft, cost, 0.0)
    }

    /// The same, where a row of the target's pass costs something.
    fn with_rows(target: HashSpec, draft: HashSpec, cost: f64, row_cost: f64) -> Self {
        let device = Device::new();
        let target = DeviceModel::new(&device, target, 1.0, row_cost);
        let draft = DeviceModel::new(&device, draft, cost, 0.0);
        Self { device, target, draft }
    }

    fn target_stream(&self, serial: bool) -> Box<dyn Stream> {
        let stream = self.device.stream();
        Box::new(if serial { stream.serial() } else { stream })
    }

    fn drafter(&self, on_host: bool) -> ModelDrafter {
        let stream: Box<dyn Stream> = if on_host { Box::new(HostStream) } else { Box::new(self.device.stream()) };
        ModelDrafter::new(Arc::clone(&self.draft) as Arc<dyn Model>).on_stream(stream)
    }

    fn engine(&self, serial: bool, drafter: Box<dyn Drafter>) -> Engine {
        Engine::new(Arc::clone(&self.target) as Arc<dyn Model>, Arc::new(Letters(self.target.config().vocab)))
            .on_stream(self.target_stream(serial))
            .with_clock(Arc::clone(&self.device) as Arc<dyn Clock>)
            .with_drafter(drafter)
    }

    fn chooser(&self, drafters: Vec<Box<dyn Drafter>>) -> Box<dyn Drafter> {
        Box::new(Chooser::new(drafters).with_clock(Arc::clone(&self.device) as Arc<dyn Clock>))
    }

    fn nothing_is_held(&self, what: &str) {
        assert_eq!((self.target.held(), self.draft.held()), ((0, 0), (0, 0)), "{what}");
        assert_eq!(self.device.races(), Vec::<String>::new(), "{what}");
    }
}

/// What decoding took, in plain passes, and what it came to.
struct Course {
    completion: Completion,
    cost: f64,
}

impl Course {
    /// The draft model is `draft`; with `serial` nobody works while another does.
    fn new(draft: HashSpec, cost: f64, serial: bool, on_host: bool, request: Request) -> Self {
        let pair = Pair::new(long(), draft, cost);
        let drafter = Box::new(pair.drafter(on_host));
        Self::of(&pair, pair.engine(serial, drafter), request)
    }

    fn of(pair: &Pair, mut engine: Engine, request: Request) -> Self {
        let mut generation = engine.start(request).expect("a legal request");
        engine.step(&mut generation, &mut |_| {}).expect("the prefill succeeds");
        let begun = pair.device.time();
        while engine.step(&mut generation, &mut |_| {}).expect("the round succeeds") {}
        let cost = pair.device.time() - begun;
        let completion = engine.finish(generation);
        drop(engine);
        pair.nothing_is_held("at the end");
        Self { completion, cost }
    }

    fn stats(&self) -> &SpeculationStats {
        &self.completion.speculation
    }

    /// Cost of a round.
    fn round(&self) -> f64 {
        self.cost / self.stats().rounds as f64
    }
}

fn long() -> HashSpec {
    HashSpec { context: 2048, blocks: 256, order: 8, spread: 80.0, ..HashSpec::default() }
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.03
}

#[test]
fn a_round_costs_the_longer_of_drafting_and_verifying_instead_of_both() {
    let expected = plain(&long(), request(400, 0)).tokens;
    for on_host in [false, true] {
        for k in [1, 2, 4, 7] {
            for cost in [0.05, 0.1, 0.2, 0.3, 0.45] {
                let what = format!("{k} tokens at {cost}, on the host: {on_host}");
                let course = |serial| Course::new(long(), cost, serial, on_host, request(400, k));
                let (both, ahead) = (course(true), course(false));
                let tokens = k as f64;
                // The guess of the bonus token is a pass more.
                let (draft, verify) = ((tokens + 1.0) * cost, 1.0);
                assert!(near(both.round(), tokens * cost + verify), "{what}: {} a round, one by one", both.round());
                assert!(near(ahead.round(), draft.max(verify)), "{what}: {} a round", ahead.round());
                for course in [&both, &ahead] {
                    assert_eq!(course.completion.tokens, expected, "{what}");
                    assert_eq!(course.stats().accepted, course.stats().drafted, "{what}");
                }
                assert_eq!(both.stats().ahead, Default::default(), "{what}: nothing runs meanwhile");
                let used = ahead.stats().ahead.used as f64 / ahead.stats().drafted as f64;
                // What is late is drafted when the round has begun.
                let in_time = ((verify / cost).ceil() - 1.0).min(tokens) / tokens;
                assert!(used > in_time * 0.9, "{what}: {used} of the drafts were made ahead, {in_time} can be");
                assert!(ahead.stats().ahead.dropped() <= k, "{what}: {:?}", ahead.stats().ahead);
            }
        }
    }
}

#[test]
fn drafts_that_fail_now_and_then_cost_what_the_arithmetic_says() {
    let (k, cost) = (3, 0.2);
    let expected = plain(&long(), request(600, 0)).tokens;
    for noise in [0.05, 0.15, 0.3, 1.0] {
        let draft = || HashSpec { noise, ..long() };
        let both = Course::new(draft(), cost, true, false, request(600, k));
        let ahead = Course::new(draft(), cost, false, false, request(600, k));
        assert_eq!((&both.completion.tokens, &ahead.completion.tokens), (&expected, &expected));
        let (serial, stats) = (both.stats(), ahead.stats());
        // The same drafts are judged, whenever they were made.
        assert_eq!((serial.drafted, serial.accepted), (stats.drafted, stats.accepted), "noise {noise}");
        assert!(stats.ahead.drafted > 0 && stats.ahead.dropped() > 0, "noise {noise}: {:?}", stats.ahead);
        assert!(noise == 1.0 || stats.ahead.used > 0, "noise {noise}: {:?}", stats.ahead);
        // Four passes fit into one of the target's: rounds that find their draft made wait for nothing.
        let made = stats.ahead.used as f64 / k as f64;
        let bound = stats.rounds as f64 + (stats.rounds as f64 - made) * k as f64 * cost;
        assert!(near(ahead.cost, bound), "noise {noise}: {} passes, {bound} expected", ahead.cost);
        assert!(ahead.cost <= both.cost * if noise < 0.1 { 0.9 } else { 1.0 }, "noise {noise}");
        let timings = ahead.completion.timings;
        let parts = timings.draft + timings.verify + timings.sample + timings.rollback;
        assert_eq!(parts, timings.decode, "noise {noise}: {timings:?}");
        assert!(timings.ahead > std::time::Duration::ZERO && timings.ahead <= timings.verify, "{timings:?}");
    }
}

#[test]
fn a_text_that_goes_on_is_drafted_ahead_in_every_turn() {
    let pair = Pair::new(long(), HashSpec { noise: 0.05, ..long() }, 0.2);
    let mut engine = pair.engine(false, Box::new(pair.drafter(false)));
    let mut session = Session::new();
    let mut prompt = PROMPT.to_vec();
    for turn in 0..4 {
        let asked = || Request { prompt: prompt.clone(), ..request(60, 3) };
        let got = session.generate(&mut engine, asked(), &mut |_| {}).expect("the generation succeeds");
        assert_eq!(got.tokens, plain(&long(), asked()).tokens, "turn {turn}");
        assert!(got.speculation.ahead.used > 0, "turn {turn}: {:?}", got.speculation.ahead);
        assert_eq!(got.cached_tokens > 0, turn > 0, "turn {turn}");
        // Every second turn takes a part of the answer back.
        let kept = got.tokens.len() - 20 * (turn % 2);
        prompt.extend(&got.tokens[..kept]);
        prompt.push(turn as Token);
    }
    session.clear(&mut engine);
    drop(engine);
    pair.nothing_is_held("at the end");
}

#[test]
fn the_text_is_that_of_no_drafter_at_all() {
    let settings = [
        sampled(0.0),
        sampled(0.8),
        SamplingParams { repeat_penalty: 1.3, presence_penalty: 0.5, ..sampled(0.0) },
        SamplingParams { top_p: 0.9, top_k: 8, frequency_penalty: 0.2, ..sampled(0.9) },
    ];
    let mut used = 0;
    for order in [2, usize::MAX] {
        for block_tokens in [1, 3, 16] {
            let spec = HashSpec { order, block_tokens, blocks: 1024, ..HashSpec::default() };
            for sampling in &settings {
                for (k, tokens) in [(1, 33), (2, 80), (5, 120), (9, 17)] {
                    for noise in [0.0, 0.2] {
                        let with = || Request { sampling: sampling.clone(), logprobs: Some(2), ..request(tokens, k) };
                        let wanted = plain(&spec, with());
                        for cost in [0.02, 0.4] {
                            let pair = Pair::new(spec.clone(), HashSpec { noise, ..spec.clone() }, cost);
                            let got = run(&mut pair.engine(false, Box::new(pair.drafter(false))), with());
                            let what = format!("{sampling:?}, k {k}, {tokens} tokens, noise {noise}, cost {cost}");
                            assert_eq!(got.tokens, wanted.tokens, "{what}");
                            assert_eq!((&got.text, &got.logprobs), (&wanted.text, &wanted.logprobs), "{what}");
                            assert_eq!(got.finish, wanted.finish, "{what}");
                            pair.nothing_is_held(&what);
                            let ahead = got.speculation.ahead;
                            assert!(ahead.drafted > 0, "{what}");
                            assert!(noise > 0.0 || ahead.used * 2 > ahead.drafted || k == 9, "{what}: {ahead:?}");
                            used += ahead.used;
                        }
                    }
                }
            }
        }
    }
    assert!(used > 5_000, "{used}");
}

#[test]
fn ends_of_all_kinds_come_where_they_come_without_a_drafter() {
    let spec = HashSpec::default();
    let text = plain(&spec, request(100, 0)).tokens;
    let mut used = 0;
    for at in 20..34 {
        let letters = text[at - 2..=at].iter().flat_map(|&token| Letters(32).bytes(token).into_owned()).collect();
        let stop_text = String::from_utf8(letters).expect("letters");
        // An end token, a stop text, a limit: within a block, at its end, behind it.
        let stops = [
            StopRules { end_ids: vec![text[at]], max_tokens: 100, ..StopRules::default() },
            StopRules { texts: vec![stop_text], max_tokens: 100, ..StopRules::default() },
            StopRules { max_tokens: at, ..StopRules::default() },
        ];
        for stop in stops {
            let with = |k| Request { stop: stop.clone(), ..request(0, k) };
            let wanted = plain(&spec, with(0));
            let pair = Pair::new(spec.clone(), spec.clone(), 0.1);
            let got = run(&mut pair.engine(false, Box::new(pair.drafter(false))), with(4));
            assert_eq!((&got.tokens, &got.text, got.finish), (&wanted.tokens, &wanted.text, wanted.finish), "{stop:?}");
            assert_eq!(got.completion_tokens, wanted.completion_tokens);
            used += got.speculation.ahead.used;
            pair.nothing_is_held("at the end");
        }
    }
    assert!(used > 100, "{used}");
}

#[test]
fn contexts_end_where_they_end() {
    for (context, draft_context) in [(64, 512), (512, 40), (64, 64), (80, 79)] {
        let target = HashSpec { context, ..HashSpec::default() };
        let with = |k| request(300, k);
        let wanted = plain(&target, with(0));
        let pair = Pair::new(target, HashSpec { context: draft_context, ..HashSpec::default() }, 0.1);
        let got = run(&mut pair.engine(false, Box::new(pair.drafter(false))), with(5));
        assert_eq!((&got.tokens, got.finish), (&wanted.tokens, wanted.finish), "{context}, {draft_context}");
        assert_eq!(got.speculation.accepted, got.speculation.drafted, "it never proposes rubbish");
        assert!(got.speculation.ahead.used > 0);
        pair.nothing_is_held("at the end");
    }
}

#[test]
fn a_cache_too_small_for_drafting_ahead_is_none_for_drafting() {
    let spec = HashSpec { blocks: 400, block_tokens: 1, ..HashSpec::default() };
    let wanted = plain(&spec, request(80, 6)).tokens;
    let pair = Pair::new(spec.clone(), spec.clone(), 0.1);
    let mut engine = pair.engine(false, Box::new(pair.drafter(false)));
    let mut generation = engine.start(request(80, 6)).expect("a legal request");
    let ahead = |generation: &spec_runtime::Generation| generation.completion().speculation.ahead;
    for _ in 0..4 {
        engine.step(&mut generation, &mut |_| {}).expect("the step succeeds");
    }
    let model = Arc::clone(&pair.draft) as Arc<dyn Model>;
    // The next draft is at hand. Behind it another would take thirteen rows: a token and six nodes to read, a guess, five of the draft.
    let before = ahead(&generation);
    let hog = spec_runtime::Sequence::open(&model).expect("a sequence");
    let rows = spec.blocks - pair.draft.held().0 - 10;
    let guard = spec_runtime::KvGuard::reserve(&hog, rows).expect("so many are free");
    engine.step(&mut generation, &mut |_| {}).expect("the step succeeds");
    assert_eq!(ahead(&generation).drafted, before.drafted, "there was no room");
    assert_eq!(ahead(&generation).used, before.used + 6);
    drop((guard, hog));
    while engine.step(&mut generation, &mut |_| {}).expect("the step succeeds") {}
    let got = engine.finish(generation);
    assert_eq!(got.tokens, wanted);
    assert_eq!(got.speculation.accepted, got.speculation.drafted);
    assert!(got.speculation.ahead.used > 30, "{:?}", got.speculation);
    pair.nothing_is_held("at the end");
}

#[test]
fn what_is_drawn_is_not_drafted_ahead_and_stays_what_it_was() {
    for rule in ["rejection", "rejection-independent", "block", "entropy"] {
        let with = || Request {
            sampling: sampled(1.0),
            rule: Some(rule.parse::<spec_core::RuleName>().expect("a rule of the table").into()),
            ..request(200, 4)
        };
        let course = |serial| Course::new(HashSpec { noise: 0.3, ..long() }, 0.1, serial, false, with());
        let (both, ahead) = (course(true), course(false));
        assert_eq!(both.completion.tokens, ahead.completion.tokens, "{rule}");
        assert_eq!(ahead.stats().ahead, Default::default(), "{rule}");
        assert!(ahead.stats().accepted > 0 && ahead.stats().accepted < ahead.stats().drafted, "{rule}");
    }
}

#[test]
fn on_the_host_alone_nothing_is_drafted_ahead() {
    let target = HashModel::new(long());
    let got = run(&mut engine(&target).with_drafter(model_drafter(long())), request(100, 4));
    assert!(got.speculation.drafted > 50);
    assert_eq!(got.speculation.ahead, Default::default());
    assert_eq!(got.timings.ahead, std::time::Duration::ZERO);
}

#[test]
fn several_generations_draft_ahead_each_for_itself() {
    let spec = HashSpec { blocks: 512, ..HashSpec::default() };
    let pair = Pair::new(spec.clone(), HashSpec { noise: 0.1, ..spec.clone() }, 0.1);
    let mut engine = pair.engine(false, Box::new(pair.drafter(false)));
    let with = |i: usize| Request {
        prompt: PROMPT.iter().map(|&token| (token + i as Token) % 32).collect(),
        sampling: sampled(if i.is_multiple_of(2) { 0.0 } else { 0.9 }),
        seed: Some(i as u64),
        ..request(60 + i, 1 + i)
    };
    let mut open: Vec<_> = (0..6).map(|i| engine.start(with(i)).expect("a legal request")).collect();
    while open.iter_mut().map(|g| engine.step(g, &mut |_| {}).expect("it succeeds")).fold(false, |any, more| any | more)
    {
    }
    for (i, generation) in open.into_iter().enumerate() {
        let got = engine.finish(generation);
        assert_eq!(got.tokens, plain(&spec, with(i)).tokens, "request {i}");
        assert!(got.speculation.ahead.used > 0, "request {i}");
    }
    pair.nothing_is_held("at the end");
}

#[test]
fn goodput_comes_near_the_best_fixed_length_whether_drafting_is_hidden_or_not() {
    for noise in [0.02, 0.06] {
        for (cost, row_cost) in [(0.1, 0.0), (0.25, 0.03), (0.4, 0.03)] {
            let course = |serial, draft_len: Box<dyn LengthPolicy>| {
                let pair = Pair::with_rows(long(), HashSpec { noise, ..long() }, cost, row_cost);
                let engine = pair.engine(serial, Box::new(pair.drafter(false)));
                Course::of(&pair, engine, Request { draft_len, ..request(800, 0) })
            };
            let mut costs = Vec::new();
            for serial in [true, false] {
                let got = course(serial, Box::new(Goodput::new(10)));
                let fixed = [1, 2, 3, 5, 7, 9].into_iter().map(|k| course(serial, Box::new(spec_core::Fixed(k))).cost);
                let best = fixed.fold(f64::INFINITY, f64::min);
                let what = format!("noise {noise}, a pass of {cost}, a row of {row_cost}, serial: {serial}");
                assert!(got.cost < best * 1.1, "{what}: {} passes, {best} at the best length", got.cost);
                assert!(serial || got.stats().ahead.used > 50, "{what}: {:?}", got.stats());
                costs.push(got.cost);
            }
            assert!(costs[1] < costs[0], "noise {noise}, a pass of {cost}: hiding gains: {costs:?}");
        }
    }
}

#[test]
fn goodput_drafts_where_that_pays_only_because_it_is_hidden() {
    // About every other token is right, and a pass of the drafter takes half of the target's.
    let with = || Request { draft_len: Box::new(Goodput::new(10)), ..request(1000, 0) };
    let course = |serial| Course::new(HashSpec { noise: 0.18, ..long() }, 0.5, serial, false, with());
    let (both, ahead) = (course(true), course(false));
    assert_eq!(both.completion.tokens, ahead.completion.tokens);
    assert!(ahead.stats().drafted_rounds > both.stats().drafted_rounds * 3 / 2);
    assert!(ahead.cost < both.cost, "{} passes, {} one by one", ahead.cost, both.cost);
}

#[test]
fn several_drafters_in_one_tree_draft_ahead_and_gain() {
    let wanted = plain(&long(), request(600, 0)).tokens;
    for noise in [0.02, 0.05, 0.1] {
        let course = |serial| {
            let pair = Pair::with_rows(long(), HashSpec { noise, ..long() }, 0.3, 0.03);
            let drafters: Vec<Box<dyn Drafter>> =
                vec![Box::new(SuffixDrafter::new()), Box::new(NgramDrafter::new()), Box::new(pair.drafter(false))];
            let engine = pair.engine(serial, pair.chooser(drafters));
            let with = Request { draft_len: Box::new(Goodput::default()), ..request(600, 0) };
            Course::of(&pair, engine, with)
        };
        let (both, ahead) = (course(true), course(false));
        assert_eq!((&both.completion.tokens, &ahead.completion.tokens), (&wanted, &wanted), "noise {noise}");
        assert!(ahead.stats().ahead.used > 30, "noise {noise}: {:?}", ahead.stats());
        let gain = if noise < 0.05 { 0.9 } else { 1.0 };
        assert!(ahead.cost < both.cost * gain, "noise {noise}: {} passes, {} one by one", ahead.cost, both.cost);
    }
}

#[test]
fn at_a_fixed_length_the_first_drafter_with_a_proposal_drafts_ahead() {
    let pair = Pair::new(long(), long(), 0.1);
    // The first never has one.
    let drafters: Vec<Box<dyn Drafter>> = vec![Box::new(ScriptedDrafter::default()), Box::new(pair.drafter(true))];
    let got = run(&mut pair.engine(false, pair.chooser(drafters)), request(200, 4));
    assert_eq!(got.tokens, plain(&long(), request(200, 4)).tokens);
    assert!(got.speculation.ahead.used > 50, "{:?}", got.speculation);
}

/// N-grams, and the time at which they read the prompt.
struct Reading(NgramDrafter, Arc<Device>, Arc<parking_lot::Mutex<Option<f64>>>);

impl Drafter for Reading {
    fn name(&self) -> &str {
        "reading"
    }
    fn read(&mut self, generation: spec_runtime::GenerationId, prompt: &[Token]) {
        self.0.read(generation, prompt);
        *self.2.lock() = Some(self.1.time());
    }
    fn draft(&mut self, context: spec_runtime::DraftContext<'_>) -> Result<spec_core::DraftTree, RuntimeError> {
        self.0.draft(context)
    }
    fn observe(&mut self, g: spec_runtime::GenerationId, t: &[Token], a: usize) -> Result<(), RuntimeError> {
        self.0.observe(g, t, a)
    }
    fn forget(&mut self, generation: spec_runtime::GenerationId) {
        self.0.forget(generation);
    }
}

#[test]
fn look_ups_index_the_prompt_while_the_target_reads_it() {
    let spec = HashSpec { order: 2, vocab: 8, max_rows: 16, ..HashSpec::default() };
    let with = || Request { prompt: [1, 2, 3].repeat(16), ..request(60, 4) };
    for serial in [true, false] {
        let (pair, read) = (Pair::new(spec.clone(), spec.clone(), 0.1), Arc::default());
        let drafter = Reading(NgramDrafter::new(), Arc::clone(&pair.device), Arc::clone(&read));
        let drafter = pair.chooser(vec![Box::new(drafter), Box::new(SuffixDrafter::new())]);
        let got = run(&mut pair.engine(serial, drafter), with());
        assert_eq!(got.tokens, plain(&spec, with()).tokens);
        assert!(got.speculation.accepted > 0);
        // Of three passes over the prompt the first is under way.
        assert_eq!(*read.lock(), (!serial).then_some(0.0));
    }
}
