"""What is lost when something is killed or a disk is full: as little as can be, and it is said."""

import fcntl
import os
import random
import shutil
import signal
import subprocess
import time

import support
from support import DONE, TIMING, TRACED, Live, Report, fixture

# Requests end one after another, so that a run can be killed between two of them. The context of
# the fixture is never reached; a run takes some seconds.
ROWS = [{"tokens": [65], "out": {"n": 150, "exact": True}}] * 60
ONE_BY_ONE = ("--set", "max_batch_size=1", "--set", "max_batch_tokens=16")


def gone(number):
    """Whether the process has ended, waiting a little for it."""
    for _ in range(1000):
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return True
        if text[text.rindex(")") + 2] == "Z":
            return True
        time.sleep(0.01)
    return False


class Killed(support.Case):
    """Children and parents that are killed between requests."""

    def live(self, *arguments):
        self.work = self.workload("w", ROWS)
        return Live(self, "-m", fixture("S"), "-w", self.work, *ONE_BY_ONE, "-o",
                    self.path("r.h5"), *arguments)

    def check_partial(self, report, run):
        """A run that was killed: what is there of it must be whole and right."""
        finished = 0
        texts, requests = report.texts(run["run"]), report.requests(run["run"])
        for name, row in requests.items():
            wanted = bytes((66 + step) % 256 for step in range(len(texts[name])))
            self.assertEqual(texts[name], wanted)
            if int(row["outcome"]) == DONE:
                finished += 1
                self.assertEqual(len(texts[name]), 150)
        self.assertGreaterEqual(finished, 2, "requests that had ended before the kill")
        self.assertLess(finished, len(ROWS))
        self.assertGreaterEqual(len(report.of_run("steps", run["run"])), 300)

    @support.needs_h5py
    def test_a_killed_child_costs_its_own_run_only(self):
        live = self.live("-s", "naive", "-s", "fast", "--traced", "0")
        live.wait_for(r"[2-9]/60 requests[^\r]*fast, timing")
        os.kill(live.child(), signal.SIGKILL)
        self.assertEqual(live.finish(), 2, live.text)
        self.assertIn("fast", live.text)
        self.assertIn("signal 9", live.text)
        report = Report(self.path("r.h5"))
        naive, fast = report.runs()
        self.assertEqual((naive["valid"], naive["exit"], naive["signal"]), (1, 0, 0))
        self.assertEqual(set(report.of_run("requests", naive["run"])["outcome"]), {DONE})
        self.assertEqual((fast["valid"], fast["signal"]), (0, signal.SIGKILL))
        self.assertIn("killed by signal 9", report.text(fast["invalid_reason"]))
        self.check_partial(report, fast)
        self.assert_nothing_left("w", "r.h5")

    @support.needs_h5py
    def test_the_runs_after_a_killed_child_are_run(self):
        live = self.live("-s", "naive", "--repeat", "2", "--traced", "1")
        live.wait_for(r"[2-9]/60 requests[^\r]*naive, timing 1 of 2")
        os.kill(live.child(), signal.SIGSEGV)
        self.assertEqual(live.finish(), 2, live.text)
        report = Report(self.path("r.h5"))
        self.assertEqual([int(run["valid"]) for run in report.runs()], [0, 1, 1])
        self.assertEqual([run["pass"] for run in report.runs()], [TIMING, TIMING, TRACED])
        shown = self.assay("show", self.path("r.h5"))
        self.assertIn("signal 11", shown.out + shown.err, str(shown))

    @support.needs_h5py
    def test_a_child_killed_while_it_traces_leaves_whole_launches(self):
        live = self.live("-s", "naive")
        live.wait_for(r"[2-9]/60 requests[^\r]*naive, traced")
        os.kill(live.child(), signal.SIGKILL)
        self.assertEqual(live.finish(), 2, live.text)
        report = Report(self.path("r.h5"))
        timing, traced = report.runs()
        self.assertEqual((timing["valid"], traced["valid"]), (1, 0))
        self.check_partial(report, traced)
        launches = report.of_run("launches", traced["run"])
        self.assertGreater(len(launches), 0)
        counts = {}
        for row in report["launch_threads"]:
            counts[int(row["launch"])] = counts.get(int(row["launch"]), 0) + 1
        self.assertEqual(sorted(counts), sorted(launches["launch"].tolist()))
        self.assertEqual(len(set(counts.values())), 1)
        self.assertTrue((launches["end"] > launches["start"]).all())

    def check_recovered(self):
        """What `recover` makes of r.h5.work: the interrupted run is marked, its rows are there."""
        self.assertTrue(os.path.isdir(self.path("r.h5.work")), "the work folder is left")
        self.assertFalse(os.path.exists(self.path("r.h5")))
        self.assay("recover", self.path("r.h5.work"), "-o", self.path("back.h5"))
        if support.h5py:
            report = Report(self.path("back.h5"))
            self.assertEqual(len(report.runs()), 1)
            run = report.runs()[0]
            self.assertEqual(run["valid"], 0)
            self.assertRegex(report.text(run["invalid_reason"]), "interrupted|killed")
            self.assertEqual(report.text(run["strategy"]), "naive")
            self.check_partial(report, run)
        shown = self.assay("show", self.path("back.h5"))
        self.assertIn(shown.code, (0, 2), str(shown))
        self.assertRegex(shown.out + shown.err, "interrupted|killed")

    def test_a_killed_parent_takes_its_child_along_and_can_be_recovered(self):
        live = self.live("-s", "naive")
        live.wait_for(r"[2-9]/60 requests[^\r]*naive, timing")
        child = live.child()
        live.process.kill()
        self.assertEqual(live.process.wait(), -signal.SIGKILL)
        self.assertTrue(gone(child), "the child outlives its parent")
        self.check_recovered()

    def test_the_next_run_leaves_the_work_folder_of_a_killed_one_alone(self):
        live = self.live("-s", "naive")
        live.wait_for(r"[2-9]/60 requests[^\r]*naive, timing")
        child = live.child()
        live.process.kill()
        live.process.wait()
        self.assertTrue(gone(child))
        small = self.workload("small", [{"text": "ABC", "out": {"n": 2}}])
        self.run_report("-m", fixture("S"), "-w", small, "-s", "naive", name="r.h5")
        os.remove(self.path("r.h5"))
        self.check_recovered()

    def interrupt(self, send):
        live = self.live("-s", "naive", "-s", "fast")
        live.wait_for(r"[2-9]/60 requests[^\r]*naive, timing")
        child = live.child()
        began = time.monotonic()
        send(live.process.pid)
        self.assertEqual(live.finish(), 2, live.text)
        self.assertLess(time.monotonic() - began, 60)
        self.assertTrue(gone(child))
        self.assertIn("interrupted", live.text)
        self.assertIn("r.h5.work", live.text)
        self.assertIn("assay recover", live.text)
        self.check_recovered()

    def test_an_interrupt_keeps_what_was_recorded_and_names_it(self):
        self.interrupt(lambda parent: os.kill(parent, signal.SIGINT))

    def test_an_interrupt_from_the_keyboard_reaches_the_child_too(self):
        self.interrupt(lambda parent: os.killpg(parent, signal.SIGINT))

    def test_a_request_to_terminate(self):
        self.interrupt(lambda parent: os.kill(parent, signal.SIGTERM))

    def test_an_interrupt_before_the_first_child_leaves_nothing(self):
        work = self.workload("w", ROWS)
        env = {"XDG_CACHE_HOME": self.path("cache")}
        process = self.start("run", "-m", fixture("S"), "-w", work, "-s", "naive", "-o", "r.h5",
                             env=env, stderr=subprocess.DEVNULL)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(support.TIMEOUT), 2)
        self.assertFalse(os.path.exists(self.path("r.h5")))
        shutil.rmtree(self.path("cache"), ignore_errors=True)
        left = set(os.listdir(self.folder))
        self.assertIn(left, ({"w"}, {"w", "r.h5.work"}))


