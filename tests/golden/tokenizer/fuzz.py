"""Compares assay's tokenizer with Hugging Face's on random strings; not part of CI.

    .venv/bin/python tests/golden/tokenizer/fuzz.py [--count 10000] [--seed 1] [--kind smollm]
    .venv/bin/python tests/golden/tokenizer/fuzz.py --code-points

Builds driver.c in a temporary folder. Exit code 1 when anything differs. Code points are those
assigned in Unicode 14, which is what PCRE2 10.42 knows. Letters and numbers that came later count
as signs there but not in newer libraries: a known difference, and the only one.
"""

import argparse
import json
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from common import (CONTROL, MODEL, NORMAL, ROOT, UNKNOWN, encode, gguf_vocabulary, hugging_face,
                    pair_vocabulary)

KINDS = ["smollm", "gpt2", "llama-bpe", "default"]
PARSE_SPECIAL = 4

if unicodedata.unidata_version != "14.0.0":
    print(f"note: this Python knows Unicode {unicodedata.unidata_version}, not 14.0.0")


def build_driver(folder):
    sources = [Path(__file__).with_name("driver.c"), *(ROOT / "kernels" / "base").glob("*.c")]
    skipped = {"from_model.c", "stage.c", "stage_message.c", "template.c"}
    preprocess = ROOT / "harness" / "preprocess"
    sources += [path for path in preprocess.glob("*.c") if path.name not in skipped]
    driver = Path(folder) / "driver"
    subprocess.run(
        ["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-g", f"-I{ROOT}/harness",
         f"-I{ROOT}/kernels/base", "-o", driver, *sources, "-ljansson", "-lpcre2-8", "-lm"],
        check=True,
    )
    return driver


