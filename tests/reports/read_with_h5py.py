"""Reads every dataset of a report by the names in SCHEMA.md: read_with_h5py.py SCHEMA.md REPORT

Rows, where there are any, are those that h5py_reads.c made: field i of row r holds 1000 r + i.
"""

import math
import re
import sys

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TYPES = {"u8": "<u1", "u32": "<u4", "u64": "<u8", "f64": "<f8"}


def documented_tables(path):
    """{dataset: [(field, type, names, units), ...]} as the page documents them."""
    tables = {}
    current = None
    for line in open(path, encoding="utf-8"):
        heading = re.match(r"### `(/\w+)`", line)
        row = re.match(r"\| `(\w+)` \| (u8|u32|u64|f64) \| (\w*) \| ([^|]*?) ?\| ", line)
        if heading:
            current = tables.setdefault(heading.group(1), [])
        elif row and current is not None:
            current.append(row.groups())
    return tables


def check_table(report, name, fields, strings):
    dataset = report[name]
    assert dataset.attrs["description"], name
    assert dataset.attrs["units"], name
    assert list(dataset.attrs["fields"]) == [field[0] for field in fields], name
    assert list(dataset.attrs["field_units"]) == [field[3] for field in fields], name
    assert list(dataset.dtype.names) == [field[0] for field in fields], name
    assert dataset.chunks == (8192,) and dataset.maxshape == (None,), name
    assert dataset.shuffle and dataset.compression == "gzip" and dataset.fletcher32, name
    rows = dataset[:]
    for i, (field, kind, names, _) in enumerate(fields):
        assert rows.dtype[field] == numpy.dtype(TYPES[kind]), (name, field)
        for r in range(min(len(rows), 5)):
            check_value(name, field, kind, names, rows[field][r], r, i, strings)
    return len(rows)


def check_value(name, field, kind, names, value, r, i, strings):
    where = (name, field, r, value)
    if names == "string":
        assert strings[value] == ["zero", "one \U0001f999", ""][r % 3], where
    elif names in ("problem", "variant"):
        assert value == r, where
    elif kind == "f64":
        assert value == 1000 * r + i and not math.isnan(value), where
    elif kind == "u8":
        assert value == (1000 * r + i) % 200, where
    else:
        assert value == 1000 * r + i, where


def main(schema, path):
    tables = documented_tables(schema)
    with h5py.File(path, "r") as report:
        assert report.attrs["schema"] == "1.0"
        assert report.attrs["complete"] == 1
        strings = report["/strings"].asstr()[:]
        assert set(report.keys()) == {name.strip("/") for name in tables}
        counts = {
            name: check_table(report, name, fields, strings)
            for name, fields in tables.items()
            if name != "/strings"
        }
    print(f"{path}: {len(counts)} tables, {sum(counts.values())} rows read by name")


main(*sys.argv[1:])
