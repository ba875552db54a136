//! Splitting rules before byte-pair merging, by the names of `tokenizer.ggml.pre`.
//!
//! The names are those that converters write; the rules are those of the models' published tokenizers. llama.cpp has
//! the same names, with rules of its own that are nearly the same: `crates/spec-testing/oracles/pre_tokenizers.py`
//! compares them, and its test lists where they differ.

use crate::{Error, Result};

/// One set of rules. Each pattern splits the pieces that the ones before it left; what it does not match stays a piece.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    pub(super) names: &'static [&'static str],
    /// Text is brought to Unicode form C first, as the model's published tokenizer does.
    pub(super) compose: bool,
    pub(super) patterns: &'static [&'static str],
    /// What to do about BOS when `tokenizer.ggml.add_bos_token` is absent.
    pub(super) adds_bos: bool,
    /// A piece that is itself a token is taken whole, without merging.
    pub(super) ignore_merges: bool,
}

impl PreTokenizer {
    const fn new(names: &'static [&'static str], patterns: &'static [&'static str]) -> Self {
        Self { names, compose: false, patterns, adds_bos: false, ignore_merges: false }
    }

    const fn composed(self) -> Self {
        Self { compose: true, ..self }
    }

    const fn with_bos(self) -> Self {
        Self { adds_bos: true, ..self }
    }

    const fn whole_pieces(self) -> Self {
        Self { ignore_merges: true, ..self }
    }
}

/// The rules of GPT-2 (Radford et al. 2019), which several later tokenizers keep.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// English contractions, in any case.
macro_rules! contractions {
    () => {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

/// Blank lines, then runs of blanks short of the one in front of a word.
macro_rules! blanks {
    () => {
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}

/// Words with the character in front, numbers as given, then punctuation with line ends behind it: the rules of
/// cl100k, which Llama 3, Qwen and others vary.
macro_rules! cl100k {
    ($numbers:literal) => {
        concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|", $numbers, r"| ?[^\s\p{L}\p{N}]+[\r\n]*", blanks!())
    };
}

/// A word by its case: capitals first, or capitals only; the marks of combining scripts belong to it.
macro_rules! cased_words {
    ($($suffix:tt)*) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $($suffix)*,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $($suffix)*,
        )
    };
}

/// The rules of o200k, with numbers as given.
macro_rules! o200k {
    ($numbers:literal) => {
        concat!(cased_words!(concat!(contractions!(), "?")), "|", $numbers, r"| ?[^\s\p{L}\p{N}]+[\r\n/]*", blanks!())
    };
}

/// DeepSeek-V3: punctuation takes the letters behind it, symbols are apart from words.
const DEEPSEEK_V3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*",
    blanks!()
);
const CHINESE_AND_KANA: &str = "[一-龥぀-ゟ゠-ヿ]+";

/// Letters that had case in Unicode when DeepSeek's first tokenizers listed them, with the blank in front.
const CASED_LETTERS: &str = concat!(
    "\\s?[",
    "A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    "\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    "\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    "\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}",
    "\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}",
    "\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}",
    "\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}",
    "\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}",
    "\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}",
    "\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}",
    "\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}",
    "\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    "\u{118a0}-\u{118df}\u{1e900}-\u{1e943}",
    "]+"
);

