//! Splitting rules against llama.cpp's, by name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper};

use super::super::metadata::splitter;
use super::super::pre_tokenizer::{find, known_pre_tokenizers};

/// A reason why ours is right where the two differ.
struct Difference {
    names: &'static [&'static str],
    strings: &'static [&'static str],
}

const MARKS: &str = "\u{300}\u{301} marks x\u{332}y a\u{20dd}";
const DEVANAGARI: &str = "हिन्दी पाठ नमस्ते १२३ বাংলা தமிழ் తెలుగు";
const THAI: &str = "ภาษาไทย ๑๒๓ ລາວ ខ្មែរ မြန်မာ";
const CASED: &str =
    "camelCase PascalCase HTTPServer snake_case SCREAMING_CASE kebab-case XMLHttpRequest2 iPhone McDonald";
const MIXED: &str = "mixed中文English日本語한국어русский123混合";

const DIFFERENCES: &[Difference] = &[
    // The published patterns know marks and upper and lower case of all scripts; there they are letters like others.
    Difference {
        names: &["tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "kimi-k2"],
        strings: &[MARKS, DEVANAGARI, THAI],
    },
    Difference { names: &["tiny_aya", "cohere2moe", "youtu", "kimi-k2"], strings: &[CASED] },
    Difference { names: &["tiny_aya", "cohere2moe"], strings: &[MIXED] },
    // Blanks beyond ASCII lie in the pattern's range of Chinese characters; there another blank stands for them.
    Difference {
        names: &["deepseek-llm", "deepseek-coder"],
        strings: &[
            "\u{a0}nbsp\u{2003}em\u{200b}zero\u{3000}wide\u{2028}line",
            "word\n\nword \n word\r\nword\u{2029}word",
        ],
    },
    // The script Han includes the iteration mark and the zero.
    Difference {
        names: &["kimi-k2"],
        strings: &[
            "ㄅㄆㄇ 〇一二三 ，。！？ ＡＢＣａｂｃ１２３ ！＂＃",
            "日本語テキスト ひらがな カタカナ 漢字、句読点。ｶﾀｶﾅ ー々〆",
        ],
    },
    // Digits are those of all scripts.
    Difference {
        names: &["superbpe"],
        strings: &["3.14159 1,000,000 2024-11-29 0x1F 1e-5 v1.2.3 x86_64 i18n 4th ½ ² Ⅷ ٣٤٥٦"],
    },
];

fn lengths(splitter: &PreTokenizerWrapper, text: &str) -> Vec<u64> {
    let mut pieces = PreTokenizedString::from(text);
    splitter.pre_tokenize(&mut pieces).unwrap();
    let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
    splits.iter().map(|(_, (start, end), _)| (end - start) as u64).collect()
}

#[test]
fn every_name_splits_as_llama_cpp_does_or_differs_for_a_stated_reason() {
    let oracle: Value =
        serde_json::from_str(include_str!("../../../../spec-testing/data/pre_tokenizers/splits.json")).unwrap();
    let strings: Vec<&str> = oracle["strings"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    let mut names = BTreeSet::new();
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for group in oracle["groups"].as_array().unwrap() {
        for name in group["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
            assert!(names.insert(name), "{name} twice");
            let splitter = splitter(find("t.gguf", Some(name)).unwrap());
            for (text, theirs) in strings.iter().zip(group["lengths"].as_array().unwrap()) {
                let theirs: Vec<u64> = theirs.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
                let expected = DIFFERENCES.iter().any(|d| d.names.contains(&name) && d.strings.contains(text));
                let ours = lengths(&splitter, text);
                if (ours == theirs) == expected {
                    wrong.entry(text).or_default().push(format!("{name}: ours {ours:?}, theirs {theirs:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(names, known_pre_tokenizers().collect(), "each name has its oracle");
    assert!(strings.len() > 50);
}