class FullDisk(support.Case):
    """RLIMIT_FSIZE stands in for a full disk: every write beyond it fails."""

    def check(self, limit, *arguments, env=None):
        for name in os.listdir(self.folder):
            if name not in ("w", "cache"):
                shutil.rmtree(self.path(name), ignore_errors=True)
                if os.path.exists(self.path(name)):
                    os.remove(self.path(name))
        result = self.assay("run", "-q", "-w", self.work, "-s", "naive", "-o", "r.h5", *arguments,
                            limit=limit, env=env)
        self.assertIn(result.code, (0, 2), f"limit {limit}: {result}")
        if result.code == 2:
            self.assertRegex(result.err, "(?m)^assay run: ", f"limit {limit}: {result}")
            self.assertNotRegex(result.err, "signal", f"limit {limit}")
        if result.code == 0:
            self.assertTrue(os.path.exists(self.path("r.h5")))
        if os.path.exists(self.path("r.h5")) and support.h5py:
            Report(self.path("r.h5"))
        return result

    def setUp(self):
        super().setUp()
        self.work = self.workload("w", [{"tokens": [65], "out": {"n": 40, "exact": True}}] * 4)

    def test_no_limit_is_a_death_or_a_half_report(self):
        self.assay("run", "-q", "-m", fixture("S"), "-w", self.work, "-s", "naive", "-o", "r.h5",
                   code=0)
        model = ("-m", fixture("S"))
        for limit in (0, 1, 100, 4096, 50000, 300000, 1 << 20, 3 << 20, (4 << 20) - 1, 4 << 20,
                      5 << 20, 8 << 20):
            result = self.check(limit, *model)
            if limit < 1 << 20:
                self.assertEqual(result.code, 2, f"limit {limit}: {result}")
            if limit <= 4096:
                self.assertRegex(result.err, "(?i)file too large|space|large", str(result))
        self.assertEqual(self.check(64 << 20, *model).code, 0)

    def test_a_cold_cache_on_a_full_disk_is_not_spoiled(self):
        env = {"XDG_CACHE_HOME": self.path("cache")}
        for limit in (0, 1000, 100000, 1 << 20):
            self.check(limit, "-m", "synthetic:tiny", env=env)
        self.assay("run", "-q", "-m", "synthetic:tiny", "-w", self.work, "-s", "naive", "-o",
                   "r.h5", code=0, env=env)

    def test_other_commands_on_a_full_disk(self):
        for limit in (0, 1000, 1 << 20):
            result = self.assay("model", "synth", "tiny", "-o", self.path("t.gguf"), limit=limit)
            self.assertEqual(result.code, 2, str(result))
            self.assertFalse(os.path.exists(self.path("t.gguf")))
        self.assert_nothing_left("w")

    def test_standard_output_that_is_full(self):
        """/dev/full takes nothing: a command whose answer is lost must not end with 0."""
        for arguments in (("model", "info", fixture("S")), ("workload", "check", self.work),
                          ("kernels",), ("doctor",)):
            with open("/dev/full", "wb") as full:
                process = self.start(*arguments, stdout=full, stderr=subprocess.PIPE,
                                     env=support.NO_LEAK_CHECK)
                _, err = process.communicate(timeout=support.TIMEOUT)
            self.assertEqual(process.returncode, 2, f"{arguments}: {err}")


