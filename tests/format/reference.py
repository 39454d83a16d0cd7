"""A second implementation of the format, which reads and breaks files. It shares no code with mdsx.

`read_shard` decodes with `struct` alone. `seal` and `seal_index` recompute the checksums of a file that was broken on
purpose, so that a reader finds the one rule that the file breaks. `frame` makes zstd frames block by block.
Values are in *plain* form, which JSON can hold: see `plain`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import xxhash

NULL = 0xFFFFFFFF
FIELDS = {  # header fields: offset and struct code
    "magic": (0, "8s"),
    "major": (8, "H"),
    "minor": (10, "H"),
    "header_size": (12, "I"),
    "samples": (16, "Q"),
    "row_key": (24, "Q"),
    "row_size": (32, "I"),
    "schema_size": (36, "I"),
    "heap_offset": (40, "Q"),
    "file_size": (48, "Q"),
    "checksum": (56, "Q"),
}
ITEMS = {"bool": "B", "bfloat16": "H", "float16": "e", "float32": "f", "float64": "d"}
ITEMS |= {f"int{8 * size}": code for size, code in zip((1, 2, 4, 8), "bhiq", strict=True)}
ITEMS |= {f"uint{8 * size}": code for size, code in zip((1, 2, 4, 8), "BHIQ", strict=True)}
LATER = {"float8_e4m3fn": "B"}
"""Scalars of later minor versions: always in the heap."""
LISTS = {"bytes", "str", "json", "msgpack", "jpeg", "png", "webp", "avif", "wav", "flac", "mp3", "mp4"}
_TYPE = re.compile(r"([^\[?]+)(?:\[(.*)\])?(\?)?")


# --- shards


def xxh3_128(data: bytes) -> str:
    return str(xxhash.xxh3_128_hexdigest(data))


def get(shard: bytes, field: str) -> Any:
    offset, code = FIELDS[field]
    return struct.unpack_from("<" + code, shard, offset)[0]


def put(shard: bytes, **fields: int | bytes) -> bytes:
    """Return `shard` with other header fields."""
    data = bytearray(shard)
    for field, value in fields.items():
        offset, code = FIELDS[field]
        struct.pack_into("<" + code, data, offset, value)
    return bytes(data)


def patch(data: bytes, offset: int, new: bytes) -> bytes:
    """Return `data` with `new` written over it at `offset`."""
    assert 0 <= offset <= offset + len(new) <= len(data)
    return data[:offset] + new + data[offset + len(new) :]


def seal(shard: bytes) -> bytes:
    """Return `shard` with the header checksum that its header and schema need."""
    end = get(shard, "header_size") + get(shard, "schema_size")
    return put(shard, checksum=xxhash.xxh3_64_intdigest(shard[:56] + shard[64:end]))


def rows_offset(shard: bytes) -> int:
    """Offset of the rows."""
    return -(-(int(get(shard, "header_size")) + int(get(shard, "schema_size"))) // 64) * 64


def seal_rows(shard: bytes) -> bytes:
    """Return `shard` with the row checksums, row key and header checksum that its rows and heap need."""
    checksums = row_checksums(shard)
    return with_key(shard, row_key(shard, checksums), checksums)


def row_checksums(shard: bytes) -> list[int]:
    """Return the checksums of the rows, without the row key."""
    variable = sum(not fixed(column["type"]) for column in schema(shard))
    checksums = []
    for number in range(get(shard, "samples")):
        row = row_at(shard, number)
        end = row + get(shard, "row_size")
        heap = b"".join(value or b"" for value in heap_values(shard, row, variable))
        checksums.append(xxhash.xxh3_64_intdigest(shard[row + 8 : end] + heap, number))
    return checksums


def row_key(shard: bytes, checksums: Sequence[int]) -> int:
    """Return the row key of a shard whose rows have these checksums."""
    start = get(shard, "header_size")
    text = shard[start : start + get(shard, "schema_size")]
    return int(xxhash.xxh3_64_intdigest(text + struct.pack(f"<{len(checksums)}Q", *checksums)))


def with_key(shard: bytes, key: int, checksums: Sequence[int]) -> bytes:
    """Return `shard` with this row key, and these checksums stored under it."""
    data = bytearray(shard)
    for number, checksum in enumerate(checksums):
        struct.pack_into("<Q", data, row_at(shard, number), checksum ^ key)
    return seal(put(bytes(data), row_key=key))


def enlarged(shard: bytes, header_size: int) -> bytes:
    """Return `shard` as version 1.1 might write it: with `header_size` bytes of header, the new ones not zero."""
    head = shard[:64] + b"\xaa" * (header_size - 64) + shard[64 : 64 + get(shard, "schema_size")]
    offset = -(-len(head) // 64) * 64
    moved = offset - rows_offset(shard)
    fields = {key: get(shard, key) + moved for key in ("heap_offset", "file_size")}
    whole = head.ljust(offset, b"\0") + shard[rows_offset(shard) :]
    return seal(put(whole, minor=1, header_size=header_size, **fields))


def emptied(shard: bytes) -> bytes:
    """Return `shard` without its samples."""
    rows = rows_offset(shard)
    return seal_rows(put(shard[:rows], samples=0, heap_offset=rows, file_size=rows))


def schema(shard: bytes) -> list[dict[str, str]]:
    start = get(shard, "header_size")
    columns: list[dict[str, str]] = json.loads(shard[start : start + get(shard, "schema_size")])
    return columns


def row_at(shard: bytes, number: int) -> int:
    """Offset of row `number`."""
    return rows_offset(shard) + number * int(get(shard, "row_size"))


def heap_values(shard: bytes, row: int, variable: int) -> list[bytes | None]:
    """Return the variable-size values of the row at offset `row`."""
    if not variable:
        return []
    start, *lengths = struct.unpack_from(f"<Q{variable}I", shard, row + 8)
    at, values = get(shard, "heap_offset") + start, []
    for length in lengths:
        values.append(None if length == NULL else shard[at : at + length])
        at += 0 if length == NULL else length
    return values


def read_shard(shard: bytes) -> list[dict[str, Any]]:
    """Return the samples of an undamaged shard in plain form. Values of unknown types stay bytes, as `{"hex": ...}`."""
    columns = schema(shard)
    variable = sum(not fixed(column["type"]) for column in columns)
    samples = []
    for number in range(get(shard, "samples")):
        row = row_at(shard, number)
        values = iter(heap_values(shard, row, variable))
        at = row + (16 + 4 * variable if variable else 8)
        sample = {}
        for column in columns:
            if fixed(column["type"]):
                base, shape, _ = split(column["type"])
                size = struct.calcsize(ITEMS[base])
                at = -(-at // size) * size
                end = at + size * math.prod(dim for dim in shape or () if dim is not None)
                sample[column["name"]] = decode(column["type"], shard[at:end])
                at = end
            else:
                value = next(values)
                sample[column["name"]] = None if value is None else decode(column["type"], value)
        samples.append(sample)
    return samples


def split(text: str) -> tuple[str, list[int | None] | None, bool]:
    match = _TYPE.fullmatch(text)
    assert match
    base, dims, mark = match.groups()
    shape = None if dims is None else [None if dim == "*" else int(dim) for dim in dims.split(",")]
    return base, shape, bool(mark)


def fixed(text: str) -> bool:
    base, shape, nullable = split(text)
    return base in ITEMS and not nullable and None not in (shape or [])


def decode(text: str, data: bytes) -> Any:
    """Return a value in plain form."""
    base, shape, _ = split(text)
    if code := (ITEMS | LATER).get(base):
        stars = (shape or []).count(None)
        varying = iter(struct.unpack_from(f"<{stars}I", data))
        shape = None if shape is None else [next(varying) if dim is None else dim for dim in shape]
        count = math.prod(dim for dim in shape or () if dim is not None)
        items = [_item(base, item) for item in struct.unpack(f"<{count}{code}", data[4 * stars :])]
        return plain(items[0]) if shape is None else {"shape": shape, "items": plain(items)}
    if (base in LISTS or "." in base) and shape == [None]:
        (count,) = struct.unpack_from("<I", data)
        lengths, at, values = struct.unpack_from(f"<{count}I", data, 4), 4 + 4 * count, []
        for length in lengths:
            values.append(decode(base, data[at : at + length]))
            at += length
        assert at == len(data)
        return values
    if base == "str":
        return data.decode()
    if base == "json":
        return plain(json.loads(data))
    if base == "msgpack":
        return plain(msgpack.unpackb(data, strict_map_key=False, object_pairs_hook=_map))
    return plain(data)


def _map(pairs: list[tuple[Any, Any]]) -> _Map:
    """Return the entries of a MessagePack map: of equal keys (of one type and with the same bits), the last value
    counts."""
    found: dict[tuple[str, Any], tuple[Any, Any]] = {}
    for key, value in pairs:
        bits = struct.pack("<d", key) if isinstance(key, float) else key
        found[type(key).__name__, bits] = (key, value)
    return _Map(found.values())


class _Map(list[tuple[Any, Any]]):
    """Entries, in order."""


def _item(base: str, item: Any) -> Any:
    if base == "bfloat16":
        return struct.unpack("<f", struct.pack("<I", item << 16))[0]
    if base == "float8_e4m3fn":
        sign, exponent, digits = -1.0 if item & 0x80 else 1.0, item >> 3 & 15, item & 7
        size = (8 + digits) / 8 * 2.0 ** (exponent - 7) if exponent else digits / 8 * 2.0**-6
        return sign * (math.nan if item & 0x7F == 0x7F else size)
    return bool(item) if base == "bool" else item


def plain(value: Any) -> Any:
    """Return `value` as JSON can hold it: bytes as `{"hex": ...}`, arrays as `{"shape": ..., "items": ...}`, maps as
    pairs `{"map": [[key, value], ...]}`, timestamps as `{"timestamp": [seconds, nanoseconds]}`, and other floats than
    finite ones as `{"float": "nan"}`."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {"map": [list(map(plain, pair)) for pair in value.items()]}
    if isinstance(value, _Map):
        return {"map": [list(map(plain, pair)) for pair in value]}
    if isinstance(value, list):
        return list(map(plain, value))
    if isinstance(value, msgpack.Timestamp):
        return {"timestamp": [value.seconds, value.nanoseconds]}
    if hasattr(value, "tolist"):  # NumPy's: an array, or a scalar
        items = plain(value.reshape(-1).tolist())
        return {"shape": list(value.shape), "items": items} if value.ndim else items[0]
    return value


