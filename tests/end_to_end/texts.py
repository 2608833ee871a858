"""Known texts through the whole program, and answers that must not depend on the schedule."""

import math
import random

import support
from support import DONE, FAILED, REJECTED, Gguf, Report, fixture

BOTH = ("-s", "naive", "-s", "fast")


def text(prompt, count, **more):
    return {"text": prompt, "out": {"n": count, "exact": True}, **more}


MAJORITY = [
    text("A" * 9 + "b" * 8, 3),
    text("b" * 9 + "!" * 8, 3),
    text("!" * 9 + "A" * 8, 3),
]
ANSWERS = {"r0": b"AAA", "r1": b"bbb", "r2": b"!!!"}


class Texts(support.Case):
    """Models whose greedy text is known: read from /step_rows, for every run of the report."""

    def check(self, model, rows, wanted, *options):
        work = self.workload("w", rows)
        report = Report(self.run_report("-m", fixture(model), "-w", work, *BOTH, *options))
        self.assertEqual(len(report.runs()), 4)
        for run in report.runs():
            self.assertEqual(report.texts(run["run"]), wanted, report.text(run["strategy"]))
        return report


@support.needs_h5py
class Fixtures(Texts):
    """The plain cases."""

    def test_successor(self):
        self.check("S", [text("ABC", 20)], {"r0": b"DEFGHIJKLMNOPQRSTUVW"})

    def test_successor_tied(self):
        self.check("S-tie", [text("ABC", 4)], {"r0": b"CCCC"})

    def test_successor_from_tokens_and_from_the_end_of_the_bytes(self):
        rows = [{"tokens": [65, 66, 67], "out": {"n": 3}}, {"tokens": [254], "out": {"n": 3}}]
        self.check("S", rows, {"r0": b"DEF", "r1": b"\xff\x00\x01"})

    def test_end_of_sequence(self):
        work = self.workload(
            "w",
            [
                {"id": "stops", "text": "xa", "out": {"n": 50}},
                {"id": "held", "text": "xa", "out": {"n": 50, "min": 10}},
                {"id": "exact", "text": "xa", "out": {"n": 9, "exact": True}},
            ],
        )
        path = self.run_report("-m", fixture("S-utf8"), "-w", work, *BOTH, "--traced", "0")
        report = Report(path)
        said = list("\U0001f999bc".encode()) + [257]
        for run in report.runs():
            tokens = report.tokens(run["run"])
            requests = report.requests(run["run"])
            self.assertEqual(tokens["stops"], said)
            self.assertEqual(tokens["exact"][:7], said)
            self.assertEqual(len(tokens["exact"]), 9)
            self.assertGreaterEqual(len(tokens["held"]), 10)
            self.assertEqual(int(requests["stops"]["finish"]), 0)
            self.assertEqual(int(requests["exact"]["finish"]), 1)

    def test_majority(self):
        self.check("M", MAJORITY, ANSWERS)

    def test_majority_in_chunks_blocks_and_batches(self):
        self.check("M", MAJORITY, ANSWERS, "--set", "chunk_tokens=16")
        self.check("M", MAJORITY, ANSWERS, "--set", "block_size=7")
        self.check("M", MAJORITY, ANSWERS, "--set", "max_batch_size=1")
        self.check("M", MAJORITY, ANSWERS, "--set", "max_batch_size=3")

    def test_majority_long(self):
        rows = [text("A" * 129 + "b" * 128, 3), text("A" * 8 + "b" * 8, 3)]
        self.check("M", rows, {"r0": b"AAA", "r1": b"bbb"})


