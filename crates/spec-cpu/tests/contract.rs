//! The numerical contract on tiny models: every row of logits is a function of its own text, bit for bit.

use std::sync::Arc;

use spec_cpu::{CpuModel, Isa, KvType, LoadOptions, Pool};
use spec_model::Checkpoint;
use spec_runtime::{Batch, HostStream, Model, Row, RuntimeError, SeqId, Want};
use spec_testing::conformance::passes::{
    all_logits, alone, assert_same, chain, differing, feed, path, row, submit, tree_rows, trees,
};
use spec_testing::tiny::{self, TinySpec};

/// Every layer, and every type of weights, is in one of these.
const SPECS: [TinySpec; 8] = [
    TinySpec::llama(),
    TinySpec::qwen_k(),
    TinySpec::gemma(),
    TinySpec::qwen_mixed(),
    TinySpec::gpt2(),
    TinySpec::mistral(),
    TinySpec::blocks_of_32(),
    TinySpec::super_blocks(),
];

fn load(spec: TinySpec, isa: Isa, kv: KvType, threads: usize) -> CpuModel {
    let checkpoint = Checkpoint::from_bytes(tiny::gguf(spec), "tiny.gguf").expect("a legal file");
    let mut options = LoadOptions::new(Arc::new(Pool::new(threads).expect("threads")));
    options.isa = Some(isa);
    options.kv = kv;
    options.kv_tokens = Some(1024);
    CpuModel::load(&checkpoint, options).expect("a model that the kernels take")
}

/// Runs `check` on every instruction set and KV type; for specs that differ from others in the types of weights alone, one KV type
/// will do.
fn everywhere(spec: TinySpec, check: impl Fn(&CpuModel, &str)) {
    let of_types = [TinySpec::blocks_of_32(), TinySpec::super_blocks()].iter().any(|other| other.seed == spec.seed);
    let kinds: &[KvType] = if of_types { &[KvType::F16] } else { &[KvType::F16, KvType::F32, KvType::Q8] };
    for isa in Isa::available() {
        for &kv in kinds {
            check(&load(spec, isa, kv, 2), &format!("{} on {} with {kv:?}", spec.arch, isa.name()));
        }
    }
}

fn text(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + i * i % 11) % 299).collect()
}

/// Logits of every token of `tokens`, decoded one by one in a sequence of its own.
fn decode(model: &CpuModel, tokens: &[u32]) -> Vec<Vec<f32>> {
    alone(model, tokens, 1)
}

#[test]
fn the_same_text_has_other_logits_behind_another_prefix() {
    everywhere(TinySpec::llama(), |model, name| {
        let (a, b) = (decode(model, &[1, 2, 3]), decode(model, &[2, 2, 3]));
        assert_eq!(differing(&a, &b), [0, 1, 2], "{name}: attention is blind");
        let (a, b) = (decode(model, &[5, 6, 7]), decode(model, &[6, 5, 7]));
        assert_eq!(differing(&a, &b), [0, 1, 2], "{name}: positions do not count");
    });
}

#[test]
fn a_chain_of_any_length_equals_decoding_one_by_one() {
    for spec in SPECS {
        everywhere(spec, |model, name| {
            let text = text(20 + 17);
            let expected = decode(model, &text);
            for rows in 1..=17 {
                let seq = model.open().expect("room");
                feed(model, seq, &text[..20], 20);
                let found = feed(model, seq, &text[20..20 + rows], rows);
                assert_same(&found, &expected[20..20 + rows], &format!("{name}, {rows} rows"));
                model.close(seq);
            }
            assert_eq!(model.free_blocks(), model.total_blocks(), "{name}: blocks leak");
        });
    }
}

#[test]
fn the_prompt_may_come_in_chunks_of_any_size() {
    for spec in SPECS {
        everywhere(spec, |model, name| {
            let text = text(70);
            let expected = decode(model, &text);
            for chunk in [1, 7, 64, 70] {
                let seq = model.open().expect("room");
                let found = feed(model, seq, &text, chunk);
                assert_same(&found, &expected, &format!("{name}, chunks of {chunk}"));
                model.close(seq);
            }
        });
    }
}

