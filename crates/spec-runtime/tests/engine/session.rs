//! Texts that go on from one generation to the next.

use super::*;
use spec_core::Fixed;
use spec_runtime::{Chooser, Emitted, Session, SuffixDrafter, TokenSource};

/// A request for `prompt`, with the given draft length.
fn turn(prompt: &[Token], sampling: &SamplingParams) -> Request {
    Request {
        draft_len: Box::new(Fixed(4)),
        sampling: sampling.clone(),
        seed: Some(11),
        ..Request::new(prompt.to_vec(), 30)
    }
}

/// What a conversation's next prompt is: the text so far and something new.
fn follow_up(prompt: &[Token], answer: &Completion, new: &[Token]) -> Vec<Token> {
    prompt.iter().chain(&answer.tokens).chain(new).copied().collect()
}

fn all_drafters(target: &HashSpec) -> Vec<(&'static str, Box<dyn Drafter>)> {
    let several: Vec<Box<dyn Drafter>> =
        vec![Box::new(SuffixDrafter::new()), Box::new(NgramDrafter::new()), model_drafter(target.clone())];
    let mut all = drafters(target);
    all.push(("suffix", Box::new(SuffixDrafter::new())));
    all.push(("chooser", Box::new(Chooser::new(several))));
    all
}

#[test]
fn every_turn_equals_a_cold_run_and_prefills_only_what_is_new() {
    // Text that repeats itself, so that look-ups find something too.
    let spec = HashSpec { order: 3, vocab: 12, context: 1024, blocks: 128, ..HashSpec::default() };
    for sampling in [SamplingParams::default(), sampled(0.7)] {
        for (name, drafter) in all_drafters(&spec) {
            let target = HashModel::new(spec.clone());
            let mut engine = engine(&target).with_drafter(drafter);
            let mut session = Session::new();
            let mut prompt: Vec<Token> = PROMPT.iter().map(|token| token % 12).collect();
            let mut drafted = 0;
            for round in 0..4 {
                let before = session.tokens().to_vec();
                let got = session.generate(&mut engine, turn(&prompt, &sampling), &mut |_| {}).expect("it succeeds");
                let cold = plain(&spec, turn(&prompt, &sampling));
                assert_eq!(got.tokens, cold.tokens, "{name}, turn {round}");
                // The last token of an answer is emitted and not fed.
                assert_eq!(got.cached_tokens, before.len().saturating_sub(1), "{name}, turn {round}");
                assert_eq!(cold.cached_tokens, 0);
                assert_eq!(session.tokens(), [&prompt[..], &got.tokens].concat());
                drafted += got.speculation.drafted;
                prompt = follow_up(&prompt, &got, &[1, 2, round]);
            }
            assert!(drafted > 0, "{name} drafts");
            session.clear(&mut engine);
            assert_eq!(target.free_blocks(), 128, "{name} leaves nothing behind");
        }
    }
}

#[test]
fn a_draft_model_reads_only_what_is_new_and_its_copy_is_still_accepted_whole() {
    let spec = HashSpec { context: 1024, blocks: 128, ..HashSpec::default() };
    let draft = HashModel::new(spec.clone());
    let drafter = Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>));
    let mut engine = engine(&HashModel::new(spec)).with_drafter(drafter);
    let mut session = Session::new();
    let long: Vec<Token> = (0..200).map(|i| i * 7 % 32).collect();
    let first = session.generate(&mut engine, turn(&long, &sampled(0.8)), &mut |_| {}).expect("it succeeds");
    let read = draft.rows();
    assert!(read >= 200);
    let prompt = follow_up(&long, &first, &[5, 6]);
    let second = session.generate(&mut engine, turn(&prompt, &sampled(0.8)), &mut |_| {}).expect("it succeeds");
    // Thirty tokens are drafted in turn, with what the last rounds of either answer drafted too much.
    assert!(draft.rows() - read < 60, "{} rows for a turn of thirty tokens", draft.rows() - read);
    let stats = second.speculation;
    assert_eq!(stats.accepted, stats.drafted);
    assert!(stats.drafted > 15);
    session.clear(&mut engine);
    assert_eq!(draft.free_blocks(), 128);
}

#[test]
fn an_edited_history_is_rolled_back_to_what_is_common() {
    for truncates in [true, false] {
        let spec = HashSpec { context: 1024, blocks: 128, truncates, ..HashSpec::default() };
        for (name, drafter) in all_drafters(&spec) {
            let target = HashModel::new(spec.clone());
            let mut engine = engine(&target).with_drafter(drafter);
            let mut session = Session::new();
            let mut drafted = 0;
            let greedy = SamplingParams::default();
            let longer: Vec<Token> = (0..40).map(|i| i * i % 32).collect();
            let changed: Vec<Token> =
                longer.iter().enumerate().map(|(at, &token)| if at == 25 { 9 } else { token }).collect();
            for (prompt, common) in [
                (&longer[..], 0),
                (&longer, 39),       // the same again: only its last token is fed
                (&longer[..17], 16), // a part of it
                (&changed, 17),      // which goes on otherwise than the answer did, one may hope
                (&[31, 30], 0),      // nothing of it
            ] {
                let got = session.generate(&mut engine, turn(prompt, &greedy), &mut |_| {}).expect("it succeeds");
                assert_eq!(got.tokens, plain(&spec, turn(prompt, &greedy)).tokens, "{name} {prompt:?}");
                let kept = if truncates { common } else { 0 };
                assert_eq!(got.cached_tokens, kept, "{name}, {} tokens", prompt.len());
                drafted += got.speculation.drafted;
            }
            assert!(drafted > 0 || name == "ngram" || name == "suffix", "{name} drafts");
            session.clear(&mut engine);
            assert_eq!(target.free_blocks(), 128, "{name} leaves nothing behind");
        }
    }
}

