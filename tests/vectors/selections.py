"""Vectors of section 5.2 of format-spec.md: conditions, names of selections, and good and bad files of them:
`selections-v1.json`.

Computed without code of mdsx: each condition is beside a function of a row.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import xxhash

from tests.format import reference

Row = dict[str, Any]

_TYPES = {
    "label": "int8",
    "big": "int64",
    "u": "uint64",
    "half": "float16",
    "score": "float32",
    "exact": "float64",
    "ok": "bool",
    "maybe": "int32?",
    "sure": "bool?",
    "a b": "uint8",
    "length": "uint16",
}
_VALUES: dict[str, list[Any]] = {
    "label": [-3, -1, 0, 1, 2, 3, 3, 127],
    "big": [-(2**63), 2**53, 2**53 + 1, 0, 1, 2, 3, 2**63 - 1],
    "u": [0, 2**53, 2**63, 2**64 - 1, 1, 2, 3, 4],
    "half": [0.1, 0.9, 1.0, math.nan, math.inf, -math.inf, -0.0, 65504.0],
    "score": [0.1, 0.9, 1.0, math.nan, math.inf, -math.inf, 16777216.0, 3.0],
    "exact": [0.1, 0.9, 1.0, math.nan, math.inf, -math.inf, 2.0**53, 3.0],
    "ok": [True, False, True, False, True, False, True, False],
    "maybe": [None, 1, 2, 3, None, 5, 6, -1],
    "sure": [None, True, False, None, True, False, None, True],
    "a b": [0, 1, 2, 3, 4, 5, 6, 255],
    "length": [0, 1, 2, 3, 4, 5, 6, 7],
}
_LENGTHS = {"tokens": [0, 1, 64, 65, 2**32 - 1, 3, 127, 128]}
_STRUCT = {"float16": "<e", "float32": "<f", "float64": "<d"}


def _as(type: str, number: float) -> float:
    """Return a float rounded to a type."""
    found: float = struct.unpack(_STRUCT[type], struct.pack(_STRUCT[type], number))[0]
    return found


def _rows() -> list[Row]:
    rows = []
    for at in range(8):
        row = {name: values[at] for name, values in _VALUES.items()}
        row |= {name: _as(type, row[name]) for name, type in _TYPES.items() if type in _STRUCT}
        rows.append({**row, "tokens": _LENGTHS["tokens"][at]})
    return rows


def _not(found: bool | None) -> bool | None:
    return None if found is None else not found


def _maybe(row: Row, of: Callable[[int], bool]) -> bool | None:
    return None if row["maybe"] is None else of(row["maybe"])


def _or(*found: bool | None) -> bool | None:
    return True if True in found else None if None in found else False


_CONDITIONS: list[tuple[str, Callable[[Row], bool | None]]] = [
    ("label = 3", lambda row: row["label"] == 3),
    ("3==label", lambda row: row["label"] == 3),
    ("label = 3.0", lambda row: row["label"] == 3),
    ("label <> 3", lambda row: row["label"] != 3),
    ("label > 2.5", lambda row: row["label"] > 2.5),
    ("label <= -0.5", lambda row: row["label"] < 0),
    ("label < 128", lambda row: True),
    ("label = 131", lambda row: False),  # not 131 - 128
    ("label != 10000000000000000000000", lambda row: True),
    ("+1 < label", lambda row: row["label"] > 1),
    ("big = 9007199254740993", lambda row: row["big"] == 2**53 + 1),
    ("big > 9007199254740992.0", lambda row: row["big"] > 2**53),
    ("big >= 9223372036854775808", lambda row: False),
    ("u > -1", lambda row: True),
    ("u >= 9223372036854775808", lambda row: row["u"] >= 2**63),
    ("u = 1.8446744073709552e19", lambda row: False),  # 2^64
    ("u > big", lambda row: row["u"] > row["big"]),
    ("big != u", lambda row: row["u"] != row["big"]),
    ("half = 0.1", lambda row: row["half"] == _as("float16", 0.1)),
    ("score = 0.1", lambda row: row["score"] == _as("float32", 0.1)),
    ("exact = 0.1", lambda row: row["exact"] == 0.1),
    ("score = half", lambda row: row["score"] == row["half"]),
    ("score >= exact", lambda row: row["score"] >= row["exact"]),
    ("score = 16777217", lambda row: False),
    ("score < 16777217", lambda row: row["score"] < 16777217),
    ("score > 1e39", lambda row: row["score"] > 1e39),
    ("score < 1e39", lambda row: row["score"] < 1e39),
    ("half <= 65519.9", lambda row: row["half"] <= 65504),
    ("half > 65520.0", lambda row: row["half"] == math.inf),
    ("exact >= 9007199254740993", lambda row: row["exact"] > 2.0**53),
    ("exact = -0.0", lambda row: row["exact"] == 0),
    ("half = 0", lambda row: row["half"] == 0),
    ("score = score", lambda row: row["score"] == row["score"]),
    ("score != score", lambda row: row["score"] != row["score"]),
    ("not score > 1", lambda row: not row["score"] > 1),
    ("score > label", lambda row: row["score"] > row["label"]),
    ("ok", lambda row: row["ok"]),
    ("NOT ok", lambda row: not row["ok"]),
    ("ok = true", lambda row: row["ok"]),
    ("ok != True", lambda row: not row["ok"]),
    ("ok in (false)", lambda row: not row["ok"]),
    ("maybe > 1", lambda row: _maybe(row, lambda value: value > 1)),
    ("not maybe > 1", lambda row: _not(_maybe(row, lambda value: value > 1))),
    ("not not maybe > 1", lambda row: _maybe(row, lambda value: value > 1)),
    ("maybe > 1 or label < 0", lambda row: _or(_maybe(row, lambda value: value > 1), row["label"] < 0)),
    ("not (maybe > 1 and ok)", lambda row: _or(_not(_maybe(row, lambda value: value > 1)), not row["ok"])),
    ("maybe = maybe", lambda row: _maybe(row, lambda value: True)),
    ("maybe in (1, 2, 3)", lambda row: _maybe(row, lambda value: value in (1, 2, 3))),
    ("maybe not in (1, 2, 3)", lambda row: _maybe(row, lambda value: value not in (1, 2, 3))),
    ("maybe is null", lambda row: row["maybe"] is None),
    ("maybe IS NOT NULL", lambda row: row["maybe"] is not None),
    ("label is null", lambda row: False),
    ("sure", lambda row: row["sure"]),
    ("not sure", lambda row: _not(row["sure"])),
    ("sure = false", lambda row: _not(row["sure"])),
    ("label between -1 and 2", lambda row: -1 <= row["label"] <= 2),
    ("label not between -1 and 2 and ok", lambda row: not -1 <= row["label"] <= 2 and row["ok"]),
    ("label between 5 and 2", lambda row: False),
    ("label in (3, 2.0, 2.5, -1, 300)", lambda row: row["label"] in (3, 2, -1)),
    ("score in (0.1, 1, 3.0)", lambda row: row["score"] in (_as("float32", 0.1), 1, 3)),
    ("u in (-1, 18446744073709551615)", lambda row: row["u"] == 2**64 - 1),
    ("length(tokens) > 64", lambda row: row["tokens"] > 64),
    ("Length ( tokens ) = 4294967295", lambda row: row["tokens"] == 2**32 - 1),
    ("length(tokens) > big", lambda row: row["tokens"] > row["big"]),
    ("length(tokens) > score", lambda row: row["tokens"] > row["score"]),
    ("length > 3", lambda row: row["length"] > 3),
    ('"a b" = 255', lambda row: row["a b"] == 255),
    ('"label"=3', lambda row: row["label"] == 3),
    ("label = 3 or label = 2 and not ok", lambda row: row["label"] == 3 or (row["label"] == 2 and not row["ok"])),
    ("(label = 3 or label = 2) and not ok", lambda row: row["label"] in (2, 3) and not row["ok"]),
    ("label\n=\t3 AND\r\nok", lambda row: row["label"] == 3 and row["ok"]),
]
_REFUSED = [
    "", " ", "label", "label = ", "= 3", "label = 'x'", "label = 3 3", "label = 3 and", "(label = 3", "label = 3)",
    "(label) = 3", "1 = 1", "1 < 2", "1 in (1)", "label in ()", "label in 3", "label in (ok)", "label not 3",
    "label is 3", "length(tokens) is null", "length(label, big) = 3", "length() = 3", "length(score) = 3",
    "nothing = 3", "length(nothing) = 3", "ok = 1", "label = true", "ok < true", "ok > label", "ok in (1)",
    "label in (1, true)", "big > score", "u = exact", "label + 1 = 3", "-label = 3", "label = 1e999", "label = 0x1",
    "label = 1_0", "label = nan", "label = inf", "label = 3;", "label = 3 -- x", "label === 3", "label => 3",
    "label && ok", "!ok", "null is null", "label = null", "a b = 3", '"a b = 3', "`label` = 3", "label = ٣", "not",
    "true", "ok is true",
    "not " * 65 + "ok", "(" * 65 + "ok" + ")" * 65,
]  # fmt: skip
_NAMES = ["hard", "Hard-2.0_x", "0", "a" * 100]
_NO_NAMES = ["", "a" * 101, ".a", "-a", "_a", "a b", "a/b", "é", "a\n"]
_FINGERPRINT = "c344224789ad69dcc5e596e908f5ceeb"  # of `good/plain`
_WHERE = "id >= 2 and length(text) != 3"
_MARKS = [False, False, True, False, True]


def text() -> str:
    rows = _rows()
    lists: dict[str, list[dict[str, Any]]] = {
        "conditions": [
            {"condition": condition, "value": [at for at, row in enumerate(rows) if of(row) is True]}
            for condition, of in _CONDITIONS
        ],
        "refused": [{"condition": condition} for condition in _REFUSED],
        "file_name": [
            *({"name": name, "value": f"_selections/{name}-{_FINGERPRINT}.json"} for name in _NAMES),
            *({"name": name, "value": None} for name in _NO_NAMES),
        ],
        "files": [{"about": about, "text": data.decode(), "value": found} for about, data, found in _files()],
    }
    columns = {name: {"type": type, "values": list(map(_plain, _VALUES[name]))} for name, type in _TYPES.items()}
    parts = ['"version": 1', f'"columns": {json.dumps(columns)}', f'"lengths": {json.dumps(_LENGTHS)}']
    parts += [
        f'"{name}": [\n' + ",\n".join(json.dumps(vector) for vector in vectors) + "\n]"
        for name, vectors in lists.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return str(value) if type(value) is int else value


def example() -> bytes:
    """Return the file of the specification's example."""
    return reference.selection("some", _FINGERPRINT, _WHERE, _MARKS)


