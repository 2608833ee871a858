#!/usr/bin/env python3
"""Writes blocks.json: stored blocks and what the `gguf` package makes of them, and floats and what
rounding makes of them. Byte strings are hexadecimal; values are little-endian float32 (float64
after rounding), so that equality is equality of bits. Run: .venv/bin/python tests/golden/blocks/make.py"""

import json
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

random = np.random.default_rng(2024)

# Format: bytes a block, and where its fp16 fields lie.
FORMATS = {
    Type.F32: (4, []),
    Type.F16: (2, [0]),
    Type.BF16: (2, []),
    Type.Q8_0: (34, [0]),
    Type.Q4_0: (18, [0]),
    Type.Q4_1: (20, [0, 2]),
    Type.Q5_0: (22, [0]),
    Type.Q5_1: (24, [0, 2]),
    Type.Q4_K: (144, [0, 2]),
    Type.Q5_K: (176, [0, 2]),
    Type.Q6_K: (210, [208]),
}
# fp16 values for the scales: zeros, denormals, one, the largest.
SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]


def with_scales(block, places, bits):
    for place, value in zip(places, bits):
        block[place : place + 2] = np.array([value], "<u2").view(np.uint8)
    return block


def blocks_of(size, places):
    """Blocks by name: random ones with ordinary scales, then every edge of scale and quants."""
    for i in range(4):
        block = random.integers(0, 256, size, dtype=np.uint8)
        scales = (random.normal(size=len(places)) * 0.05).astype("<f2").view("<u2")
        yield f"random {i}", with_scales(block, places, scales)
    for bits in SCALES:
        block = random.integers(0, 256, size, dtype=np.uint8)
        yield f"scale {bits:04x}", with_scales(block, places, [bits] * len(places))
    for fill in (0x00, 0x80, 0xFF):
        block = np.full(size, fill, np.uint8)
        yield f"quants {fill:02x}", with_scales(block, places, [0x2E66] * len(places))


def plain_values(kind):
    """F32 and BF16 have no scale: zeros, denormals, the largest, and random bits without NaN."""
    if kind == Type.F32:
        edges = [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000]
        bits = np.array(edges, "<u4")
        rest = random.normal(size=24).astype("<f4").view("<u4")
    else:
        bits = np.array([0, 0x8000, 1, 0x807F, 0x0080, 0x7F7F, 0xFF7F, 0x3F80], "<u2")
        rest = (random.normal(size=24).astype("<f4").view("<u4") >> 16).astype("<u2")
    return np.concatenate([bits, rest]).view(np.uint8)


def entry(kind, what, stored):
    values = dequantize(stored, kind).astype("<f4").ravel()
    assert np.isfinite(values).all(), (kind, what)
    return {"type": kind.name.lower(), "what": what, "bytes": stored.tobytes().hex(),
            "values": values.tobytes().hex()}


def dequantised():
    for kind, (size, places) in FORMATS.items():
        assert gguf.GGML_QUANT_SIZES[kind][1] == size
        if kind in (Type.F32, Type.BF16):
            yield entry(kind, "edges and random", plain_values(kind))
            continue
        for what, block in blocks_of(size, places):
            if kind == Type.F16 and what.startswith("quants"):
                continue
            yield entry(kind, what, block)


def rounding_inputs():
    """Rows of 64: ordinary, ties, tiny, huge, zeros beside values, signed zeros."""
    ties = (np.arange(64) - 32 + 0.5).astype("<f4")
    ties[0], ties[32] = -127, 127  # d = 1: every other value lies half way
    ulp = np.float32(1.0) + np.arange(64, dtype="<f4") * np.float32(2.0**-9)
    rows = [random.normal(size=64), random.normal(size=64) * 1e-3, ties, ulp, -ulp,
            random.normal(size=64) * 1e-30, random.normal(size=64) * 6e4, np.zeros(64),
            -np.zeros(64), random.normal(size=64) * 2.0**-20]
    return np.stack(rows).astype("<f4")


def q8_activations(x):
    """Activation class q8 in float32, as stated in reference.h."""
    blocks = x.reshape(-1, 32)
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.where(d == 0, np.float32(0), np.float32(1) / np.where(d == 0, np.float32(1), d))
    q = np.rint(blocks * inverse.astype(np.float32))
    return (d.astype(np.float64) * q).reshape(x.shape)


def rounded(x):
    results = {
        "f32": x,
        "bf16": dequantize(quantize(x, Type.BF16), Type.BF16),
        "q8_0": dequantize(quantize(x, Type.Q8_0), Type.Q8_0),
        "q8": q8_activations(x),
    }
    with np.errstate(over="ignore"):
        results["f16"] = x.astype(np.float16)
    for name, values in results.items():
        yield {"type": name, "values": values.astype("<f8").tobytes().hex()}


def main():
    x = rounding_inputs()
    golden = {"about": "see make.py", "gguf": version("gguf"), "blocks": list(dequantised()),
              "rounding": {"rows": x.shape[0], "columns": x.shape[1], "in": x.tobytes().hex(),
                           "out": list(rounded(x))}}
    text = json.dumps(golden, indent=0)
    Path(__file__).with_name("blocks.json").write_text(text + "\n")
    print(len(golden["blocks"]), "blocks,", len(text), "bytes")


main()
