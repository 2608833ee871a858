#!/usr/bin/env python3
"""Compares assay's readers with Hugging Face's packages; run by tests/kernels/hf_folder_python.c.

make FOLDER          writes tiny random models of every family with transformers, one folder each
values FOLDER DUMP   DUMP has a line for each tensor: stored name, rows, columns, a file of float32
judge FOLDER OUT     says for each file of FOLDER whether the safetensors package reads it

Exit: 0 fine, 1 a difference (printed), 77 a package is missing."""

import sys
from pathlib import Path

try:
    import numpy as np
    import safetensors
    import torch
    from safetensors.torch import load_file
except ImportError as missing:
    print(missing)
    sys.exit(77)


def make(folder):
    try:
        from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                                  Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)
    except ImportError as missing:
        print(missing)
        sys.exit(77)
    shape = dict(vocab_size=96, hidden_size=64, intermediate_size=112, num_hidden_layers=3,
                 num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096)
    llama3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "rope_theta": 500000.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    models = {
        "llama": (LlamaForCausalLM, LlamaConfig(**shape), torch.float32),
        "llama-3.2": (LlamaForCausalLM,
                      LlamaConfig(**shape, rope_parameters=llama3, tie_word_embeddings=True,
                                  eos_token_id=[5, 6, 7]), torch.bfloat16),
        "mistral": (MistralForCausalLM, MistralConfig(**shape, sliding_window=None), torch.float16),
        "qwen2": (Qwen2ForCausalLM, Qwen2Config(**shape), torch.bfloat16),
        "qwen2-tied": (Qwen2ForCausalLM, Qwen2Config(**shape, tie_word_embeddings=True),
                       torch.float32),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config(**shape, head_dim=32), torch.bfloat16),
    }
    for name, (model, config, dtype) in models.items():
        torch.manual_seed(1)
        built = model(config).to(dtype)
        for vector in built.parameters():
            if vector.dim() == 1:
                torch.nn.init.normal_(vector)
        size = "150KB" if name in ("llama", "qwen2") else "1GB"
        built.save_pretrained(Path(folder) / name, max_shard_size=size)


def values(folder, dump):
    stored = {}
    for path in Path(folder).glob("*.safetensors"):
        stored.update(load_file(path))
    lines = Path(dump).read_text().splitlines()
    assert len(lines) == len(stored), (len(lines), len(stored))
    for line in lines:
        name, rows, columns, path = line.split("\t")
        wanted = stored[name].to(torch.float32).numpy()
        found = np.fromfile(path, "<f4")
        assert int(rows) * int(columns) == wanted.size == found.size, name
        assert wanted.ndim == 1 or wanted.shape == (int(rows), int(columns)), name
        assert np.array_equal(wanted.reshape(-1), found), name


def judge(folder, out):
    with open(out, "w") as lines:
        for path in sorted(Path(folder).iterdir()):
            try:
                safetensors.deserialize(path.read_bytes())
                lines.write(f"{path.name} ok\n")
            except Exception as error:  # SafetensorError, and what Rust's panics become
                lines.write(f"{path.name} bad {str(error)[:100]!r}\n")


{"make": make, "values": values, "judge": judge}[sys.argv[1]](*sys.argv[2:])
