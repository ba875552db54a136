"""How llama.cpp splits text under every name of `tokenizer.ggml.pre`.

The vocabulary is made here so that whatever is not split becomes one token: it has every stretch of the strings, and
merges that grow a stretch by one byte on either side, the longest first. From the first pair that merges, a piece then
grows until it is whole. So the lengths of the tokens are those of the pieces, and the rules of the name alone cause
them.
"""

import json
import pathlib
import sys
import tempfile

import gguf
import llama_cpp

NAMES = """
default gpt-2 phi-2 jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum jina-es jina-de jina-v2-es jina-v2-de
jina-v1-en jina-v2-code roberta-bpe modern-bert mpt olmo smollm starcoder refact codeshell exaone minerva-7b mellum2
command-r qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2 qwen35 llama-bpe llama3
llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe chatglm-bpe glm4 glm5 jais-2 minicpm5
laguna ufakzeka seed-coder bailingmoe bailingmoe2 llada-moe exaone-moe tekken gpt-4o llama4 kanana2 talkie minimax-m2
tiny_aya cohere2moe youtu kimi-k2 deepseek-llm deepseek-coder deepseek-v3 hunyuan-dense joyai-llm hy_v4 spark2_5 afmoe
falcon poro-chat bloom gpt3-finnish viking superbpe chameleon
""".split()

STRINGS = [
    "Hello, world!",
    "  leading and   multiple  spaces   ",
    "tabs\tand\nnewlines\n\n\nend \n",
    "\r\nwindows\r\n\r\nlines\r\n",
    " \n \n\t \n",
    "a \n\n b\n  c",
    "trailing     ",
    "don't won't I'll we've THEY'RE I'M He'D it'S 'tis 'twas rock'n'roll",
    "O'Brien's d'une l'été Türkiye'nin o'sullivan l'tour d'more J'S",
    "1 12 123 1234 12345 123456 1234567 12345678",
    "3.14159 1,000,000 2024-11-29 0x1F 1e-5 v1.2.3 x86_64 i18n 4th ½ ² Ⅷ ٣٤٥٦",
    "camelCase PascalCase HTTPServer snake_case SCREAMING_CASE kebab-case XMLHttpRequest2 iPhone McDonald",
    "if(a&&b||!c){x->y::z();}",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass",
    "https://example.com/?q=a+b&c=%20d#frag user@example.org",
    "<html><body class=\"x\">&amp; text</body></html>",
    "path/to/file.txt C:\\dir\\file ~/x ./y ../z //comment /* block */",
    "!!! ??? ... ,,, ;;; ::: --- ___ === +++ *** ### $$$ %%% ^^^ ~~~ ``` ||| <<< >>>",
    "word!word ?word .word (word) [word] {word} \"word\" 'word' `word` word... word?! #tag @name $5 50% a=b a+b a<b",
    "!\n?\n...\n\n-- \n/\n//\n",
    "Ünïcödé naïve café Straße ÀÉÎ ñandú Ångström œuvre Ærø",
    "русский текст Москва ПРИВЕТ українська ҐЄЇ",
    "ελληνικά ΑΘΗΝΑ άέήίόύώ",
    "עברית שלום 123 العربية مرحبا، كيف؟ فارسی ۱۲۳",
    "हिन्दी पाठ नमस्ते १२३ বাংলা தமிழ் తెలుగు",
    "ภาษาไทย ๑๒๓ ລາວ ខ្មែរ မြန်မာ",
    "中文分词测试：推测解码让推理更快。第3章，共12页！",
    "繁體中文「引號」、《書名》…——？（括號）",
    "日本語テキスト ひらがな カタカナ 漢字、句読点。ｶﾀｶﾅ ー々〆",
    "한국어 텍스트 안녕하세요 ㄱㄴㄷ 123개",
    "ㄅㄆㄇ 〇一二三 ，。！？ ＡＢＣａｂｃ１２３ ！＂＃",
    "mixed中文English日本語한국어русский123混合",
    "emoji 😀👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ text😀text",
    "math α≤β ∑∫ ∞ √2 π≈3.14 x² x₁ ℝ ℃ ™ © ® € £ ¥ ₹",
    "𝒳𝒴 𝟘𝟙 𐐀𐐨 ﬁ ﬂ ǅ ʰ ª º",
    "\u00a0nbsp\u2003em\u200bzero\u3000wide\u2028line",
    "\u0000\u0001 control \u007f \u0085x",
    "a" * 40,
    "ababababab abcabcabc ABABAB",
    "\u0300\u0301 marks x\u0332y a\u20dd",
    "‘single’ “double” ‚low„ ‹a› «b» – — ― … • · ‰",
    "I.B.M. U.S.A. e.g. i.e. Mr. Smith's 5'10\" 90's '90s",
    "\n\n    indented\n        more\n\t\ttabs\n    back\n",
    "word\n\nword \n word\r\nword\u2029word",
    "1. item\n2. item\n- item\n* item\n| a | b |\n|---|---|\n",
    "SELECT * FROM t WHERE id=42 AND name LIKE '%x%';",
    "{\"key\": [1, 2.5, true, null], \"k2\": {\"a\": \"b\\n\"}}",
    "fn main() { println!(\"{}\", x as u32 + 1_000); }",
    "   ",
    "x",
    " x",
    "\n",
    " \n",
    "<sentinel:12> IMGIMGABCZ <s>text</s> [INST] hi [/INST]",
    "9" * 31,
    "1000000 items, 12345678.90 total; 007 1 22 4444 55555 tel:+49-30-1234567",
    "a1b2c3 1a2b 12ab34 ab12cd v2 2nd №5 #1",
]


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        letters.setdefault(byte, chr(0x100 + len(letters) - len(printable)))
    return letters


def growth(sequences):
    """Every stretch of two symbols and more, made of a shorter one and a symbol, the longest first."""
    stretches = {
        tuple(sequence[start:end])
        for sequence in sequences
        for start in range(len(sequence))
        for end in range(start + 2, len(sequence) + 1)
    }
    merges = {}
    for stretch in sorted(stretches, key=lambda stretch: (-len(stretch), stretch)):
        merges["".join(stretch[:-1]), stretch[-1]] = None
        merges[stretch[0], "".join(stretch[1:])] = None
    return list(merges)


def write(path, name, tokens, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(folder):
    alphabet = byte_alphabet()
    merges = growth([[alphabet[byte] for byte in text.encode()] for text in STRINGS])
    tokens = list(dict.fromkeys([*(alphabet[byte] for byte in range(256)), *("".join(pair) for pair in merges)]))
    letters = {letter: byte for byte, letter in alphabet.items()}
    lengths = [len(bytes(letters[letter] for letter in token)) for token in tokens]
    groups = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in NAMES:
            path = pathlib.Path(scratch) / "vocabulary.gguf"
            write(path, name, tokens, merges)
            model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
            splits = [
                [lengths[token] for token in model.tokenize(text.encode(), add_bos=False, special=False)]
                for text in STRINGS
            ]
            groups.setdefault(json.dumps(splits), []).append(name)
    output = {
        "source": f"llama-cpp-python {llama_cpp.__version__}",
        "strings": STRINGS,
        "groups": [{"names": names, "lengths": json.loads(splits)} for splits, names in groups.items()],
    }
    text = json.dumps(output, ensure_ascii=False, separators=(",", ":"))
    (pathlib.Path(folder) / "splits.json").write_text(text + "\n", encoding="utf-8")


main(sys.argv[1])
