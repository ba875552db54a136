//! Requests of one tenant share what the caches hold of their texts.

use super::*;
use spec_core::Fixed;
use spec_runtime::Session;

fn of(tenant: Option<u64>, prompt: &[Token], temperature: f32) -> Request {
    Request {
        draft_len: Box::new(Fixed(4)),
        sampling: sampled(temperature),
        seed: Some(11),
        tenant,
        ..Request::new(prompt.to_vec(), 30)
    }
}

fn prompt(length: u32, last: Token) -> Vec<Token> {
    (0..length).map(|at| at * 7 % 32).chain([last]).collect()
}

#[test]
fn a_second_request_of_a_tenant_prefills_only_what_is_new_and_drafts_as_well() {
    for temperature in [0.0, 0.8] {
        let spec = HashSpec { context: 1024, blocks: 128, ..HashSpec::default() };
        let (target, draft) = (HashModel::new(spec.clone()), HashModel::new(spec.clone()));
        let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
        let mut engine = engine(&target).with_drafter(Box::new(drafter));
        let first = run(&mut engine, of(Some(1), &prompt(200, 1), temperature));
        assert_eq!(first.cached_tokens, 0);
        let read = draft.rows();
        assert!(read > 200);
        // All but the last token are there: whole blocks, and the beginning of the one where the texts part.
        let second = run(&mut engine, of(Some(1), &prompt(200, 2), temperature));
        assert_eq!((second.prompt_tokens, second.cached_tokens), (201, 200));
        assert_eq!(second.tokens, plain(&spec, of(None, &prompt(200, 2), temperature)).tokens);
        assert!(draft.rows() - read < 60, "the draft model adopts too: {} rows", draft.rows() - read);
        let stats = second.speculation;
        assert!(stats.drafted > 15);
        assert_eq!(stats.accepted, stats.drafted, "a copy is accepted whole behind a prefix that was found");
        for other in [Some(2), None] {
            let apart = run(&mut engine, of(other, &prompt(200, 2), temperature));
            assert_eq!(apart.cached_tokens, 0, "{other:?} shares nothing with tenant 1");
            assert_eq!(apart.tokens, second.tokens);
        }
        assert_eq!([target.free_blocks(), draft.free_blocks()], [128; 2]);
        assert!(target.kv_usage().is_some_and(|usage| usage.cached > 12 && usage.shared == 0));
    }
}

#[test]
fn a_conversation_that_changes_hands_takes_nothing_along() {
    let spec = HashSpec { context: 1024, blocks: 128, ..HashSpec::default() };
    let (target, draft) = (HashModel::new(spec.clone()), HashModel::new(spec));
    let drafter = ModelDrafter::new(Arc::clone(&draft) as Arc<dyn Model>);
    let mut engine = engine(&target).with_drafter(Box::new(drafter));
    let mut session = Session::new();
    let mut cached = Vec::new();
    for tenant in [Some(1), Some(1), Some(2), None, Some(1)] {
        let got = session.generate(&mut engine, of(tenant, &prompt(100, 1), 0.0), &mut |_| {}).expect("it succeeds");
        assert!(got.speculation.drafted > 15);
        cached.push(got.cached_tokens);
    }
    assert_eq!(cached, [0, 100, 0, 0, 100]);
    session.clear(&mut engine);
    assert_eq!([target.free_blocks(), draft.free_blocks()], [128; 2]);
}
