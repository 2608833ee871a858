"""What the end-to-end tests share: running assay, making inputs, reading reports.

Each file of tests is a program: it is given the assay binary and write_fixture's in ASSAY_BINARY
and ASSAY_WRITE_FIXTURE (CMakeLists.txt does), and may be given names of tests as arguments. It
ends with 77 when every test was skipped.
"""

import functools
import glob
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

try:
    import h5py
except ImportError:
    h5py = None
    _venv = os.path.join(SOURCE, ".venv", "bin", "python")
    if os.path.exists(_venv) and os.environ.get("ASSAY_TESTS_IN_VENV") is None:
        os.environ["ASSAY_TESTS_IN_VENV"] = "1"
        os.execv(_venv, [_venv] + sys.argv)

ASSAY = os.path.abspath(os.environ.get("ASSAY_BINARY", os.path.join(SOURCE, "build/release/assay")))
WRITE_FIXTURE = os.path.abspath(
    os.environ.get("ASSAY_WRITE_FIXTURE", os.path.join(os.path.dirname(ASSAY), "write_fixture"))
)
CHAT = os.path.join(SOURCE, "workloads", "chat.awl.jsonl")
LENGTHS = os.path.join(SOURCE, "workloads", "lengths.awl.jsonl")
SCHEMA = os.path.join(SOURCE, "reports", "SCHEMA.md")

# Far more than any command here needs: only a command that hangs meets it.
TIMEOUT = 240

# For commands in which a library that is not ours leaks, on damaged files or when it cannot open.
NO_LEAK_CHECK = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}

UNKNOWN_U32 = 0xFFFFFFFF
TIMING, TRACED = 0, 1
PREFILL, PREFILL_END, DECODE = 0, 1, 2
DONE, FAILED, REJECTED = 0, 1, 3

needs_h5py = unittest.skipIf(h5py is None, "there is no .venv with h5py")


class Result:
    """How a command ended: `code` (negative: a signal), `out` and `err`."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def __str__(self):
        return (
            f"assay {' '.join(self.arguments)}\nended with {self.code}\n"
            f"stdout: {self.out[-3000:]}\nstderr: {self.err[-3000:]}"
        )


class Case(unittest.TestCase):
    """Tests in a temporary folder of their own; the cache is one for the file of tests."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.shared = shared_folder()

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="assay-e2e-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    # --- files ---

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        data = content if isinstance(content, bytes) else content.encode()
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def workload(self, name, rows, **header):
        """Rows may leave out `id` and `at_ns`."""
        lines = [{"assay_workload": 1, **header}]
        for number, row in enumerate(rows):
            lines.append({"id": f"r{number}", "at_ns": 0, **row})
        return self.write(name, "".join(json.dumps(line) + "\n" for line in lines))

    # --- commands ---

    def start(self, *arguments, env=None, limit=None, **options):
        def prepare():
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [ASSAY, *arguments],
            cwd=self.folder,
            env=environment(env),
            preexec_fn=prepare if limit is not None else None,
            stdin=subprocess.DEVNULL,
            **options,
        )

    def assay(self, *arguments, code=None, env=None, limit=None):
        """Runs assay; with `code`, insists that it ends so."""
        process = self.start(
            *arguments, env=env, limit=limit, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"assay {' '.join(arguments)} hangs; it said {err[-1000:]!r}")
        result = Result(
            arguments, process.returncode, out.decode("utf-8", "replace"),
            err.decode("utf-8", "replace"),
        )
        self.assertGreaterEqual(result.code, 0, f"a signal ended it\n{result}")
        self.assertNotIn("Sanitizer", result.err, str(result))
        self.assertNotIn("runtime error:", result.err, str(result))
        if code is not None:
            self.assertEqual(result.code, code, str(result))
        return result

    def refused(self, *arguments, says=(), env=None, limit=None):
        """Insists on exit 2 with a message on stderr that holds each of `says`."""
        result = self.assay(*arguments, code=2, env=env, limit=limit)
        self.assertRegex(result.err, r"(?m)^assay[ :]", str(result))
        for words in [says] if isinstance(says, str) else says:
            self.assertIn(words, result.err, str(result))
        return result

    def run_report(self, *arguments, code=0, name="report.h5", env=None):
        """`assay run` on arguments, and the report's path."""
        self.assay("run", "-q", *arguments, "-o", self.path(name), code=code, env=env)
        return self.path(name)

    def assert_nothing_left(self, *names):
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(names))