#[test]
fn a_tree_row_equals_its_path_decoded_as_a_chain_and_so_does_what_follows_its_commit() {
    for spec in SPECS {
        everywhere(spec, |model, name| {
            for tree in trees() {
                for committed in [0, 1, 15, 16, 17, 31, 32, 33] {
                    let text = text(committed);
                    let seq = model.open().expect("room");
                    feed(model, seq, &text, 64);
                    let what = format!("{name}, tree {tree:?} behind {committed}");
                    let mut kept = None;
                    model.reserve(seq, tree.len()).expect("room");
                    let found = all_logits(&*submit(model, tree_rows(seq, &tree, committed)), tree.len());
                    let is_leaf = |row: &usize| tree.iter().all(|&(parent, _)| parent != Some(*row as u32));
                    let leaves: Vec<usize> = (0..tree.len()).filter(is_leaf).collect();
                    for (i, &leaf) in leaves.iter().enumerate() {
                        let (tokens, rows) = path(&tree, leaf);
                        let line: Vec<u32> = text.iter().chain(&tokens).chain(&[41, 42]).copied().collect();
                        let expected = decode(model, &line);
                        let on_path: Vec<_> = rows.iter().map(|&row| found[row as usize].clone()).collect();
                        let end = committed + rows.len();
                        assert_same(&on_path, &expected[committed..end], &format!("{what}, leaf {leaf}"));
                        if i == committed % leaves.len() {
                            kept = Some((rows, expected[end..].to_vec()));
                        }
                    }
                    let (rows, expected) = kept.expect("a tree has leaves");
                    model.settle(seq, &rows).expect("a path");
                    assert_eq!(model.kv_len(seq).expect("open"), committed + rows.len());
                    let next = feed(model, seq, &[41, 42], 1);
                    assert_same(&next, &expected, &format!("{what}, after committing {rows:?}"));
                    model.close(seq);
                }
            }
            assert_eq!(model.free_blocks(), model.total_blocks(), "{name}: blocks leak");
        });
    }
}

#[test]
fn rows_behind_a_prefix_that_was_found_are_those_of_a_cold_run() {
    for spec in SPECS {
        everywhere(spec, |model, name| spec_testing::conformance::check_prefixes(model, name));
    }
}

#[test]
fn rows_of_a_reservation_may_come_in_several_passes() {
    everywhere(TinySpec::llama(), |model, name| {
        let text = text(21);
        let expected = decode(model, &text);
        let seq = model.open().expect("room");
        feed(model, seq, &text[..15], 15);
        model.reserve(seq, 6).expect("room");
        let mut found = all_logits(&*submit(model, chain(seq, &text[15..17], 15, 0)), 2);
        found.extend(all_logits(&*submit(model, chain(seq, &text[17..18], 15, 2)), 1));
        found.extend(all_logits(&*submit(model, chain(seq, &text[18..21], 15, 3)), 3));
        assert_same(&found, &expected[15..], name);
        model.settle(seq, &[0, 1, 2, 3, 4, 5]).expect("a chain");
        model.close(seq);
    });
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for spec in SPECS {
        for isa in Isa::available() {
            let text = text(90);
            let run = |threads| {
                let model = load(spec, isa, KvType::Q8, threads);
                let seq = model.open().expect("room");
                let mut logits = feed(&model, seq, &text, 40);
                let tree = &trees()[1];
                model.reserve(seq, tree.len()).expect("room");
                logits.extend(all_logits(&*submit(&model, tree_rows(seq, tree, 90)), tree.len()));
                logits
            };
            let one = run(1);
            for threads in [2, 3] {
                assert_same(&run(threads), &one, &format!("{}, {threads} threads", spec.arch));
            }
        }
    }
}

