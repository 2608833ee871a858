#!/usr/bin/env python3
"""Writes logits.json: logits of Hugging Face transformers for tiny models of every family and RoPE
scaling that is read from folders. Weights follow the formula of tests/kernels/model_family.h, so
that a test can rebuild the folder; what is computed in float32 whatever the model's dtype (norms,
RoPE) stays so, hence the test's tolerance. `plain_rope` is how far the logits are away when the
scaling is left out: what a reader that ignored it would do.
Run: .venv/bin/python tests/golden/families/make_logits.py"""

import copy
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_grad_enabled(False)
MASK = (1 << 64) - 1

SHAPE = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96, "vocab_size": 260,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "hidden_act": "silu",
         "sliding_window": None}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

# Name, model_type, tied, theta, scaling.
CASES = [
    ("llama", "llama", False, 10000.0, None),
    ("llama, tied, llama3", "llama", True, 10000.0, LLAMA3),
    ("llama, linear", "llama", False, 10000.0, {"rope_type": "linear", "factor": 2.5}),
    ("mistral", "mistral", False, 1e6, None),
    ("qwen2", "qwen2", False, 1e6, None),
    ("qwen2, tied, yarn", "qwen2", True, 1e6, YARN),
    ("qwen3", "qwen3", False, 1e6, None),
    ("qwen3, tied, yarn", "qwen3", True, 1e6, dict(YARN, attention_factor=1.25)),
]

HF = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
      "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
      "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
      "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
      "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
      "ffn_down": "mlp.down_proj"}
GGUF = {stored: name for name, stored in HF.items()}


def mix64(x):
    """kernels/base/as_random.h"""
    with np.errstate(over="ignore"):
        x = np.asarray(x, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def gguf_name(stored):
    if not stored.startswith("model.layers."):
        part, kind = stored.rsplit(".", 1)
        return f"{GGUF[part]}.{kind}"
    _, _, layer, rest = stored.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{GGUF[part]}.{kind}"


def values(stored, shape):
    """k / 64 with k = random % 255 - 127; of matrices a sixteenth of it, of norms 1 + a quarter."""
    name, stream = gguf_name(stored), 0
    for byte in name.encode():
        stream = (stream * 131 + byte) & MASK
    bits = mix64(mix64(mix64(9) ^ np.uint64(stream)) ^ np.arange(np.prod(shape), dtype=np.uint64))
    v = ((bits % np.uint64(255)).astype(np.float64) - 127) / 64
    v = v / 16 if len(shape) == 2 else 1 + v / 4 if "norm" in name else v
    return torch.from_numpy(v.reshape(shape))


def logits_of(config, tokens):
    model = AutoModelForCausalLM.from_config(config).double().eval()
    for name, parameter in model.named_parameters():
        parameter.copy_(values(name, tuple(parameter.shape)))
    model.tie_weights()
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def run(name, model_type, tied, theta, scaling):
    settings = dict(SHAPE, model_type=model_type, tie_word_embeddings=tied, rope_theta=theta,
                    rope_scaling=scaling)
    rope = dict(scaling or {"rope_type": "default"}, rope_theta=theta)
    arguments = {k: v for k, v in settings.items() if not k.startswith(("rope", "model"))}
    config = AutoConfig.for_model(model_type, **arguments, rope_parameters=rope)
    tokens = [(37 * i * i + 11 * i + 5) % 260 for i in range(12)]
    logits = logits_of(config, tokens)
    plain = AutoConfig.for_model(model_type, **arguments,
                                 rope_parameters={"rope_type": "default", "rope_theta": theta})
    away = float((logits - logits_of(plain, tokens)).abs().max())
    positions = [0, 7, 11]
    return {"name": name, "config": settings, "tokens": tokens, "plain_rope": float(f"{away:.3g}"),
            "positions": positions,
            "logits": [[float(f"{v:.8g}") for v in logits[p][:48]] for p in positions]}


cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
(Path(__file__).parent / "logits.json").write_text(
    f'{{"about": "see make_logits.py", "transformers": "{transformers.__version__}", "cases": [\n{cases}\n]}}\n')
