//! Stops and limits: a block never overshoots one and hides none.

use super::*;
use spec_runtime::{CancelToken, FinishReason, StopRules};

/// What the target says greedily behind the prompt.
fn greedy_tokens(count: usize) -> Vec<Token> {
    plain(&HashSpec::default(), request(count, 0)).tokens
}

fn with_block(block: &[Token], request: Request) -> Completion {
    let got = run(&mut engine(&HashModel::new(HashSpec::default())).with_drafter(scripted(block)), request);
    assert!(got.speculation.drafted > 0, "the block was drafted");
    got
}

fn stop(end_ids: &[Token], texts: &[&str], max_tokens: usize) -> StopRules {
    StopRules { end_ids: end_ids.to_vec(), texts: texts.iter().map(|t| t.to_string()).collect(), max_tokens }
}

#[test]
fn speculation_never_overshoots_max_tokens() {
    for max_tokens in 1..=24 {
        for k in [1, 3, 5, 30] {
            let drafter = model_drafter(HashSpec::default());
            let got =
                run(&mut engine(&HashModel::new(HashSpec::default())).with_drafter(drafter), request(max_tokens, k));
            assert_eq!(got.tokens, greedy_tokens(max_tokens));
            assert_eq!((got.completion_tokens, got.finish), (max_tokens, FinishReason::Length));
        }
    }
}

#[test]
fn a_stop_inside_an_accepted_block_wins_over_the_cap_behind_it() {
    let say = greedy_tokens(8);
    let end = say[3];
    assert!(!say[..3].contains(&end));
    let got = with_block(&say[1..7], Request { stop: stop(&[end], &[], 6), ..request(6, 8) });
    assert_eq!((got.tokens, got.finish), (say[..3].to_vec(), FinishReason::Stop));
    assert_eq!(got.completion_tokens, 4, "the end token is counted and not shown");
}

#[test]
fn tokens_behind_an_accepted_end_token_count_nowhere() {
    let say = greedy_tokens(8);
    let got = with_block(&say[1..7], Request { stop: stop(&[say[2]], &[], 50), ..request(50, 8) });
    assert_eq!(got.tokens, say[..2]);
    assert_eq!((got.speculation.accepted, got.speculation.emitted), (2, 2), "the end token is the last accepted one");
    assert_eq!(got.speculation.by_position.iter().map(|p| p.accepted).sum::<usize>(), 2);
}

#[test]
fn an_end_token_that_the_target_refuses_ends_the_draft_only() {
    let say = greedy_tokens(8);
    let end = (0..32).find(|token| !say.contains(token)).unwrap();
    let got = with_block(&[say[1], end], Request { stop: stop(&[end], &[], 8), ..request(8, 5) });
    assert_eq!((got.tokens, got.finish), (say, FinishReason::Length));
}

#[test]
fn any_token_can_be_made_the_end_and_stops_at_the_same_place() {
    let say = greedy_tokens(40);
    for at in [1, 3, 7, 20] {
        let expected = plain(&HashSpec::default(), Request { stop: stop(&[say[at]], &[], 40), ..request(40, 0) });
        for (name, drafter) in drafters(&HashSpec::default()) {
            let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(drafter);
            let got = run(&mut engine, Request { stop: stop(&[say[at]], &[], 40), ..request(40, 5) });
            assert_eq!((got.tokens, got.finish), (expected.tokens.clone(), expected.finish), "{name}, token {at}");
        }
    }
}

#[test]
fn the_drafter_copying_an_end_token_from_the_prompt_does_not_end_the_answer() {
    let spec = HashSpec { order: 2, vocab: 16, ..HashSpec::default() };
    // Behind `1 2` the target says `first`; the prompt holds `2 first 15`, so the end token is drafted at once.
    let first = plain(&spec, Request { prompt: vec![1, 2], ..request(1, 0) }).tokens[0];
    let prompt = vec![2, first, 15, 7, 8, 1, 2];
    let with = || Request { prompt: prompt.clone(), stop: stop(&[15], &[], 60), ..request(60, 5) };
    let expected = plain(&spec, with());
    let got = run(&mut engine(&HashModel::new(spec)).with_drafter(Box::new(NgramDrafter::new())), with());
    assert_eq!((got.tokens, got.finish), (expected.tokens, expected.finish));
    assert!(got.speculation.by_position[0].drafted > got.speculation.by_position[0].accepted);
    assert!(got.completion_tokens > 2, "the refused end token ended nothing");
}

#[test]
fn a_stop_text_inside_a_block_cuts_the_text_there() {
    let say = greedy_tokens(8);
    let full = plain(&HashSpec::default(), request(8, 0)).text;
    let letters: Vec<String> =
        say.iter().map(|&t| spec_runtime::TokenText::label(&Letters(32), t).into_owned()).collect();
    let text = format!("{}{}", letters[2], letters[3]);
    let got = with_block(&say[1..7], Request { stop: stop(&[], &[&text], 50), ..request(50, 8) });
    assert_eq!(got.text, full[..full.find(&text).unwrap()]);
    assert_eq!(got.finish, FinishReason::Stop);
    assert!(got.tokens.len() <= 4);
}

