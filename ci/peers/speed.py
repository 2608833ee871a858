"""Compares assay's strategy `fast` with llama.cpp on the same GGUF file: decode at batch 1 and a prompt.

Runs of the two engines alternate, each a fresh process, so that a slow spell of a shared machine
touches both. Each side is judged at its best thread count. Prints medians with their range, and the
ratio assay / llama.cpp, also round by round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def arguments():
    parser = argparse.ArgumentParser(prog="ci/peers/speed.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, help="the GGUF file (default: %(default)s)")
    parser.add_argument("--assay", type=Path, default=ROOT / "build/release/assay", help="the program")
    parser.add_argument("--strategy", default="fast", help="of assay (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="alternations (default: %(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--decode-tokens", type=int, default=128)
    parser.add_argument("--threads", default="1,2", help="thread counts (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    return parser.parse_args()


def write_workload(path, prompt, output):
    header = {"assay_workload": 1, "name": "speed"}
    row = {"id": "one", "at_ns": 0, "len": prompt, "out": {"n": output, "exact": True}}
    path.write_text(json.dumps(header) + "\n" + json.dumps(row) + "\n", encoding="utf-8")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"speed: {' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


def assay_rate(options, test, threads, folder):
    """Tokens/s from the request's own stamps: the prompt's step, or first to last token."""
    workload, report = folder / f"{test}.awl.jsonl", folder / "speed.h5"
    if test == "prompt":
        write_workload(workload, options.prompt_tokens, 1)
    else:
        write_workload(workload, 1, options.decode_tokens + 1)
    run([options.assay, "run", "--quiet", "--model", options.model, "--workload", workload,
         "--strategy", options.strategy, "--set", f"threads={threads}", "--traced", "0", "-o", report])
    with h5py.File(report) as file:
        row = file["requests"][0]
    if test == "prompt":
        return options.prompt_tokens / (int(row["prefill_end"]) - int(row["first_scheduled"])) * 1e9
    return options.decode_tokens / (int(row["last_token"]) - int(row["first_token"])) * 1e9


def peer_rate(options, test, threads):
    words = run([ROOT / "ci/peers/llama_cpp.sh", "--once", "--json", "--model", options.model,
                 "--test", test, "--threads", str(threads),
                 "--prompt-tokens", str(options.prompt_tokens),
                 "--decode-tokens", str(options.decode_tokens)])
    result = json.loads(words.strip().splitlines()[-1])
    return result["results"][0]["median"]


def main():
    options = arguments()
    counts = [int(count) for count in options.threads.split(",")]
    samples = {(engine, test, threads): [] for engine in ("assay", "llama.cpp")
               for test in ("decode", "prompt") for threads in counts}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(options.rounds):
            for threads in counts:
                for test in ("decode", "prompt"):
                    samples["assay", test, threads].append(
                        assay_rate(options, test, threads, Path(scratch)))
                    samples["llama.cpp", test, threads].append(peer_rate(options, test, threads))
    report(options, counts, samples)


def report(options, counts, samples):
    result = {"rounds": options.rounds, "tests": {}}
    for test in ("decode", "prompt"):
        best = {engine: max(counts, key=lambda t: statistics.median(samples[engine, test, t]))
                for engine in ("assay", "llama.cpp")}
        ours, theirs = (samples[engine, test, best[engine]] for engine in ("assay", "llama.cpp"))
        ratios = [a / b for a, b in zip(ours, theirs)]
        result["tests"][test] = {
            "ratio_of_medians": statistics.median(ours) / statistics.median(theirs),
            "ratio_by_round": {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios)},
            "threads": best,
            "samples": {f"{engine} {threads}": samples[engine, test, threads]
                        for engine in ("assay", "llama.cpp") for threads in counts},
        }
    if options.json:
        print(json.dumps(result))
        return
    print(f"{options.model.name}, {options.rounds} rounds; tokens/s: median (low to high)")
    for test, row in result["tests"].items():
        what = (f"decode of {options.decode_tokens}, batch 1" if test == "decode"
                else f"prompt of {options.prompt_tokens}")
        print(f"\n{what}")
        for name, values in row["samples"].items():
            engine, threads = name.rsplit(" ", 1)
            print(f"  {engine:<10} {threads} thread{'s' if threads != '1' else ' '}  "
                  f"{statistics.median(values):8.1f}  ({min(values):.1f} to {max(values):.1f})")
        rounds = row["ratio_by_round"]
        print(f"  assay / llama.cpp, each at its best: {row['ratio_of_medians']:.2f} "
              f"(by round {rounds['low']:.2f} to {rounds['high']:.2f})")


main()