class Reports(support.Case):
    """C54 and worse: reports that are locked, read-only, cut or something else."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.good = None

    def setUp(self):
        super().setUp()
        if Reports.good is None:
            work = self.workload("w", [{"text": "ABC", "out": {"n": 3}}] * 2)
            path = self.run_report("-m", fixture("S"), "-w", work, "-s", "naive")
            with open(path, "rb") as file:
                Reports.good = file.read()
        self.report = self.write("r.h5", Reports.good)

    def test_a_report_under_an_exclusive_lock(self):
        with open(self.report, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            began = time.monotonic()
            result = self.assay("show", self.report)
        self.assertIn(result.code, (0, 2), str(result))
        if result.code == 2:
            self.assertIn("lock", result.err)
        self.assertLess(time.monotonic() - began, 30, "it waits for the lock")

    def test_two_readers_at_once(self):
        readers = [
            self.start("show", self.report, stdout=subprocess.PIPE) for _ in range(4)
        ]
        outputs = [reader.communicate(timeout=support.TIMEOUT)[0] for reader in readers]
        self.assertEqual([reader.returncode for reader in readers], [0] * 4)
        self.assertEqual(len(set(outputs)), 1)
        self.assertTrue(outputs[0])

    def test_a_report_that_cannot_be_written(self):
        """As root the modes bind nobody, but the report must not change either."""
        os.mkdir(self.path("folder"))
        shutil.copy(self.report, self.path("folder/r.h5"))
        os.chmod(self.path("folder/r.h5"), 0o444)
        os.chmod(self.path("folder"), 0o555)
        try:
            self.assay("show", self.path("folder/r.h5"), code=0)
            self.assertEqual(os.listdir(self.path("folder")), ["r.h5"])
        finally:
            os.chmod(self.path("folder"), 0o755)
        with open(self.path("folder/r.h5"), "rb") as file:
            self.assertEqual(file.read(), Reports.good)

    def test_cut_reports(self):
        size = len(Reports.good)
        for length in (0, 1, 8, 100, 2048, size // 4, size // 2, size - 100, size - 25, size - 24,
                       size - 8, size - 1):
            path = self.write("cut.h5", Reports.good[:length])
            result = self.assay("show", path)
            if length >= size - 24:
                # Of the seal alone something is missing: all rows are there, and it is said.
                self.assertIn(result.code, (0, 2), str(result))
                self.assertIn("seal", result.out + result.err, str(result))
                continue
            self.assertEqual(result.code, 2, f"{length} of {size}: {result}")
            self.assertIn("cut.h5", result.err)

    def test_damaged_reports(self):
        generator = random.Random(13)
        for _ in range(40):
            data = bytearray(Reports.good)
            for _ in range(generator.choice((1, 1, 8, 100))):
                data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path = self.write("bad.h5", bytes(data))
            result = self.assay("show", path)
            self.assertEqual(result.code, 2, str(result))

    def test_damaged_reports_without_a_seal(self):
        """The checksum at the end is gone, so HDF5's own reading is all that stands between."""
        generator = random.Random(17)
        body = Reports.good[:-24]
        for _ in range(40):
            data = bytearray(body)
            for _ in range(generator.choice((1, 1, 8, 100))):
                data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path = self.write("bad.h5", bytes(data))
            result = self.assay("show", path, env=support.NO_LEAK_CHECK)
            self.assertIn(result.code, (0, 2), str(result))

    def test_files_that_are_no_reports(self):
        for content in (b"", b"hello\n", b"\0" * 5000, random.Random(19).randbytes(50000),
                        b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + b"\xff" * 5000):
            self.refused("show", self.write("x.h5", content), says="x.h5")
        self.refused("show", fixture("S"))
        self.refused("show", support.CHAT)

    @support.needs_h5py
    def test_hdf5_files_of_somebody_else(self):
        with support.h5py.File(self.path("x.h5"), "w") as file:
            file["data"] = [1, 2, 3]
        self.refused("show", self.path("x.h5"), says="x.h5")
        with support.h5py.File(self.path("y.h5"), "w") as file:
            file.attrs["schema"] = "1.0"
            file.attrs["complete"] = 1
            file["runs"] = [1.0, 2.0]
        self.refused("show", self.path("y.h5"), says="y.h5")
        shutil.copy(self.report, self.path("z.h5"))
        with support.h5py.File(self.path("z.h5"), "r+") as file:
            file.attrs["schema"] = "9.0"
        self.refused("show", self.path("z.h5"), says="9.0")

    @support.needs_h5py
    def test_reports_with_tables_that_disagree(self):
        """Hostile, but valid HDF5: ids that point nowhere, and tables that are missing."""
        for change in ("strings", "run", "variant", "problem", "missing", "empty"):
            path = self.path(f"{change}.h5")
            shutil.copy(self.report, path)
            with support.h5py.File(path, "r+") as file:
                if change == "strings":
                    rows = file["runs"][:]
                    rows["strategy"] = 4000000000
                    file["runs"][...] = rows
                elif change in ("run", "variant", "problem"):
                    rows = file["launches"][:]
                    rows[change] = 4000000000
                    file["launches"][...] = rows
                elif change == "missing":
                    del file["steps"]
                else:
                    file["runs"].resize((0,)) if file["runs"].maxshape[0] is None else None
            result = self.assay("show", path)
            self.assertIn(result.code, (0, 2), f"{change}: {result}")
            result = self.assay("show", "--json", path)
            self.assertIn(result.code, (0, 2), f"{change}: {result}")

    def test_work_folders_that_hold_nothing_or_rubbish(self):
        os.mkdir(self.path("empty.work"))
        self.refused("recover", self.path("empty.work"), "-o", self.path("back.h5"))
        os.mkdir(self.path("bad.work"))
        os.mkdir(self.path("bad.work/run-0000"))
        generator = random.Random(23)
        for name in ("parent.spool", "run-0000/engine.spool", "run-0000/thread-1.spool"):
            self.write(f"bad.work/{name}", generator.randbytes(30000))
        result = self.assay("recover", self.path("bad.work"), "-o", self.path("back.h5"))
        self.assertIn(result.code, (0, 2), str(result))
        self.refused("recover", self.report, "-o", self.path("new.h5"))
        os.mkfifo(self.path("fifo"))
        for output in ("fifo", "bad.work", "bad.work/parent.spool"):
            self.refused("recover", self.path("bad.work"), "-o", self.path(output), says=output)
        with open(self.report, "rb") as file:
            self.assertEqual(file.read(), Reports.good)


if __name__ == "__main__":
    support.main()
