#!/usr/bin/env python3
"""Compares what assay made of a GGUF file, or of numbers, with the `gguf` package.

check_gguf.py file MODEL DUMP
    DUMP is text: "key<TAB>value" lines for the metadata, then for each tensor in the file's order
    "tensor<TAB>name<TAB>type<TAB>rows<TAB>columns<TAB>file of its float32 values or -".
check_gguf.py quantize TYPE FLOATS BLOCKS
    BLOCKS must be the package's quantisation of the float32 values in FLOATS.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, dequantize, quantize


def value_of(field):
    """The value as the dump writes it: arrays by their number of elements."""
    kind = field.types[0]
    if kind == GGUFValueType.ARRAY:
        return f"array {len(field.data)}"
    value = field.parts[field.data[0]]
    if kind == GGUFValueType.STRING:
        return "string " + bytes(value).hex()
    if kind == GGUFValueType.BOOL:
        return f"bool {int(value[0])}"
    if kind in (GGUFValueType.FLOAT32, GGUFValueType.FLOAT64):
        return "float " + float(value[0]).hex()
    return f"int {int(value[0])}"


def check_metadata(reader, lines):
    expected = {
        name: value_of(field)
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    found = dict(lines)
    for name in sorted(expected.keys() | found.keys()):
        got = found.get(name)
        if got is not None and got.startswith("float "):
            got = "float " + float.fromhex(got[6:]).hex()
        if expected.get(name) != got:
            sys.exit(f"key {name}: gguf has {expected.get(name)}, assay {got}")


def check_tensors(reader, lines):
    if len(reader.tensors) != len(lines):
        sys.exit(f"gguf finds {len(reader.tensors)} tensors, assay {len(lines)}")
    for tensor, (name, kind, rows, columns, path) in zip(reader.tensors, lines):
        shape = [int(size) for size in tensor.shape]
        if tensor.name != name or tensor.tensor_type.name != kind:
            sys.exit(f"gguf has {tensor.name} {tensor.tensor_type.name}, assay {name} {kind}")
        if shape[0] != int(columns) or int(np.prod(shape[1:])) != int(rows):
            sys.exit(f"{name}: gguf has shape {shape}, assay {rows} rows of {columns}")
        if path == "-":
            continue
        expected = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).ravel()
        found = np.fromfile(path, dtype=np.float32)
        if expected.tobytes() != found.tobytes():
            sys.exit(f"{name}: {np.count_nonzero(expected != found)} of {expected.size} differ")


def check_file(model, dump):
    reader = GGUFReader(model)
    with open(dump, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    check_metadata(reader, [line for line in lines if line[0] != "tensor"])
    check_tensors(reader, [line[1:] for line in lines if line[0] == "tensor"])


def check_quantize(kind, floats, blocks):
    values = np.fromfile(floats, dtype=np.float32).reshape(-1, 32)
    expected = quantize(values, GGMLQuantizationType[kind]).tobytes()
    with open(blocks, "rb") as file:
        found = file.read()
    if expected != found:
        at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), -1)
        sys.exit(f"{kind}: {len(found)} bytes differ from gguf's {len(expected)} at byte {at}")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "file":
        check_file(*sys.argv[2:])
    elif len(sys.argv) == 5 and sys.argv[1] == "quantize":
        check_quantize(*sys.argv[2:])
    else:
        sys.exit(__doc__)