#[test]
fn streamed_text_is_the_final_text() {
    for (name, drafter) in drafters(&HashSpec::default()) {
        let mut engine = engine(&HashModel::new(HashSpec::default())).with_drafter(drafter);
        let mut streamed = String::new();
        let got = engine.generate(request(50, 5), &mut |emitted| streamed.push_str(&emitted.text)).unwrap();
        assert_eq!(streamed, got.text, "{name}");
    }
}

#[test]
fn no_tokens_asked_for_is_an_empty_answer() {
    let target = HashModel::new(HashSpec::default());
    let got = run(&mut engine(&target), request(0, 5));
    assert_eq!((got.tokens.len(), got.finish, got.completion_tokens), (0, FinishReason::Length, 0));
    assert_eq!(target.passes(), 0);
}

#[test]
fn an_empty_prompt_and_foreign_ids_are_refused() {
    let mut engine = engine(&HashModel::new(HashSpec::default()));
    let ask =
        |engine: &mut Engine, prompt: &[Token]| error(engine.generate(Request::new(prompt.to_vec(), 4), &mut |_| {}));
    assert!(ask(&mut engine, &[]).contains("prompt"));
    assert!(ask(&mut engine, &[1, 32]).contains("32"));
    let text = Request { stop: stop(&[], &[""], 4), ..request(4, 1) };
    assert!(error(engine.generate(text, &mut |_| {})).contains("stop"));
}

#[test]
fn a_prompt_that_fills_the_context_is_refused_with_the_numbers() {
    let spec = HashSpec { context: 12, ..HashSpec::default() };
    let message = error(engine(&HashModel::new(spec)).generate(request(4, 5), &mut |_| {}));
    assert!(message.contains("12 tokens") && message.contains("holds 12"), "{message}");
}

#[test]
fn the_end_of_the_context_is_a_clean_end() {
    for context in 13..=20 {
        let spec = HashSpec { context, ..HashSpec::default() };
        let expected = plain(&spec, request(100, 0));
        assert_eq!((expected.completion_tokens, expected.finish), (context + 1 - 12, FinishReason::Length));
        for (name, drafter) in drafters(&spec) {
            let target = HashModel::new(spec.clone());
            let got = run(&mut engine(&target).with_drafter(drafter), request(100, 7));
            assert_eq!(got.tokens, expected.tokens, "{name}, context {context}");
            assert!(got.speculation.drafted > 0 || name == "ngram" || context < 16, "{name}, context {context}");
            assert_eq!(target.free_blocks(), spec.blocks);
        }
    }
}

#[test]
fn prompt_and_answer_may_fill_the_context_exactly() {
    let spec = HashSpec { context: 24, ..HashSpec::default() };
    for max_tokens in [11, 12, 13, 14] {
        let expected = plain(&spec, request(max_tokens, 0));
        // The last token needs no place of its own: nothing follows it.
        assert_eq!(expected.completion_tokens, max_tokens.min(13));
        for k in [1, 5, 30] {
            let drafter = model_drafter(spec.clone());
            let got = run(&mut engine(&HashModel::new(spec.clone())).with_drafter(drafter), request(max_tokens, k));
            assert_eq!(
                (got.tokens, got.finish),
                (expected.tokens.clone(), FinishReason::Length),
                "{max_tokens}, k {k}"
            );
            assert!(got.speculation.drafted > 0);
        }
    }
}

#[test]
fn cancelling_ends_before_the_next_pass_and_frees_everything() {
    let target = HashModel::new(HashSpec::default());
    let draft = HashModel::new(HashSpec::default());
    let drafter = Box::new(ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>));
    let mut engine = engine(&target).with_drafter(drafter);
    let cancel = CancelToken::new();
    let mut seen = 0;
    let asked = Request { cancel: cancel.clone(), ..request(100, 3) };
    let got = engine.generate(asked, &mut |_| {
        seen += 1;
        if seen == 10 {
            cancel.cancel();
        }
    });
    let got = got.unwrap();
    assert_eq!(got.finish, FinishReason::Cancelled);
    assert!((10..=13).contains(&got.completion_tokens), "{}", got.completion_tokens);
    assert_eq!(got.tokens, greedy_tokens(got.completion_tokens));
    assert_eq!((target.free_blocks(), draft.free_blocks()), (64, 64));
}

#[test]
fn cancelling_during_a_long_prompt_ends_it_too() {
    let target = HashModel::new(HashSpec { max_rows: 4, ..HashSpec::default() });
    let cancel = CancelToken::new();
    cancel.cancel();
    let got = run(&mut engine(&target), Request { cancel, ..request(10, 3) });
    assert_eq!((got.finish, got.tokens.len(), target.passes()), (FinishReason::Cancelled, 0, 0));
    assert_eq!(target.free_blocks(), 64);
}