# --- zstd frames


def frame(
    raw: bytes,
    *,
    content_size: int | None = -1,
    checksum: int | None = -1,
    window: int | None = None,
    dictionary: int | None = None,
    block_kind: int | None = None,
    blocks_before: int = 0,
) -> bytes:
    """Return a zstd frame of RLE and raw blocks. -1 is the right value, None leaves out the field; a `window` (its
    descriptor byte) makes a frame of several segments; `dictionary` is its number, in four bytes;
    `blocks_before` empty blocks come first."""
    content_size = len(raw) if content_size == -1 else content_size
    checksum = xxhash.xxh64_intdigest(raw) & 0xFFFFFFFF if checksum == -1 else checksum
    descriptor = (0 if content_size is None else 0xC0) | (0x20 if window is None and content_size is not None else 0)
    descriptor |= (0x04 if checksum is not None else 0) | (0 if dictionary is None else 3)
    data = b"\x28\xb5\x2f\xfd" + bytes([descriptor])
    if not descriptor & 0x20:
        data += bytes([0x50 if window is None else window])  # 0x50: 1 MiB
    data += b"" if dictionary is None else struct.pack("<I", dictionary)
    data += b"" if content_size is None else struct.pack("<Q", content_size)
    data += b"\0\0\0" * blocks_before
    blocks = [raw[at : at + 2**17] for at in range(0, len(raw), 2**17)]
    for number, block in enumerate(blocks):
        run = block == block[:1] * len(block)
        kind = (1 if run else 0) if block_kind is None else block_kind
        data += struct.pack("<I", (number == len(blocks) - 1) | kind << 1 | len(block) << 3)[:3]
        data += block[:1] if run else block
    return data + (b"" if checksum is None else struct.pack("<I", checksum))


