"""The other commands: help, doctor, kernels, model, workload, verify; and what show says."""

import json
import os
import re

import support
from support import CHAT, Report, fixture

COMMANDS = (
    (), ("run",), ("show",), ("verify",), ("kernels",), ("model",), ("model", "info"),
    ("model", "synth"), ("workload",), ("workload", "check"), ("recover",), ("doctor",),
)
TINY = ("-m", "synthetic:tiny")


class Help(support.Case):
    """Every command explains itself."""

    def test_help_ends_well_shows_an_example_and_fits(self):
        for command in COMMANDS:
            result = self.assay(*command, "--help", code=0)
            self.assertEqual(result.err, "", str(result))
            self.assertIn("Usage: assay", result.out, str(result))
            self.assertRegex(result.out, r"Examples?:\n\s+assay ", str(result))
            for line in result.out.splitlines():
                self.assertLessEqual(len(line), 100, f"{command}: {line}")
                self.assertNotIn("\t", line)
                self.assertEqual(line, line.rstrip(), f"{command}: blanks at the end")

    def test_help_lists_every_command(self):
        result = self.assay("--help", code=0)
        listed = re.findall(r"^  (\w+) ", result.out, re.M)
        for command in ("run", "show", "verify", "kernels", "model", "workload", "recover"):
            self.assertIn(command, listed)
        self.assertIn("doctor", listed)
        self.assertNotIn("child", listed, "not for people")
        for name in listed:
            if name != "assay":
                self.assay(name, "--help", code=0)

    def test_version(self):
        result = self.assay("--version", code=0)
        self.assertRegex(result.out, r"^assay \d+\.\d+\.\d+ \(.+\)\n$")

    def test_the_child_command_refuses_people(self):
        self.refused("child", says="assay run")
        self.refused("child", self.path("nowhere"))
        self.refused("child", self.folder)
        for content in ("", "{", "[]", "{}", '{"protocol": 99}', '{"colour": "red"}'):
            self.write("job.json", content)
            self.refused("child", self.folder)


