"""Logits of tiny decoders, one of each architecture and of each stretching of rotary frequencies, by transformers.

Usage: logits.py FOLDER. Writes FOLDER/NAME.json for each case:

config    what config.json says, and no more: what is left out has the library's default
tensors   names and shapes of the parameters, as the library stores them
tokens    how many tokens the text has
rows      positions whose logits follow
logits    f32, one list for each row
rope      per table: inverse frequencies, and what cosines and sines are multiplied with

No weight is stored. Element i of the tensor NAME is `centre + reach * u`, computed in f64 and rounded to f32, where
u = h / 2^23 - 1, h the upper 24 bits of mix(fnv1a(NAME) + (i + 1) * 0x9E3779B97F4A7C15), fnv1a the 64-bit hash of that
name over the bytes, and mix the finaliser of splitmix64:

    x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^= x >> 31

Centre and reach are those of `values`. Token i of a text is the same h for the name "tokens", modulo the vocabulary.
"""

import json
import sys
from pathlib import Path

import numpy
import torch
import transformers

SIZES = dict(
    vocab_size=300,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
LONG = dict(SIZES, max_position_embeddings=16384)
GEMMA = dict(SIZES, num_hidden_layers=4, head_dim=32, num_key_value_heads=1, query_pre_attn_scalar=32, sliding_window=20)
LINEAR = dict(factor=8.0)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(factor=4.0, original_max_position_embeddings=4096)

# Name, what config.json says, tokens of the text, positions of the rows.
CASES = [
    ("llama", dict(SIZES, model_type="llama", rms_norm_eps=1e-5), 40, [0, 20, 39]),
    ("llama-biased", dict(SIZES, model_type="llama", attention_bias=True, mlp_bias=True, head_dim=32), 40, [0, 20, 39]),
    ("llama-linear", dict(LONG, model_type="llama", rope_scaling=dict(LINEAR, type="linear")), 10000, [40, 9999]),
    (
        "llama-llama3",
        dict(LONG, model_type="llama", rope_theta=5e5, rope_scaling=dict(LLAMA3, rope_type="llama3")),
        10000,
        [40, 9999],
    ),
    ("llama-yarn", dict(LONG, model_type="llama", rope_scaling=dict(YARN, rope_type="yarn")), 10000, [40, 9999]),
    ("mistral", dict(SIZES, model_type="mistral", sliding_window=24), 80, [10, 50, 79]),
    ("mistral-whole", dict(SIZES, model_type="mistral", sliding_window=None, head_dim=32), 40, [0, 20, 39]),
    ("qwen2", dict(SIZES, model_type="qwen2", tie_word_embeddings=True, rope_theta=1e6), 40, [0, 20, 39]),
    (
        "qwen2-windows",
        dict(SIZES, model_type="qwen2", num_hidden_layers=3, use_sliding_window=True, sliding_window=20, max_window_layers=1),
        80,
        [10, 50, 79],
    ),
    ("qwen2-yarn", dict(LONG, model_type="qwen2", rope_scaling=dict(YARN, type="yarn")), 10000, [40, 9999]),
    ("qwen3", dict(SIZES, model_type="qwen3", head_dim=32, rope_theta=1e6), 40, [0, 20, 39]),
    (
        "gemma3",
        dict(GEMMA, model_type="gemma3_text", layer_types=["sliding_attention", "full_attention"] * 2),
        80,
        [10, 50, 79],
    ),
    (
        "gemma3-pattern",
        dict(
            GEMMA,
            model_type="gemma3_text",
            num_hidden_layers=7,
            query_pre_attn_scalar=24,
            rope_scaling=dict(LINEAR, rope_type="linear"),
        ),
        80,
        [10, 50, 79],
    ),
    ("gemma3-capped", dict(GEMMA, model_type="gemma3_text", final_logit_softcapping=5.0), 80, [10, 50, 79]),
    ("gpt2", dict(model_type="gpt2", vocab_size=300, n_positions=128, n_embd=64, n_layer=2, n_head=4), 40, [0, 20, 39]),
]


def hashed(name, count):
    """The upper 24 bits of the hash, for elements 0 to count - 1."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with numpy.errstate(over="ignore"):
        x = numpy.uint64(seed) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        x ^= x >> numpy.uint64(31)
    return x >> numpy.uint64(40)


def values(name, shape, from_one):
    """The elements of a tensor. Norms of some architectures are stored as their distance from one."""
    centre, reach = 0.0, 0.25
    if len(shape) == 1 and name.endswith(".weight"):
        centre = 0.0 if from_one else 1.0
    elif name.endswith(("embed_tokens.weight", "wte.weight", "lm_head.weight")):
        reach = 0.5
    unit = hashed(name, int(numpy.prod(shape))).astype(numpy.float64) / 2**23 - 1.0
    return torch.from_numpy((centre + reach * unit).astype(numpy.float32)).reshape(shape)


def tables(model):
    """The rotary tables of a model: for all layers or the global ones, and for local ones."""
    found = {}
    for name, table in (("global", "rotary_emb"), ("local", "rotary_emb_local")):
        rotary = getattr(model.base_model, table, None)
        if rotary is not None:
            frequencies = [float(f"{float(x):.9g}") for x in rotary.inv_freq]
            found[name] = dict(frequencies=frequencies, magnitude=float(rotary.attention_scaling))
    return found


def make(name, given, count, rows):
    settings = dict(given)
    config = transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)
    # The plain form holds a number for each pair of positions.
    config._attn_implementation = "sdpa" if count > 1000 else "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tensors = []
    for tensor, parameter in model.named_parameters():
        parameter.data = values(tensor, tuple(parameter.shape), given["model_type"].startswith("gemma"))
        tensors.append([tensor, list(parameter.shape)])
    model.tie_weights()
    tokens = torch.from_numpy((hashed("tokens", count) % numpy.uint64(300)).astype(numpy.int64))
    with torch.no_grad():
        logits = model(tokens[None], use_cache=False, logits_to_keep=torch.tensor(rows)).logits[0]
    written = dict(
        source=f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, f32 on the CPU",
        config=given,
        tensors=tensors,
        tokens=count,
        rows=rows,
        rope=tables(model),
    )
    lines = [json.dumps(key) + ": " + json.dumps(value) for key, value in written.items()]
    listed = ["[" + ", ".join(f"{float(x):.8g}" for x in row) + "]" for row in logits]
    lines.append('"logits": [\n' + ",\n".join(listed) + "\n]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    torch.set_num_threads(2)
    folder = Path(sys.argv[1])
    for name, given, count, rows in CASES:
        (folder / f"{name}.json").write_text(make(name, given, count, rows))


main()