@support.needs_h5py
class Schedules(Texts):
    """The same answers, however the steps are cut."""

    def test_majority_in_chunks(self):
        for chunk in (1, 2, 5):
            self.check("M", MAJORITY, ANSWERS, "--set", f"chunk_tokens={chunk}")

    def test_majority_in_odd_blocks(self):
        self.check("M", MAJORITY, ANSWERS, "--set", "block_size=1")
        self.check("M", MAJORITY, ANSWERS, "--set", "block_size=100")

    def test_majority_two_at_a_time(self):
        self.check("M", MAJORITY, ANSWERS, "--set", "max_batch_size=2")

    def test_majority_under_a_budget_that_leaves_one_token(self):
        self.check("M", MAJORITY, ANSWERS, "--set", "max_batch_tokens=18", "--set",
                   "chunk_tokens=18")

    def test_majority_on_one_and_three_threads(self):
        for threads in (1, 3):
            self.check("M", MAJORITY, ANSWERS, "--set", f"threads={threads}")

    def test_majority_with_the_text_stage_inline(self):
        self.check("M", MAJORITY, ANSWERS, "--set", "preprocess=inline")

    def test_majority_long_in_chunks(self):
        rows = [text("A" * 129 + "b" * 128, 3), text("A" * 8 + "b" * 8, 3)]
        wanted = {"r0": b"AAA", "r1": b"bbb"}
        for chunk in (31, 100, 256, 257):
            self.check("M", rows, wanted, "--set", f"chunk_tokens={chunk}")

    def test_preempted_sequences_say_the_same(self):
        rows = [dict(row, out={"n": 12, "exact": True}) for row in MAJORITY]
        wanted = {"r0": b"A" * 12, "r1": b"b" * 12, "r2": b"!" * 12}
        report = self.check(
            "M", rows, wanted, "--set", "block_size=7", "--set", "kv_blocks=7"
        )
        preempted = sum(int(row["preemptions"]) for row in report["requests"])
        self.assertGreater(preempted, 0, "the cache was to be too small for all three")
        for run in report.runs():
            counted = [
                int(row["value"])
                for row in report.of_run("counters", run["run"])
                if report.text(row["name"]) == "preemptions"
            ]
            mine = report.of_run("requests", run["run"])["preemptions"]
            self.assertEqual(counted, [mine.sum()])

    def test_a_cache_that_cannot_hold_one_request_rejects_it_alone(self):
        rows = [text("A" * 60, 2), text("A" * 3, 2)]
        work = self.workload("w", rows)
        path = self.run_report(
            "-m", fixture("M"), "-w", work, "-s", "naive", "--set", "block_size=8", "--set",
            "kv_blocks=2", code=2,
        )
        report = Report(path)
        for run in report.runs():
            self.assertEqual(report.texts(run["run"]), {"r0": b"", "r1": b"AA"})
            self.assertEqual(int(report.requests(run["run"])["r0"]["outcome"]), REJECTED)

    def test_many_short_requests_through_few_seats(self):
        order = random.Random(1)
        rows, wanted = [], {}
        for number in range(60):
            first = order.randrange(0x21, 0x50)
            count = order.randrange(1, 9)
            rows.append(text(chr(first), count))
            wanted[f"r{number}"] = bytes(first + 1 + step for step in range(count))
        self.check("S", rows, wanted, "--set", "max_batch_size=5", "--set", "max_batch_tokens=7",
                   "--set", "chunk_tokens=3", "--set", "preprocess_queue=2")


@support.needs_h5py
class Deterministic(support.Case):
    """Equal seeds give equal tokens, whatever else ran in the same batch."""

    SAMPLED = [
        {"tokens": [10 + number], "out": {"n": 12, "exact": True},
         "sampling": {"seed": 7 + number, "temperature": 0.9, "top_k": 40, "top_p": 0.95}}
        for number in range(5)
    ] + [{"tokens": [60, 61], "out": {"n": 12, "exact": True}}]

    def tokens(self, work, *options, strategy="naive"):
        path = self.run_report(
            "-m", "synthetic:tiny", "-w", work, "-s", strategy, "--traced", "0", *options
        )
        return Report(path).tokens(0)

    def test_the_same_seed_twice_gives_the_same_tokens(self):
        work = self.workload("w", self.SAMPLED)
        for strategy in ("naive", "fast"):
            first = self.tokens(work, strategy=strategy)
            self.assertEqual(self.tokens(work, strategy=strategy), first)
            self.assertGreater(len({tuple(said) for said in first.values()}), 1)

    def test_another_seed_gives_other_tokens(self):
        rows = [
            {"tokens": [10], "out": {"n": 12}, "sampling": {"seed": seed, "temperature": 1.0}}
            for seed in (1, 2, 1)
        ]
        said = self.tokens(self.workload("w", rows))
        self.assertNotEqual(said["r0"], said["r1"])
        self.assertEqual(said["r0"], said["r2"])

    def test_sampled_tokens_do_not_depend_on_the_batch(self):
        work = self.workload("w", self.SAMPLED)
        alone = self.tokens(work, "--set", "max_batch_size=1")
        for options in (("max_batch_size=3",), ("max_batch_size=16",), ("threads=1",),
                        ("chunk_tokens=1",), ("block_size=5", "max_batch_size=4")):
            sets = [word for option in options for word in ("--set", option)]
            self.assertEqual(self.tokens(work, *sets), alone, options)

    def test_temperature_zero_is_greedy(self):
        rows = [
            {"tokens": [10, 11], "out": {"n": 8}},
            {"tokens": [10, 11], "out": {"n": 8}, "sampling": {"seed": 5, "temperature": 0}},
        ]
        said = self.tokens(self.workload("w", rows))
        self.assertEqual(said["r0"], said["r1"])

    def test_lengths_only_prompts_are_the_same_each_time(self):
        path = self.run_report(
            "-m", "synthetic:tiny", "-w", support.LENGTHS, "--limit", "3", "-s", "naive"
        )
        report = Report(path)
        self.assertEqual(report.tokens(0), report.tokens(1))


