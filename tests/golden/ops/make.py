#!/usr/bin/env python3
"""Writes ops.json: small inputs and what PyTorch makes of them in float64, RoPE by the code of
transformers. Run: .venv/bin/python tests/golden/ops/make.py"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

torch.manual_seed(7)
torch.set_default_dtype(torch.float64)


def case(op, out, **inputs):
    def plain(value):
        return value.flatten().tolist() if isinstance(value, torch.Tensor) else value

    return {"op": op, **{name: plain(value) for name, value in inputs.items()}, "out": plain(out)}


def elementwise():
    x = torch.cat([torch.linspace(-12, 12, 49), torch.tensor([-40.0, 40.0, 1e-9, -1e-9, 0.0])])
    yield case("gelu_erf", F.gelu(x), x=x)
    yield case("gelu_tanh", F.gelu(x, approximate="tanh"), x=x)
    up = torch.randn(len(x))
    yield case("silu_mul", F.silu(x) * up, x=x, up=up)


def rows():
    x = torch.randn(3, 19) * torch.tensor([[1e-3], [1.0], [40.0]])
    weight, bias = torch.randn(19), torch.randn(19)
    sizes = {"rows": 3, "columns": 19}
    yield case("softmax", F.softmax(x, -1), x=x, **sizes)
    yield case("layer_norm", F.layer_norm(x, (19,), weight, bias, 1e-12), x=x, weight=weight,
               bias=bias, epsilon=1e-12, **sizes)
    yield case("rms_norm", F.rms_norm(x, (19,), weight, 1e-5), x=x, weight=weight, epsilon=1e-5,
               **sizes)
    yield case("l2_normalise", F.normalize(x, dim=-1), x=x, **sizes)
    w = torch.randn(7, 19)
    yield case("linear", F.linear(x, w, bias[:7]), x=x, weight=w, bias=bias[:7], outputs=7, **sizes)


def rope():
    """transformers pairs halves; (tokens, heads, head_dim), positions as listed."""
    positions, theta, heads, dim = [0, 1, 7, 300], 10000.0, 3, 16
    x = torch.randn(len(positions), heads, dim)
    frequency = theta ** (-torch.arange(0, dim, 2) / dim)
    angle = torch.tensor(positions, dtype=torch.float64)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)[None]
    turned, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None],
                                     angle.cos(), angle.sin())
    yield case("rope", turned[0].transpose(0, 1), x=x, positions=positions, theta=theta,
               heads=heads, head_dim=dim)


def attention():
    """Two packed sequences of (queries, keys); the causal mask lets the last query see all."""
    heads, kv_heads, dim, lengths = 9, 3, 8, [(5, 5), (2, 11)]
    for causal in (False, True):
        q, k, v, out = [], [], [], []
        for queries, keys in lengths:
            qs = torch.randn(heads, queries, dim)
            ks, vs = torch.randn(kv_heads, keys, dim), torch.randn(kv_heads, keys, dim)
            mask = torch.ones(queries, keys, dtype=torch.bool)
            if causal:
                mask = mask.tril(keys - queries)
            group = heads // kv_heads
            result = F.scaled_dot_product_attention(
                qs, ks.repeat_interleave(group, 0), vs.repeat_interleave(group, 0), mask)
            for kept, new in ((q, qs), (k, ks), (v, vs), (out, result)):
                kept.append(new.transpose(0, 1).flatten())
        yield case("attention", torch.cat(out), q=torch.cat(q), k=torch.cat(k), v=torch.cat(v),
                   causal=int(causal), heads=heads, kv_heads=kv_heads, head_dim=dim,
                   queries=[a for a, _ in lengths], keys=[b for _, b in lengths])


def main():
    cases = [*elementwise(), *rows(), *rope(), *attention()]
    golden = {"about": "see make.py", "torch": torch.__version__,
              "transformers": transformers.__version__, "cases": cases}
    text = json.dumps(golden, indent=None).replace('{"op"', '\n{"op"')
    Path(__file__).with_name("ops.json").write_text(text + "\n")
    print(len(cases), "cases,", len(text), "bytes")


main()
