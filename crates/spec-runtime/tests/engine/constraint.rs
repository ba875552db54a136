use std::sync::Mutex;

use spec_core::RuleName;
use spec_runtime::{Chooser, Constraint, RoundObserver, RoundReport, SuffixDrafter, TokenSet};

use super::*;

const END: Token = 31;

#[derive(Clone)]
enum Piece {
    Literal(&'static [Token]),
    /// So many tokens of which the number given divides the id.
    Multiples(usize, Token),
}

/// A form to be filled in. Being asked beyond its end, or taken back before its beginning, is an error of the engine's.
#[derive(Clone)]
struct Form {
    /// What may come at each position.
    slots: Vec<Result<Token, Token>>,
    at: usize,
    fails_at: usize,
}

impl Form {
    fn new(pieces: &[Piece]) -> Self {
        let slots = pieces.iter().flat_map(|piece| match piece {
            Piece::Literal(tokens) => tokens.iter().map(|&token| Ok(token)).collect::<Vec<_>>(),
            Piece::Multiples(count, of) => vec![Err(*of); *count],
        });
        Self { slots: slots.chain([Ok(END)]).collect(), at: 0, fails_at: usize::MAX }
    }

    fn allows(&self, at: usize, token: Token) -> bool {
        match self.slots[at] {
            Ok(literal) => token == literal,
            Err(of) => token.is_multiple_of(of) && token != END,
        }
    }
}

impl Constraint for Form {
    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), RuntimeError> {
        if self.at >= self.fails_at {
            return Err(RuntimeError::BadRequest { field: "grammar", reason: "too many states".into() });
        }
        (0..allowed.vocab() as Token)
            .filter(|&token| self.allows(self.at, token))
            .for_each(|token| allowed.insert(token));
        Ok(())
    }

    fn advance(&mut self, token: Token) -> Result<(), RuntimeError> {
        assert!(self.allows(self.at, token) && token != END, "token {token} at {}", self.at);
        self.at += 1;
        Ok(())
    }

    fn roll_back(&mut self, tokens: usize) {
        self.at = self.at.checked_sub(tokens).expect("no further back than the beginning");
    }
}

fn form() -> Form {
    use Piece::{Literal, Multiples};
    let open = Literal(&[9, 8, 7, 6, 5]);
    Form::new(&[
        open.clone(),
        Multiples(6, 2),
        Literal(&[7, 7, 7]),
        Multiples(10, 3),
        open,
        Multiples(40, 1),
        Literal(&[1, 2, 3, 4]),
    ])
}

fn constrained(form: &Form, sampling: SamplingParams, k: usize) -> Request {
    let mut request = Request { sampling, constraint: Some(Box::new(form.clone())), ..request(120, k) };
    request.stop.end_ids = vec![END];
    request
}

fn auto(spec: &HashSpec) -> Box<dyn Drafter> {
    Box::new(Chooser::new(vec![
        Box::new(SuffixDrafter::new()),
        Box::new(NgramDrafter::new()),
        model_drafter(HashSpec { noise: 0.3, ..spec.clone() }),
    ]))
}

#[test]
fn a_constrained_answer_is_the_same_with_and_without_speculation() {
    let spec = HashSpec::default();
    let form = form();
    for sampling in [sampled(0.0), sampled(0.8), SamplingParams { repeat_penalty: 1.3, ..sampled(1.0) }] {
        let expected = plain(&spec, constrained(&form, sampling.clone(), 0));
        assert_eq!(expected.tokens.len() + 1, form.slots.len(), "the form is filled in");
        for (at, &token) in expected.tokens.iter().enumerate() {
            assert!(form.allows(at, token), "token {token} at {at}");
        }
        for k in [1, 5, 48] {
            for (name, drafter) in drafters(&spec).into_iter().chain([("auto", auto(&spec))]) {
                let target = HashModel::new(spec.clone());
                let got = run(&mut engine(&target).with_drafter(drafter), constrained(&form, sampling.clone(), k));
                assert_eq!(got.tokens, expected.tokens, "{name}, k {k}, {sampling:?}");
                assert!(
                    got.speculation.forced > 0 && got.speculation.drafted > got.speculation.forced || name == "ngram"
                );
                assert_eq!(target.free_blocks(), spec.blocks, "{name}: blocks leak");
            }
        }
    }
}