#[test]
fn sequences_in_one_pass_do_not_see_each_other() {
    for spec in SPECS {
        everywhere(spec, |model, name| {
            let texts: Vec<Vec<u32>> = [3, 18, 33].map(|len| text(len + 5)[5..].to_vec()).into();
            let next = [50, 51, 52, 53];
            let seqs: Vec<SeqId> = texts.iter().map(|_| model.open().expect("room")).collect();
            for (&seq, text) in seqs.iter().zip(&texts) {
                feed(model, seq, text, 7);
                model.reserve(seq, 8).expect("room");
            }
            // Interleaved row by row, a tree in the middle.
            let tree = &trees()[0];
            let mut rows = Vec::new();
            let mut streams: Vec<_> = seqs
                .iter()
                .zip(&texts)
                .enumerate()
                .map(|(i, (&seq, text))| match i {
                    1 => tree_rows(seq, tree, text.len()).into_iter(),
                    _ => chain(seq, &next, text.len(), 0).into_iter(),
                })
                .collect();
            while streams.iter().any(|stream| stream.len() > 0) {
                rows.extend(streams.iter_mut().filter_map(Iterator::next));
            }
            let order: Vec<SeqId> = rows.iter().map(|row| row.seq).collect();
            let found = all_logits(&*submit(model, rows), order.len());
            for (i, (&seq, text)) in seqs.iter().zip(&texts).enumerate() {
                let own: Vec<_> =
                    (0..found.len()).filter(|&row| order[row] == seq).map(|row| found[row].clone()).collect();
                let line = |tokens: &[u32]| text.iter().chain(tokens).copied().collect::<Vec<u32>>();
                if i == 1 {
                    for (leaf, own) in own.iter().enumerate() {
                        let expected = decode(model, &line(&path(tree, leaf).0)).pop().expect("a row");
                        assert_same(std::slice::from_ref(own), &[expected], &format!("{name}, tree row {leaf}"));
                    }
                } else {
                    let expected = decode(model, &line(&next));
                    assert_same(&own, &expected[text.len()..], &format!("{name}, sequence {i}"));
                }
            }
            seqs.into_iter().for_each(|seq| model.close(seq));
            assert_eq!(model.free_blocks(), model.total_blocks(), "{name}: blocks leak");
        });
    }
}

#[test]
fn a_rollback_leaves_no_trace() {
    everywhere(TinySpec::qwen_mixed(), |model, name| {
        for committed in [15, 16, 17, 31, 32, 33] {
            let text = text(committed + 6);
            let expected = decode(model, &text);
            let seq = model.open().expect("room");
            feed(model, seq, &text[..committed], 64);
            let before = model.free_blocks();
            for width in [1, 5, 40] {
                model.reserve(seq, width).expect("room");
                let wrong: Vec<u32> = (0..width as u32).map(|i| 200 + i).collect();
                submit(model, chain(seq, &wrong, committed, 0));
                model.settle(seq, &[]).expect("a rollback");
                assert_eq!(model.free_blocks(), before, "{name}: a rollback keeps blocks");
            }
            let found = feed(model, seq, &text[committed..], 3);
            assert_same(&found, &expected[committed..], &format!("{name}, rolled back at {committed}"));
            model.close(seq);
        }
    });
}

#[test]
fn blocks_used_before_do_not_show_through() {
    everywhere(TinySpec::qwen_k(), |model, name| {
        let text = text(45);
        let clean = decode(model, &text);
        // Fill the whole cache with other numbers, in sequences that are then closed.
        let seqs: Vec<SeqId> = (0..4).map(|_| model.open().expect("room")).collect();
        for (i, &seq) in seqs.iter().enumerate() {
            let other: Vec<u32> = (0..250).map(|j| (j * 13 + i as u32 * 7) % 300).collect();
            feed(model, seq, &other, 250);
        }
        assert_eq!(model.free_blocks(), 0, "{name}: the cache is full");
        let seq = model.open().expect("an empty sequence takes no block");
        assert!(matches!(model.reserve(seq, 1), Err(RuntimeError::KvExhausted { .. })), "{name}");
        seqs.into_iter().for_each(|seq| model.close(seq));
        let found = feed(model, seq, &text, 10);
        assert_same(&found, &clean, name);
        model.close(seq);
        assert_eq!(model.free_blocks(), model.total_blocks(), "{name}: blocks leak");
    });
}

