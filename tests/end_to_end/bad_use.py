"""Wrong use and bad data: one clear message, exit 2, and nothing lost."""

import os
import random
import shutil
import struct
import unittest

import support
from support import CHAT, DONE, REJECTED, Gguf, Report, fixture

TINY = ("-m", "synthetic:tiny")


class WrongUse(support.Case):
    """Names and options that do not exist."""

    def test_no_command_prints_help(self):
        result = self.assay(code=2)
        self.assertIn("Usage", result.err)

    def test_unknown_commands_offer_the_nearest(self):
        self.refused("shwo", says=("shwo", "show"))
        self.refused("runn", says=("runn", "did you mean run"))
        self.refused("xyzzyxyzzy", says=("xyzzyxyzzy", "--help"))
        self.refused("", says="no command")
        self.refused("model", "inof", "x", says=("inof", "info"))
        self.refused("workload", "chekc", "x", says=("chekc", "check"))

    def test_unknown_options_are_errors(self):
        for command in ("run", "show", "verify", "kernels", "recover", "doctor"):
            result = self.assay(command, "--frobnicate", code=2)
            self.assertIn("frobnicate", result.err, str(result))
        self.assay("run", "-m", code=2)
        self.assay("run", "stray", code=2)

    def test_misspelt_options_offer_the_nearest(self):
        for arguments, nearest in (
            (("run", "--limt", "4"), "limit"),
            (("run", "--stratgy", "naive"), "strategy"),
            (("verify", "--postions", "4"), "positions"),
            (("model", "info", "--tensrs", "x"), "tensors"),
        ):
            result = self.assay(*arguments, code=2)
            self.assertIn(f"--{nearest}", result.err, str(result))

    def test_values_that_look_like_options_are_values(self):
        self.assay("verify", *TINY, "-s", "naive", "-q", "--positions", "2", "--prompt",
                   "--flags and such", code=0)
        self.refused("run", *TINY, "-w", "--limt", "-s", "naive", says="cannot open --limt")

    def test_run_needs_a_model_a_workload_and_a_strategy(self):
        self.assay("run", code=2)
        self.refused("run", *TINY, "-s", "naive", says="--workload")
        self.refused("run", "-w", CHAT, "-s", "naive", says="--model")
        self.refused("run", *TINY, "-w", CHAT, says="--strategy")

    def test_numbers_out_of_range(self):
        run = ("run", *TINY, "-w", CHAT, "-s", "naive")
        for value in ("0", "-1", "x", "", "1.5", "1e3", "99999999999999999999999", "4 "):
            self.refused(*run, "--limit", value, says="--limit")
        for option, value in (("--repeat", "0"), ("--repeat", "1001"), ("--traced", "-1")):
            self.refused(*run, option, value, says=(option, value))
        self.refused(*run, "--mode", "warp", says="warp")
        self.assert_nothing_left()

    def test_unknown_strategies_and_fields_offer_the_nearest(self):
        run = ("run", "-q", *TINY, "-w", CHAT)
        self.refused(*run, "-s", "naiv", says=("naiv", "did you mean naive"))
        self.refused(*run, "-s", "naive", "-s", "fst", says=("fst", "fast"))
        run += ("-s", "naive", "--set")
        self.refused(*run, "threds=2", says=("threds", "did you mean threads"))
        self.refused(*run, "kernels.linar=linear/cpu_naive", says=("linar", "did you mean linear"))
        self.refused(*run, "kernels.linear=linear/cpu_naiv",
                     says=("linear/cpu_naiv", "did you mean linear/cpu_naive"))
        self.refused(*run, "kernels=x", says="kernels.OP=VARIANT")
        self.refused(*run, "threads", says="field=value")
        self.refused(*run, "=", says="field")
        self.refused(*run, "kernels.=x", says="kernels")
        self.assert_nothing_left()

    def test_values_that_fields_cannot_have(self):
        run = ("run", "-q", *TINY, "-w", CHAT, "-s", "naive", "--set")
        for value in ("threads=-1", "threads=x", "threads=99999999999", "max_batch_size=0",
                      "chunk_tokens=0", "block_size=0", "kv=f64", "activations=int3",
                      "backend=tpu", "affinity=x", "affinity=9999999", "affinity=-1",
                      "preprocess=", "kv_blocks=-1"):
            self.refused(*run, value, says=value.split("=")[0])
        self.assert_nothing_left()

    def test_what_is_not_built_is_refused_with_the_reason(self):
        run = ("run", "-q", *TINY, "-w", CHAT, "-s", "naive", "--set")
        for value in ("backend=cuda", "execution=captured", "layout=padded", "batching=static"):
            self.refused(*run, value, says=value.split("=")[1])

    def test_a_variant_of_another_op_is_refused(self):
        self.refused("run", "-q", *TINY, "-w", CHAT, "-s", "naive", "--set",
                     "kernels.linear=attention/cpu_naive", says=("linear", "attention/cpu_naive"))

    def test_an_op_without_a_variant_is_refused(self):
        self.refused("run", "-q", *TINY, "-w", CHAT, "-s", "naive", "--set", "kernels.linear=",
                     says="linear")

    def test_combinations_that_cannot_run(self):
        run = ("run", "-q", *TINY, "-w", CHAT, "-s", "naive", "--set")
        self.refused(*run, "max_batch_tokens=4", says=("max_batch_tokens", "max_batch_size"))
        self.refused(*run, "affinity=0,1", "--set", "threads=1", says="affinity")

    def test_too_many_of_everything(self):
        many = [word for _ in range(33) for word in ("-s", "naive")]
        self.refused("run", *TINY, "-w", CHAT, *many, says="32")
        many = [word for _ in range(1000) for word in ("--set", "threads=1")]
        self.refused("run", *TINY, "-w", CHAT, "-s", "naive", *many, says="--set")
        self.refused("run", "-q", *TINY, "-w", CHAT, "-s", "naive", "--set",
                     "kernels.linear=" + "x" * 100000, says="linear")
        self.refused("run", "-q", *TINY, "-w", CHAT, "-s", "x" * 100000, says="strategy")

    def test_strategy_files(self):
        run = ("run", "-q", *TINY, "-w", CHAT, "--limit", "1", "--traced", "0", "-o",
               self.path("r.h5"), "-s")
        with open(f"{support.SOURCE}/harness/strategies/naive.yaml", encoding="utf-8") as file:
            good = file.read()
        mine = self.path("mine.yaml")
        self.write("mine.yaml", good)
        self.assay(*run, mine, code=0)
        for content, says in (
            ("", "mine.yaml"),
            ("[]", "mine.yaml"),
            ("kernels: [", "line"),
            ("\0\0\0\0", "mine.yaml"),
            (b"\xff\xfe\xfd", "mine.yaml"),
            (good.replace("execution: eager", "exection: eager"), "execution"),
            (good.replace("execution: eager", "execution: {eager: x}"), "line"),
            (good.replace("execution: eager", "execution:"), "execution"),
            (good.replace("kv: f32", "kv: f32\nkv: f32"), "kv"),
            (good + "  linear: linear/cpu_naive\n", "linear twice"),
            (good.replace("  add: add/cpu_naive\n", ""), "add"),
            ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", "mine.yaml"),
            ("kernels:\n" + "  x: y\n" * 10000, "kernels"),
            ("[" * 100000, "mine.yaml"),
        ):
            self.write("mine.yaml", content)
            self.refused(*run, mine, says=says)
        os.remove(mine)
        self.refused(*run, mine, says=("cannot open", "mine.yaml"))
        os.mkdir(mine)
        self.refused(*run, mine, says="not a regular file")


