//! GGUF files that one checkpoint was split into.
#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod tiny;

use std::path::Path;

use spec_model::Checkpoint;
use spec_model::gguf::Gguf;
use spec_model::gguf::write::{Value, Writer};
use tempfile::TempDir;

/// A llama of two layers as a set, split as llama.cpp's tool splits: the first file has the keys.
fn shards(count: usize) -> Vec<Writer> {
    let whole = tiny::of("llama", 2).finish();
    let whole = Gguf::parse(whole, "whole.gguf").unwrap();
    let names: Vec<usize> = (0..whole.tensors().len()).collect();
    let parts = names.chunks(names.len().div_ceil(count));
    assert_eq!(parts.len(), count);
    parts
        .enumerate()
        .map(|(number, part)| {
            let mut writer = if number == 0 { keys_only() } else { Writer::new() };
            writer = writer
                .key("split.no", Value::U32(number as u32))
                .key("split.count", Value::U32(count as u32))
                .key("split.tensors.count", Value::I32(names.len() as i32));
            for &tensor in part {
                let info = &whole.tensors()[tensor];
                let dims: Vec<u64> = info.dims.iter().map(|&dim| dim as u64).collect();
                writer = writer.tensor(&info.name, info.tensor_type, &dims, whole.tensor_bytes(tensor));
            }
            writer
        })
        .collect()
}

fn keys_only() -> Writer {
    let mut writer = tiny::of("llama", 2);
    let whole = Gguf::parse(writer.clone().finish(), "whole.gguf").unwrap();
    for tensor in whole.tensors() {
        writer = writer.without_tensor(&tensor.name);
    }
    writer
}

fn name(number: usize, count: usize) -> String {
    format!("tiny-q8-{:05}-of-{count:05}.gguf", number + 1)
}

fn folder(shards: &[Writer]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, shard) in shards.iter().enumerate() {
        std::fs::write(folder.path().join(name(number, shards.len())), shard.clone().finish()).unwrap();
    }
    folder
}

fn refused(path: &Path, phrases: &[&str]) {
    let message = Checkpoint::open(path).unwrap_err().to_string();
    for phrase in phrases {
        assert!(message.contains(phrase), "`{phrase}` is not in: {message}");
    }
}

#[test]
fn any_shard_and_the_folder_find_the_set() {
    let folder = folder(&shards(3));
    let whole = Checkpoint::from_bytes(tiny::of("llama", 2).finish(), "whole.gguf").unwrap();
    for path in [String::new(), name(0, 3), name(1, 3), name(2, 3)] {
        let checkpoint = Checkpoint::open(folder.path().join(&path)).unwrap();
        assert_eq!(checkpoint.files().count(), 3, "{path}");
        assert_eq!(checkpoint.config(), whole.config());
        assert_eq!(checkpoint.tensors().count(), whole.tensors().count());
        for (sharded, plain) in checkpoint.weights().layers.iter().zip(&whole.weights().layers) {
            assert_eq!(sharded.down.weight.bytes(), plain.down.weight.bytes());
            assert_eq!(sharded.q.weight.bytes(), plain.q.weight.bytes());
        }
        let view = checkpoint.weights().layers[1].down.weight;
        let before = view.to_f32();
        checkpoint.release(&view);
        assert_eq!(view.to_f32(), before);
        assert_eq!(checkpoint.tokenizer().unwrap().encode("ab", true).unwrap(), [256]);
    }
}

#[test]
fn missing_shards_are_listed() {
    let folder = folder(&shards(4));
    std::fs::remove_file(folder.path().join(name(0, 4))).unwrap();
    std::fs::remove_file(folder.path().join(name(2, 4))).unwrap();
    let missing = format!("{}, {}", name(0, 4), name(2, 4));
    for present in [1, 3] {
        refused(&folder.path().join(name(present, 4)), &["4 files", &missing, "one folder"]);
    }
}

#[test]
fn a_set_of_hundreds_names_the_first_missing_files() {
    let folder = tempfile::tempdir().unwrap();
    let shard = keys_only().key("split.no", 0_u32).key("split.count", 300_u32);
    std::fs::write(folder.path().join(name(0, 300)), shard.finish()).unwrap();
    refused(&folder.path().join(name(0, 300)), &["300 files", &name(1, 300), "and 291 more"]);
}