class Driver:
    def __init__(self, program, vocabulary, folder):
        path = Path(folder) / "vocabulary.json"
        path.write_text(json.dumps(vocabulary))
        self.process = subprocess.Popen(
            [program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, command, flags, data):
        self.process.stdin.write(command + struct.pack("<II", flags, len(data)) + data)
        self.process.stdin.flush()
        status, length = struct.unpack("<iI", self.process.stdout.read(8))
        answer = self.process.stdout.read(length)
        if status != 0:
            raise RuntimeError(answer.decode())
        return answer

    def encode(self, text, parse_special=True):
        answer = self.ask(b"e", PARSE_SPECIAL if parse_special else 0, text.encode())
        return list(struct.unpack(f"<{len(answer) // 4}i", answer))

    def decode(self, ids, keep_special):
        return self.ask(b"d", int(keep_special), struct.pack(f"<{len(ids)}i", *ids)).decode()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def assigned():
    return [chr(c) for c in range(0x110000)
            if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]


SPACES = [" "] * 6 + list(
    "\t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u180e\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
CONTRACTED = ["s", "S", "ſ", "t", "RE", "re", "Ve", "m", "LL", "lL", "d", "D", "x"]
MARKS = "e\u0301\u0308\u0327n\u0303\u20dd\ufe0f\u0e31"
SCRIPTS = "مرحبا بالعالم שלום ไทย हिन्दी Привет Ωκύς ǅ"
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "🦙", "❤️", "1️⃣", "𝔘𝔫𝔦", "\U0010fffd"]
TOKENS = [
    "<|im_start|>", "<|im_end|>", "<|im_start", "<|im_", "<|", "|>", "<|x|>", "<|x",
    "<|endoftext|>", "<|<|im_end|>|>", "<reponame>", "<repo_name>", "<filename", "<|x|<|x|>",
]
CODE = [
    "int main(void) {\n    return 0;\n}\n", "for i in range(10):\n\tprint(i)\n",
    "SELECT * FROM t WHERE x='y';", "https://example.org/a?b=c&d=%20", "don't we'll I'm THEY'RE",
]
PARTS = [
    lambda r, every: "".join(r.choices("abcdefgh XYZ", k=r.randint(1, 12))),
    lambda r, every: "".join(chr(r.randint(32, 126)) for _ in range(r.randint(1, 10))),
    lambda r, every: r.choice(SPACES) * r.randint(1, 9),
    lambda r, every: "".join(r.choices(SPACES, k=r.randint(1, 8))),
    lambda r, every: "".join(r.choices("\r\n \t", k=r.randint(1, 8))),
    lambda r, every: str(r.randint(0, 10 ** r.randint(1, 12))),
    lambda r, every: "".join(r.choices("0123456789٠١٢٣४५६Ⅷ½²㉈𝟘𑁦", k=r.randint(1, 6))),
    lambda r, every: r.choice("'’") + r.choice(CONTRACTED),
    lambda r, every: "".join(r.choices("漢字かなカナ한국어中文。、「」", k=r.randint(1, 8))),
    lambda r, every: "".join(r.choices(SCRIPTS, k=r.randint(1, 10))),
    lambda r, every: "".join(r.choices(MARKS, k=r.randint(1, 8))),
    lambda r, every: r.choice(EMOJI),
    lambda r, every: r.choice(TOKENS),
    lambda r, every: "".join(chr(r.randint(0, 0x9f)) for _ in range(r.randint(1, 6))),
    lambda r, every: "".join(r.choices(every, k=r.randint(1, 10))),
    lambda r, every: r.choice("!?.,;:-=#*/\\|_~^") * r.randint(1, 20),
    lambda r, every: r.choice(CODE),
]


def random_text(r, every):
    return "".join(r.choice(PARTS)(r, every) for _ in range(r.randint(0, 12)))


class Report:
    def __init__(self):
        self.compared = self.differences = 0

    def check(self, what, ours, theirs, source):
        self.compared += 1
        if ours != theirs:
            self.differences += 1
            if self.differences <= 20:
                print(f"{what}: {source!r}\n  ours   {ours!r}\n  theirs {theirs!r}")


def fuzz_kind(name, vocabulary, driver, arguments, every):
    r = random.Random(arguments.seed)
    judge, report, decoded = hugging_face(vocabulary), Report(), Report()
    special = [i for i, kind in enumerate(vocabulary["types"]) if kind in (CONTROL, UNKNOWN)]
    ordinary = [i for i, kind in enumerate(vocabulary["types"]) if kind == NORMAL]
    for _ in range(arguments.count):
        text = random_text(r, every)
        parse = r.random() < 0.8
        report.check(name, driver.encode(text, parse), encode(judge, text, parse), text)
        ids = r.choices(ordinary, k=r.randint(0, 20)) + r.choices(special, k=r.randint(0, 2))
        r.shuffle(ids)
        keep = r.random() < 0.5
        decoded.check(f"{name} decode", driver.decode(ids, keep),
                      judge.decode(ids, skip_special_tokens=not keep), ids)
    print(f"{name}: {report.compared} strings, {report.differences} differ; "
          f"{decoded.compared} id lists decoded, {decoded.differences} differ")
    return report.differences + decoded.differences


def code_points(name, vocabulary, driver, every):
    """Each code point between, before and after a letter, a digit, a space and a sign."""
    judge, report, different = hugging_face(vocabulary), Report(), set()
    for c in every:
        text = f"a{c}b {c} {c}{c}1{c}2!{c}?\n{c}'{c}"
        if driver.encode(text) != encode(judge, text):
            different.add(c)
        report.compared += 1
    print(f"{name}: {report.compared} code points, {len(different)} differ",
          " ".join(f"U+{ord(c):04X}" for c in sorted(different)[:40]))
    return len(different)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10000, help="strings a vocabulary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help="only this kind of pre-tokenizer")
    parser.add_argument("--code-points", action="store_true", help="every code point instead")
    arguments = parser.parse_args()
    every, failures = assigned(), 0
    vocabularies = {f"pairs/{kind}": pair_vocabulary(kind)
                    for kind in KINDS if arguments.kind in (None, kind)}
    if MODEL.exists() and arguments.kind in (None, "smollm"):
        vocabularies["SmolLM2"] = gguf_vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        program = build_driver(folder)
        for name, vocabulary in vocabularies.items():
            driver = Driver(program, vocabulary, folder)
            if arguments.code_points:
                failures += code_points(name, vocabulary, driver, every)
            else:
                failures += fuzz_kind(name, vocabulary, driver, arguments, every)
            driver.close()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
