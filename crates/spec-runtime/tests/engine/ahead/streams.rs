//! Order between the streams of target and drafter. Their models share a pool of blocks here: tokens that a commit moves on one stream are
//! read from blocks that the other stream may be given next, and nobody waits for moves but by events.

use super::*;

/// Goodput that drafts nothing in every other round: then the target's next pass has nothing of the drafter's to wait for but its moves.
struct Pausing(Goodput, usize);

impl LengthPolicy for Pausing {
    fn start(&mut self, start: spec_core::Start) {
        self.0.start(start);
    }
    fn next(&mut self) -> usize {
        self.1 += 1;
        let length = self.0.next();
        if self.1.is_multiple_of(2) { 0 } else { length }
    }
    fn prices(&self) -> Option<&spec_core::Prices> {
        self.0.prices()
    }
    fn observe(&mut self, round: &spec_core::Round) {
        self.0.observe(round);
    }
}

/// In turn a tree that ends right and begins with a wrong branch, and the chain of a model. Behind the tree the model's cache lies in blocks
/// that the target has just moved tokens out of.
struct InTurn {
    model: ModelDrafter,
    answer: Vec<Token>,
    drafts: usize,
}

impl Drafter for InTurn {
    fn name(&self) -> &str {
        "in turn"
    }
    fn draft(&mut self, context: spec_runtime::DraftContext<'_>) -> Result<spec_core::DraftTree, RuntimeError> {
        self.drafts += 1;
        if self.drafts.is_multiple_of(2) {
            return self.model.draft(context);
        }
        let right = &self.answer[context.tokens.len() - PROMPT.len()..];
        let mut tree = spec_core::DraftTree::new();
        let (mut parent, fixed) = (None, spec_core::Origin::Fixed);
        for &token in right.iter().take(context.budget / 2) {
            tree.push(parent, (token + 1) % 32, fixed).expect("a new token");
            parent = Some(tree.push(parent, token, fixed).expect("a new token"));
        }
        Ok(tree)
    }
    fn drafts_ahead(&self) -> bool {
        true
    }
    fn draft_ahead(
        &mut self,
        context: spec_runtime::DraftContext<'_>,
        assumed: usize,
        under_way: &dyn Fn() -> bool,
    ) -> Result<usize, RuntimeError> {
        self.model.draft_ahead(context, assumed, under_way)
    }
    fn follow(&self, event: &dyn spec_runtime::Event) -> Result<(), RuntimeError> {
        self.model.follow(event)
    }
    fn precede(&self, stream: &dyn Stream) -> Result<(), RuntimeError> {
        self.model.precede(stream)
    }
    fn observe(&mut self, g: spec_runtime::GenerationId, t: &[Token], a: usize) -> Result<(), RuntimeError> {
        self.model.observe(g, t, a)
    }
    fn forget(&mut self, generation: spec_runtime::GenerationId) {
        self.model.forget(generation);
    }
}

/// Whose waits for the other's stream are lost.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Deaf {
    Nobody,
    Target,
    Drafter,
}

/// Races, and what was drafted ahead.
fn course(serial: bool, deaf: Deaf, in_turn: bool) -> (Vec<String>, usize) {
    let device = Device::new();
    // Blocks of a token each, which go from hand to hand.
    let spec = HashSpec { block_tokens: 1, blocks: 512, order: 8, ..HashSpec::default() };
    let target = DeviceModel::new(&device, spec.clone(), 1.0, 0.0);
    let draft = target.beside(HashSpec { noise: 0.25, ..spec.clone() }, 0.1);
    let stream = |role: Deaf| {
        let stream = if deaf == role { device.stream().deaf() } else { device.stream() };
        Box::new(if serial { stream.serial() } else { stream })
    };
    let clock = || Arc::clone(&device) as Arc<dyn Clock>;
    let model = ModelDrafter::new(draft as Arc<dyn Model>).on_stream(stream(Deaf::Drafter));
    let answer = plain(&spec, request(100, 0)).tokens;
    let drafter: Box<dyn Drafter> = if in_turn {
        Box::new(InTurn { model, answer: answer.clone(), drafts: 0 })
    } else {
        // Under goodput a model grows trees, of which one branch is kept: its tokens are moved together.
        Box::new(Chooser::new(vec![Box::new(model)]).with_clock(clock()))
    };
    let mut engine = Engine::new(Arc::clone(&target) as Arc<dyn Model>, Arc::new(Letters(32)))
        .on_stream(stream(Deaf::Target))
        .with_clock(clock())
        .with_drafter(drafter);
    let mut ahead = 0;
    for _ in 0..3 {
        let draft_len: Box<dyn LengthPolicy> =
            if in_turn { Box::new(spec_core::Fixed(6)) } else { Box::new(Pausing(Goodput::default(), 0)) };
        let got = run(&mut engine, Request { draft_len, ..request(100, 0) });
        assert_eq!(got.tokens, answer);
        assert!(got.speculation.accepted > 0 && got.speculation.accepted < got.speculation.drafted);
        ahead += got.speculation.ahead.drafted;
    }
    drop(engine);
    assert_eq!(target.held(), (0, 0));
    (device.races(), ahead)
}

#[test]
fn each_wait_between_the_streams_is_needed() {
    for serial in [true, false] {
        for in_turn in [true, false] {
            let (races, ahead) = course(serial, Deaf::Nobody, in_turn);
            assert_eq!(races, Vec::<String>::new(), "serial: {serial}, in turn: {in_turn}");
            assert_eq!(ahead > 0, !serial, "in turn: {in_turn}");
        }
        let (races, _) = course(serial, Deaf::Drafter, true);
        assert!(!races.is_empty(), "serial: {serial}: drafting does not wait for the target's moves");
    }
    // What is drafted ahead settles as a chain, of which nothing is moved.
    let (races, _) = course(true, Deaf::Target, false);
    assert!(!races.is_empty(), "the target's pass does not wait for the drafter's moves");
}