#[test]
fn joined_shards_are_answered_with_load_the_first_and_do_not_cat() {
    let shards = shards(2);
    let mut joined = shards[0].clone().finish();
    joined.resize(joined.len().next_multiple_of(32), 0);
    joined.extend(shards[1].clone().finish());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("joined.gguf");
    std::fs::write(&path, &joined).unwrap();
    refused(&path, &["load the first shard", "do not `cat`"]);
    let message = Checkpoint::from_bytes(joined, "memory").unwrap_err().to_string();
    assert!(message.contains("do not `cat`"), "{message}");
}

#[test]
fn a_shard_under_another_name_is_refused_with_its_number() {
    let folder = folder(&shards(3));
    let path = |name: &str| folder.path().join(name);
    std::fs::copy(path(&name(1, 3)), path("model.gguf")).unwrap();
    refused(&path("model.gguf"), &["file 2 of 3", "...-00002-of-00003.gguf"]);
    std::fs::rename(path(&name(1, 3)), path(&name(4, 5))).unwrap();
    refused(&path(&name(4, 5)), &["named as file 5 of 5", "file 2 of 3"]);
}

#[test]
fn shards_of_different_sets_are_refused() {
    let good = shards(3);
    let swapped = folder(&[good[0].clone(), good[2].clone(), good[1].clone()]);
    refused(&swapped.path().join(name(0, 3)), &["file 3 of 3 by its metadata, wanted 2 of 3"]);

    let counted = good[1].clone().key("split.tensors.count", 7_u32);
    let other = folder(&[good[0].clone(), counted, good[2].clone()]);
    refused(&other.path().join(name(0, 3)), &["7 tensors", "20"]);

    let named = good[1].clone().key("general.architecture", "qwen2");
    let other = folder(&[good[0].clone(), named, good[2].clone()]);
    refused(&other.path().join(name(0, 3)), &["`qwen2`", "not of one set"]);

    let twice = good[1].clone().tensor("output_norm.weight", spec_model::TensorType::F32, &[1], &[0; 4]);
    let uncounted = [good[0].clone(), twice, good[2].clone()].map(|shard| shard.without_key("split.tensors.count"));
    let other = folder(&uncounted);
    refused(&other.path().join(name(0, 3)), &["`output_norm.weight`", "too"]);
}

#[test]
fn a_damaged_shard_is_named_itself() {
    let folder = folder(&shards(2));
    let path = folder.path().join(name(1, 2));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    refused(&folder.path().join(name(0, 2)), &[&name(1, 2), "truncated"]);
}

#[test]
fn hostile_numbers_of_shards_are_refused() {
    let with = |number: u32, count: u32| {
        let file = tiny::llama().key("split.no", number).key("split.count", count).finish();
        Checkpoint::from_bytes(file, "x").map(|_| ()).map_err(|error| error.to_string())
    };
    assert!(with(0, u32::MAX).unwrap_err().contains("at most 4096"));
    assert!(with(5, 3).unwrap_err().contains("not below the 3 files"));
    assert!(with(0, 2).unwrap_err().contains("open it from its folder"));
    with(0, 1).unwrap();
}

#[test]
fn a_refusal_by_metadata_comes_before_any_weights_are_read() {
    // Forty sparse files of a gigabyte each: their bytes are holes, which reading would take minutes for.
    let folder = tempfile::tempdir().unwrap();
    let first = keys_only().key("general.architecture", "deepseek4").key("split.no", 0_u32).key("split.count", 40_u32);
    for number in 0..40 {
        let path = folder.path().join(name(number, 40));
        let file = match number {
            0 => first.clone(),
            _ => Writer::new().key("split.no", number as u32).key("split.count", 40_u32),
        };
        std::fs::write(&path, file.finish()).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    }
    let begun = std::time::Instant::now();
    refused(&folder.path().join(name(7, 40)), &["`deepseek4`", "llama, mistral"]);
    assert!(begun.elapsed().as_secs_f64() < 1.0, "{:?}", begun.elapsed());
}