#[test]
fn a_refused_request_leaves_the_session_and_a_failed_one_empties_it() {
    let target = HashModel::new(HashSpec::default());
    let draft = HashModel::new(HashSpec::default());
    let drafter = Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>));
    let mut engine = engine(&target).with_drafter(drafter);
    let mut session = Session::new();
    let greedy = SamplingParams::default();
    let first = session.generate(&mut engine, turn(&PROMPT, &greedy), &mut |_| {}).expect("it succeeds");
    let prompt = follow_up(&PROMPT, &first, &[1]);
    assert!(session.generate(&mut engine, turn(&[99], &greedy), &mut |_| {}).is_err(), "no such token");
    target.fail_at(target.passes() + 2);
    assert!(session.generate(&mut engine, turn(&prompt, &greedy), &mut |_| {}).is_err(), "a pass fails");
    assert!(session.tokens().is_empty());
    assert_eq!((target.free_blocks(), draft.free_blocks()), (64, 64), "caches are free again");
    let again = session.generate(&mut engine, turn(&prompt, &greedy), &mut |_| {}).expect("it succeeds");
    assert_eq!(again.tokens, plain(&HashSpec::default(), turn(&prompt, &greedy)).tokens);
    assert_eq!(again.cached_tokens, 0);
}

#[test]
fn a_cancelled_answer_is_kept_as_far_as_it_came() {
    let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(model_drafter(HashSpec::default()));
    let mut session = Session::new();
    let greedy = SamplingParams::default();
    let request = turn(&PROMPT, &greedy);
    let (cancel, mut seen) = (request.cancel.clone(), 0);
    let mut stop_soon = |_: &Emitted| {
        seen += 1;
        if seen == 8 {
            cancel.cancel();
        }
    };
    let stopped = session.generate(&mut engine, request, &mut stop_soon).expect("it ends");
    assert_eq!(stopped.finish, spec_runtime::FinishReason::Cancelled);
    let said = stopped.tokens.len();
    assert!((8..30).contains(&said));
    let prompt = follow_up(&PROMPT, &stopped, &[4, 5]);
    let next = session.generate(&mut engine, turn(&prompt, &greedy), &mut |_| {}).expect("it succeeds");
    assert_eq!(next.cached_tokens, PROMPT.len() + said - 1);
    assert_eq!(next.tokens, plain(&HashSpec::default(), turn(&prompt, &greedy)).tokens);
    assert!(next.speculation.drafted > 0);
}

#[test]
fn another_engine_over_the_same_target_goes_on_with_a_drafter_of_its_own() {
    let target = HashModel::new(HashSpec::default());
    let (mut first, mut second) = (engine(&target), engine(&target).with_drafter(model_drafter(HashSpec::default())));
    let greedy = SamplingParams::default();
    // The second engine has a text of the same number under way.
    let mut other = Session::new();
    other.generate(&mut second, turn(&[8, 9], &greedy), &mut |_| {}).expect("it succeeds");
    let mut session = Session::new();
    let answer = session.generate(&mut first, turn(&PROMPT, &greedy), &mut |_| {}).expect("it succeeds");
    let prompt = follow_up(&PROMPT, &answer, &[1]);
    let got = session.generate(&mut second, turn(&prompt, &greedy), &mut |_| {}).expect("it succeeds");
    assert_eq!(got.cached_tokens, PROMPT.len() + answer.tokens.len() - 1);
    assert_eq!(got.speculation.accepted, got.speculation.drafted, "the drafter did not take it for the other text");
    assert!(got.speculation.drafted > 0);
}

#[test]
fn tokens_say_what_they_are_to_the_draft() {
    let expected = plain(&HashSpec::default(), request(12, 0)).tokens;
    // Accepted to its end; accepted up to the third token; rejected at once.
    let blocks: [&[Token]; 3] =
        [&expected[1..3], &[expected[4], expected[5], expected[6] ^ 1, 3, 4], &[expected[7] ^ 1, expected[8]]];
    let drafter = Box::new(ScriptedDrafter::chains(blocks));
    let mut seen: Vec<Emitted> = Vec::new();
    let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(drafter);
    engine.generate(request(12, 5), &mut |emitted| seen.push(emitted.clone())).expect("it succeeds");
    use TokenSource::{Accepted, Bonus, Corrected, Target};
    let sources: Vec<TokenSource> = seen.iter().map(|emitted| emitted.source).collect();
    let first = [Target, Accepted, Accepted, Bonus, Accepted, Accepted, Corrected, Corrected];
    assert_eq!(sources[..8], first);
    assert!(sources[8..].iter().all(|&source| source == Target), "the script has ended");
    assert_eq!(seen[6].rejected, [expected[6] ^ 1, 3, 4]);
    assert_eq!(seen[7].rejected, [expected[7] ^ 1, expected[8]]);
    assert!(seen.iter().enumerate().all(|(at, emitted)| emitted.rejected.is_empty() || at == 6 || at == 7));
}
