"""Write the golden files with mosaicml-streaming 0.13.0:
`PYTHONPATH=. <its python> tests/foreign/mds/golden/write.py FOLDER`.

Each dataset is in a folder of its own. `expected.json` has the values of its samples, as they were given to the writer,
in the notation of `tests/foreign/mds/notation.py`: encoded images as the bytes that its encoder made. Where it has a
number, the dataset has that many of the samples "mixed".
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.foreign.mds.notation import noted
from tools.peers.mosaicml import PEER

PEER.warm()

from streaming import MDSWriter  # noqa: E402
from streaming.base.format.mds.encodings import mds_encode  # noqa: E402
from streaming.base.hashing import get_hashes  # noqa: E402
from streaming.base.util import merge_index  # noqa: E402

Sample = dict[str, Any]

_EDGES: dict[np.dtype[Any], list[Any]] = {
    np.dtype(kind): [np.iinfo(kind).min, np.iinfo(kind).max, 7]
    for kind in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
} | {np.dtype(kind): [0.5, -np.inf, np.finfo(kind).max] for kind in ("float16", "float32", "float64")}


def image(mode: str, width: int, height: int) -> Image.Image:
    rgb = Image.fromarray(np.arange(width * height * 3, dtype=np.uint8).reshape(height, width, 3) * 5)
    return rgb.convert(mode)


_IMAGES = [image("RGB", 3, 2), image("L", 2, 2), image("1", 9, 2)]

ENCODINGS: dict[str, list[Any]] = {
    "bytes": [b"\x00\xffraw", b"", b"x"],
    "str": ["text", "", "Grüße \U0001f600"],
    "int": [0, -(2**63), 2**63 - 1],
    **{dtype.name: [dtype.type(value) for value in values] for dtype, values in _EDGES.items()},
    "str_int": [0, -(10**40), 7],
    "str_float": [0.1, float("-inf"), 1e300],
    "str_decimal": [Decimal("0.10"), Decimal("-1E+50"), Decimal("NaN")],
    "ndarray": [np.array(values, dtype) for dtype, values in _EDGES.items()]
    + [np.ones((2, 1, 300), np.int8), np.zeros((1,) * 12, np.float16)],
    "ndarray:float32": [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(1, np.float32)],
    "ndarray:int16:2,3": [np.arange(6, dtype=np.int16).reshape(2, 3), -np.ones((2, 3), np.int16)],
    "pil": [*_IMAGES, image("RGBA", 1, 1), image("P", 2, 3), image("I;16", 2, 1), image("F", 1, 2)],
    "jpeg": [_IMAGES[0], b"\xff\xd8\xff stored as it was given", image("L", 5, 4)],
    "png": [_IMAGES[0], b"stored as it was given", image("RGBA", 2, 2)],
    "list[pil]": [_IMAGES, [], _IMAGES[:1]],
    "list[jpeg]": [_IMAGES[:2], [], _IMAGES[:1]],
    "list[png]": [_IMAGES, [], _IMAGES[:1]],
    "jpeg_array": [[b"\xff\xd8\xff 1", b"", b"\xff\xd8\xff 3"], [b"\xff\xd8\xff"]],
    "jpegarray": [[b"\xff\xd8\xff 1", b"", b"\xff\xd8\xff 3"], [b"\xff\xd8\xff"]],
    "json": [{"a": [1, None, 0.5], "ß": True}, [], "text", 12],
}

_MIXED = {
    "arr": "ndarray:float32:2,3", "b": "bytes", "dyn": "ndarray", "id": "int", "j": "json", "txt": "str",
}  # fmt: skip


def mixed(number: int) -> Sample:
    return {
        "arr": np.full((2, 3), number, np.float32),
        "b": b"\xfe" * (number % 3),
        "dyn": np.arange(number % 5 + 1, dtype=np.int16),
        "id": number,
        "j": {"number": number},
        "txt": f"s{number}" * (number % 4),
    }


def expected_of(encoding: str, value: Any) -> Any:
    """Return what a reader of ours returns: encoded images stay encoded."""
    if encoding in ("jpeg", "png"):
        return mds_encode(encoding, value)
    if encoding in ("list[jpeg]", "list[png]"):
        return [mds_encode(encoding[5:-1], each) for each in value]
    return np.int64(value) if encoding == "int" else value


def main(root: Path) -> None:
    expected: dict[str, int | list[dict[str, Any]]] = {}

    def add(name: str, columns: dict[str, str], samples: list[Sample], **options: Any) -> None:
        with MDSWriter(out=str(root / name), columns=columns, **{"size_limit": 2**16, **options}) as out:
            for sample in samples:
                out.write(sample)
        expected[name] = [
            {column: noted(expected_of(columns[column], value)) for column, value in sample.items() if column != "pkl"}
            for sample in samples
        ]

    def add_mixed(name: str, numbers: range = range(20), **options: Any) -> None:
        add(name, _MIXED, [mixed(number) for number in numbers], **{"size_limit": 1200, **options})
        if name != "mixed":
            expected[name] = len(numbers)

    for encoding, values in ENCODINGS.items():
        name = "encoding-" + encoding.replace(":", "-").replace("[", "-").replace("]", "").replace(",", "x")
        add(name, {"x": encoding, "y": "str"}, [{"x": value, "y": f"y{k}"} for k, value in enumerate(values)])
    add("encoding-pkl", {"id": "int", "pkl": "pkl"}, [{"id": k, "pkl": {"number": k}} for k in range(2)])
    add("empty-shard", {"b": "bytes"}, [{"b": b"x" * 300}, {"b": b"y"}], size_limit=200)
    add_mixed("mixed")
    for compression in ("br", "br:3", "bz2", "bz2:1", "gz", "gz:1", "snappy", "zstd", "zstd:19"):
        add_mixed("compression-" + compression.replace(":", "-"), compression=compression)
    hashes = sorted(get_hashes())
    add_mixed("hashes", hashes=hashes)
    add_mixed("hashes-zstd", hashes=hashes, compression="zstd")
    add_mixed("hash-sha1", range(5), hashes=["sha1"])
    for part in range(3):
        numbers = range(part * 5, part * 5 + 5)
        add_mixed(f"merged/part{part}", numbers, size_limit=900, compression="zstd" if part == 1 else None)
        del expected[f"merged/part{part}"]
    merge_index(str(root / "merged"), keep_local=True)
    expected["merged"] = 15
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in expected.items())
    (root / "expected.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
