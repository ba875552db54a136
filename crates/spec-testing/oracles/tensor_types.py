"""Blocks of every element type as the package `gguf` reads them, and rows as it quantises them.

Writes to the folder given:
  TYPE.blocks      rows of blocks with random codes, and scales of either sign, subnormal ones among them
  TYPE.values      the same, dequantised: little-endian f32
  quantize.values  rows of 512 f32
  TYPE.quantized   the same, quantised
"""

import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

# Type, and where its f16 scales and minima are within a block.
TYPES = [
    (Type.F32, []),
    (Type.F16, [0]),
    (Type.BF16, []),
    (Type.Q4_0, [0]),
    (Type.Q4_1, [0, 2]),
    (Type.Q5_0, [0]),
    (Type.Q5_1, [0, 2]),
    (Type.Q8_0, [0]),
    (Type.Q2_K, [80, 82]),
    (Type.Q3_K, [108]),
    (Type.Q4_K, [0, 2]),
    (Type.Q5_K, [0, 2]),
    (Type.Q6_K, [208]),
    (Type.IQ4_NL, [0]),
    (Type.IQ4_XS, [0]),
]
BLOCKS = 3  # of a row


def blocks_of(random, rows, size, scales):
    count = rows * BLOCKS
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in scales:
        values = random.normal(0, 1, count) * 10.0 ** random.integers(-3, 2, count)
        # The smallest subnormal, a larger one, both zeros.
        values[[1, 3, 5, 7]] = [2.0**-24, -3.0e-6, 0.0, -0.0]
        random.shuffle(values)
        blocks[:, at : at + 2] = values.astype(np.float16).reshape(-1, 1).view(np.uint8)
    return blocks.reshape(rows, BLOCKS * size)


def rows_to_quantize(random):
    rows = random.normal(0, 0.04, (16, 512)).astype(np.float32)
    rows[8] *= 1e-3
    rows[9] *= 1e3
    rows[10, ::32] *= 30  # an outlier in every block
    rows[11] = np.abs(rows[11])
    rows[12] = random.integers(-127, 128, 512) + 0.5  # halves, once the scale is 1
    rows[12, ::32] = 127
    rows[13, :256] = 0
    rows[14] = random.uniform(-1, 1, 512)
    rows[15] = np.where(random.integers(0, 2, 512) == 0, -0.25, 0.25)  # ties for the largest
    return rows


def main():
    folder = Path(sys.argv[1])
    random = np.random.default_rng(20260701)
    for kind, scales in TYPES:
        if kind in (Type.F32, Type.BF16):
            values = random.normal(0, 1, (3, 32)).astype(np.float32)
            values[0, :4] = [1e-40, -0.0, 3e38, -1e-45]
            blocks = values.view(np.uint8) if kind == Type.F32 else quantize(values, kind)
        else:
            elements, size = GGML_QUANT_SIZES[kind]
            blocks = blocks_of(random, 3 if elements == 256 else 16, size, scales)
        values = dequantize(blocks, kind)
        assert values.dtype == np.float32 and np.isfinite(values).all()
        (folder / f"{kind.name}.blocks").write_bytes(blocks.tobytes())
        (folder / f"{kind.name}.values").write_bytes(values.astype("<f4").tobytes())
    rows = rows_to_quantize(random)
    (folder / "quantize.values").write_bytes(rows.astype("<f4").tobytes())
    for kind in (Type.Q8_0, Type.Q4_0):
        (folder / f"{kind.name}.quantized").write_bytes(quantize(rows, kind).tobytes())


if __name__ == "__main__":
    main()