def seek_table(sizes: Sequence[tuple[int, int]], **other: int) -> bytes:
    """Return the seek table of frames of (compressed, raw) sizes; `other` sets fields of the table."""
    table = struct.pack("<II", other.get("magic", 0x184D2A5E), other.get("size", 8 * len(sizes) + 9))
    table += b"".join(struct.pack("<II", *pair) for pair in sizes)
    footer = other.get("count", len(sizes)), other.get("descriptor", 0), other.get("footer", 0x8F92EAB1)
    return table + struct.pack("<IBI", *footer)


def pieces(raw: bytes) -> list[bytes]:
    return [raw[at : at + 2**20] for at in range(0, len(raw), 2**20)]


def compressed(raw: bytes) -> bytes:
    """Return a compressed shard."""
    frames = [frame(piece) for piece in pieces(raw)]
    sizes = [(len(made), len(piece)) for made, piece in zip(frames, pieces(raw), strict=True)]
    return b"".join(frames) + seek_table(sizes)


# --- the index


def index(
    columns: Mapping[str, str],
    stored: Sequence[bytes],
    raw: Sequence[bytes] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the index of shards as an object; `raw` are the uncompressed shards if `stored` are compressed."""
    made = [{"name": name, "type": text} for name, text in columns.items()]
    counts = [get(shard, "samples") for shard in raw or stored]
    hashes = [xxhash.xxh3_128_hexdigest(shard) for shard in raw or stored]
    shards: dict[str, Any] = {
        "files": [["shard.", ".mdsx.zst" if raw else ".mdsx", 0, len(stored)]],
        "samples": counts,
        "row_key": "".join(f"{get(shard, 'row_key'):016x}" for shard in raw or stored),
        "size": [len(shard) for shard in stored],
        "xxh3_128": "".join(xxhash.xxh3_128_hexdigest(shard) for shard in stored),
    }
    if raw:
        shards |= {"raw_size": [len(shard) for shard in raw], "raw_xxh3_128": "".join(hashes)}
    found = {
        "format": "mdsx",
        "version": 1,
        "columns": made,
        "compression": "zstd" if raw else None,
        "rows_offset": rows_offset((raw or stored)[0]),
        "row_size": get((raw or stored)[0], "row_size"),
        "samples": sum(counts),
        "shards": shards,
        "fingerprint": "",
        "metadata": dict(metadata or {}),
    }
    found["fingerprint"] = fingerprint(found)
    return found


def fingerprint(index: Mapping[str, Any]) -> str:
    """Return the fingerprint that an index implies, as far as it can be computed."""
    shards = index["shards"]
    sizes, hashes = shards.get("raw_size", shards["size"]), shards.get("raw_xxh3_128", shards["xxh3_128"])
    facts = zip(shards["samples"], sizes, [hashes[at : at + 32] for at in range(0, len(hashes), 32)], strict=False)
    columns = [{"name": column["name"], "type": column["type"]} for column in index["columns"]]
    text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
    records = (
        struct.pack("<QQ", int(count) % 2**64, int(size) % 2**64) + bytes.fromhex(digest)
        for count, size, digest in facts
    )
    return str(xxhash.xxh3_128_hexdigest(text.encode() + b"".join(records)))


def seal_index(index: Mapping[str, Any] | str) -> bytes:
    """Return the index file of an object, or of a text without its last brace, with its checksum."""
    if not isinstance(index, str):
        index = json.dumps(index, ensure_ascii=False, separators=(",", ":")).removesuffix("}")
    return index.encode() + f',"checksum":"{xxhash.xxh3_64_hexdigest(index.encode())}"}}\n'.encode()


# --- lengths


def index_text(columns: Mapping[str, str], shards: Sequence[bytes], changed: Mapping[str, str]) -> bytes:
    """Return an index without white space, in whose text each key of `changed`, which occurs once, is replaced."""
    text = json.dumps(index(columns, shards), separators=(",", ":")).removesuffix("}")
    for old, new in changed.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return seal_index(text)


def lengths(fingerprint: str, column: str, rule: str, shards: Sequence[Sequence[int]]) -> bytes:
    """Return the file of these lengths of the samples of each shard."""
    base = int(xxh3_128(f"{fingerprint}\n{rule}\n{column}".encode())[16:], 16)
    parts = [struct.pack(f"<{len(shard)}I", *shard) for shard in shards]
    hashes = [xxhash.xxh3_64_hexdigest(part, (base + number) % 2**64) for number, part in enumerate(parts)]
    fields = {"fingerprint": fingerprint, "column": column, "rule": rule, "samples": sum(map(len, shards))}
    fields |= {"sum": sum(map(sum, shards)), "xxh3_64": "".join(hashes)}
    trailer = {"format": "mdsx-lengths", "version": 1, **fields}
    return b"".join(parts) + seal_index(trailer)


def selection(
    name: str, fingerprint: str, where: str, marks: Sequence[bool], *, selected: int | None = None, **others: Any
) -> bytes:
    """Return the file of a selection of the samples with a true mark."""
    bitmap = bytearray(-(-len(marks) // 8))
    for sample, mark in enumerate(marks):
        bitmap[sample // 8] |= mark << sample % 8
    fields = {"format": "mdsx-selection", "version": 1, "name": name, "fingerprint": fingerprint, "where": where}
    fields |= {"samples": len(marks), "selected": sum(marks) if selected is None else selected}
    return seal_index({**fields, "bitmap": base64.b64encode(bitmap).decode(), **others})
