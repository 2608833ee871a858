"""What make.py and fuzz.py share: vocabularies, and Hugging Face tokenizers made of them."""

import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_characters():
    """GPT-2's visible character for each byte."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = {byte: chr(byte) for byte in visible}
    rest = [byte for byte in range(256) if byte not in characters]
    characters.update({byte: chr(256 + i) for i, byte in enumerate(rest)})
    return [characters[byte] for byte in range(256)]


def byte_vocabulary(pre, merges=(), added=()):
    """The fixture of the field cases: id = byte, then the merges (pairs of bytes objects), then
    added tokens as (text, type)."""
    to_character = byte_characters()
    mapped = lambda data: "".join(to_character[byte] for byte in data)
    pieces = [to_character[byte] for byte in range(256)]
    pieces += [mapped(left + right) for left, right in merges]
    types = [NORMAL] * len(pieces) + [kind for _, kind in added]
    return {
        "pre": pre,
        "pieces": pieces + [text for text, _ in added],
        "types": types,
        "merges": [f"{mapped(left)} {mapped(right)}" for left, right in merges],
        "bos": -1,
        "add_bos": False,
    }


def pair_vocabulary(pre, seed=1):
    """Every pair of bytes merges, in random order, so that each border of a word shows in the
    ids; words of up to three bytes are pieces too, where whole words count."""
    pairs = [(bytes([a]), bytes([b])) for a in range(256) for b in range(256)]
    random.Random(seed).shuffle(pairs)
    return byte_vocabulary(pre, pairs, [("<|x|>", CONTROL), ("<|x", USER_DEFINED)])


def gguf_vocabulary(path=MODEL):
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    get = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    return {
        "pre": get("pre"),
        "pieces": get("tokens"),
        "types": [int(kind) for kind in get("token_type")],
        "merges": get("merges"),
        "bos": int(get("bos_token_id")),
        "add_bos": bool(get("add_bos_token")),
    }


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def pre_tokenizer(kind):
    """smollm: as in tokenizer.json of HuggingFaceTB/SmolLM2-135M (revision 93efa2f), which is
    Digits(individual_digits) and then ByteLevel without a prefix space and with its own pattern;
    its model has no unknown token and no byte fallback, so that bytes without a piece (0x04,
    0x06, 0x13, ...) are dropped. gpt2, llama-bpe: as in the tokenizer.json of GPT-2 and Llama 3.
    default: llama.cpp's patterns for files that name no kind, as a sequence of splits."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return {
        "smollm": lambda: pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), byte_level]
        ),
        "gpt2": lambda: byte_level,
        "llama-bpe": lambda: pre_tokenizers.Sequence([split(LLAMA3), plain]),
        "default": lambda: pre_tokenizers.Sequence(
            [split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"),
             split(r"[0-9][0-9][0-9]"), plain]
        ),
    }[kind]()


def hugging_face(vocabulary):
    pieces, kinds = vocabulary["pieces"], vocabulary["types"]
    kind = vocabulary["pre"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[tuple(merge.split(" ")) for merge in vocabulary["merges"]],
            ignore_merges=kind == "llama-bpe",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizer(kind)
    tokenizer.decoder = decoders.ByteLevel()
    for piece, type_ in zip(pieces, kinds):
        if type_ in (CONTROL, UNKNOWN):
            tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False)])
        elif type_ == USER_DEFINED:
            tokenizer.add_tokens([AddedToken(piece, special=False, normalized=False)])
    return tokenizer


def encode(tokenizer, text, parse_special=True):
    tokenizer.encode_special_tokens = not parse_special
    return tokenizer.encode(text, add_special_tokens=False).ids
