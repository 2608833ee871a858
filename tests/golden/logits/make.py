#!/usr/bin/env python3
"""Writes tiny.json and smollm2.json: logits of Hugging Face transformers in float64.

tiny.json: random models of a few families whose weights follow a formula that a test can rebuild
(see `weights`), with all logits. smollm2.json: SmolLM2-135M-Instruct, read from the GGUF file by
transformers' own reader (its dequantised weights, its undoing of the q/k permutation), a few
positions of a few prompts. Run: .venv/bin/python tests/golden/logits/make.py

transformers computes norms and RoPE in float32 whatever the model's dtype; both are replaced by
the same formulas in float64 here, and how far the logits of the original are away is written
down as `float32_parts`.
"""

import json
import types
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import (AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

HERE = Path(__file__).parent
MODEL = HERE.parents[2] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
torch.set_grad_enabled(False)


# --- the counter-based generator of kernels/base/as_random.h ---

def mix64(x):
    x = np.asarray(x, np.uint64)
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def random_u64(seed, stream, counter):
    return mix64(mix64(mix64(seed) ^ np.uint64(stream)) ^ np.asarray(counter, np.uint64))


def random_unit(seed, stream, counter):
    return (random_u64(seed, stream, counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def signs(vocabulary):
    return 1.0 - 2.0 * (mix64(np.arange(vocabulary)) & np.uint64(1)).astype(np.float64)


# --- tiny models ---

GLOBAL = ["token_embd.weight", "output_norm.weight", "output.weight"]
LAYER = ["attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight",
         "attn_output.weight", "ffn_norm.weight", "ffn_gate.weight", "ffn_up.weight",
         "ffn_down.weight", "attn_q_norm.weight", "attn_k_norm.weight", "attn_q.bias",
         "attn_k.bias", "attn_v.bias"]
HF = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
      "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
      "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
      "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
      "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
      "ffn_down": "mlp.down_proj"}

BASE = {"vocabulary": 96, "layers": 4, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16,
        "ffn": 112, "rms_epsilon": 1e-5, "rope_theta": 10000.0, "pairing": "halves",
        "tied_output": False, "qkv_bias": False, "qk_norm": False}
TINY = [
    dict(BASE, name="llama", family="llama", seed=1, pairing="adjacent"),
    dict(BASE, name="llama, tied, wide heads, 8 on 2", family="llama", seed=2, heads=8,
         head_dim=24, tied_output=True, rope_theta=500000.0, rms_epsilon=1e-6),
    dict(BASE, name="qwen2", family="qwen2", seed=3, qkv_bias=True, rms_epsilon=1e-6,
         rope_theta=1e6),
    dict(BASE, name="qwen3", family="qwen3", seed=4, qk_norm=True, head_dim=32, rms_epsilon=1e-6,
         rope_theta=1e6, tied_output=True),
]


def shape(m, name):
    q, kv = m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
    return {"token_embd.weight": (m["vocabulary"], m["hidden"]),
            "output.weight": (m["vocabulary"], m["hidden"]),
            "attn_q.weight": (q, m["hidden"]), "attn_k.weight": (kv, m["hidden"]),
            "attn_v.weight": (kv, m["hidden"]), "attn_output.weight": (m["hidden"], q),
            "ffn_gate.weight": (m["ffn"], m["hidden"]), "ffn_up.weight": (m["ffn"], m["hidden"]),
            "ffn_down.weight": (m["hidden"], m["ffn"]),
            "attn_q_norm.weight": (1, m["head_dim"]), "attn_k_norm.weight": (1, m["head_dim"]),
            "attn_q.bias": (1, q), "attn_k.bias": (1, kv), "attn_v.bias": (1, kv),
            }.get(name, (1, m["hidden"]))


def weights(m, name, stream):
    """u uniform in [0, 1), counter = row * columns + column; float32 of: norms 0.5 + u, biases
    2u - 1, matrices (2u - 1) * 2 / sqrt(columns)."""
    rows, columns = shape(m, name)
    u = random_unit(m["seed"], stream, np.arange(rows * columns)).reshape(rows, columns)
    if name.endswith("norm.weight"):
        return (0.5 + u).astype(np.float32)[0]
    if name.endswith("bias"):
        return (2 * u - 1).astype(np.float32)[0]
    return ((2 * u - 1) * (2 / np.sqrt(columns))).astype(np.float32)


def halves(matrix, heads):
    """Undoes GGUF's permutation: rows of a head from adjacent pairs to halves."""
    rows, columns = matrix.shape
    pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def state_of(m):
    tensors = [(name, name, i) for i, name in enumerate(GLOBAL)]
    tensors += [(f"blk.{layer}.{name}", name, 16 * (layer + 1) + i)
                for layer in range(m["layers"]) for i, name in enumerate(LAYER)]
    state = {}
    for full, name, stream in tensors:
        part, kind = name.split(".")
        if ((kind == "bias" and not m["qkv_bias"]) or (part.endswith(("q_norm", "k_norm"))
            and not m["qk_norm"]) or (part == "output" and m["tied_output"])):
            continue
        value = weights(m, name, stream)
        if m["pairing"] == "adjacent" and part in ("attn_q", "attn_k"):
            value = halves(value, m["heads"] if part == "attn_q" else m["kv_heads"])
        prefix = f"model.layers.{full.split('.')[1]}." if full.startswith("blk.") else ""
        state[f"{prefix}{HF[part]}.{kind}"] = torch.from_numpy(value)
    return state


def tiny_model(m):
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM),
                     "qwen2": (Qwen2Config, Qwen2ForCausalLM),
                     "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[m["family"]]
    model = model(config(
        vocab_size=m["vocabulary"], hidden_size=m["hidden"], intermediate_size=m["ffn"],
        num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
        num_key_value_heads=m["kv_heads"], head_dim=m["head_dim"], rms_norm_eps=m["rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": m["rope_theta"]},
        tie_word_embeddings=m["tied_output"], max_position_embeddings=128))
    return loaded(model, state_of(m))


# --- running them ---

def loaded(model, state):
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.double().eval()


def norm64(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def rotary64(self, x, position_ids):
    theta, dim = self.config.rope_parameters["rope_theta"], self.config.head_dim
    frequency = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = position_ids[..., None].double() * frequency
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def in_float64(model):
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(norm64, module)
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = types.MethodType(rotary64, module)


def logits_of(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def digits(values):
    return [float(f"{v:.12g}") for v in values]


def tiny_goldens():
    for m in TINY:
        tokens = (random_u64(m["seed"], 1000, np.arange(10)) % np.uint64(m["vocabulary"])).tolist()
        model = tiny_model(m)
        original = logits_of(model, tokens)
        in_float64(model)
        logits = logits_of(model, tokens)
        yield dict(m, tokens=tokens, float32_parts=float(abs(original - logits).max()),
                   logits=digits(logits.flatten()))


PROMPTS = {
    "chat": "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
            "<|im_start|>assistant\n",
    "prose": "The old lighthouse keeper climbed the stairs one last time and",
    "code": "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return",
    "mixed": "北京 is 9,572 km from Zürich 🦙, مرحبا!",
}


def smollm2_tokens():
    tokenizer = AutoTokenizer.from_pretrained(str(MODEL.parent), gguf_file=MODEL.name)
    return {name: tokenizer.encode(text, add_special_tokens=False)
            for name, text in PROMPTS.items()}


def position_golden(row, position, ids):
    order = np.lexsort((np.arange(len(row)), -row))[:20]
    return {"position": position, "top": order.tolist(), "top_logits": digits(row[order]),
            "logits": digits(row[ids]), "projection": float(f"{signs(len(row)) @ row:.12g}")}


def smollm2_golden():
    header = load_gguf_checkpoint(str(MODEL))
    model = LlamaForCausalLM(LlamaConfig(**header["config"]))
    model = loaded(model, load_gguf_checkpoint(str(MODEL), return_tensors=True,
                                               model_to_load=model)["tensors"])
    prompts = smollm2_tokens()
    original = {name: logits_of(model, tokens) for name, tokens in prompts.items()}
    in_float64(model)
    vocabulary = model.config.vocab_size
    ids = sorted(set((random_u64(5, 0, np.arange(64)) % np.uint64(vocabulary)).tolist()))
    golden = {"about": "see make.py", "transformers": transformers.__version__,
              "model": MODEL.name, "ids": ids, "float32_parts": 0.0, "prompts": []}
    for name, tokens in prompts.items():
        logits = logits_of(model, tokens)
        last = len(tokens) - 1
        golden["float32_parts"] = max(golden["float32_parts"],
                                      float(abs(original[name] - logits).max()))
        golden["prompts"].append({
            "name": name, "text": PROMPTS[name], "tokens": tokens,
            "positions": [position_golden(logits[p], p, ids)
                          for p in sorted({0, last // 2, last - 1, last})]})
    return golden


def write(name, golden):
    text = json.dumps(golden, ensure_ascii=True).replace('{"', '\n{"').lstrip()
    (HERE / name).write_text(text + "\n")
    print(name, len(text), "bytes")


write("tiny.json", {"about": "see make.py", "transformers": transformers.__version__,
                    "models": list(tiny_goldens())})
write("smollm2.json", smollm2_golden())
