"""Writes operators.json: inputs and results of operators, computed with numpy from ATB's documentation.

Results are in f64, before any rounding to the output's type; tests compare with a tolerance. Run it again with

    python3 operators.py > operators.json
"""

import json
import sys

import numpy as np

random = np.random.default_rng(20240817)
cases = []


def bf16(values):
    """The nearest bf16 values, ties to even, as f32."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def cast(values, dtype):
    if dtype == "f16":
        return np.asarray(values, np.float16).astype(np.float64)
    if dtype == "bf16":
        return bf16(values).astype(np.float64)
    if dtype == "f32":
        return np.asarray(values, np.float32).astype(np.float64)
    return np.asarray(values, np.int64)


def normal(dtype, *shape, scale=1.0):
    return cast(random.normal(size=shape) * scale, dtype)


def tensor(values, dtype, host=False):
    values = np.asarray(values)
    if values.dtype.kind == "f":
        # Six digits name a half, nine an f32.
        digits = 9 if dtype == "f32" else 6
        data = [float(f"{v:.{digits}g}") for v in values.ravel()]
    else:
        data = [int(v) for v in values.ravel()]
    return {"dtype": dtype, "dims": list(values.shape), "data": data, "host": host}


def case(name, op, param, inputs, outputs, tolerance):
    cases.append(
        {"name": name, "op": op, "param": param, "inputs": inputs, "outputs": outputs, "tolerance": tolerance}
    )


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 1e-5}


def gather():
    x, i = normal("f16", 5, 4), np.array([4, 0, 0, 3])
    case("gather rows", "gather", {"axis": 0, "batch_dims": 0},
         [tensor(x, "f16"), tensor(i, "i32")], [tensor(x[i], "f16")], 1e-5)
    x, i = normal("bf16", 2, 3, 4), np.array([[2, 0], [1, 1]])
    y = np.stack([x[b][i[b]] for b in range(2)])
    case("gather with a batch", "gather", {"axis": 1, "batch_dims": 1},
         [tensor(x, "bf16"), tensor(i, "i64")], [tensor(y, "bf16")], 1e-5)


def rms_norm():
    for dtype in ("f16", "bf16"):
        x, g = normal(dtype, 3, 32), normal(dtype, 32)
        y = x * g / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        case(f"rms norm {dtype}", "rms_norm", {"layer": 1}, [tensor(x, dtype), tensor(g, dtype)],
             [tensor(y, dtype)], TOLERANCE[dtype])
    x, r, g = normal("f16", 2, 16), normal("f16", 2, 16), normal("f16", 16)
    s = x + r
    y = s * g / np.sqrt((s * s).mean(-1, keepdims=True) + 1e-5)
    case("rms norm of a sum", "rms_norm", {"layer": 2}, [tensor(x, "f16"), tensor(r, "f16"), tensor(g, "f16")],
         [tensor(y, "f16"), tensor(s, "f16")], 2e-3)
    case("rms norm after a sum", "rms_norm", {"layer": 3}, [tensor(x, "f16"), tensor(r, "f16"), tensor(g, "f16")],
         [tensor(y, "f16")], 2e-3)
    y = x * (1 + g) / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    case("rms norm gemma", "rms_norm", {"layer": 1, "model": 1}, [tensor(x, "f16"), tensor(g, "f16")],
         [tensor(y, "f16")], 4e-3)
    b, scale, offset = normal("f16", 16), cast([0.03125], "f16"), np.array([3])
    y = x * g / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) + b
    q = np.clip(np.round(y / scale + offset), -128, 127)
    case("rms norm to int8", "rms_norm", {"layer": 1, "quant": 2},
         [tensor(x, "f16"), tensor(g, "f16"), tensor(b, "f16"), tensor(scale, "f16"), tensor(offset, "i8")],
         [tensor(q.astype(np.int64), "i8")], 1)
    s = np.abs(y).max(-1) / 127
    case("rms norm to int8, dynamic", "rms_norm", {"layer": 1, "quant": 2, "dynamic_quant": 1},
         [tensor(x, "f16"), tensor(g, "f16"), tensor(b, "f16")],
         [tensor(np.round(y / s[:, None]).astype(np.int64), "i8"), tensor(s, "f32")], 1)


def linear():
    for dtype in ("f16", "bf16", "f32"):
        for ta in (0, 1):
            for tb in (0, 1):
                x, w = normal(dtype, 3, 40, scale=0.3), normal(dtype, 5, 40, scale=0.3)
                case(f"linear {dtype} {ta}{tb}", "linear", {"transpose_a": ta, "transpose_b": tb},
                     [tensor(x.T if ta else x, dtype), tensor(w if tb else w.T, dtype)], [tensor(x @ w.T, dtype)],
                     TOLERANCE[dtype])
    x, w, b = normal("f16", 2, 3, 16), normal("f16", 4, 16), normal("f16", 4)
    case("linear with bias, batched", "linear", {"transpose_b": 1, "has_bias": 1},
         [tensor(x, "f16"), tensor(w, "f16"), tensor(b, "f16")], [tensor(x @ w.T + b, "f16")], 4e-3)
    a = normal("f32", 6, 4)
    x = normal("f16", 6, 16)
    case("linear added", "linear", {"transpose_b": 1, "accumulate": 1},
         [tensor(x, "f16"), tensor(w, "f16"), tensor(a, "f32")], [tensor(x @ w.T + a, "f32")], 1e-5)
    x, w = random.integers(-127, 128, (3, 64)), random.integers(-127, 128, (8, 64))
    b, s = random.integers(-5000, 5000, 8), cast(random.uniform(1e-4, 2e-4, 8), "f32")
    bits = np.asarray(s, np.float32).view(np.uint32).astype(np.int64)
    case("linear int8 per channel", "linear", {"transpose_b": 1, "has_bias": 1, "out_data_type": 1},
         [tensor(x, "i8"), tensor(w, "i8"), tensor(b, "i32"), tensor(bits, "u64")],
         [tensor((x @ w.T + b) * s, "f16")], 2e-2)
    t = cast(random.uniform(0.5, 2, 3), "f32")
    case("linear int8 per token", "linear", {"transpose_b": 1, "out_data_type": 27, "quant": 2},
         [tensor(x, "i8"), tensor(w, "i8"), tensor(s, "f32"), tensor(t, "f32")],
         [tensor((x @ w.T) * s * t[:, None], "bf16")], 0.25)


def rope():
    t, n, kv, d = 3, 2, 1, 16
    q, k = normal("f16", t, n * d), normal("f16", t, kv * d)

    def tables(repeat):
        angles = np.outer([0, 1, 7], 10000.0 ** (-np.arange(repeat) / repeat))
        return angles

    def apply(x, cos, sin, partner):
        h = x.reshape(t, -1, d)
        return (h * cos[:, None] + partner(h) * sin[:, None]).reshape(t, -1)

    half = tables(d // 2)
    full = np.concatenate([half, half], -1)
    cos, sin = cast(np.cos(full), "f16"), cast(np.sin(full), "f16")

    def rotate(h):
        return np.concatenate([-h[..., d // 2:], h[..., :d // 2]], -1)

    def rotate_quarters(h):
        return np.concatenate([rotate_block(h[..., :d // 2]), rotate_block(h[..., d // 2:])], -1)

    def rotate_block(h):
        m = h.shape[-1] // 2
        return np.concatenate([-h[..., m:], h[..., :m]], -1)

    def rotate_pairs(h):
        y = np.empty_like(h)
        y[..., 0::2], y[..., 1::2] = -h[..., 1::2], h[..., 0::2]
        return y

    lengths = np.array([t])
    for name, coefficient, partner in (("halves", 2, rotate), ("quarters", 4, rotate_quarters), ("pairs", d, rotate_pairs)):
        case(f"rope {name}", "rope", {"rotary_coeff": coefficient},
             [tensor(q, "f16"), tensor(k, "f16"), tensor(cos, "f16"), tensor(sin, "f16"), tensor(lengths, "i32")],
             [tensor(apply(q, cos, sin, partner), "f16"), tensor(apply(k, cos, sin, partner), "f16")], 3e-3)


def self_attention():
    lengths, n, kv, d = [3, 5], 4, 2, 16
    t = sum(lengths)
    for dtype in ("f16", "bf16"):
        q, k, v = normal(dtype, t, n, d), normal(dtype, t, kv, d), normal(dtype, t, kv, d)
        out, start = np.zeros((t, n, d)), 0
        for length in lengths:
            rows = slice(start, start + length)
            for h in range(n):
                s = q[rows, h] @ k[rows, h // 2].T * 0.25
                s = np.where(np.tril(np.ones_like(s)) > 0, s, -np.inf)
                out[rows, h] = softmax(s) @ v[rows, h // 2]
            start += length
        # f16 kernels add the mask, those of bf16 multiply it by a large negative number.
        mask = np.triu(np.ones((5, 5)), 1) * (-10000.0 if dtype == "f16" else 1.0)
        case(f"prefill {dtype}", "self_attention", {"head_num": n, "kv_head_num": kv, "qk_scale": 0.25},
             [tensor(q, dtype), tensor(k, dtype), tensor(v, dtype), tensor(mask, dtype),
              tensor(np.array(lengths), "i32", True)], [tensor(out, dtype)], TOLERANCE[dtype])


def paged_attention():
    """Two sequences, one with a tree of drafts: nodes see the committed prefix, their ancestors and themselves."""
    n, kv, d, block, blocks = 4, 2, 16, 16, 6
    contexts, rows, tables = [20, 5], [4, 1], [[4, 1], [3, 0]]
    parents = [[-1, 0, 0, 1], [-1]]
    for dtype in ("f16", "bf16"):
        q = normal(dtype, sum(rows), n, d)
        kc, vc = normal(dtype, blocks, block, kv, d, scale=0.7), normal(dtype, blocks, block, kv, d, scale=0.7)
        longest = 32
        mask, out, row = np.full((sum(rows), longest), -10000.0), np.zeros((sum(rows), n, d)), 0
        for b, (context, count) in enumerate(zip(contexts, rows)):
            keys = np.concatenate([kc[i] for i in tables[b]])[:context]
            values = np.concatenate([vc[i] for i in tables[b]])[:context]
            first = context - count
            for node in range(count):
                seen = set(range(first))
                at = node
                while at >= 0:
                    seen.add(first + at)
                    at = parents[b][at]
                seen = sorted(seen)
                mask[row, seen] = 0
                for h in range(n):
                    s = keys[seen, h // 2] @ q[row, h] * 0.25
                    out[row, h] = softmax(s) @ values[seen, h // 2]
                row += 1
        case(f"verification of a tree {dtype}", "paged_attention",
             {"head_num": n, "kv_head_num": kv, "qk_scale": 0.25, "mask": 3, "calc": 1},
             [tensor(q, dtype), tensor(kc, dtype), tensor(vc, dtype), tensor(np.array(tables), "i32"),
              tensor(np.array(contexts), "i32", True), tensor(cast(mask, dtype), dtype),
              tensor(np.array(rows), "i32", True)], [tensor(out, dtype)], TOLERANCE[dtype])


def elementwise():
    x = normal("f16", 3, 16)
    gate, up = x[:, :8], x[:, 8:]
    case("swiglu", "activation", {"type": 6}, [tensor(x, "f16")], [tensor(gate / (1 + np.exp(-gate)) * up, "f16")], 2e-3)
    case("swish", "activation", {"type": 4, "scale": 1.5}, [tensor(x, "f16")], [tensor(x / (1 + np.exp(-1.5 * x)), "f16")], 2e-3)
    case("gelu", "activation", {"type": 2}, [tensor(x, "f16")],
         [tensor(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), "f16")], 2e-3)
    a, b = normal("f16", 2, 3, 4), normal("f16", 3, 1)
    for kind, y in ((8, a + b), (9, a * b), (15, a - b), (10, a / b)):
        case(f"elewise {kind}", "elewise", {"type": kind}, [tensor(a, "f16"), tensor(b, "f16")], [tensor(y, "f16")],
             2e-3 if kind != 10 else 0.1)
    i, j = np.array([3, -1, 5, 7]), np.array([3, 2, 1, 8])
    case("less", "elewise", {"type": 13}, [tensor(i, "i64"), tensor(j, "i64")], [tensor((i < j).astype(np.int64), "i8")], 0)
    case("softmax", "softmax", {"axes": [-1]}, [tensor(x, "f16")], [tensor(softmax(x), "f16")], 1e-3)
    y = np.exp(a) / np.exp(a).sum((1, 2), keepdims=True)
    case("softmax over two axes", "softmax", {"axes": [1, 2]}, [tensor(a, "f16")], [tensor(y, "f16")], 1e-3)
    order = np.argsort(-x, -1, kind="stable")[:, :3]
    case("sort", "sort", {"count": 3}, [tensor(x, "f16")],
         [tensor(np.take_along_axis(x, order, -1), "f16"), tensor(order, "i32")], 1e-5)
    m = random.integers(-50, 50, (2, 3, 4))
    case("reduce", "reduce", {"type": 1, "axes": [1]}, [tensor(m, "i32")], [tensor(m.max(1), "i32")], 0)
    case("sum", "reduce", {"type": 3, "axes": [0, 2]}, [tensor(a, "f16")], [tensor(a.sum((0, 2)), "f16")], 1e-2)
    case("split", "split", {"dim": -1, "count": 3, "sizes": [4, 2, 2, 0]}, [tensor(normal("f16", 2, 8), "f16")], [], 1e-5)
    s = cases[-1]
    data = np.array(s["inputs"][0]["data"]).reshape(2, 8)
    s["outputs"] = [tensor(data[:, :4], "f16"), tensor(data[:, 4:6], "f16"), tensor(data[:, 6:], "f16")]


for group in (gather, rms_norm, linear, rope, self_attention, paged_attention, elementwise):
    group()
json.dump({"cases": cases}, sys.stdout, separators=(",", ":"))
sys.stdout.write("\n")
