#!/usr/bin/env python3
"""Writes rope.json: RoPE divisors and magnitudes of Hugging Face transformers for the scalings that
are served, each for a config.json of its own. transformers computes them in float32; a divisor is
theta^(-2i/d) / inv_freq. Run: .venv/bin/python tests/golden/families/make_rope.py"""

import json
from pathlib import Path

import transformers
from transformers import LlamaConfig, Qwen2Config, Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

# Name, configuration, head dimensions, theta, context, scaling.
CASES = [
    ("Llama 3.2", LlamaConfig, 64, 500000.0, 131072, LLAMA3),
    ("Llama 3.1", LlamaConfig, 128, 500000.0, 131072, dict(LLAMA3, factor=8.0)),
    ("linear", LlamaConfig, 128, 10000.0, 16384, {"rope_type": "linear", "factor": 4.0}),
    ("Qwen2.5 with yarn", Qwen2Config, 128, 1e6, 131072, YARN),
    ("Qwen3 with yarn", Qwen3Config, 128, 1e6, 131072, dict(YARN, factor=4.0)),
    ("yarn, stated magnitude", LlamaConfig, 64, 10000.0, 65536,
     dict(YARN, factor=16.0, original_max_position_embeddings=4096, attention_factor=1.25)),
    ("yarn, betas", LlamaConfig, 96, 10000.0, 32768,
     dict(YARN, factor=8.0, original_max_position_embeddings=4096, beta_fast=16.0, beta_slow=2.0)),
    ("yarn, two scales of magnitude", LlamaConfig, 64, 10000.0, 163840,
     dict(YARN, factor=40.0, original_max_position_embeddings=4096, mscale=1.0,
          mscale_all_dim=0.5)),
    ("yarn, ramp between pairs", LlamaConfig, 64, 150000.0, 131072,
     dict(YARN, factor=32.0, original_max_position_embeddings=4096, truncate=False)),
    ("yarn that shrinks", LlamaConfig, 64, 10000.0, 4096,
     dict(YARN, factor=1.0, original_max_position_embeddings=4096)),
]


def run(name, config_class, head_dim, theta, context, scaling):
    heads = 4
    config = config_class(hidden_size=heads * head_dim, num_attention_heads=heads,
                          num_key_value_heads=heads, head_dim=head_dim,
                          max_position_embeddings=context,
                          rope_parameters=dict(scaling, rope_theta=theta))
    inverse, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu")
    plain = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    divisors = [float(f"{p / float(f):.9g}") for p, f in zip(plain, inverse)]
    return {"name": name, "family": config_class.model_type, "head_dim": head_dim, "theta": theta,
            "context": context, "scaling": scaling, "magnitude": magnitude, "divisors": divisors}


cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
(Path(__file__).parent / "rope.json").write_text(
    f'{{"about": "see make_rope.py", "transformers": "{transformers.__version__}", "cases": [\n{cases}\n]}}\n')