def _files() -> list[tuple[str, bytes, Any]]:
    """Files of the selection `some` of the dataset `good/plain`, with the numbers that it has."""

    def made(marks: list[bool] = _MARKS, name: str = "some", **others: Any) -> bytes:
        return reference.selection(name, _FINGERPRINT, _WHERE, marks, **others)

    good, head = example(), example()[:-32].decode()
    fields: dict[str, Any] = json.loads(good)
    fields.pop("checksum")

    def resealed(**changed: Any) -> bytes:
        return reference.seal_index({**fields, **changed})

    def without(key: str) -> bytes:
        return reference.seal_index({name: value for name, value in fields.items() if name != key})

    start, _, rest = head.partition(',"name"')
    spaced = reference.seal_index(f'{start}, "name"{rest}')
    return [
        ("good", good, [2, 4]),
        ("none", made([False] * 5), []),
        ("all", made([True] * 5), [0, 1, 2, 3, 4]),
        ("white space", spaced, [2, 4]),
        ("unknown keys", resealed(later=[1]), [2, 4]),
        ("an escape in the bitmap", reference.seal_index(head.replace('"FA=="', '"\\u0046A=="')), [2, 4]),
        ("another name", made(name="other"), "corrupt"),
        ("another fingerprint", resealed(fingerprint="0" * 32), "corrupt"),
        ("a sample more", made([*_MARKS, False]), "corrupt"),
        ("a sample less", made(_MARKS[:4]), "corrupt"),
        ("another number of samples", made(selected=3), "corrupt"),
        ("a bit after the last sample", resealed(bitmap=base64.b64encode(b"\x34").decode(), selected=3), "corrupt"),
        ("a byte more", resealed(bitmap=base64.b64encode(b"\x14\0").decode()), "corrupt"),
        ("no byte", resealed(bitmap=""), "corrupt"),
        ("no padding", resealed(bitmap="FA"), "corrupt"),
        ("bits after the last byte", resealed(bitmap="FB=="), "corrupt"),
        ("other digits", resealed(bitmap="F_=="), "corrupt"),
        ("white space in the bitmap", resealed(bitmap="FA==\n"), "corrupt"),
        ("a negative count", resealed(selected=-2), "corrupt"),
        ("a fraction", resealed(samples=5.5), "corrupt"),
        ("no text", resealed(where=3), "corrupt"),
        *((f"without {key}", without(key), "corrupt") for key in fields if key not in ("format", "version")),
        ("version 0", reference.seal_index(head.replace('"version":1', '"version":0')), "corrupt"),
        ("version 2", reference.seal_index(head.replace('"version":1', '"version":2')), "unsupported"),
        ("version 2, damaged", good.replace(b'"version":1', b'"version":2'), "unsupported"),
        ("another format", reference.seal_index(head.replace("mdsx-selection", "mdsx-lengths")), "corrupt"),
        ("a damaged byte", good.replace(b"length", b"lenght"), "corrupt"),
        ("cut", good[:-1], "corrupt"),
        ("a line feed more", good + b"\n", "corrupt"),
        ("empty", b"", "corrupt"),
        ("no checksum", f"{head}}}\n".encode(), "corrupt"),
        ("another checksum", f'{head},"checksum":"{xxhash.xxh3_64_hexdigest(b"")}"}}\n'.encode(), "corrupt"),
    ]
