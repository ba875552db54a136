"""Reads a file that `spec quantize` wrote with llama.cpp's own Python package, beside the file that it was made of.

    gguf_reader.py ORIGINAL QUANTIZED TYPE

`cargo xtask clients` makes the file and starts this. What does not hold fails the script.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

# Root mean square of the difference over that of the values: the step of the type is 1/8 of a block's largest value.
LARGEST_ERROR = 0.15
# A file's own numbers, which differ by what was done to it.
MAY_DIFFER = {"GGUF.kv_count", "general.file_type", "general.quantization_version"}


def main(original, quantized, name):
    kind = GGMLQuantizationType[name]
    before, after = GGUFReader(original), GGUFReader(quantized)

    keys = set(before.fields) - MAY_DIFFER
    assert keys == set(after.fields) - MAY_DIFFER, keys ^ set(after.fields)
    for key in keys:
        assert before.get_field(key).contents() == after.get_field(key).contents(), key

    tensors = {tensor.name: tensor for tensor in after.tensors}
    assert list(tensors) == [tensor.name for tensor in before.tensors]
    changed = 0
    for was in before.tensors:
        now = tensors[was.name]
        assert list(was.shape) == list(now.shape), was.name
        if now.tensor_type == was.tensor_type:
            assert np.array_equal(was.data, now.data), f"{was.name} was touched"
            continue
        assert now.tensor_type == kind, f"{was.name} is {now.tensor_type.name}"
        changed += 1
        wanted, found = dequantize(was.data, was.tensor_type), dequantize(now.data, now.tensor_type)
        error = np.sqrt(np.mean((wanted - found) ** 2) / np.mean(wanted**2))
        assert error < LARGEST_ERROR, f"{was.name} is off by {error:.3f}"
    assert changed > len(tensors) // 2, f"{changed} of {len(tensors)} tensors are {name}"
    print(f"gguf reads {quantized}: {changed} of {len(tensors)} tensors are {name}, the others as they were")


main(*sys.argv[1:4])