class Live:
    """An `assay run` under way, its stderr on a terminal so that it tells of every request."""

    def __init__(self, case, *arguments):
        try:
            master, slave = pty.openpty()
        except OSError as why:
            raise unittest.SkipTest(f"no terminal can be opened here: {why}") from why
        self.process = case.start(
            "run", *arguments, stdout=subprocess.DEVNULL, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.text = ""
        self.reader = threading.Thread(target=self._read, args=(master,), daemon=True)
        self.reader.start()
        case.addCleanup(self.end)

    def _read(self, master):
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                data = b""
            if not data:
                os.close(master)
                return
            self.text += data.decode("utf-8", "replace")

    def wait_for(self, pattern):
        """Waits until the terminal shows `pattern`."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if re.search(pattern, self.text):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.002)
        raise AssertionError(f"{pattern!r} was never shown; the terminal has\n{self.text[-3000:]}")

    def child(self):
        """The process id of the child that runs now."""
        for number in children_of(self.process.pid):
            if b"child" in command_line(number):
                return number
        raise AssertionError(f"no child runs; the terminal has\n{self.text[-3000:]}")

    def finish(self):
        code = self.process.wait(timeout=TIMEOUT)
        self.reader.join(timeout=10)
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def children_of(parent):
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(text.split()[0]))
    return found


def command_line(number):
    try:
        with open(f"/proc/{number}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


@functools.lru_cache(maxsize=None)
def shared_folder():
    """A folder for the life of this program: the cache, and models."""
    folder = tempfile.mkdtemp(prefix="assay-e2e-shared-")
    os.mkdir(os.path.join(folder, "cache"))
    return folder


def environment(extra=None):
    return {**os.environ, "XDG_CACHE_HOME": os.path.join(shared_folder(), "cache"), **(extra or {})}


@functools.lru_cache(maxsize=None)
def fixture(name):
    path = os.path.join(shared_folder(), f"{name}.gguf")
    subprocess.run([WRITE_FIXTURE, name, path], check=True)
    return path


# --- GGUF ---


class Gguf:
    """Where things are in a GGUF v3 file; enough to spoil one on purpose."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = bytearray(file.read())
        tensors, entries = struct.unpack_from("<QQ", self.data, 8)
        self.at = 24
        self.alignment = 32
        for _ in range(entries):
            key = self._string()
            kind = self._number("<I")
            value = self._value(kind)
            if key == "general.alignment":
                self.alignment = value
        self.tensors_at = self.at
        self.offset = {}
        for _ in range(tensors):
            name = self._string()
            dimensions = self._number("<I")
            shape = [self._number("<Q") for _ in range(dimensions)]
            kind = self._number("<I")
            self.offset[name] = (self._number("<Q"), shape, kind)
        self.data_at = -(-self.at // self.alignment) * self.alignment

    def _number(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _string(self):
        length = self._number("<Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at]).decode()

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind == 9:
            inner, count = self._number("<I"), self._number("<Q")
            for _ in range(count):
                self._value(inner)
            return None
        self.at += self.SIZES[kind]
        return int.from_bytes(self.data[self.at - self.SIZES[kind] : self.at], "little")

    def set_f32(self, tensor, row, column, value):
        offset, shape, kind = self.offset[tensor]
        assert kind == 0, "only F32 tensors are spoiled"
        at = self.data_at + offset + 4 * (row * shape[0] + column)
        struct.pack_into("<f", self.data, at, value)


# --- reports ---


class Report:
    """A report read with h5py: tables as arrays of rows, strings looked up."""

    def __init__(self, path):
        with h5py.File(path, "r") as file:
            self.attributes = dict(file.attrs)
            self.tables = {name: file[name][:] for name in file if name != "strings"}
            self.strings = list(file["strings"].asstr()[:]) if len(file["strings"]) else []

    def __getitem__(self, table):
        return self.tables[table]

    def text(self, number):
        return None if number == UNKNOWN_U32 else self.strings[number]

    def runs(self, strategy=None, kind=None):
        """Rows of /runs by order, perhaps of one strategy or one kind of pass."""
        rows = sorted(self["runs"], key=lambda row: row["order"])
        return [
            row
            for row in rows
            if (strategy is None or self.text(row["strategy"]) == strategy)
            and (kind is None or row["pass"] == kind)
        ]

    def of_run(self, table, run):
        rows = self[table]
        return rows[rows["run"] == run]

    def requests(self, run):
        """{name: row} of a run."""
        return {self.text(row["name"]): row for row in self.of_run("requests", run)}

    def tokens(self, run):
        """{name of a request: tokens sampled for it, in order} of a run."""
        rows = self.of_run("step_rows", run)
        names = {row["request"]: self.text(row["name"]) for row in self.of_run("requests", run)}
        tokens = {name: [] for name in names.values()}
        for row in sorted(rows, key=lambda row: row["step"]):
            if row["token"] != UNKNOWN_U32:
                tokens.setdefault(names.get(row["request"]), []).append(int(row["token"]))
        return tokens

    def texts(self, run):
        """The same as bytes, for models whose tokens are bytes."""
        return {name: bytes(tokens) for name, tokens in self.tokens(run).items()}


def main():
    """Runs the tests of the calling program."""
    if not os.access(ASSAY, os.X_OK) or not os.access(WRITE_FIXTURE, os.X_OK):
        print(f"failed: {ASSAY} or {WRITE_FIXTURE} is not there")
        sys.exit(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    shutil.rmtree(shared_folder(), ignore_errors=True)
    for test, reason in program.result.skipped:
        print(f"skipped: {test.id().replace('__main__.', '')}: {reason}")
    if not program.result.wasSuccessful():
        sys.exit(1)
    if program.result.testsRun == len(program.result.skipped):
        sys.exit(77)