#[test]
fn what_a_constraint_forces_is_drafted_without_a_drafter_and_always_accepted() {
    let spec = HashSpec::default();
    let form = form();
    for rule in ["greedy", "coupled", "rejection", "block"] {
        let sampling = sampled(if rule == "greedy" { 0.0 } else { 0.9 });
        let mut request = constrained(&form, sampling, 0);
        request.rule = Some(rule.parse::<RuleName>().unwrap().into());
        let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(model_drafter(spec.clone())), request);
        let speculation = &got.speculation;
        // The prefill brings the first token; every other literal is drafted whole.
        assert_eq!(speculation.forced, 4 + 3 + 5 + 4, "{rule}");
        assert_eq!((speculation.drafted, speculation.accepted), (speculation.forced, speculation.forced), "{rule}");
        assert_eq!(speculation.rounds + speculation.forced, got.completion_tokens - 1, "{rule}: a pass saved for each");
    }
}

#[test]
fn plain_decoding_takes_no_forced_drafts() {
    let got = plain(&HashSpec::default(), constrained(&form(), sampled(0.0), 5));
    assert_eq!((got.speculation.forced, got.speculation.rounds), (0, got.completion_tokens - 1));
}

#[test]
fn a_draft_past_the_end_of_a_form_asks_nothing_of_it() {
    // The drafted end token is right, and what is drafted behind it would be beyond the form.
    let form = Form::new(&[Piece::Literal(&[4]), Piece::Multiples(1, 4)]);
    let spec = HashSpec::default();
    let expected = plain(&spec, constrained(&form, sampled(0.0), 0));
    let block = [expected.tokens[1], END, 3, 3];
    let mut engine = engine(&HashModel::new(spec)).with_drafter(scripted(&block));
    let got = run(&mut engine, constrained(&form, sampled(0.0), 4));
    assert_eq!(got.tokens, expected.tokens);
    assert!(got.speculation.drafted >= 4, "{:?}", got.speculation);
}

#[test]
fn a_constraint_that_gives_up_ends_the_generation_with_its_words() {
    for fails_at in [0, 3, 7, 30] {
        let spec = HashSpec::default();
        let target = HashModel::new(spec.clone());
        let mut engine = engine(&target).with_drafter(model_drafter(spec.clone()));
        let form = Form { fails_at, ..form() };
        let result = engine.generate(constrained(&form, sampled(0.0), 5), &mut |_| {});
        assert!(error(result).contains("too many states"), "at {fails_at}");
        assert_eq!(target.free_blocks(), spec.blocks, "blocks leak at {fails_at}");
    }
}

#[test]
fn a_constraint_that_allows_nothing_is_an_error_and_no_rubbish() {
    let form = Form::new(&[Piece::Literal(&[400])]);
    let mut engine = engine(&HashModel::new(HashSpec::default()));
    let message = error(engine.generate(constrained(&form, sampled(0.0), 5), &mut |_| {}));
    assert!(message.contains("all") && message.contains("masked"), "{message}");
}

/// Keeps of each rejection its token, and whether the constraint forbids it.
#[derive(Clone, Default)]
struct Refused(Arc<Mutex<Vec<(Token, bool)>>>);

impl RoundObserver for Refused {
    fn round(&mut self, report: &RoundReport<'_>) {
        match report.outcome.rejection {
            Some(rejection) => self.0.lock().expect("one thread").push((rejection.token, report.forbidden)),
            None => assert!(!report.forbidden, "nothing was rejected"),
        }
    }
}

#[test]
fn observers_hear_which_drafts_the_constraint_forbids() {
    let spec = HashSpec::default();
    for sampling in [sampled(0.0), sampled(0.9)] {
        let refused = Refused::default();
        let form = Form::new(&[Piece::Multiples(60, 2)]);
        let mut request = constrained(&form, sampling, 4);
        request.observers = vec![Box::new(refused.clone())];
        // It knows nothing of the form.
        let drafter = model_drafter(HashSpec { noise: 0.4, ..spec.clone() });
        let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(drafter), request);
        assert_eq!(got.tokens.len(), 60);
        let refused = refused.0.lock().expect("one thread");
        let of_the_form = |&(token, forbidden): &(Token, bool)| forbidden == (token % 2 == 1 || token == END);
        let (last, before) = refused.split_last().expect("a random drafter is refused now and then");
        assert!(before.iter().all(of_the_form), "{refused:?}");
        // Behind the last of the form even an even token is forbidden.
        assert!(last.1 || of_the_form(last), "{refused:?}");
        let forbidden = refused.iter().filter(|(_, forbidden)| *forbidden).count();
        assert!(forbidden > 0 && forbidden < refused.len(), "{refused:?}");
    }
}