class Looking(support.Case):
    """Commands that look and say: exit codes, and JSON that parses."""

    def json(self, *arguments, code=0, env=None):
        result = self.assay(*arguments, code=code, env=env)
        try:
            return json.loads(result.out, parse_constant=self.no_constant)
        except ValueError as problem:
            self.fail(f"{problem}\n{result}")

    def no_constant(self, name):
        self.fail(f"{name} is no JSON")

    def test_doctor(self):
        text = self.assay("doctor", code=0, env=support.NO_LEAK_CHECK).out
        self.assertGreater(len(text.splitlines()), 5)
        findings = self.json("doctor", "--json", env=support.NO_LEAK_CHECK)["findings"]
        self.assertLessEqual({row["state"] for row in findings}, {"found", "missing", "disturbs"})
        self.refused("doctor", "extra")

    def test_doctor_with_nothing_to_look_into(self):
        env = {"XDG_CACHE_HOME": "/dev/null/x", "PATH": "/nonexistent", "HOME": ""}
        env.update(support.NO_LEAK_CHECK)
        self.assay("doctor", code=0, env=env)
        self.assay("doctor", "--json", code=0, env=env)

    def test_kernels(self):
        self.assertIn("linear/cpu_naive", self.assay("kernels", code=0).out)
        table = self.json("kernels", "--json")
        names = [row["name"] for row in table["variants"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("attention/cpu_naive", names)
        only = self.json("kernels", "--json", "--op", "linear")["variants"]
        self.assertTrue(only)
        self.assertTrue(all(row["name"].startswith("linear/") for row in only))
        self.refused("kernels", "--op", "linar", says=("linar", "linear"))
        self.refused("kernels", "linear/cpu_naiv", says="linear/cpu_naive")
        self.refused("kernels", "--backend", "tpu", says="tpu")

    def test_kernels_check(self):
        self.assay("kernels", "-q", "--check", "add/cpu_naive", "argmax/cpu_naive", code=0)
        checked = self.json("kernels", "-q", "--check", "--json", "add/cpu_naive")["variants"]
        self.assertEqual(len(checked), 1)

    def test_model_info(self):
        self.assertIn("llama", self.assay("model", "info", fixture("S"), code=0).out)
        for options in ((), ("--tensors",), ("--metadata",), ("--tensors", "--metadata")):
            self.assay("model", "info", *options, fixture("S"), code=0)
            self.json("model", "info", "--json", *options, fixture("S"))
        self.assertIn("tiny", self.assay("model", "info", "synthetic:tiny", code=0).out)
        self.refused("model", "info")
        self.refused("model", says="Usage")

    def test_model_synth_makes_the_same_file_each_time(self):
        for name in ("one.gguf", "two.gguf"):
            self.assay("model", "synth", "tiny", "-o", self.path(name), code=0)
        with open(self.path("one.gguf"), "rb") as one, open(self.path("two.gguf"), "rb") as two:
            self.assertEqual(one.read(), two.read())
        self.refused("model", "synth", "tiny")
        self.refused("model", "synth", "tinny", "-o", self.path("x.gguf"), says="tiny")
        self.assert_nothing_left("one.gguf", "two.gguf")

    def test_workload_check(self):
        self.assertIn("ok", self.assay("workload", "check", CHAT, support.LENGTHS, code=0).out)
        answer = self.json("workload", "check", "--json", CHAT)
        self.assertEqual((answer["ok"], answer["files"][0]["rows"]), (True, 64))
        bad = self.write("bad", "x\n")
        answer = self.json("workload", "check", "--json", CHAT, bad, code=2)
        self.assertEqual([row["ok"] for row in answer["files"]], [True, False])
        self.refused("workload", "check")
        self.refused("workload")

    def test_verify(self):
        both = ("-s", "naive", "-s", "fast", "--positions", "8", "-q")
        self.assertIn("PASS", self.assay("verify", *TINY, *both, code=0).out)
        answer = self.json("verify", *TINY, *both, "--json")
        self.assertTrue(answer["passed"])
        self.assertEqual([row["strategy"] for row in answer["strategies"]], ["naive", "fast"])
        self.refused("verify", *TINY, "-s", "naiv", says="naive")
        self.refused("verify", *TINY, "-s", "naive", "--positions", "0", says="--positions")
        self.refused("verify", *TINY, says="--strategy")
        self.refused("verify", "-s", "naive", says="--model")

    def test_verify_on_prompts(self):
        run = ("verify", *TINY, "-s", "naive", "-q", "--positions", "4")
        self.assay(*run, "--prompt", "Once upon a time there was a", code=0)
        self.refused(*run, "--prompt", "")
        self.refused(*run, "--prompt-file", self.path("none"), says="none")
        self.refused(*run, "--prompt-file", self.folder)
        self.refused(*run, "--prompt", "x", "--prompt-file", self.write("p", "x"))


class Shown(support.Case):
    """`show`, against the rows of the report."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = None

    def setUp(self):
        super().setUp()
        if Shown.made is None:
            where = f"{support.shared_folder()}/shown.h5"
            self.assay(
                "run", "-q", *TINY, "-w", CHAT, "--limit", "4", "-s", "naive", "-s", "fast",
                "--repeat", "2", "-o", where, code=0,
            )
            Shown.made = where

    def test_text_names_what_a_reader_looks_for(self):
        result = self.assay("show", self.made, code=0)
        self.assertEqual(result.err, "")
        for word in ("naive", "fast", "TTFT", "TPOT", "tokens/s", "linear", "attention", "GB/s"):
            self.assertIn(word, result.out, str(result))
        self.assertNotRegex(result.out.lower(), r"\b(nan|inf|-nan)\b")
        self.assertNotIn("\033", result.out, "not a terminal")
        self.assertNotRegex(result.out, r"4294967295|18446744073709551615")

    def test_json_parses_and_has_both_strategies(self):
        result = self.assay("show", "--json", self.made, code=0)
        answer = json.loads(result.out, parse_constant=self.fail)
        self.assertNotRegex(result.out, r"4294967295|18446744073709551615")
        strategies = {row["name"]: row for row in answer["strategies"]}
        self.assertEqual(list(strategies), ["naive", "fast"])
        for row in strategies.values():
            self.assertGreater(row["output_tokens_per_s"]["median"], 0)
            self.assertGreater(row["traced_over_timing"], 0)
            self.assertEqual(row["checks_needed"], row["checks_passed"])
            self.assertGreater(row["latency_p50_ns"]["ttft"]["median"], 0)
            self.assertGreater(row["latency_p50_ns"]["tpot"]["median"], 0)
            for table in ("by_op", "by_variant", "by_problem_class"):
                self.assertTrue(row[table])
                self.assertLessEqual(sum(part["share"] for part in row[table]), 1.0001)
                for part in row[table]:
                    self.assertGreater(part["calls"], 0)
                    self.assertGreater(part["ns"], 0)
            totals = [sum(part["ns"] for part in row[table]) for table in ("by_op", "by_variant")]
            self.assertAlmostEqual(totals[0], totals[1], delta=1)
        self.assertTrue(any(row["op"] == "linear" for row in strategies["naive"]["by_op"]))
        self.assertEqual(len(answer["runs"]), 6)

    @support.needs_h5py
    def test_numbers_follow_from_the_rows(self):
        """Medians by nearest rank of what each request waited, in each timing run."""
        report = Report(self.made)
        answer = json.loads(self.assay("show", "--json", self.made, code=0).out)
        told = {row["run"]: row for row in answer["runs"]}
        for strategy in answer["strategies"]:
            ttft, e2e, rate = [], [], []
            for run in report.runs(strategy["name"], support.TIMING):
                rows = report.of_run("requests", run["run"])
                half = (len(rows) + 1) // 2 - 1
                ttft.append(int(sorted(rows["first_token"] - rows["scheduled"])[half]))
                e2e.append(int(sorted(rows["last_token"] - rows["scheduled"])[half]))
                tokens = int(rows["output_tokens"].sum())
                rate.append(tokens / ((int(run["end"]) - int(run["start"])) * 1e-9))
                self.assertEqual(told[int(run["run"])]["output_tokens"], tokens)
            latency = strategy["latency_p50_ns"]
            self.assertEqual(sorted(latency["ttft"]["values"]), sorted(map(float, ttft)))
            self.assertEqual(sorted(latency["e2e"]["values"]), sorted(map(float, e2e)))
            for one, other in zip(sorted(strategy["output_tokens_per_s"]["values"]), sorted(rate)):
                self.assertAlmostEqual(one, other, delta=1e-6 * other)
        for row in report.runs(kind=support.TRACED):
            launches = report.of_run("launches", row["run"])
            naive = [s for s in answer["strategies"] if s["name"] == report.text(row["strategy"])]
            self.assertEqual(sum(part["calls"] for part in naive[0]["by_op"]), len(launches))
            self.assertEqual(
                sum(part["work_ns"] for part in naive[0]["by_op"]), int(launches["work_ns"].sum())
            )

    def test_it_is_the_same_each_time(self):
        first = self.assay("show", self.made, code=0).out
        self.assertEqual(self.assay("show", self.made, code=0).out, first)

    def test_wrong_use(self):
        self.refused("show")
        self.refused("show", self.made, self.path("none"))

    @support.needs_h5py
    def test_a_run_that_failed_is_named_and_its_times_are_not_shown(self):
        work = self.workload("w", [{"tokens": [65] * 600, "out": {"n": 2}}])
        path = self.run_report("-m", fixture("S"), "-w", work, "-s", "naive", code=2)
        self.assertEqual({int(run["valid"]) for run in Report(path).runs()}, {0})
        result = self.assay("show", path)
        self.assertIn(result.code, (0, 2), str(result))
        self.assertIn("1 of 1 requests failed", result.out + result.err)
        self.assertNotRegex(result.out, r"\d tokens/s|\d tok/s|\d ms")
        shown = self.assay("show", "--json", path)
        if shown.code == 0:
            json.loads(shown.out, parse_constant=self.fail)

    def test_a_pipe_that_is_closed_early_is_no_crash(self):
        process = self.start("show", self.made, stdout=support.subprocess.PIPE,
                             stderr=support.subprocess.PIPE)
        process.stdout.close()
        process.wait(support.TIMEOUT)
        self.assertNotEqual(process.returncode, -11)
        process.stderr.close()


class RealModel(support.Case):
    """SmolLM2, where ci/fetch-model.sh has put it: the README's command with fewer requests."""

    MODEL = os.path.join(support.SOURCE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")

    def setUp(self):
        super().setUp()
        if not os.path.exists(self.MODEL):
            self.skipTest("models/ has no SmolLM2-135M-Instruct.Q4_1.gguf")

    @support.needs_h5py
    def test_both_strategies_answer_alike(self):
        path = self.run_report("-m", self.MODEL, "-w", CHAT, "--limit", "2", "-s", "naive", "-s",
                               "fast", "--traced", "0")
        report = Report(path)
        naive, fast = (report.tokens(run["run"]) for run in report.runs())
        self.assertEqual(naive.keys(), fast.keys())
        for name, tokens in naive.items():
            self.assertEqual(tokens[0], fast[name][0], f"the first token of {name}")


if __name__ == "__main__":
    support.main()
