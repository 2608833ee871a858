"""The main job on synthetic:tiny: run with two strategies, then all that the report holds."""

import re

import support
from support import CHAT, DECODE, DONE, LENGTHS, PREFILL_END, SCHEMA, TIMING, TRACED, UNKNOWN_U32

MODEL = ("--model", "synthetic:tiny")
BOTH = ("--strategy", "naive", "--strategy", "fast")
UNKNOWN_U64 = 2**64 - 1


def documented():
    """{dataset: [(field, type)]} of SCHEMA.md."""
    tables, current = {}, None
    with open(SCHEMA, encoding="utf-8") as file:
        for line in file:
            heading = re.match(r"### `/(\w+)`", line)
            row = re.match(r"\| `(\w+)` \| (u8|u32|u64|f64) \|", line)
            if heading:
                current = tables.setdefault(heading.group(1), [])
            elif row and current is not None:
                current.append(row.groups())
    return tables


class MainJob(support.Case):
    """One run with two strategies, four requests and two repetitions; many looks at its report."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = None

    def setUp(self):
        super().setUp()
        if MainJob.made is None:
            where = f"{support.shared_folder()}/main.h5"
            MainJob.result = self.assay(
                "run", *MODEL, "--workload", CHAT, "--limit", "4", *BOTH, "--mode", "offline",
                "--repeat", "2", "-o", where, code=0,
            )
            MainJob.made = where
        self.report = support.Report(self.made) if support.h5py else None

    def test_says_what_it_does_in_plain_lines(self):
        self.assertEqual(self.result.out, "")
        self.assertNotIn("\r", self.result.err)
        self.assertNotIn("\033", self.result.err)
        self.assertIn("6 runs", self.result.err)
        self.assertIn("main.h5", self.result.err)

    @support.needs_h5py
    def test_holds_every_dataset_of_the_schema(self):
        types = {"u8": "<u1", "u32": "<u4", "u64": "<u8", "f64": "<f8"}
        with support.h5py.File(self.made, "r") as file:
            self.assertEqual(sorted(file), sorted(documented()))
            for name, fields in documented().items():
                dataset = file[name]
                for attribute in ("description", "units"):
                    self.assertTrue(str(dataset.attrs[attribute]), f"{name} {attribute}")
                self.assertTrue(dataset.fletcher32, name)
                if name == "strings":
                    continue
                self.assertEqual(list(dataset.dtype.names), [field for field, _ in fields], name)
                for field, kind in fields:
                    self.assertIn(dataset.dtype[field].str, (types[kind], "|u1"), f"{name}.{field}")
        for empty in ("launches_cuda",):
            self.assertEqual(len(self.report[empty]), 0, empty)
        filled = ("runs", "requests", "steps", "step_rows", "problems", "variants", "launches")
        for table in filled + ("launch_threads", "counters", "ceilings", "utilization"):
            self.assertGreater(len(self.report[table]), 0, table)

    @support.needs_h5py
    def test_says_where_it_came_from(self):
        attributes = self.report.attributes
        for name in ("schema", "producer", "git_commit", "build_flags", "build_id", "command_line"):
            self.assertTrue(str(attributes.get(name, "")), name)
        for name in ("model_digest", "workload_digest", "cpu", "date", "boot_id"):
            self.assertTrue(str(attributes.get(name, "")), name)
        self.assertIn("--repeat 2", attributes["command_line"])
        self.assertEqual(attributes["complete"], 1)
        for name in ("merge_dropped_bytes", "merge_dropped_launches", "merge_damaged_spools"):
            self.assertEqual(attributes[name], 0, name)
        for strategy in ("naive", "fast"):
            needed = attributes[f"checks_needed {strategy}"]
            self.assertGreater(needed, 0)
            self.assertEqual(attributes[f"checks_passed {strategy}"], needed)
            self.assertIn("kernels:", attributes[f"strategy {strategy}"])

    @support.needs_h5py
    def test_orders_runs_forward_then_reversed_and_traces_last(self):
        told = [
            (self.report.text(run["strategy"]), run["pass"], run["repetition"])
            for run in self.report.runs()
        ]
        wanted = [
            ("naive", TIMING, 0), ("fast", TIMING, 0), ("fast", TIMING, 1), ("naive", TIMING, 1),
            ("naive", TRACED, 0), ("fast", TRACED, 0),
        ]
        self.assertEqual(told, wanted)
        before = 0
        for run in self.report.runs():
            self.assertEqual((run["valid"], run["exit"], run["signal"]), (1, 0, 0))
            self.assertIsNone(self.report.text(run["invalid_reason"]))
            self.assertGreaterEqual(run["start"], before, "runs overlap")
            self.assertGreater(run["end"], run["start"])
            self.assertGreater(run["peak_rss"], 1 << 20)
            self.assertTrue(self.report.text(run["plan_digest"]))
            self.assertTrue(self.report.text(run["build"]))
            before = run["end"]

    @support.needs_h5py
    def test_stamps_requests_in_the_order_of_their_way(self):
        way = (
            "scheduled", "sent", "preprocess_start", "preprocess_end", "queued", "first_scheduled",
            "prefill_end", "first_token", "last_token", "done",
        )
        for run in self.report.runs():
            rows = self.report.of_run("requests", run["run"])
            self.assertEqual(sorted(rows["request"]), [0, 1, 2, 3])
            for row in rows:
                stamps = [int(row[field]) for field in way]
                self.assertNotIn(UNKNOWN_U64, stamps)
                self.assertEqual(stamps, sorted(stamps), dict(zip(way, stamps)))
                self.assertGreaterEqual(stamps[0], run["start"])
                self.assertLessEqual(stamps[-1], run["end"])
                self.assertEqual(row["outcome"], DONE)
                self.assertEqual(row["output_tokens"], row["exact_tokens"])

    @support.needs_h5py
    def test_every_token_of_a_request_is_in_the_schedule_once(self):
        for run in self.report.runs():
            rows = self.report.of_run("step_rows", run["run"])
            for request in self.report.of_run("requests", run["run"]):
                mine = rows[rows["request"] == request["request"]]
                mine = sorted(mine, key=lambda row: row["step"])
                wanted = int(request["prompt_tokens"]) + int(request["output_tokens"]) - 1
                self.assertEqual(sum(int(row["tokens"]) for row in mine), wanted)
                at = 0
                for row in mine:
                    self.assertEqual(row["position"], at)
                    at += int(row["tokens"])
                self.assertEqual([row["phase"] for row in mine].count(PREFILL_END), 1)
                sampled = [row for row in mine if row["token"] != UNKNOWN_U32]
                self.assertEqual(len(sampled), request["output_tokens"])
                for row in sampled:
                    self.assertIn(row["phase"], (PREFILL_END, DECODE))
                    self.assertEqual(row["token"], row["top1"], "greedy")
                    self.assertGreaterEqual(row["margin"], 0)

    @support.needs_h5py
    def test_steps_agree_with_their_rows_and_do_not_overlap(self):
        for run in self.report.runs():
            rows = self.report.of_run("step_rows", run["run"])
            before = int(run["start"])
            steps = sorted(self.report.of_run("steps", run["run"]), key=lambda row: row["step"])
            self.assertEqual([int(step["step"]) for step in steps], list(range(len(steps))))
            for step in steps:
                mine = rows[rows["step"] == step["step"]]
                decode = mine[mine["phase"] == DECODE]
                prefill = mine[mine["phase"] != DECODE]
                self.assertEqual(step["sequences"], len(mine))
                self.assertEqual(step["decode_tokens"], decode["tokens"].sum())
                self.assertEqual(step["prefill_tokens"], prefill["tokens"].sum())
                self.assertTrue((decode["tokens"] == 1).all())
                self.assertGreaterEqual(step["start"], before)
                self.assertGreater(step["end"], step["start"])
                before = int(step["end"])
            self.assertLessEqual(before, run["end"])

    @support.needs_h5py
    def test_counters_agree_with_rows(self):
        for run in self.report.runs():
            counters = {
                self.report.text(row["name"]): int(row["value"])
                for row in self.report.of_run("counters", run["run"])
            }
            steps = self.report.of_run("steps", run["run"])
            self.assertEqual(counters["steps"], len(steps))
            self.assertEqual(counters["tokens_prefill"], steps["prefill_tokens"].sum())
            self.assertEqual(counters["tokens_decode"], steps["decode_tokens"].sum())
            self.assertEqual(
                counters["metadata_builds"] + counters["metadata_updates"]
                + counters["metadata_hits"], len(steps),
            )
            for name in ("uploads", "upload_bytes", "launches", "model_bytes", "kv_bytes"):
                self.assertGreater(counters[name], 0, name)
            for name in ("captures", "replays", "preemptions", "algorithm_queries"):
                self.assertEqual(counters[name], 0, name)
            if run["pass"] == TRACED:
                launches = self.report.of_run("launches", run["run"])
                self.assertEqual(counters["launches"], len(launches))

    @support.needs_h5py
    def test_each_launch_is_one_row_and_joins_the_other_tables(self):
        report, launches = self.report, self.report["launches"]
        traced = {int(run["run"]): run for run in report.runs(kind=TRACED)}
        self.assertEqual(sorted(set(launches["run"].tolist())), sorted(traced))
        self.assertEqual(len(set(launches["launch"].tolist())), len(launches))
        self.assertTrue((launches["launch"][1:] > launches["launch"][:-1]).all(), "ascending")
        for table, field in (("problems", "problem"), ("variants", "variant")):
            self.assertEqual(report[table][field].tolist(), list(range(len(report[table]))))
            self.assertLess(launches[field].max(), len(report[table]))
        steps = {(int(s["run"]), int(s["step"])): s for s in report["steps"]}
        ops = {}
        for row in launches:
            step = steps[(int(row["run"]), int(row["step"]))]
            self.assertLessEqual(step["start"], row["start"])
            self.assertLess(row["start"], row["end"])
            self.assertLessEqual(row["end"], step["end"])
            variant = report.text(report["variants"][row["variant"]]["name"])
            op = report.text(report["problems"][row["problem"]]["op"])
            self.assertEqual(variant.split("/")[0], op)
            ops.setdefault(int(row["run"]), set()).add(op)
        for found in ops.values():
            self.assertTrue({"linear", "attention", "embedding", "kv_write"} <= found, found)
        for run, row in traced.items():
            naive = report.text(row["strategy"]) == "naive"
            used = set(report.of_run("launches", run)["variant"].tolist())
            names = [report.text(report["variants"][v]["name"]) for v in used]
            if naive:
                self.assertTrue(all(name.endswith("/cpu_naive") for name in names), names)

    @support.needs_h5py
    def test_every_traced_step_launches_the_same_plan(self):
        for run in self.report.runs(kind=TRACED):
            launches = self.report.of_run("launches", run["run"])
            counts = {
                int(step["step"]): int((launches["step"] == step["step"]).sum())
                for step in self.report.of_run("steps", run["run"])
            }
            self.assertEqual(len(set(counts.values())), 1, counts)

    @support.needs_h5py
    def test_thread_times_add_up_and_fit_into_the_wall(self):
        threads = self.report["launch_threads"]
        launches = self.report["launches"]
        by_launch = {}
        for row in threads:
            by_launch.setdefault(int(row["launch"]), []).append(row)
        self.assertEqual(sorted(by_launch), sorted(launches["launch"].tolist()))
        teams = {int(run["run"]): int(run["threads"]) for run in self.report.runs()}
        for launch in launches:
            mine = by_launch[int(launch["launch"])]
            team = teams[int(launch["run"])]
            self.assertEqual(sorted(int(row["thread"]) for row in mine), list(range(team)))
            work = sum(int(row["work_ns"]) for row in mine)
            self.assertEqual(launch["work_ns"], work)
            self.assertEqual(launch["wait_ns"], sum(int(row["wait_ns"]) for row in mine))
            wall = int(launch["end"]) - int(launch["start"])
            self.assertLessEqual(work, wall * team)
            for row in mine:
                self.assertGreaterEqual(row["start"], launch["start"])
                end = int(row["start"]) + int(row["work_ns"]) + int(row["wait_ns"])
                self.assertLessEqual(end, launch["end"])
        for run in self.report.runs(kind=TRACED):
            mine = self.report.of_run("launches", run["run"])
            wall = int(run["end"]) - int(run["start"])
            self.assertLessEqual(int(mine["work_ns"].sum()), wall * teams[int(run["run"])])

    @support.needs_h5py
    def test_problems_have_a_cost_and_variants_a_check(self):
        for row in self.report["problems"]:
            self.assertTrue(self.report.text(row["shape"]))
            self.assertNotIn(int(row["bytes"]), (0, UNKNOWN_U64), self.report.text(row["op"]))
            self.assertNotEqual(int(row["flops"]), UNKNOWN_U64)
        used = set(self.report["launches"]["variant"].tolist())
        for row in self.report["variants"]:
            name = self.report.text(row["name"])
            self.assertEqual(row["checked"], 1, name)
            if int(row["variant"]) in used and int(row["rung"]) > 0:
                self.assertIn("/", self.report.text(row["improves"]) or "", name)

    @support.needs_h5py
    def test_ceilings_are_measured(self):
        found = {}
        for row in self.report["ceilings"]:
            self.assertGreater(row["value"], 0)
            found.setdefault(self.report.text(row["units"]), []).append(row["value"])
        self.assertEqual(sorted(found), ["B/s", "FLOP/s"])

    @support.needs_h5py
    def test_the_same_strategy_says_the_same_in_every_pass(self):
        for strategy in ("naive", "fast"):
            tokens = [self.report.tokens(run["run"]) for run in self.report.runs(strategy)]
            self.assertEqual(len(tokens), 3)
            self.assertEqual(tokens[0], tokens[1])
            self.assertEqual(tokens[0], tokens[2])


class OtherShapes(support.Case):
    """Runs that differ from the main job in one thing."""

    @support.needs_h5py
    def test_the_defaults_are_one_timing_and_one_traced_pass(self):
        report = support.Report(
            self.run_report(*MODEL, "-w", LENGTHS, "--limit", "1", "-s", "naive")
        )
        self.assertEqual([run["pass"] for run in report.runs()], [TIMING, TRACED])

    @support.needs_h5py
    def test_no_traced_pass_leaves_empty_tables(self):
        report = support.Report(
            self.run_report(*MODEL, "-w", CHAT, "--limit", "1", "-s", "fast", "--traced", "0")
        )
        self.assertEqual([run["pass"] for run in report.runs()], [TIMING])
        self.assertEqual((len(report["launches"]), len(report["launch_threads"])), (0, 0))

    @support.needs_h5py
    def test_one_and_three_threads(self):
        for threads in (1, 3):
            path = self.run_report(
                *MODEL, "-w", CHAT, "--limit", "2", *BOTH, "--set", f"threads={threads}"
            )
            report = support.Report(path)
            self.assertEqual({int(run["threads"]) for run in report.runs()}, {threads})
            self.assertEqual(
                len(report["launch_threads"]), threads * len(report["launches"])
            )

    @support.needs_h5py
    def test_a_limit_above_the_rows_runs_them_all(self):
        work = self.workload("w", [{"tokens": [1, 2, 3], "out": {"n": 2}}] * 2)
        report = support.Report(
            self.run_report(*MODEL, "-w", work, "--limit", "1000000", "-s", "naive")
        )
        self.assertEqual(len(report["requests"]), 4)

    @support.needs_h5py
    def test_names_in_any_script_and_of_any_length_are_kept(self):
        names = ["ẞ 文 🦙", "a" * 200, "with \"quotes\" and \\", "%s%n%d"]
        rows = [{"id": name, "tokens": [65], "out": {"n": 1}} for name in names]
        report = support.Report(
            self.run_report(*MODEL, "-w", self.workload("w", rows), "-s", "naive")
        )
        self.assertEqual(sorted(report.requests(0)), sorted(names))

    def test_folders_and_files_with_odd_names(self):
        name = "a b 'c' \"d\" %s 文.h5"
        self.run_report(
            *MODEL, "-w", CHAT, "--limit", "1", "-s", "naive", "--traced", "0", name=name
        )
        self.assert_nothing_left(name)

    def test_two_runs_at_once_on_an_empty_cache(self):
        env = {"XDG_CACHE_HOME": self.path("cache")}
        arguments = ("-q", *MODEL, "-w", CHAT, "--limit", "1", "-s", "fast", "--traced", "0")
        first = self.start("run", *arguments, "-o", "same.h5", env=env)
        second = self.start("run", *arguments, "-o", "same.h5", env=env)
        self.assertEqual([first.wait(support.TIMEOUT), second.wait(support.TIMEOUT)], [0, 0])
        self.assert_nothing_left("cache", "same.h5")
        with open(self.path("same.h5"), "rb") as file:
            self.assertEqual(file.read(8), b"\x89HDF\r\n\x1a\n")


if __name__ == "__main__":
    support.main()