#[test]
fn what_cannot_be_done_is_refused_and_stores_nothing() {
    let model = load(TinySpec::llama(), Isa::detect(), KvType::F16, 1);
    let seq = model.open().expect("room");
    let refused = |rows: Vec<Row>| match model.submit(&HostStream, &Batch { rows }) {
        Ok(_) => panic!("refused"),
        Err(error) => error,
    };
    assert!(matches!(refused(vec![row(seq, 1, 0, None)]), RuntimeError::BadRow { row: 0, .. }), "no reservation");
    model.reserve(seq, 4).expect("room");
    assert!(matches!(refused(vec![row(seq, 331, 0, None)]), RuntimeError::BadToken { token: 331, vocab: 331 }));
    let too_many = (0..513).map(|_| row(seq, 1, 0, None)).collect();
    assert!(matches!(refused(too_many), RuntimeError::BadRow { row: 512, .. }));
    let good_then_bad = vec![row(seq, 1, 0, None), row(seq, 1, 7, Some(0))];
    assert!(matches!(refused(good_then_bad), RuntimeError::BadRow { row: 1, .. }));

    let mut rows = chain(seq, &[1, 2], 0, 0);
    rows[0].want = Want::Nothing;
    let results = submit(&model, rows);
    assert!(matches!(results.logits(0), Err(RuntimeError::NotWanted { row: 0 })));
    assert!(matches!(results.logits(2), Err(RuntimeError::NotWanted { row: 2 })));
    assert_eq!(results.logits(1).expect("wanted").len(), 331);
    assert_same(&[results.logits(1).expect("wanted").to_vec()], &decode(&model, &[1, 2])[1..], "after refusals");
    assert!(matches!(model.settle(seq, &[1]), Err(RuntimeError::BadPath { .. })));
    assert_eq!(model.kv_len(seq).expect("open"), 0, "a refused path rolls back");
    let empty = model.submit(&HostStream, &Batch::default()).expect("nothing to do").wait().expect("no rows");
    assert!(empty.logits(0).is_err());
}

#[test]
fn figures_of_the_model_are_those_of_its_file() {
    let spec = TinySpec::qwen_mixed();
    let model = load(spec, Isa::detect(), KvType::F16, 1);
    let layer = 160 * (160 + 32 + 32 + 160) + 3 * 160 * 256;
    assert_eq!(model.row_macs(), (3 * layer + 301 * 160) as u64);
    assert_eq!(model.kv_bytes_per_token(), 3 * 2 * 32 * 2);
    let matrices = 3 * (160 * 352 / 32 * 22 + 160 * 32 / 32 * 34 + 2 * 160 * 256 / 32 * 22 + 160 * 144) + 301 * 160 * 4;
    let vectors = 4 * (160 + 3 * (2 * 160 + 160 + 2 * 32));
    assert_eq!(model.pass_bytes(2), matrices + vectors + 2 * 160 / 32 * 34);
    assert!(model.config().device.starts_with("cpu ("), "{}", model.config().device);
    assert_eq!((model.config().vocab, model.config().context), (301, 256));
}

#[test]
fn a_shortlists_logits_are_those_of_the_whole_head_and_no_others() {
    for spec in SPECS {
        everywhere(spec, |model, what| {
            let tokens = text(12);
            let whole = decode(model, &tokens);
            // Asked for before there is a list, every logit is there.
            for listed in [&[][..], &[3, 298], &[3, 17, 150, 151]] {
                if !listed.is_empty() {
                    assert!(model.shortlist(listed).expect("memory"), "{what}");
                }
                let seq = model.open().expect("room");
                model.reserve(seq, tokens.len()).expect("room");
                let rows = chain(seq, &tokens, 0, 0);
                let rows = rows.into_iter().map(|row| Row { want: Want::Shortlist, ..row }).collect();
                let rows = submit(model, rows);
                for (index, whole) in whole.iter().enumerate() {
                    let row = rows.logits(index).expect("wanted");
                    let computed = |id: usize| row[id] > f32::NEG_INFINITY;
                    assert!(
                        (0..row.len()).all(|id| !computed(id) || row[id].to_bits() == whole[id].to_bits()),
                        "{what}"
                    );
                    assert!(listed.iter().all(|&id| computed(id as usize)), "{what}: every listed token");
                    let count = (0..row.len()).filter(|&id| computed(id)).count();
                    assert!(listed.is_empty() == (count == row.len()), "{what}: {count} of {}", row.len());
                }
                model.close(seq);
            }
        });
    }
}
