"""Computes what `assay show --json` prints from the report itself.

Usage: recompute_with_h5py.py REPORT JSON

Written from the definitions alone, with h5py and NumPy, one row at a time where that is clearest.
"""

import json
import math
import sys

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

U32, U64 = 2**32 - 1, 2**64 - 1
checks = 0


def equal(found, expected, where):
    """Numbers agree to 12 digits; null where the value is not known."""
    global checks
    checks += 1
    if expected is None or (isinstance(expected, float) and math.isnan(expected)):
        assert found is None, (where, found, expected)
    elif isinstance(expected, str):
        assert found == expected, (where, found, expected)
    else:
        assert found is not None and math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-9), (
            where, found, expected)


def gap(row, earlier, later):
    a, b = int(row[earlier]), int(row[later])
    return None if U64 in (a, b) else b - a


def nearest_rank(values, percent):
    values = sorted(values)
    return values[math.ceil(round(percent * len(values), 6) / 100) - 1]


def median_of(values):
    known = [v for v in values if v is not None]
    return nearest_rank(known, 50) if known else None


def check_distribution(found, values, where):
    known = [v for v in values if v is not None]
    n = len(known)
    equal(found["n"], n, where)
    equal(found["absent"], len(values) - n, where)
    for key, percent in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99), ("p999", 99.9)):
        shown = n > 0 if percent == 50 else round(n * (100 - percent), 6) >= 1000
        equal(found[key], nearest_rank(known, percent) if shown else None, where + (key,))
    equal(found["mean"], float(np.mean(known)) if n else None, where)
    equal(found["deviation"], float(np.std(known, ddof=1)) if n > 1 else None, where)


def latencies(requests, steps, rows):
    done = [r for r in requests if r["outcome"] == 0]
    ends = {int(s["step"]): int(s["end"]) for s in steps}
    is_done = {int(r["request"]) for r in done}
    last, itl = {}, []
    for row in rows:
        if row["token"] == U32:
            continue
        request, end = int(row["request"]), ends[int(row["step"])]
        if request in last and request in is_done:
            itl.append(end - last[request])
        last[request] = end
    tpot = [
        gap(r, "first_token", "last_token") / (int(r["output_tokens"]) - 1)
        if r["output_tokens"] >= 2 else None
        for r in done
    ]
    return {
        "ttft": [gap(r, "scheduled", "first_token") for r in done],
        "ttft_service": [gap(r, "sent", "first_token") for r in done],
        "tpot": tpot,
        "itl": itl,
        "e2e": [gap(r, "scheduled", "last_token") for r in done],
        "e2e_service": [gap(r, "sent", "last_token") for r in done],
    }


def check_parts(found, requests, where):
    names = {
        "sent_late": ("scheduled", "sent"),
        "text_wait": ("sent", "preprocess_start"),
        "text_stage": ("preprocess_start", "preprocess_end"),
        "handover": ("preprocess_end", "queued"),
        "queue": ("queued", "first_scheduled"),
        "prefill": ("first_scheduled", "prefill_end"),
    }
    parts = []
    for row in requests:
        part = {name: gap(row, *stamps) for name, stamps in names.items()}
        part["ttft"] = gap(row, "scheduled", "first_token")
        if row["outcome"] == 0 and None not in part.values():
            part["unexplained"] = part["ttft"] - sum(part[name] for name in names)
            parts.append(part)
    equal(found["n"], len(parts), where)
    for name in parts[0]:
        equal(found[name], float(np.mean([p[name] for p in parts])), where + (name,))


def window_of(run):
    start, end = int(run["window_start"]), int(run["window_end"])
    start = int(run["start"]) if start == U64 else start
    length = (int(run["end"]) if end == U64 else end) - start
    return start, int(run["end"]) + 1 if end == U64 else end, length


def step_kind(step):
    prefill, decode = int(step["prefill_tokens"]), int(step["decode_tokens"])
    if prefill == decode == 0:
        return None
    return "prefill" if decode == 0 else "decode" if prefill == 0 else "mixed"


def check_run(found, run, requests, steps, rows):
    where = ("run", int(run["run"]))
    start, end, length = window_of(run)
    ends = {int(s["step"]): int(s["end"]) for s in steps}
    inside = [s for s in steps if start <= int(s["end"]) < end]
    tokens = sum(r["token"] != U32 and start <= ends[int(r["step"])] < end for r in rows)
    equal(found["window_ns"], length, where)
    equal(found["window_output_tokens"], int(tokens), where)
    equal(found["window_prefill_tokens"], sum(int(s["prefill_tokens"]) for s in inside), where)
    equal(found["padded_tokens"], sum(int(s["padded_tokens"]) for s in steps), where)
    for kind in ("prefill", "decode", "mixed"):
        of_kind = [s for s in steps if step_kind(s) == kind]
        equal(found["steps"][kind]["steps"], len(of_kind), where)
        equal(found["steps"][kind]["ns"], sum(gap(s, "start", "end") for s in of_kind), where)
        for what in ("prefill_tokens", "decode_tokens"):
            equal(found["steps"][kind][what], sum(int(s[what]) for s in of_kind), where)
    for what in ("build", "upload", "wait"):
        known = [int(s[f"metadata_{what}_ns"]) for s in steps if s[f"metadata_{what}_ns"] != U64]
        equal(found[f"metadata_{what}_ns"], sum(known) if known else None, where + (what,))
    values = latencies(requests, steps, rows)
    for name, list_of in values.items():
        check_distribution(found["latency"][name], list_of, where + (name,))
    check_parts(found["ttft_parts"], requests, where)
    outcomes = ["done", "failed", "cancelled", "rejected", "timeout"]
    for code, name in enumerate(outcomes):
        equal(found["outcomes"][name], int(np.sum(requests["outcome"] == code)), where)
    done = [r for r in requests if r["outcome"] == 0 and start <= int(r["done"]) < end]
    step_ns = sum(gap(s, "start", "end") for s in steps)
    metadata = sum(v for w in ("build", "upload", "wait") if (v := found[f"metadata_{w}_ns"]))
    rate = {
        kind: 1e9 * found["steps"][kind][f"{kind}_tokens"] / found["steps"][kind]["ns"]
        for kind in ("prefill", "decode")
    }
    return {
        "output_tokens_per_s": 1e9 * tokens / length,
        "requests_per_s": 1e9 * len(done) / length if done else None,
        "prefill_tokens_per_s": rate["prefill"],
        "decode_tokens_per_s": rate["decode"],
        "metadata_share": metadata / step_ns,
        "step_ns": step_ns,
        "p50": {name: median_of(list_of) for name, list_of in values.items()},
    }


