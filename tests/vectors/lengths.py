"""Vectors of section 5.1 of format-spec.md: names of files, lengths by each rule, good and bad files of lengths, and
default windows: `lengths-v1.json` and `windows-v1.json`.

Computed without code of mdsx.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import xxhash

from tests.format import reference

_COLUMNS = [
    "tokens", "Tokens", "a b", "a/b", ".a.b", "..", "-", "_x", "=41", "é", "文字", "a\u200db", "x" * 200, "x" * 201,
    "x" * 255, "é" * 33 + "ab", "é" * 33 + "abc", "é" * 127, "CON", "a:b", "~",
]  # fmt: skip
_RULES: list[tuple[str, list[bytes | None], Any]] = [  # type, stored values, lengths, or None if they are refused
    ("uint16[*]", [b"\0\0\0\0", b"\2\0\0\0abcd"], [0, 2]),
    ("float64[*]?", [None, b"\1\0\0\0abcdefgh"], [0, 1]),
    ("bool[*]", [b"\3\0\0\0\1\0\1"], [3]),
    ("uint16[*]", [b"\2\0\0\0abc"], None),  # a remainder
    ("uint16[*]", [b"\0\0\0"], None),
    ("uint16[3]", [b"abcdef", b"ghijkl"], [3, 3]),
    ("uint16[3]?", [b"abcdef", None], [3, 0]),
    ("uint16[3]?", [b"abcd"], None),
    ("uint16[0]?", [b"", None], [0, 0]),
    ("bytes", [b"", b"abc"], [0, 3]),
    ("str?", ["é".encode(), None], [2, 0]),
    ("json", [b" 1 "], [3]),
    ("msgpack", [b"\xc0"], [1]),
    ("jpeg", [b"abc"], [3]),
    ("uint8", [b"\xff"], [255]),
    ("int8", [b"\xff"], None),
    ("uint32", [b"\xff\xff\xff\xff"], [2**32 - 1]),
    ("uint64", [b"\0\0\0\0\1\0\0\0"], None),  # 2^32
    ("uint64", [b"\xff" * 8], None),
]
_NO_RULE = ["bool", "float32", "int32?", "uint8[2,2]", "uint8[*,*]", "str[*]", "video", "video[*]"]
_IDENTITY = ("c344224789ad69dcc5e596e908f5ceeb", "text", "bytes")
_SHARDS = [[0, 1], [2, 3, 4]]


def text() -> str:
    lists = {
        "file_name": [{"column": column, "value": _file_name(column)} for column in _COLUMNS],
        "lengths": [
            {"type": kind, "bytes": [value if value is None else value.hex() for value in values], "value": found}
            for kind, values, found in _RULES
        ],
        "no_rule": [{"type": kind} for kind in _NO_RULE],
        "files": [{"about": about, "hex": data.hex(), "value": found} for about, data, found in _files()],
    }
    return _json(['"version": 1'], lists)


def _json(parts: list[str], lists: dict[str, list[dict[str, Any]]]) -> str:
    parts += [f'"{name}": [\n' + ",\n".join(map(json.dumps, vectors)) + "\n]" for name, vectors in lists.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _file_name(column: str) -> str:
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    name = ""
    for at, byte in enumerate(column.encode()):
        name += chr(byte) if byte in plain or (byte == ord(".") and at) else f"={byte:02X}"
    if len(name) > 200:
        name = f"{name[:200]}={xxhash.xxh3_64_hexdigest(column.encode())}"
    return f"_lengths/{name}.u32"


def _files() -> list[tuple[str, bytes, Any]]:
    """Files of the dataset `good/plain`, with their lengths, or `corrupt` or `unsupported`."""
    good = reference.lengths(*_IDENTITY, _SHARDS)
    start, end = good.index(b"{"), len(good) - 32
    trailer = good[start:end].decode()

    def sealed(old: str, new: str) -> bytes:
        assert old in trailer
        return good[:start] + reference.seal_index(trailer.replace(old, new))

    fingerprint, column, rule = _IDENTITY
    return [
        ("the file", good, _SHARDS),
        ("an unknown key, white space", sealed(',"sum"', ', "later":[1] ,"sum"'), _SHARDS),
        ("another sum", sealed('"sum":10', '"sum":11'), "either"),
        ("a later version", sealed('"version":1,', '"version":2,'), "unsupported"),
        ("a version of 40 digits", sealed('"version":1,', f'"version":{10**40},'), "unsupported"),
        ("version 0", sealed('"version":1,', '"version":0,'), "corrupt"),
        ("another format", sealed("mdsx-lengths", "mdsx-length"), "corrupt"),
        ("no samples", sealed('"samples":5,', ""), "corrupt"),
        ("another number of samples", sealed('"samples":5', '"samples":6'), "corrupt"),
        ("a hash too few", good[:start] + _without_hash(trailer), "corrupt"),
        ("a hash in upper case", good[:start] + _upper(trailer), "corrupt"),
        ("another dataset", reference.lengths("0" * 32, column, rule, _SHARDS), "corrupt"),
        ("another column", reference.lengths(fingerprint, "id", rule, _SHARDS), "corrupt"),
        ("another rule", reference.lengths(fingerprint, column, "values", _SHARDS), "corrupt"),
        ("shards of other sizes", reference.lengths(fingerprint, column, rule, [[0, 1, 2], [3, 4]]), "corrupt"),
        ("shards in another order", reference.lengths(fingerprint, column, rule, [[2, 3, 4], [0, 1]]), "corrupt"),
        ("another length", bytes([1]) + good[1:], "corrupt"),
        ("another checksum", good[:-4] + (b"0" if good[-4:-3] != b"0" else b"1") + good[-3:], "corrupt"),
        ("no line feed at the end", good[:-1], "corrupt"),
        ("a byte after the end", good + b"\n", "corrupt"),
        ("a length too many", bytes(4) + good, "corrupt"),
        ("the trailer alone", good[start:], "corrupt"),
        ("an empty file", b"", "corrupt"),
    ]  # fmt: skip


def _hashes(trailer: str) -> str:
    return trailer.partition('"xxh3_64":"')[2].partition('"')[0]


def _without_hash(trailer: str) -> bytes:
    return reference.seal_index(trailer.replace(_hashes(trailer), _hashes(trailer)[16:]))


def _upper(trailer: str) -> bytes:
    return reference.seal_index(trailer.replace(_hashes(trailer), _hashes(trailer).upper()))


# --- windows

_WINDOWS: list[tuple[int, list[dict[str, int] | None]]] = [
    (4096, [{"samples": 100, "sum": 98925}]),
    (16, [{"samples": 7, "sum": 7}]),
    (17, [{"samples": 7, "sum": 7}]),
    (49, [{"samples": 3, "sum": 9}]),
    (48, [{"samples": 3, "sum": 9}]),
    (16, [{"samples": 2**53, "sum": 2**53 - 1}]),
    (16, [{"samples": 2**60, "sum": 2**60 - 1}]),
    (16, [{"samples": 2**60 - 1, "sum": 2**60}]),
    (131072, [{"samples": 0, "sum": 0}]),
    (131072, [{"samples": 5, "sum": 0}]),
    (131072, [None]),
    (2**32 - 1, [{"samples": 2**40, "sum": 1}]),
    (65536, [{"samples": 1000, "heap": 1978500, "item": 2}]),
    (65536, [{"samples": 1000, "heap": 1978501, "item": 2}]),
    (1016, [{"samples": 8, "heap": 511, "item": 8}]),
    (1022, [{"samples": 8, "heap": 511, "item": 8}]),
    (1023, [{"samples": 8, "heap": 511, "item": 8}]),
    (65536, [{"samples": 1000, "sum": 100000}, {"samples": 10, "heap": 4000001, "item": 2}]),
    (28, [{"samples": 1, "sum": 2}, {"samples": 1, "heap": 3, "item": 2}]),
    (
        65536,
        [
            {"samples": 1000, "sum": 100000},
            {"samples": 10, "heap": 4000001, "item": 4},
            {"samples": 3, "heap": 11, "item": 1},
        ],
    ),
    (8192, [{"samples": 1000, "sum": 100000}, None]),
    (8192, [{"samples": 1000, "sum": 100}, {"samples": 5, "sum": 0}]),
]  # fmt: skip


def windows_text() -> str:
    made = [
        {"capacity": capacity, "components": given, "value": _window(capacity, given)} for capacity, given in _WINDOWS
    ]
    return _json(['"groups_version": 1'], {"default_window": made})


def _window(capacity: int, components: list[dict[str, int] | None]) -> int:
    known = [each for each in components if each is not None]
    total = sum(
        (Fraction(each["sum"]) if "sum" in each else Fraction(each["heap"], each["item"]) for each in known), Fraction()
    )
    least = 2048
    if len(known) == len(components) and total:
        least = max(2048, 128 * -(-(capacity * sum(each["samples"] for each in known)) // total))
    window = 1
    while window < least:
        window *= 2
    return min(window, 2**31)
