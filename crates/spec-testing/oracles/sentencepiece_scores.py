"""A small SentencePiece model with scores, and its own ids of some strings."""

import io
import json
import pathlib
import sys

import sentencepiece

CORPUS = """
The quick brown fox jumps over the lazy dog, and the dog does not mind.
Speculative decoding guesses several tokens and checks them in one pass.
A cheap model proposes, the target model disposes; the answer stays the same.
for (int i = 0; i < n; ++i) { total += values[i]; }
def mean(values): return sum(values) / len(values)
Der schnelle braune Fuchs springt über den faulen Hund, heißt es in Köln.
Le renard brun saute par-dessus le chien paresseux, n'est-ce pas ?
Быстрая коричневая лиса прыгает через ленивую собаку.
推测解码让推理更快，而且输出不变。目标模型检查草稿。
the then there these they this that those with without within
1 2 3 10 20 30 100 200 300 1999 2024 3.14159
"""

STRINGS = [
    "",
    " ",
    "   ",
    "the",
    " the",
    "the  then   there",
    "The quick brown fox",
    "thethethethe thesethosethis",
    "aaaaaaaaaaaaaaaa",
    "unknown 字 emoji 😀👍🏽 and ☃",
    "推测解码 mixed with text 输出",
    "Köln über naïve",
    "tabs\tand\nnewlines\n\n",
    "trailing ",
    "▁ literal ▁▁ marks",
    "def f(x):\n    return x ** 2  # comment\n",
    "1234567890 3.14159",
    "a<tool>b <tool> c<tool>",
    "<tool>",
    "<s>not control</s> <unk> <0x41>",
    "быстрая лиса",
    "\u0000\u0001",
    "don't won't",
    "speculative speculative speculating respeculated",
]


def model(dummy_prefix):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.strip().splitlines()),
        model_writer=out,
        model_type="bpe",
        vocab_size=560,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=dummy_prefix,
        user_defined_symbols=["<tool>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def kind(processor, id):
    """As `tokenizer.ggml.token_type` numbers them."""
    if processor.is_unknown(id):
        return 2
    if processor.is_control(id):
        return 3
    if processor.id_to_piece(id) == "<tool>":
        return 4
    if processor.is_byte(id):
        return 6
    return 1


def describe(dummy_prefix):
    processor = model(dummy_prefix)
    ids = range(processor.vocab_size())
    return {
        "space_prefix": dummy_prefix,
        "tokens": [processor.id_to_piece(id) for id in ids],
        "scores": [processor.get_score(id) for id in ids],
        "kinds": [kind(processor, id) for id in ids],
        "strings": [{"text": text, "ids": processor.encode(text)} for text in STRINGS],
    }


output = {
    "source": f"sentencepiece {sentencepiece.__version__}",
    "models": [describe(dummy_prefix) for dummy_prefix in (True, False)],
}
text = json.dumps(output, ensure_ascii=False, separators=(",", ":"))
(pathlib.Path(sys.argv[1]) / "models.json").write_text(text + "\n", encoding="utf-8")
