"""Measures llama.cpp with its own benchmark on a GGUF file; needs only Python's standard library.

Two tests, as llama-bench defines them:
  prompt   tokens/s of evaluating a prompt (default 512 tokens) in one batch, logits of its last token
  decode   tokens/s of generating (default 128 tokens) at batch 1, after --depth tokens of context;
           logits of every token are computed, none is sampled

Every sample is a fresh process (load, warm-up, one measured pass), and the rounds go through all tests
and thread counts in turn, so that a slow spell of a shared machine touches all of them. For a
comparison with another engine, an outer script calls --once in turn with that engine's runs.

With every sample comes "others", the processors that everything else kept busy meanwhile (the
hypervisor's steal included): a sample is worth believing where it is near 0, above all with as many
threads as there are processors. --wait-quiet waits for such a moment before each sample. Where there
never is one, root can take the processors instead: chrt -f 10 ci/peers/llama_cpp.sh ... (then run the
other engine the same way).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"

# What llama-bench says of its own settings, kept in the result: they decide what was measured.
SETTINGS = (
    "n_batch", "n_ubatch", "type_k", "type_v", "flash_attn", "repack", "load_mode",
    "cpu_mask", "cpu_strict", "poll",
)


class Failure(Exception):
    """A message for the user; the process ends with 2."""


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive whole number")
    return number


def not_negative(text):
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is negative")
    return number


def numbers(text):
    return [not_negative(part) for part in text.split(",")]


def threads(text):
    return [positive(part) for part in text.split(",")]


def tests(text):
    names = text.split(",")
    for name in names:
        if name not in ("decode", "prompt"):
            raise argparse.ArgumentTypeError(f"'{name}' is no test; there are: decode, prompt")
    return names


def arguments():
    parser = argparse.ArgumentParser(
        prog="ci/peers/llama_cpp.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, default=MODEL, help="the GGUF file (default: %(default)s)")
    parser.add_argument("--test", type=tests, default=["decode", "prompt"], metavar="NAME[,NAME]",
                        help="decode, prompt or both (default: both)")
    parser.add_argument("--threads", type=threads, default=[1, 2], metavar="N[,N]",
                        help="thread counts (default: 1,2)")
    parser.add_argument("--prompt-tokens", type=positive, default=512, metavar="N",
                        help="length of the prompt (default: %(default)s)")
    parser.add_argument("--decode-tokens", type=positive, default=128, metavar="N",
                        help="tokens generated in a sample (default: %(default)s)")
    parser.add_argument("--depth", type=not_negative, default=0, metavar="N",
                        help="context tokens before the measured ones (default: %(default)s)")
    parser.add_argument("--kv", default="f16", metavar="TYPE",
                        help="type of the KV cache: f16, f32, bf16, q8_0 (default: %(default)s)")
    parser.add_argument("--cpus", type=numbers, metavar="N[,N]",
                        help="run on these processors only (default: wherever the system puts it)")
    parser.add_argument("--repeat", type=positive, default=5, metavar="N",
                        help="samples of each test and thread count (default: %(default)s)")
    parser.add_argument("--once", action="store_true",
                        help="one sample of each, for scripts that interleave (same as --repeat 1)")
    parser.add_argument("--wait-quiet", type=positive, default=0, metavar="SECONDS",
                        help="before each sample wait, at most this long, for the other processes to rest")
    parser.add_argument("--timeout", type=positive, default=300, metavar="SECONDS",
                        help="limit of one sample (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    parser.add_argument("--bench", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--source", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        options.repeat = 1
    return options


def busy_seconds():
    """Processor seconds that the whole machine has spent on anything but idling, steal included."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def child_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_quiet(seconds):
    """Returns once other processes use less than a tenth of a processor, or the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before, began = busy_seconds(), time.monotonic()
        time.sleep(0.5)
        if (busy_seconds() - before) / (time.monotonic() - began) < 0.1:
            return


def sample(options, test, thread_count):
    """Runs one fresh process; returns (tokens per second, others' use, llama-bench's record)."""
    tokens = options.prompt_tokens if test == "prompt" else options.decode_tokens
    command = [
        str(options.bench), "-m", str(options.model), "-o", "json", "-r", "1",
        "-t", str(thread_count), "-d", str(options.depth),
        "-p", str(tokens if test == "prompt" else 0),
        "-n", str(tokens if test == "decode" else 0),
        "-ctk", options.kv, "-ctv", options.kv, "-ngl", "0",
    ]

    def pin():
        os.sched_setaffinity(0, options.cpus)

    environment = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"):
        environment.pop(name, None)
    if options.wait_quiet:
        wait_quiet(options.wait_quiet)
    busy, own, began = busy_seconds(), child_seconds(), time.monotonic()
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=options.timeout, env=environment, check=False,
            preexec_fn=pin if options.cpus is not None else None,
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"{test} with {thread_count} thread(s) took more than {options.timeout} s; "
                      "raise --timeout or lower the token counts") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise Failure(f"cannot run llama-bench: {error}") from None
    spent = busy_seconds() - busy - (child_seconds() - own)
    others = max(0.0, spent / (time.monotonic() - began))
    if done.returncode != 0:
        words = "\n".join("  " + line for line in done.stderr.strip().splitlines()[-10:])
        raise Failure(f"llama-bench ended with {done.returncode} on {options.model}:\n{words}")
    try:
        record = json.loads(done.stdout)[0]
        nanoseconds = record["samples_ns"][0]
    except (ValueError, LookupError) as error:
        raise Failure(f"llama-bench printed something else than its JSON: {error}") from None
    if record["n_prompt"] + record["n_gen"] != tokens or record["n_threads"] != thread_count:
        raise Failure(f"llama-bench measured something else than was asked: {record}")
    return tokens * 1e9 / nanoseconds, others, record


def summary(values):
    ordered = sorted(values)
    row = {"n": len(ordered), "median": statistics.median(ordered), "min": ordered[0], "max": ordered[-1]}
    if len(ordered) >= 4:
        quarters = statistics.quantiles(ordered, n=4, method="inclusive")
        row["q1"], row["q3"] = quarters[0], quarters[2]
    return row


def measure(options):
    if not options.bench.is_file():
        raise Failure(f"there is no llama-bench at {options.bench}; run ci/peers/llama_cpp.sh --install-only")
    if not options.model.is_file():
        raise Failure(f"there is no model at {options.model}; run ci/fetch-model.sh or give --model")
    cells = [(test, count) for test in options.test for count in options.threads]
    values = {cell: [] for cell in cells}
    record = None
    load = os.getloadavg()[0]
    began = time.time()
    for round_number in range(options.repeat):
        # Forward, then backward: a drift of the machine's speed cancels to first order.
        for test, count in cells if round_number % 2 == 0 else reversed(cells):
            rate, others, record = sample(options, test, count)
            values[test, count].append((rate, others))
    results = []
    for test, count in cells:
        row = {
            "test": test,
            "threads": count,
            "tokens": options.prompt_tokens if test == "prompt" else options.decode_tokens,
            "depth": options.depth,
            "unit": "tokens/s",
        }
        row.update(summary([rate for rate, _ in values[test, count]]))
        row["samples"] = [rate for rate, _ in values[test, count]]
        row["others"] = [round(others, 3) for _, others in values[test, count]]
        results.append(row)
    return {
        "peer": "llama.cpp",
        "source": options.source,
        "commit": record["build_commit"],
        "backend": record["backends"],
        "cpu": record["cpu_info"],
        "cpus": options.cpus,
        "model": options.model.name,
        "model_bytes": options.model.stat().st_size,
        "model_type": record["model_type"],
        "settings": {name: record[name] for name in SETTINGS if name in record},
        "load_before": load,
        "seconds": time.time() - began,
        "results": results,
    }


def table(report):
    print(f"{report['peer']} ({report['source']}) on {report['cpu']}")
    print(f"model: {report['model']}; KV cache: {report['settings'].get('type_k')}; "
          f"load average before: {report['load_before']:.2f}")
    print(f"{'test':<8} {'tokens':>6} {'depth':>6} {'threads':>7} {'n':>3} "
          f"{'median tok/s':>13} {'min':>9} {'max':>9} {'q1':>9} {'q3':>9} {'others':>7}")
    for row in report["results"]:
        quarters = [f"{row[name]:9.1f}" if name in row else f"{'-':>9}" for name in ("q1", "q3")]
        print(f"{row['test']:<8} {row['tokens']:>6} {row['depth']:>6} {row['threads']:>7} {row['n']:>3} "
              f"{row['median']:13.1f} {row['min']:9.1f} {row['max']:9.1f} {' '.join(quarters)} "
              f"{statistics.median(row['others']):7.2f}")


def main():
    options = arguments()
    try:
        report = measure(options)
    except Failure as failure:
        print(f"ci/peers/llama_cpp.sh: {failure}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report))
    else:
        table(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
