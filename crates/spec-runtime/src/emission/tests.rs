use super::*;

fn rules(end_ids: &[Token], texts: &[&str], max_tokens: usize) -> StopRules {
    StopRules { end_ids: end_ids.to_vec(), texts: texts.iter().map(|t| t.to_string()).collect(), max_tokens }
}

/// Emits tokens until the end; gives text, shown tokens and the reason.
fn run(rules: StopRules, pieces: &[(Token, &[u8])]) -> (String, Vec<Token>, Option<FinishReason>) {
    let mut emission = Emission::new(rules);
    let (mut text, mut shown, mut finish) = (String::new(), Vec::new(), None);
    for &(token, bytes) in pieces {
        let emitted = emission.push(token, bytes);
        text.push_str(&emitted.text);
        if emitted.shown {
            shown.push(token);
        }
        finish = emitted.finish;
        if finish.is_some() {
            return (text, shown, finish);
        }
    }
    text.push_str(&emission.flush());
    (text, shown, finish)
}

#[test]
fn a_stop_before_the_cap_wins_over_the_cap() {
    let got = run(rules(&[9], &[], 5), &[(1, b"a"), (2, b"b"), (9, b""), (3, b"c"), (4, b"d"), (5, b"e")]);
    assert_eq!(got, ("ab".into(), vec![1, 2], Some(FinishReason::Stop)));
}

#[test]
fn a_stop_exactly_at_the_cap_is_a_stop() {
    let got = run(rules(&[9], &[], 2), &[(1, b"a"), (9, b"")]);
    assert_eq!(got, ("a".into(), vec![1], Some(FinishReason::Stop)));
    let got = run(rules(&[], &["b"], 2), &[(1, b"a"), (2, b"b")]);
    assert_eq!(got, ("a".into(), vec![1, 2], Some(FinishReason::Stop)));
}

#[test]
fn the_cap_ends_with_exactly_that_many_tokens() {
    let got = run(rules(&[], &[], 3), &[(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]);
    assert_eq!(got, ("abc".into(), vec![1, 2, 3], Some(FinishReason::Length)));
}

#[test]
fn a_stop_text_early_in_a_token_hides_the_rest_of_it() {
    let got = run(rules(&[], &["b"], 9), &[(1, b"a b c d e f")]);
    assert_eq!(got.0, "a ");
    assert_eq!(got.2, Some(FinishReason::Stop));
}

#[test]
fn a_stop_text_across_tokens_is_never_shown_in_part() {
    let got = run(rules(&[], &["STOP"], 9), &[(1, b"x S"), (2, b"TO"), (3, b"P y"), (4, b"z")]);
    assert_eq!(got, ("x ".into(), vec![1, 2, 3], Some(FinishReason::Stop)));
}

#[test]
fn text_that_only_began_like_a_stop_is_shown() {
    let got = run(rules(&[], &["STOP"], 4), &[(1, b"x S"), (2, b"TO"), (3, b"RE"), (4, b"!")]);
    assert_eq!(got, ("x STORE!".into(), vec![1, 2, 3, 4], Some(FinishReason::Length)));
}

#[test]
fn text_held_for_a_stop_is_shown_when_an_end_token_comes() {
    let got = run(rules(&[7], &["STOP"], 9), &[(1, b"x ST"), (7, b"")]);
    assert_eq!(got, ("x ST".into(), vec![1], Some(FinishReason::Stop)));
}

#[test]
fn the_earliest_of_several_stops_counts() {
    let got = run(rules(&[], &["cd", "b"], 9), &[(1, b"abcd")]);
    assert_eq!(got.0, "a");
}

#[test]
fn characters_are_whole_however_their_bytes_are_split() {
    let party = "🎉 é".as_bytes();
    for cut in 0..party.len() {
        let got = run(rules(&[], &[], 9), &[(1, &party[..cut]), (2, &party[cut..])]);
        assert_eq!(got.0, "🎉 é");
    }
}

#[test]
fn bytes_that_are_no_text_become_replacement_characters() {
    let got = run(rules(&[], &[], 9), &[(1, b"a\xff"), (2, b"b")]);
    assert_eq!(got.0, "a\u{fffd}b");
}

#[test]
fn an_incomplete_character_at_the_end_is_not_text() {
    let got = run(rules(&[], &[], 2), &[(1, b"a"), (2, b"\xf0\x9f")]);
    assert_eq!(got.0, "a");
}

#[test]
fn a_stop_text_of_several_bytes_per_character_is_held_by_whole_characters() {
    let got = run(rules(&[], &["。停"], 9), &[(1, "好。".as_bytes()), (2, "停了".as_bytes())]);
    assert_eq!(got, ("好".into(), vec![1, 2], Some(FinishReason::Stop)));
}

#[test]
fn nothing_may_be_emitted_past_the_cap() {
    let mut emission = Emission::new(rules(&[], &[], 2));
    assert_eq!(emission.remaining(), 2);
    emission.push(1, b"a");
    emission.push(2, b"b");
    assert_eq!((emission.remaining(), emission.count()), (0, 2));
}

proptest::proptest! {
    /// Whatever tokens split a text: single bytes, as byte fallback does, or stretches that end inside characters.
    #[test]
    fn no_token_shows_half_a_character(
        text in "([ -~]|[é中😀\u{301}\u{200d}👩]){0,40}",
        cuts in proptest::collection::vec(0_usize..160, 0..80),
        stop in proptest::option::of("[a中😀]{1,3}"),
    ) {
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < bytes.len()).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let stops: Vec<&str> = stop.iter().map(String::as_str).collect();
        let mut emission = Emission::new(rules(&[], &stops, usize::MAX));
        let mut shown = String::new();
        let mut finish = None;
        for (token, ends) in cuts.windows(2).enumerate() {
            let emitted = emission.push(token as Token, &bytes[ends[0]..ends[1]]);
            proptest::prop_assert!(!emitted.text.contains('\u{fffd}'), "{:?}", emitted.text);
            shown.push_str(&emitted.text);
            finish = emitted.finish;
            if finish.is_some() {
                break;
            }
        }
        if finish.is_none() {
            shown.push_str(&emission.flush());
        }
        let whole = stops.first().and_then(|stop| text.split_once(stop)).map_or(text.as_str(), |(before, _)| before);
        proptest::prop_assert_eq!(shown, whole);
    }
}
