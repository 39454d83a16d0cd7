"""MDS, read and written plainly: a second reading of the format, without any code of `mdsx.foreign.mds`.

shard = u32 n; u32 offset of each sample, and of the end; the columns as JSON; the samples
sample = u32 size of each variable-size column; then the values of all columns, in order
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import xxhash
import zstandard
from PIL import Image

_DTYPES = {
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4", 64: "<u8", 65: "<i8", 66: "<f8",
}  # fmt: skip
_CODES = {np.dtype(kind).name: code for code, kind in _DTYPES.items()}


# --- reading


def read_dataset(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the samples of a dataset. Pickles are read as None."""
    index = json.loads((folder / "index.json").read_text())
    assert index["version"] == 2
    for shard in index["shards"]:
        stored = (folder / (shard["zip_data"] or shard["raw_data"])["basename"]).read_bytes()
        check_hashes(stored, (shard["zip_data"] or shard["raw_data"])["hashes"])
        raw = decompress(stored, shard["compression"])
        check_hashes(raw, shard["raw_data"]["hashes"])
        assert len(raw) == shard["raw_data"]["bytes"]
        samples = list(read_shard(raw, shard))
        assert len(samples) == shard["samples"]
        yield from samples


def check_hashes(data: bytes, hashes: Mapping[str, str]) -> None:
    for name, digits in hashes.items():
        hasher = getattr(xxhash if name.startswith("xxh") else hashlib, name)
        assert hasher(data).hexdigest() == digits


def decompress(data: bytes, compression: str | None) -> bytes:
    match (compression or "").partition(":")[0]:
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        case "gz":
            return gzip.decompress(data)
        case "bz2":
            return bz2.decompress(data)
        case "br":
            return bytes(cramjam.brotli.decompress(data))
        case "snappy":
            return bytes(cramjam.snappy.decompress_raw(data))
    return data


def read_shard(raw: bytes, shard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    (count,) = struct.unpack("<I", raw[:4])
    offsets = struct.unpack(f"<{count + 1}I", raw[4 : 8 + 4 * count])
    columns = list(zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True))
    for low, high in pairwise(offsets):
        file = io.BytesIO(raw[low:high])
        sizes = [struct.unpack("<I", file.read(4))[0] if size is None else size for _, _, size in columns]
        yield {
            name: decode(encoding, file.read(size)) for (name, encoding, _), size in zip(columns, sizes, strict=True)
        }
        assert not file.read()


def decode(encoding: str, data: bytes) -> Any:
    name, _, config = encoding.partition(":")
    match name:
        case "bytes" | "jpeg" | "png":
            return data
        case "str":
            return data.decode()
        case "int":
            return np.frombuffer(data, "<i8")[0]
        case "str_int":
            return int(data)
        case "str_float":
            return float(data)
        case "str_decimal":
            return Decimal(data.decode())
        case "json":
            return json.loads(data)
        case "pkl":
            return None
        case "pil":
            width, height, size = struct.unpack("<3I", data[:12])
            return Image.frombytes(data[12 : 12 + size].decode(), (width, height), data[12 + size :])
        case "list[pil]" | "list[jpeg]" | "list[png]":
            return [decode(name[5:-1], item) for item in items(data[4:])]
        case "jpeg_array" | "jpegarray":
            return items(data)
        case "ndarray":
            return ndarray(data, *config.split(":")) if config else ndarray(data)
    return np.frombuffer(data, np.dtype(name).newbyteorder("<"))[0]


def items(data: bytes) -> list[bytes]:
    count = int.from_bytes(data[:4], "little")
    file = io.BytesIO(data[4 + 4 * count :])
    return [file.read(size) for size in struct.unpack(f"<{count}I", data[4 : 4 + 4 * count])]