def check_statistic(found, values, where):
    known = [v for v in values if v is not None]
    equal(found["median"], median_of(values), where)
    equal(found["low"], min(known) if known else None, where)
    equal(found["high"], max(known) if known else None, where)
    for one, expected in zip(found["values"], values, strict=True):
        equal(one, expected, where)


def check_usage(strategy, launches, problems, variants, strings, ceilings):
    def key_of(launch, level):
        op = strings[problems[launch["problem"]]["op"]]
        variant = strings[variants[launch["variant"]]["name"]]
        return (op,) if level == "by_op" else (op, variant)

    for level in ("by_op", "by_variant"):
        total = sum(int(l["end"]) - int(l["start"]) for l in launches)
        expected = {}
        for launch in launches:
            sums = expected.setdefault(key_of(launch, level), dict.fromkeys(
                ("calls", "ns", "work_ns", "wait_ns", "bytes", "flops", "ideal"), 0))
            problem = problems[launch["problem"]]
            arithmetic = ceilings["compute_" + strings[problem["activations"]]]
            sums["calls"] += 1
            sums["ns"] += int(launch["end"]) - int(launch["start"])
            sums["work_ns"] += int(launch["work_ns"])
            sums["wait_ns"] += int(launch["wait_ns"])
            sums["bytes"] += int(problem["bytes"])
            sums["flops"] += int(problem["flops"])
            sums["ideal"] += 1e9 * max(int(problem["bytes"]) / ceilings["bandwidth_read"],
                                       int(problem["flops"]) / arithmetic)
        assert len(expected) == len(strategy[level])
        for row in strategy[level]:
            sums = expected[(row["op"],) if level == "by_op" else (row["op"], row["variant"])]
            where = (strategy["name"], level, row["op"])
            for name in ("calls", "ns", "work_ns", "wait_ns"):
                equal(row[name], sums[name], where)
            equal(row["share"], sums["ns"] / total, where)
            equal(row["bytes_per_s"], 1e9 * sums["bytes"] / sums["ns"], where)
            equal(row["flops_per_s"], 1e9 * sums["flops"] / sums["ns"], where)
            equal(row["share_of_ceiling"], sums["ideal"] / sums["ns"], where)
        shown = [row["ns"] for row in strategy[level]]
        assert shown == sorted(shown, reverse=True), level
    equal(sum(row["ns"] for row in strategy["by_problem_class"]), total, "classes")


def check_threads(launches, parts):
    """The launches' own columns against their threads' rows."""
    for launch in launches:
        own = parts[parts["launch"] == launch["launch"]]
        assert len(own) == 2
        assert launch["start"] == own["start"].min()
        assert launch["end"] == (own["start"] + own["work_ns"] + own["wait_ns"]).max()
        assert launch["work_ns"] == own["work_ns"].sum()
        assert launch["wait_ns"] == own["wait_ns"].sum()


def main(report_path, json_path):
    found = json.load(open(json_path, encoding="utf-8"))
    with h5py.File(report_path, "r") as report:
        tables = {name: report[name][:] for name in report if name != "strings"}
        strings = report["/strings"].asstr()[:]
    ceilings = {strings[c["name"]]: float(c["value"]) for c in tables["ceilings"]}
    of_run = {}
    for run in tables["runs"]:
        number = run["run"]
        shown = next(r for r in found["runs"] if r["run"] == number)
        of_run[int(number)] = check_run(
            shown, run, *(tables[t][tables[t]["run"] == number]
                          for t in ("requests", "steps", "step_rows")))
    for strategy in found["strategies"]:
        named = tables["runs"][strings[tables["runs"]["strategy"]] == strategy["name"]]
        valid = named[named["valid"] == 1]
        timing = [int(r["run"]) for r in valid if r["pass"] == 0]
        traced = [int(r["run"]) for r in valid if r["pass"] == 1]
        assert strategy["timing_runs"] == timing and strategy["traced_runs"] == traced
        for key in of_run[timing[0]].keys() - {"p50"}:
            check_statistic(strategy[key], [of_run[r][key] for r in timing], (key,))
        for name in of_run[timing[0]]["p50"]:
            check_statistic(strategy["latency_p50_ns"][name],
                            [of_run[r]["p50"][name] for r in timing], (name,))
        equal(strategy["traced_over_timing"],
              median_of([of_run[r]["step_ns"] for r in traced])
              / median_of([of_run[r]["step_ns"] for r in timing]), "perturbation")
        launches = tables["launches"][np.isin(tables["launches"]["run"], traced)]
        check_usage(strategy, launches, tables["problems"], tables["variants"], strings, ceilings)
    check_threads(tables["launches"][::37], tables["launch_threads"])
    print(f"{checks} numbers agree with h5py")


main(*sys.argv[1:])
