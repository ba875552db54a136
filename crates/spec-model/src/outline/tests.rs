use super::*;

fn published(name: &str, stored: FileType) -> Outline {
    Outline::published(name, stored).unwrap_or_else(|| panic!("{name} is in the table"))
}

#[test]
fn published_shapes_have_the_published_numbers_of_parameters() {
    for (name, parameters) in [
        ("qwen2.5-0.5b", 494_032_768),
        ("Qwen2.5-Coder-1.5B-Instruct", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-14b", 14_768_307_200),
        ("qwen3-32b", 32_762_123_264),
        ("llama-3-8b", 8_030_261_248),
        ("Llama-3.1-70B", 70_553_706_496),
        ("llama-3.2-1b-instruct", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-2-7b-chat", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("tinyllama-1.1b", 1_100_048_384),
        ("mistral-7b", 7_248_023_552),
        ("smollm2-135m", 134_515_008),
        ("smollm2-360m", 361_821_120),
        ("smollm2-1.7b", 1_711_376_384),
        ("gemma-3-270m", 268_098_176),
        ("gemma-3-1b-it", 999_885_952),
    ] {
        assert_eq!(published(name, FileType::F16).parameters(), parameters, "{name}");
    }
    assert!(Outline::published("gpt-9", FileType::F16).is_none());
}

#[test]
fn every_shape_of_the_table_is_read_in_every_type() {
    for name in Outline::known() {
        let bytes =
            |stored| -> usize { published(name, stored).weights.matrices().map(TensorOutline::stored_bytes).sum() };
        let wide = bytes(FileType::F32);
        for (stored, _) in [("q8_0", 4), ("q4_k_m", 8), ("q2_k", 16)] {
            let stored = FileType::of(stored).expect("a name of the table");
            assert!(bytes(stored) < wide / 2 && bytes(stored) > wide / 16, "{name} as {}", stored.name());
        }
        assert_eq!(bytes(FileType::F16), wide / 2);
    }
    assert_eq!(FileType::of("Q4_K_M"), Some(FileType::Q4KM));
    assert_eq!(FileType::of("q9"), None);
}

#[test]
fn a_description_without_weights_is_enough() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.json");
    let mut config = published::Published::find("qwen2.5-0.5b").expect("in the table").config();
    config["torch_dtype"] = "float16".into();
    std::fs::write(&path, config.to_string()).expect("a file");
    let outline = Outline::open(&path, None).expect("a legal description");
    assert_eq!(outline.parameters(), 494_032_768);
    assert!(outline.weights.matrices().all(|matrix| matrix.tensor_type == TensorType::F16));
    let narrow = Outline::open(&path, Some(FileType::Q4KM)).expect("a legal description");
    // 896 is no multiple of 256.
    assert_eq!(narrow.weights.layers[0].q.weight.tensor_type, TensorType::Q5_0);
    config.as_object_mut().expect("an object").remove("vocab_size");
    std::fs::write(&path, config.to_string()).expect("a file");
    let refused = Outline::open(&path, None).expect_err("nothing says how many tokens there are").to_string();
    assert!(refused.contains("vocab_size"), "{refused}");
    assert!(Outline::open(&folder.path().join("none.json"), None).is_err());
}