def ndarray(data: bytes, dtype: str = "", dims: str = "") -> Any:
    file = io.BytesIO(data)
    kind = np.dtype(dtype or _DTYPES[file.read(1)[0]]).newbyteorder("<")
    shape = [int(dim) for dim in dims.split(",")] if dims else []
    if not dims:
        head = file.read(1)[0]
        size = 2 ** (head % 4)
        shape = [int.from_bytes(file.read(size), "little") for _ in range(head // 4)]
    return np.frombuffer(file.read(), kind).reshape(shape)


# --- writing


def encode(encoding: str, value: Any) -> bytes:
    """Return the stored bytes of a value; bytes are stored as they are."""
    if isinstance(value, bytes):
        return value
    name, _, config = encoding.partition(":")
    if name in ("str", "str_int", "str_float", "str_decimal"):
        return str(value).encode()
    if name == "json":
        return json.dumps(value).encode()
    if name == "ndarray":
        found = np.asarray(value)
        largest = max(found.shape, default=0)
        power = next(power for power in range(4) if largest < 256 ** (2**power))
        head = bytes([found.ndim << 2 | power]) + b"".join(dim.to_bytes(2**power, "little") for dim in found.shape)
        code = b"" if config else bytes([_CODES[found.dtype.name]])
        return found.tobytes() if ":" in config else code + head + found.tobytes()
    kind = "int64" if name == "int" else name
    return np.array(value, np.dtype(kind).newbyteorder("<")).tobytes()


def width(encoding: str) -> int | None:
    name, _, config = encoding.partition(":")
    if name == "ndarray":
        dtype, _, dims = config.partition(":")
        return int(np.prod([int(dim) for dim in dims.split(",")])) * np.dtype(dtype).itemsize if dims else None
    if name in ("int", *_CODES):
        return np.dtype("int64" if name == "int" else name).itemsize
    return None


def shard_bytes(columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]]) -> bytes:
    """Return an uncompressed shard. `columns`: name -> encoding, in any order."""
    config = json.dumps({"columns": "anything"}).encode()
    bodies = []
    for sample in samples:
        values = [encode(columns[name], sample[name]) for name in sorted(columns)]
        varying = [
            len(value) for name, value in zip(sorted(columns), values, strict=True) if width(columns[name]) is None
        ]
        bodies.append(struct.pack(f"<{len(varying)}I", *varying) + b"".join(values))
    at = 4 * (len(samples) + 2) + len(config)
    offsets = [at]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    return struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + config + b"".join(bodies)


def entry(columns: Mapping[str, str], name: str, raw: bytes, count: int, hashes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the index's object of an uncompressed shard."""
    names = sorted(columns)
    found = {name: getattr(xxhash if name.startswith("xxh") else hashlib, name)(raw).hexdigest() for name in hashes}
    return {
        "column_encodings": [columns[name] for name in names],
        "column_names": names,
        "column_sizes": [width(columns[name]) for name in names],
        "compression": None,
        "format": "mds",
        "hashes": list(hashes),
        "raw_data": {"basename": name, "bytes": len(raw), "hashes": found},
        "samples": count,
        "size_limit": 2**26,
        "version": 2,
        "zip_data": None,
    }


def compress(name: str, data: bytes) -> bytes:
    match name:
        case "br":
            return bytes(cramjam.brotli.compress(data, level=1))
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(data))
        case "zstd":
            return zstandard.compress(data)
    return gzip.compress(data, 1) if name == "gz" else bz2.compress(data, 1)


def zipped(found: Mapping[str, Any], compression: str, stored: bytes) -> dict[str, Any]:
    """Return the index's object of a shard whose compressed file is `stored`."""
    data = {"basename": f"{found['raw_data']['basename']}.{compression}", "bytes": len(stored), "hashes": {}}
    return {**found, "compression": compression, "zip_data": data}


def index_bytes(entries: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({"shards": list(entries), "version": 2}, sort_keys=True).encode()


def write_dataset(
    folder: Path,
    columns: Mapping[str, str],
    shards: Sequence[Sequence[Mapping[str, Any]]],
    hashes: Sequence[str] = (),
) -> None:
    """Write a dataset of uncompressed shards."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, samples in enumerate(shards):
        name, raw = f"shard.{number:05d}.mds", shard_bytes(columns, samples)
        (folder / name).write_bytes(raw)
        entries.append(entry(columns, name, raw, len(samples), hashes))
    (folder / "index.json").write_bytes(index_bytes(entries))