static TABLE: &[PreTokenizer] = &[
    PreTokenizer::new(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    PreTokenizer::new(
        &[
            "gpt-2",
            "phi-2",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "modern-bert",
        ],
        &[GPT2],
    ),
    // The tokenizer of GPT-NeoX.
    PreTokenizer::new(&["mpt", "olmo"], &[GPT2]).composed(),
    PreTokenizer::new(
        &["smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[r"\p{N}", GPT2],
    ),
    PreTokenizer::new(&["command-r"], &[r"\p{N}", GPT2]).composed(),
    PreTokenizer::new(&["qwen2"], &[cl100k!(r"\p{N}")]).composed(),
    PreTokenizer::new(
        &["deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"],
        &[cl100k!(r"\p{N}")],
    ),
    PreTokenizer::new(
        &["qwen35"],
        &[concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            blanks!()
        )],
    )
    .composed(),
    PreTokenizer::new(
        &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        &[cl100k!(r"\p{N}{1,3}")],
    )
    .with_bos()
    .whole_pieces(),
    PreTokenizer::new(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[cl100k!(r"\p{N}{1,3}")]),
    PreTokenizer::new(&["glm4", "glm5"], &[cl100k!(r"\p{N}{1,3}")]).whole_pieces(),
    PreTokenizer::new(
        &["jais-2"],
        &[concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)",
            r"|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
        )],
    ),
    PreTokenizer::new(&["minicpm5"], &[r"\p{N}{1,3}", cl100k!(r"\p{N}+")]).whole_pieces(),
    PreTokenizer::new(&["laguna"], &[r"[^\n]+|[\n]+", cl100k!(r"\p{N}")]),
    PreTokenizer::new(
        &["ufakzeka"],
        &[concat!(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*", blanks!())],
    ),
    PreTokenizer::new(
        &["seed-coder"],
        &[concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+", blanks!())],
    ),
    PreTokenizer::new(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*",
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        )],
    ),
    PreTokenizer::new(
        &["exaone-moe"],
        &[concat!(
            contractions!(),
            r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?",
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        )],
    ),
    PreTokenizer::new(&["tekken"], &[concat!(cased_words!(""), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*", blanks!())])
        .with_bos()
        .whole_pieces(),
    PreTokenizer::new(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[o200k!(r"\p{N}{1,3}")]),
    PreTokenizer::new(&["tiny_aya", "cohere2moe"], &[r"\d{1,3}(?=(?:\d{3})*\b)", o200k!(r"\p{N}{1,3}")]),
    PreTokenizer::new(
        &["youtu"],
        &["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", o200k!(r"\p{N}")],
    )
    .whole_pieces(),
    // Chinese characters are runs of their own, and no part of any word.
    PreTokenizer::new(
        &["kimi-k2"],
        &[concat!(
            r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
            contractions!(),
            r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
            contractions!(),
            r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            blanks!()
        )],
    ),
    PreTokenizer::new(
        &["deepseek-llm"],
        &[
            r"[\r\n]",
            CASED_LETTERS,
            "\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+",
            r"\s+$",
            "[一-龥ࠀ-一가-\u{d7ff}]+",
            r"\p{N}+",
        ],
    ),
    PreTokenizer::new(
        &["deepseek-coder"],
        &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\u{d7ff}]+", r"\p{N}"],
    ),
    PreTokenizer::new(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[r"\p{N}{1,3}", CHINESE_AND_KANA, DEEPSEEK_V3],
    ),
    PreTokenizer::new(
        &["spark2_5"],
        &[
            r"\p{N}{1,3}",
            CHINESE_AND_KANA,
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
            ),
            r"\p{N}",
        ],
    ),
    // Digits in groups of three from the right.
    PreTokenizer::new(
        &["afmoe"],
        &[
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            "[一-鿿㐀-䶿豈-\u{faff}぀-ゟ゠-ヿ･-ﾟ⼀-\u{2fdf}เ-\u{e7f}\u{e80}-\u{eff}ក-\u{17ff}က-႟ꩠ-ꩿꧠ-\u{a9ff}가-\u{d7af}ᄀ-ᇿ]+",
            DEEPSEEK_V3,
        ],
    ),
    PreTokenizer::new(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    PreTokenizer::new(&["poro-chat", "bloom", "gpt3-finnish"], &[r" ?[^(\s|.,!?…。，、।۔،)]+"]),
    PreTokenizer::new(&["viking"], &[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"]),
    PreTokenizer::new(&["superbpe"], &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"]),
    PreTokenizer::new(
        &["chameleon"],
        &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ],
    )
    .with_bos(),
];

/// Every name that `tokenizer.ggml.pre`, or an override of it, may have.
pub fn known_pre_tokenizers() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|rules| rules.names).copied()
}

/// The name of the rules that split by these patterns, one after the other.
pub(super) fn name_of(patterns: &[String], compose: bool, ignore_merges: bool) -> Option<&'static str> {
    let rules = TABLE
        .iter()
        .find(|rules| rules.patterns == patterns && rules.compose == compose && rules.ignore_merges == ignore_merges)?;
    rules.names.first().copied()
}

/// The rules of `name`; `None` stands for a file that names none.
pub(super) fn find(file: &str, name: Option<&str>) -> Result<&'static PreTokenizer> {
    let rules = name.and_then(|name| TABLE.iter().find(|rules| rules.names.contains(&name)));
    rules.ok_or_else(|| Error::PreTokenizer {
        file: file.to_owned(),
        found: match name {
            Some(name) => format!("pre-tokenizer `{name}` is unknown"),
            None => "it does not say how text is split (`tokenizer.ggml.pre` is missing)".to_owned(),
        },
        known: known_pre_tokenizers().collect::<Vec<_>>().join(", "),
    })
}