class Files(support.Case):
    """Inputs and outputs that are not there, not files, or not what they should be."""

    def setUp(self):
        super().setUp()
        self.work = self.workload("w", [{"text": "ABC", "out": {"n": 2}}])
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("fifo"))

    def run_with(self, model=None, work=None, output="r.h5"):
        return (
            "run", "-q", "-m", model or fixture("S"), "-w", work or self.work, "-s", "naive",
            "--traced", "0", "-o", output,
        )

    def test_inputs_that_are_not_files(self):
        for path in ("missing", "folder", "fifo", "/dev/zero", "/dev/null", "", "folder/", "w/x"):
            self.refused(*self.run_with(model=self.path(path) if path[:1] != "/" else path))
            self.refused(*self.run_with(work=self.path(path) if path[:1] != "/" else path))
            self.refused("show", path)
            self.refused("recover", path)
            self.refused("model", "info", path)
            self.refused("workload", "check", path)
            self.refused("verify", "-q", "-m", path, "-s", "naive")
        self.assert_nothing_left("w", "folder", "fifo")

    def test_messages_name_the_file(self):
        self.refused(*self.run_with(model="missing.gguf"), says="missing.gguf")
        self.refused(*self.run_with(work="missing.jsonl"), says="missing.jsonl")
        self.refused(*self.run_with(model="folder"), says="folder")
        self.refused("show", "missing.h5", says="missing.h5")
        self.refused("recover", "missing.work", says="missing.work")

    def test_synthetic_models_of_unknown_shapes(self):
        for shape in ("", "tin", "tiny,layers=0", "tiny,layers=x", "tiny,layers=99999999",
                      "tiny,colour=red", "tiny,", ",", "tiny,layers=2,layers=3,weights=q9"):
            self.refused(*self.run_with(model=f"synthetic:{shape}"), says="synthetic")
        self.assert_nothing_left("w", "folder", "fifo")

    def test_outputs_that_cannot_be(self):
        self.refused(*self.run_with(output="nowhere/r.h5"), says="nowhere/r.h5")
        self.refused(*self.run_with(output="folder"), says="folder")
        self.refused(*self.run_with(output="folder/"), says="folder/")
        self.refused(*self.run_with(output="."), says=".")
        self.refused(*self.run_with(output=""), says="-o")
        self.refused(*self.run_with(output="fifo"), says="fifo")
        self.refused(*self.run_with(output="w/r.h5"), says="w/r.h5")
        self.refused(*self.run_with(output="/proc/r.h5"), says="/proc/r.h5")
        self.refused(*self.run_with(output="x" * 300), says="xxx")
        self.refused(*self.run_with(output="x" * 5000), says="xxx")
        self.assert_nothing_left("w", "folder", "fifo")

    @unittest.skipIf(os.geteuid() == 0, "chmod does not bind root")
    def test_an_output_folder_without_write_permission(self):
        os.chmod(self.path("folder"), 0o555)
        self.refused(*self.run_with(output="folder/r.h5"), says="folder/r.h5")

    def test_inputs_are_never_overwritten(self):
        shutil.copy(fixture("S"), self.path("model.gguf"))
        self.write("notes.txt", "mine")
        with open(self.work, "rb") as file:
            before = file.read()
        self.refused(*self.run_with(model="model.gguf", output="model.gguf"), says="model.gguf")
        self.refused(*self.run_with(output=self.work), says="overwritten")
        self.refused(*self.run_with(output="./w"), says="overwritten")
        self.refused(*self.run_with(output="notes.txt"), says="notes.txt")
        with open(self.work, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(os.path.getsize(self.path("model.gguf")), os.path.getsize(fixture("S")))
        self.assert_nothing_left("w", "folder", "fifo", "model.gguf", "notes.txt")

    def test_a_good_report_outlives_a_run_that_fails(self):
        report = self.run_report("-m", fixture("S"), "-w", self.work, "-s", "naive")
        with open(report, "rb") as file:
            good = file.read()
        broken = self.write("broken", '{"assay_workload": 1}\n{"id": 1}\n')
        self.refused(*self.run_with(work=broken, output=report))
        self.refused(*self.run_with(model="missing", output=report))
        self.refused(*self.run_with(output=report), "--set", "kernels.linear=")
        self.refused(*self.run_with(output=report), limit=200000)
        with open(report, "rb") as file:
            self.assertEqual(file.read(), good)

    def test_a_good_report_is_replaced_by_the_next(self):
        for count in (1, 2):
            self.run_report(
                "-m", fixture("S"), "-w", self.work, "-s", "naive", "--repeat", str(count)
            )
        if support.h5py:
            self.assertEqual(len(Report(self.path("report.h5")).runs()), 3)

    def test_a_cache_that_cannot_be_written(self):
        self.write("file", "")
        for cache in (self.path("file"), "/proc/nowhere", "/dev/null/x", self.path("none/deep")):
            result = self.assay(*self.run_with(), env={"XDG_CACHE_HOME": cache})
            self.assertIn(result.code, (0, 2), str(result))
            if result.code == 2:
                self.assertRegex(result.err, "assay run: ")
            result = self.assay(
                *self.run_with(model="synthetic:tiny"), env={"XDG_CACHE_HOME": cache}
            )
            self.assertIn(result.code, (0, 2), str(result))

    def test_no_home_at_all(self):
        result = self.assay(*self.run_with(), env={"XDG_CACHE_HOME": "", "HOME": ""})
        self.assertIn(result.code, (0, 2), str(result))

    def test_a_spoiled_cache_is_made_anew(self):
        cache = self.path("cache")
        env = {"XDG_CACHE_HOME": cache}
        run = self.run_with(model="synthetic:tiny")
        self.assay(*run, env=env, code=0)
        generator = random.Random(3)
        for folder, _, files in os.walk(cache):
            for name in files:
                path = os.path.join(folder, name)
                if path.endswith(".gguf"):
                    continue
                for content in (b"", b"\0" * 10, generator.randbytes(3000), b"{", b"nan\n" * 50):
                    with open(path, "wb") as file:
                        file.write(content)
                    self.assay(*run, env=env, code=0)
        for folder, _, files in os.walk(cache):
            for name in files:
                if name.endswith(".gguf"):
                    with open(os.path.join(folder, name), "r+b") as file:
                        file.truncate(100000)
        result = self.assay(*run, env=env)
        self.assertIn(result.code, (0, 2), str(result))


class Workloads(support.Case):
    """Malformed workloads: line and field are named, by `check` and by `run` alike."""

    HEADER = '{"assay_workload": 1}\n'
    GOOD = '{"id": "a", "at_ns": 0, "text": "x"}\n'

    def check(self, content, *says):
        path = self.write("bad", content)
        self.refused("workload", "check", path, says=("bad", *says))
        self.refused("run", "-q", "-m", fixture("S"), "-w", path, "-s", "naive",
                     says=("bad", *says))
        self.assert_nothing_left("bad")

    def test_headers(self):
        self.check("")
        self.check("\n\n")
        self.check(self.GOOD, "line 1", "assay_workload")
        self.check('{"assay_workload": 2}\n', "line 1")
        self.check('{"assay_workload": 1, "rows": 2}\n' + self.GOOD, "rows")
        self.check('{"assay_workload": 1, "nmae": "x"}\n', "line 1", "nmae")

    def test_json(self):
        for row in ("{", "[]", "1", "nul", '{"id": "b"', '{"id": "b", "at_ns": 0, "text": "x"}}',
                    '{"id": "b", "at_ns": 0, "text": "x"} {}', "{'id': 'b'}",
                    '{"id": "b", "id": "c", "at_ns": 0, "text": "x"}', "\0",
                    '{"id": "b", "at_ns": 0, "text": "\\ud800"}', "[" * 5000,
                    '{"id": "b", "at_ns": NaN, "text": "x"}', "<html>"):
            self.check(self.HEADER + self.GOOD + row + "\n", "line 3")
        self.check((self.HEADER + self.GOOD).encode() + b'{"id": "\xff\xfe"}\n', "line 3")
        self.check(random.Random(5).randbytes(4000))

    def test_rows(self):
        for fields, says in (
            ('"at_ns": 0, "text": "x"', "id"),
            ('"id": "b", "text": "x"', "at_ns"),
            ('"id": "b", "at_ns": -1, "text": "x"', "at_ns"),
            ('"id": "b", "at_ns": 1.5, "text": "x"', "at_ns"),
            ('"id": "b", "at_ns": 99999999999999999999, "text": "x"', "line 3"),
            ('"id": "b", "at_ns": "0", "text": "x"', "at_ns"),
            ('"id": "b", "at_ns": 0', "text"),
            ('"id": "b", "at_ns": 0, "text": "x", "tokens": [1]', "tokens"),
            ('"id": "b", "at_ns": 0, "text": "x", "messages": []', "messages"),
            ('"id": "b", "at_ns": 0, "text": ""', "text"),
            ('"id": "b", "at_ns": 0, "tokens": []', "tokens"),
            ('"id": "b", "at_ns": 0, "tokens": [-1]', "tokens"),
            ('"id": "b", "at_ns": 0, "tokens": [1, "2"]', "tokens"),
            ('"id": "b", "at_ns": 0, "tokens": [99999999999]', "tokens"),
            ('"id": "b", "at_ns": 0, "messages": [{"role": "king", "content": "x"}]', "role"),
            ('"id": "b", "at_ns": 0, "messages": [{"role": "user"}]', "content"),
            ('"id": "b", "at_ns": 0, "len": 0', "len"),
            ('"id": "b", "at_ns": 0, "text": "x", "out": {"n": 0}', "out.n"),
            ('"id": "b", "at_ns": 0, "text": "x", "out": {"n": -5}', "out.n"),
            ('"id": "b", "at_ns": 0, "text": "x", "out": {"n": 2, "min": 3}', "out.min"),
            ('"id": "b", "at_ns": 0, "text": "x", "out": 5', "out"),
            ('"id": "b", "at_ns": 0, "text": "x", "sampling": {"temperature": -1}', "temperature"),
            ('"id": "b", "at_ns": 0, "text": "x", "sampling": {"top_p": 0}', "top_p"),
            ('"id": "b", "at_ns": 0, "txet": "x"', "txet"),
            ('"id": "a", "at_ns": 0, "text": "x"', "a"),
            ('"id": "", "at_ns": 0, "text": "x"', "id"),
            ('"id": "b", "after": "nobody", "text": "x"', "nobody"),
            ('"id": "b", "after": "b", "text": "x"', "after"),
        ):
            self.check(f"{self.HEADER}{self.GOOD}{{{fields}}}\n", "line 3", says)

    def test_no_requests(self):
        """C52: valid to read, nothing to run."""
        path = self.write("none", self.HEADER)
        self.assay("workload", "check", path, code=0)
        self.refused("run", "-q", "-m", fixture("S"), "-w", path, "-s", "naive",
                     says=("none", "no requests"))
        self.assert_nothing_left("none")

    def test_binary_files_are_no_workloads(self):
        self.refused("workload", "check", fixture("S"))
        self.refused("workload", "check", support.ASSAY)
        self.refused("run", "-q", "-m", fixture("S"), "-w", fixture("S"), "-s", "naive")


class Models(support.Case):
    """GGUF files that are cut, empty, random or contradict themselves."""

    def setUp(self):
        super().setUp()
        self.work = self.workload("w", [{"text": "ABC", "out": {"n": 2}}])

    def check(self, content, *says):
        path = self.write("bad.gguf", content)
        self.refused("model", "info", path, says=("bad.gguf", *says))
        self.refused("run", "-q", "-m", path, "-w", self.work, "-s", "naive",
                     says=("bad.gguf", *says))

    def test_files_that_are_no_models(self):
        self.check(b"")
        self.check(b"GGUF")
        self.check(b"\0" * 1000)
        self.check(random.Random(7).randbytes(100000))
        self.check(b"GGUF" + random.Random(8).randbytes(100000))
        self.check(b"GGUF" + struct.pack("<I", 3) + b"\xff" * 100000)
        with open(CHAT, "rb") as file:
            self.check(file.read())

    def test_cut_in_every_section(self):
        gguf = Gguf(fixture("S"))
        whole = bytes(gguf.data)
        places = (
            1, 4, 7, 8, 16, 23, 24, 30, gguf.tensors_at // 2, gguf.tensors_at - 1, gguf.tensors_at,
            gguf.tensors_at + 9, gguf.at - 1, gguf.at, gguf.data_at, gguf.data_at + 5,
            len(whole) // 2, len(whole) - 4, len(whole) - 1,
        )
        for place in places:
            self.check(whole[:place])

    def test_counts_and_versions(self):
        whole = bytes(Gguf(fixture("S")).data)
        for at, form, value in ((4, "<I", 1), (4, "<I", 99), (4, ">I", 3), (8, "<Q", 2**63),
                                (8, "<Q", 0), (16, "<Q", 2**63), (16, "<Q", 2**40), (16, "<Q", 0)):
            data = bytearray(whole)
            struct.pack_into(form, data, at, value)
            self.check(bytes(data))

    def test_flipped_bytes_never_end_it_by_a_signal(self):
        """Of the header alone: what tensors hold is the model's own business."""
        gguf = Gguf(fixture("S"))
        generator = random.Random(11)
        for _ in range(60):
            data = bytearray(gguf.data)
            for _ in range(generator.choice((1, 1, 1, 5, 50))):
                data[generator.randrange(gguf.data_at)] = generator.randrange(256)
            path = self.write("bad.gguf", bytes(data))
            result = self.assay("model", "info", path)
            self.assertIn(result.code, (0, 2), str(result))
        for _ in range(6):
            data = bytearray(gguf.data)
            data[generator.randrange(gguf.data_at)] = generator.randrange(256)
            path = self.write("bad.gguf", bytes(data))
            result = self.assay("run", "-q", "-m", path, "-w", self.work, "-s", "naive",
                                "--traced", "0", "-o", self.path("r.h5"))
            self.assertIn(result.code, (0, 2), str(result))


class Requests(support.Case):
    """Requests that a good model cannot serve: those fail, the others do not."""

    def run_rows(self, rows, *options, model="S", code=2):
        work = self.workload("w", rows)
        result = self.assay(
            "run", "-m", fixture(model), "-w", work, "-s", "naive", "-s", "fast", "-o",
            self.path("report.h5"), *options, code=code,
        )
        return result, Report(self.path("report.h5")) if support.h5py else None

    @support.needs_h5py
    def test_a_prompt_over_the_context(self):
        rows = [
            {"text": "A" * 600, "out": {"n": 4}},
            {"text": "ABC", "out": {"n": 4}},
            {"tokens": [65] * 512, "out": {"n": 4}},
            {"tokens": [65] * 511, "out": {"n": 1}},
            {"len": 100000, "out": {"n": 4}},
        ]
        result, report = self.run_rows(rows)
        self.assertIn("r0", result.err)
        self.assertIn("512", result.err)
        for run in report.runs():
            self.assertEqual(run["valid"], 0)
            self.assertIn("3 of 5 requests failed", report.text(run["invalid_reason"]))
            texts = report.texts(run["run"])
            self.assertEqual((texts["r1"], texts["r3"]), (b"DEFG", b"B"))
            outcomes = {n: int(r["outcome"]) for n, r in report.requests(run["run"]).items()}
            self.assertEqual(
                outcomes,
                {"r0": REJECTED, "r1": DONE, "r2": REJECTED, "r3": DONE, "r4": REJECTED},
            )

    @support.needs_h5py
    def test_an_output_that_runs_into_the_end_of_the_context(self):
        rows = [
            {"tokens": [65] * 500, "out": {"n": 100}},
            {"tokens": [65] * 500, "out": {"n": 100, "exact": True}},
            {"text": "ABC", "out": {"n": 4}},
        ]
        work = self.workload("w", rows)
        result = self.assay("run", "-q", "-m", fixture("S"), "-w", work, "-s", "naive", "-o",
                            self.path("report.h5"))
        self.assertIn(result.code, (0, 2), str(result))
        report = Report(self.path("report.h5"))
        for run in report.runs():
            requests, texts = report.requests(run["run"]), report.texts(run["run"])
            self.assertEqual(texts["r2"], b"DEFG")
            self.assertLessEqual(len(texts["r0"]), 13, "more than the context holds")
            self.assertEqual(int(requests["r1"]["outcome"]), REJECTED, "cannot be exact")
            self.assertEqual(result.code, 2)

    @support.needs_h5py
    def test_ids_that_the_model_does_not_have(self):
        rows = [{"tokens": [65, 258]}, {"tokens": [2**31 - 1]}, {"text": "ABC", "out": {"n": 4}}]
        result, report = self.run_rows(rows)
        self.assertIn("258", result.err)
        for run in report.runs():
            self.assertEqual(report.texts(run["run"]), {"r0": b"", "r1": b"", "r2": b"DEFG"})
            self.assertEqual(run["valid"], 0)

    @support.needs_h5py
    def test_every_request_rejected(self):
        """C52: a report without a step."""
        result, report = self.run_rows([{"tokens": [65] * 600}] * 3)
        self.assertNotIn("nan", result.err.lower())
        self.assertEqual((len(report["steps"]), len(report["step_rows"])), (0, 0))
        self.assertEqual(len(report["launches"]), 0)
        shown = self.assay("show", self.path("report.h5"))
        self.assertIn(shown.code, (0, 2), str(shown))
        self.assertNotRegex(shown.out.lower(), r"\b(nan|inf)\b")
        self.assertNotRegex(shown.out, r"\b0(\.0+)? ms")

    def test_messages_for_a_model_without_a_template(self):
        work = self.workload("w", [{"messages": [{"role": "user", "content": "Hi"}]}])
        self.refused("run", "-q", "-m", fixture("S"), "-w", work, "-s", "naive",
                     says="--chat-template")
        self.refused("run", "-q", "-m", fixture("S"), "-w", work, "-s", "naive",
                     "--chat-template", "chatlm", says=("chatlm", "chatml"))

    @support.needs_h5py
    def test_texts_that_look_like_markup_or_hold_nul(self):
        rows = [
            {"text": "<|end|>", "out": {"n": 1}},
            {"text": "a\u0000b", "out": {"n": 2}},
            {"text": "\U0001f999", "out": {"n": 1}},
        ]
        work = self.workload("w", rows)
        result = self.assay("run", "-q", "-m", fixture("S"), "-w", work, "-s", "naive", "-o",
                            self.path("report.h5"))
        self.assertIn(result.code, (0, 2), str(result))
        if result.code == 0:
            requests = Report(self.path("report.h5")).requests(0)
            self.assertEqual(int(requests["r1"]["prompt_tokens"]), 3, "cut at the NUL")


if __name__ == "__main__":
    support.main()