@support.needs_h5py
class Spoiled(support.Case):
    """C32: logits that are not numbers fail the request by name; nothing is shown as valid."""

    def spoiled(self, *changes, model="S"):
        gguf = Gguf(fixture(model))
        for tensor, row, column, value in changes:
            gguf.set_f32(tensor, row, column, value)
        return self.write("spoiled.gguf", bytes(gguf.data))

    def check_fails(self, model, count):
        sampled = {"seed": 1, "temperature": 0.8}
        work = self.workload("w", [text("ABC", 3), text("ABC", 3, sampling=sampled)])
        for strategy in ("naive", "fast"):
            result = self.refused(
                "run", "-m", model, "-w", work, "-s", strategy, "-o", self.path("report.h5"),
                says=("linear", f"{count} non-finite", "step 0", "2 of 2 requests failed"),
            )
            self.assertNotIn("signal", result.err)
            report = Report(self.path("report.h5"))
            for run in report.runs():
                self.assertEqual((run["valid"], run["exit"]), (0, 2))
                self.assertIn("non-finite", report.text(run["invalid_reason"]))
                self.assertEqual(report.texts(run["run"]), {"r0": b"", "r1": b""})
                for request in report.requests(run["run"]).values():
                    self.assertEqual(int(request["outcome"]), FAILED)
                    self.assertEqual(int(request["output_tokens"]), 0)

    def test_one_nan_in_the_output(self):
        self.check_fails(self.spoiled(("output.weight", 65, 0, math.nan)), 1)

    def test_one_nan_in_row_zero(self):
        self.check_fails(self.spoiled(("output.weight", 0, 0, math.nan)), 1)

    def test_one_infinity(self):
        self.check_fails(self.spoiled(("output.weight", 65, 0, math.inf)), 1)

    def test_a_norm_of_nothing_but_nan(self):
        changes = [("output_norm.weight", 0, column, math.nan) for column in range(288)]
        self.check_fails(self.spoiled(*changes), 258)

    def test_only_the_request_that_meets_the_nan_fails(self):
        """The row of `z` is spoiled: what holds no z answers right, in the same batch and in the
        same blocks of the cache afterwards."""
        rows = [text("zA", 4)] + MAJORITY + [text("AzA", 4), text("Z", 2)]
        wanted = {"r0": b"", "r1": b"AAA", "r2": b"bbb", "r3": b"!!!", "r4": b"", "r5": b"ZZ"}
        work = self.workload("w", rows)
        model = self.spoiled(("token_embd.weight", ord("z"), 5, math.nan), model="M")
        for size in ("1", "2", "16"):
            path = self.run_report(
                "-m", model, "-w", work, *BOTH, "--set", f"max_batch_size={size}", code=2
            )
            report = Report(path)
            for run in report.runs():
                self.assertEqual(report.texts(run["run"]), wanted, f"batch {size}")
                self.assertEqual(run["valid"], 0)
                self.assertIn("2 of 6 requests failed", report.text(run["invalid_reason"]))
                outcomes = {n: int(r["outcome"]) for n, r in report.requests(run["run"]).items()}
                self.assertEqual(
                    outcomes,
                    {"r0": FAILED, "r1": DONE, "r2": DONE, "r3": DONE, "r4": FAILED, "r5": DONE},
                )


if __name__ == "__main__":
    support.main()
