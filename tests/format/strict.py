"""A reader written from format-spec.md alone. Each rule has a name, and the reader can leave out any one of them.

Without a rule, it trusts the file like a careless reader: a file that breaks only that rule is then
accepted. If nothing can be read without the rule (a truncated file, a count without its items), it raises Broken
with `Unreadable`. It shares no code with mdsx.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import msgpack
import xxhash
import zstandard

NULL = 0xFFFFFFFF
ITEMS = {"bool": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
ITEMS |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}
LISTS = ("bytes", "str", "json", "msgpack", "jpeg", "png", "webp", "avif", "wav", "flac", "mp3", "mp4")
_FRAME = 2**20


class Broken(Exception):
    """A broken rule."""

    def __init__(self, rule: str, kind: str = "corrupt") -> None:
        super().__init__(rule)
        self.rule, self.kind = rule, kind


class Unreadable(Exception):
    """A rule was left out, and what it protects cannot be read."""


class Reader:
    """Reads files, and raises Broken at the first broken rule, except the rule `without`."""

    def __init__(self, without: str | None = None) -> None:
        self.without = without

    def rule(self, name: str, holds: bool, kind: str = "corrupt") -> bool:
        """Return whether the rule holds; raise Broken if it must hold."""
        if not holds and name != self.without:
            raise Broken(name, kind)
        return holds

    # --- types and schema

    def columns(self, text: bytes) -> list[tuple[str, _Type]]:
        """Return the columns of a schema's text."""
        self.rule("schema: UTF-8", _is_text(text))
        found = text.decode("utf-8", "surrogateescape")
        exact = re.fullmatch(r'\[(\{"name":"[^"\\]*","type":"[^"\\]*"\}(,(?!\])|(?=\])))*\]', found)
        self.rule("schema: one text", exact is not None)
        try:
            parsed = [(str(column["name"]), str(column["type"])) for column in json.loads(found, strict=False)]
        except (ValueError, TypeError, LookupError, RecursionError):
            raise Unreadable from None
        return self.checked(parsed)

    def checked(self, pairs: list[tuple[str, str]]) -> list[tuple[str, _Type]]:
        """Return columns by name and the text of their type."""
        self.rule("schema: a column", bool(pairs))
        for name, _ in pairs:
            self.rule("name: 1 to 255 bytes", 1 <= len(name.encode("utf-8", "surrogateescape")) <= 255)
            self.rule("name: characters", not re.search(r'[\x00-\x1f\x7f-\x9f"\\]', name))
        self.rule("name: unique", len({name for name, _ in pairs}) == len(pairs))
        return [(name, self.type(text)) for name, text in pairs]

    def type(self, text: str) -> _Type:
        """Return what the text of a type means; without the grammar rule, an opaque column."""
        match = re.fullmatch(
            r"([A-Za-z][A-Za-z0-9_.-]*)(?:\[((?:\*|0|[1-9][0-9]*)(?:,(?:\*|0|[1-9][0-9]*))*)\])?(\?)?", text
        )
        if not self.rule("type: grammar", match is not None) or match is None:
            return _Type("opaque", None, True)
        base, dims, mark = match.groups()
        shape = None if dims is None else [None if dim == "*" else int(dim) for dim in dims.split(",")]
        self.rule("type: 8 dimensions", len(shape or []) <= 8)
        self.rule("type: a list has one star", base not in LISTS or shape in (None, [None]))
        self.rule("span", ITEMS.get(base, 1) * math.prod(dim for dim in shape or [] if dim) < 2**31)
        return _Type(base, shape, mark is not None)

    def row_size(self, columns: list[tuple[str, _Type]]) -> int:
        variable = sum(not kind.fixed for _, kind in columns)
        at = 16 + 4 * variable if variable else 8
        for _, kind in columns:
            if kind.fixed:
                at = -(-at // ITEMS[kind.base]) * ITEMS[kind.base] + kind.size
        size = -(-at // 8) * 8
        self.rule("row size", size < 2**31)
        return size

    # --- the shard

    def shard(self, data: bytes, index: Mapping[str, Any] | None = None) -> None:
        """Run the full check, with the index's values for the shard."""
        self.rule("64 bytes", len(data) >= 64)
        if len(data) < 64:
            raise Unreadable
        magic, major, _, header_size, n, key, row_size, schema_size, heap, size, stored = struct.unpack_from(
            "<8sHHIQQIIQQQ", data
        )
        self.rule("magic", magic == b"\x89MDSX\r\n\x1a")
        self.rule("major version", major <= 1, "unsupported")
        self.rule("major version", major >= 1)
        self.rule("header size", header_size % 8 == 0 and 64 <= header_size <= 4096)
        self.rule("schema size", schema_size <= 2**20)
        end = header_size + schema_size
        if not self.rule("the file has the schema", len(data) >= end) or header_size < 64:
            raise Unreadable  # a smaller header would end within its checksum
        self.rule("header checksum", stored == xxhash.xxh3_64_intdigest(data[:56] + data[64:end]))
        text = data[header_size:end]
        columns = self.columns(text)
        width = self.row_size(columns)
        self.rule("row size", row_size == width)
        rows = -(-end // 64) * 64
        if not self.rule("offset of the heap", heap == -(-(rows + n * width) // 64) * 64) and heap < rows + n * width:
            raise Unreadable
        self.rule("file size", size == len(data) and size < 2**63)
        if not self.rule("the file has the rows", len(data) >= heap):
            raise Unreadable
        if index is not None:
            self.rule("index: schema", text == index["schema"])
            self.rule("index: row key", key == index["row_key"])
            self.rule("index: samples", n == index["samples"])
            self.rule("index: offset of the rows", rows == index["rows_offset"])
            self.rule("index: size of the shard", len(data) == index["raw_size"])
            self.rule("index: raw hash", xxhash.xxh3_128_hexdigest(data) == index["raw_hash"])
        variable = [kind for _, kind in columns if not kind.fixed]
        heap_end = min(len(data), size)
        if not variable or not n:
            self.rule("an empty heap", heap_end == heap)
        self.rule("padding", not any(data[end:rows]) and not any(data[rows + n * width : heap]))
        self._rows(data, columns, range(rows, rows + n * width, width), width, (heap, heap_end), key, text)

    def _rows(
        self, data: bytes, columns: list[tuple[str, _Type]], places: range, width: int, heap: tuple[int, int], key: int,
        text: bytes,
    ) -> None:  # fmt: skip
        variable = [kind for _, kind in columns if not kind.fixed]
        computed, claimed, stop = list[int](), list[int](), 0
        for number, at in enumerate(places):
            row = data[at : at + width]
            lengths: tuple[int, ...] = ()
            begin = end = 0
            if variable:
                begin, *rest = struct.unpack_from(f"<Q{len(variable)}I", row, 8)
                lengths = tuple(rest)
                end = begin + sum(length for length in lengths if length != NULL)
                cut = self.without == "file size" and end > heap[1] - heap[0]
                if cut or not self.rule("heap bytes within the heap", end <= heap[1] - heap[0]):
                    raise Unreadable
                self.rule("starts", begin == stop)
                stop = end
            for kind, length in zip(variable, lengths, strict=True):
                self.rule("null", length != NULL or kind.nullable)
            (stored,) = struct.unpack_from("<Q", row)
            own = data[heap[0] + begin : heap[0] + end]
            computed.append(xxhash.xxh3_64_intdigest(row[8:] + own, number))
            claimed.append(stored ^ key)
            self.rule("row checksum", computed[-1] == claimed[-1])
            self._fields(row, columns, len(variable))
            at = 0
            for kind, length in zip(variable, lengths, strict=True):
                if length != NULL:
                    self.value(kind, own[at : at + length])
                    at += length
        if variable and places:
            self.rule("starts", stop == heap[1] - heap[0])
        if computed == claimed or self.without != "row checksum":  # the row key is made of checksums
            follows = xxhash.xxh3_64_intdigest(text + struct.pack(f"<{len(computed)}Q", *computed))
            self.rule("row key", key == follows)

    def _fields(self, row: bytes, columns: list[tuple[str, _Type]], variable: int) -> None:
        at = 16 + 4 * variable if variable else 8
        for _, kind in columns:
            if kind.fixed:
                start = -(-at // ITEMS[kind.base]) * ITEMS[kind.base]
                self.rule("padding", not any(row[at:start]))
                at = start + kind.size
                self.rule("bool", kind.base != "bool" or max(row[start:at], default=0) <= 1)
        self.rule("padding", not any(row[at:]))

    def value(self, kind: _Type, data: bytes) -> None:
        """One value of a variable-size column."""
        if kind.base in ITEMS:
            self._array(kind, data)
        elif (kind.base in LISTS or "." in kind.base) and kind.shape == [None]:
            (count,) = struct.unpack_from("<I", data) if len(data) >= 4 else (2**32,)
            if not self.rule("list", len(data) >= 4 + 4 * count):
                return
            lengths = struct.unpack_from(f"<{count}I", data, 4)
            self.rule("list", len(data) == 4 + 4 * count + sum(lengths))
            at = 4 + 4 * count
            for length in lengths:
                self.value(_Type(kind.base, None, False), data[at : at + length])
                at += length
        elif kind.base in ("str", "json", "msgpack"):
            self.rule(kind.base, {"str": _is_text, "json": _is_json, "msgpack": _is_msgpack}[kind.base](data))

    def _array(self, kind: _Type, data: bytes) -> None:
        stars = (kind.shape or []).count(None)
        if not self.rule("array", len(data) >= 4 * stars):
            return
        varying = iter(struct.unpack_from(f"<{stars}I", data))
        shape: list[int] = [next(varying) if dim is None else dim for dim in kind.shape or []]
        spans = self.rule("span", ITEMS[kind.base] * math.prod(dim for dim in shape if dim) < 2**31)
        if not spans and 0 not in shape:
            raise Unreadable
        count: int = math.prod(shape)
        self.rule("array", len(data) == 4 * stars + ITEMS[kind.base] * count)
        self.rule("bool", kind.base != "bool" or max(data[4 * stars :], default=0) <= 1)

    # --- compression

    def frames(self, data: bytes, raw_size: int) -> bytes:
        """Return the raw bytes of a compressed shard."""
        k = -(-raw_size // _FRAME)
        table = 8 * k + 17
        if not self.rule("seek table: room", len(data) >= table):
            raise Unreadable
        words = struct.unpack(f"<II{2 * k}IIBI", data[-table:])
        sizes, raw_sizes = words[2 : 2 + 2 * k : 2], words[3 : 2 + 2 * k : 2]
        wanted = [min(_FRAME, raw_size - j * _FRAME) for j in range(k)]
        if not self.rule("seek table: place", words[0] == 0x184D2A5E or words[-1] == 0x8F92EAB1):
            raise Unreadable
        self.rule("seek table: magic", words[0] == 0x184D2A5E)
        self.rule("seek table: size", words[1] == table - 8)
        self.rule("seek table: raw sizes", list(raw_sizes) == wanted)
        self.rule("seek table: frames", words[-3] == k)
        self.rule("seek table: descriptor", words[-2] == 0)
        self.rule("seek table: last magic", words[-1] == 0x8F92EAB1)
        if not self.rule("frames fill the file", sum(sizes) + table == len(data)):
            raise Unreadable
        raw, at = b"", 0
        for size, want in zip(sizes, wanted, strict=True):
            self.rule("frame: size", size <= _FRAME + 2**16)
            raw += self._frame(data[at : at + size], want)
            at += size
        return raw

    def _frame(self, frame: bytes, want: int) -> bytes:
        if not self.rule("frame: magic", frame[:4] == b"\x28\xb5\x2f\xfd"):
            if frame[1:4] == b"\x2a\x4d\x18":  # a skippable frame
                frame = frame[8 + int.from_bytes(frame[4:8], "little") :]
            frame = b"\x28\xb5\x2f\xfd" + frame[4:]
        self.rule("frame: reserved bit", not frame[4] & 8)
        frame = frame[:4] + bytes([frame[4] & ~8]) + frame[5:]
        try:
            header = zstandard.get_frame_parameters(frame)
        except zstandard.ZstdError:
            raise Broken("frame: zstd") from None
        sized = self.rule("frame: content size", header.content_size == want)
        self.rule("frame: window", header.window_size <= 2**23)
        self.rule("frame: dictionary", header.dict_id == 0)
        self.rule("frame: checksum", header.has_checksum)
        if header.dict_id:  # four bytes after the window
            at = 5 + (0 if frame[4] & 0x20 else 1)
            frame = frame[:4] + bytes([frame[4] & ~3]) + frame[5:at] + frame[at + (0, 1, 2, 4)[frame[4] & 3] :]
        reader = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
        try:
            raw = reader.decompress(frame)
            whole = reader.eof and not reader.unused_data
        except zstandard.ZstdError:
            whole, raw = False, b""
        if not self.rule("frame: zstd", whole or not sized):
            raise Unreadable
        return raw

    # --- the index

    def index(self, data: bytes) -> list[dict[str, Any]]:
        """Return the index's values for each shard, by the names that `shard` takes."""
        start = re.match(rb'\{"format":"mdsx","version":(0|[1-9][0-9]*),', data)
        if not self.rule("index: beginning", start is not None) or start is None:
            raise Unreadable
        self.rule("index: version", int(start[1]) <= 1, "unsupported")
        self.rule("index: version", int(start[1]) >= 1)
        end = re.fullmatch(rb',"checksum":"([0-9a-f]{16})"\}\n', data[-32:])
        self.rule("index: end", end is not None)
        if end is not None:
            self.rule("index: checksum", end[1].decode() == xxhash.xxh3_64_hexdigest(data[:-32]))
        if not self.rule("index: JSON", end is None or _is_json(data)) or not _is_json(data):
            raise Unreadable
        root = json.loads(data)
        features = root.get("requires", [])
        self.rule("index: requires", type(features) is list and all(type(name) is str for name in features))
        known = type(features) is not list or not any(type(name) is str for name in features)
        if not self.rule("index: features", known, "unsupported"):
            raise Unreadable
        return self._entries(data, root)

    def _entries(self, data: bytes, root: dict[str, Any]) -> list[dict[str, Any]]:
        self._known(root)
        columns, shards = root["columns"], root["shards"]
        pairs = [(column["name"], column["type"]) for column in columns]
        text = ("[" + ",".join(f'{{"name":"{name}","type":"{kind}"}}' for name, kind in pairs) + "]").encode()
        kinds = self.checked(pairs)
        self.rule("schema size", len(text) <= 2**20)
        width = self.row_size(kinds)
        self.rule("index: compression", root.get("compression") in (None, "zstd"), "unsupported")
        offset, counts, sizes = root["rows_offset"], shards["samples"], shards["size"]
        least, most = (-(-(header + len(text)) // 64) * 64 for header in (64, 4096))
        self.rule("index: rows_offset", offset % 64 == 0 and least <= offset <= most)
        self.rule("index: row_size", root["row_size"] == width)
        self.rule("index: samples below 2^62", sum(counts) < 2**62)
        self.rule("index: sum of samples", root["samples"] == sum(counts))
        sums, most = root.get("lengths", {}), min(2**63 - 1, sum(counts) * (2**32 - 1))
        known = type(sums) is dict and {*sums} <= {name for name, _ in pairs}
        self.rule("index: lengths", known and all(type(n) is int and 0 <= n <= most for n in sums.values()))
        compressed = root.get("compression") is not None
        raw = [key in shards for key in ("raw_size", "raw_xxh3_128")]
        self.rule("index: raw_*", raw == [compressed, compressed])
        raw_sizes, raw_hashes = (
            (shards["raw_size"], shards["raw_xxh3_128"]) if all(raw) else (sizes, shards["xxh3_128"])
        )
        names = list(self._names(shards["files"], len(counts)))
        lengths = len(sizes), len(raw_sizes), len(names), len(shards["row_key"]) / 16, len(shards["xxh3_128"]) / 32
        if not self.rule("index: S entries", {*lengths, len(raw_hashes) / 32} == {len(counts)}):
            raise Unreadable
        self.rule("index: 2^22 shards", len(counts) <= 2**22)
        for count, size, raw_size in zip(counts, sizes, raw_sizes, strict=True):
            bound = -(-(offset + count * width) // 64) * 64
            alone = not count or all(kind.fixed for _, kind in kinds)
            self.rule("index: raw size", raw_size == bound if alone else raw_size >= bound)
            k = -(-raw_size // _FRAME)
            self.rule("index: room for the seek table", not compressed or (k <= 2**27 and size >= 8 * k + 17))
        facts = [
            (n, size, raw_hashes[32 * i : 32 * i + 32])
            for i, (n, size) in enumerate(zip(counts, raw_sizes, strict=True))
        ]
        records = b"".join(struct.pack("<QQ", n, size) + bytes.fromhex(digest) for n, size, digest in facts)
        self.rule("index: fingerprint", root["fingerprint"] == xxhash.xxh3_128_hexdigest(text + records))
        entries = []
        for i, (n, size, digest) in enumerate(facts):
            row_key = int(shards["row_key"][16 * i : 16 * i + 16], 16)
            stored = {"name": names[i], "size": sizes[i], "hash": shards["xxh3_128"][32 * i : 32 * i + 32]}
            shard = {"samples": n, "row_key": row_key, "raw_size": size, "raw_hash": digest}
            entries.append({**stored, **shard, "schema": text, "rows_offset": offset, "compressed": compressed})
        return entries

    def _known(self, root: Any) -> None:
        """Check the required keys and the kinds of their values."""
        shards = root.get("shards")
        hashes, numbers = ("row_key", "xxh3_128", "raw_xxh3_128"), ("samples", "size", "raw_size")
        kinds: dict[str, type] = {"columns": list, "shards": dict, "fingerprint": str, "metadata": dict}
        kinds |= dict.fromkeys(("rows_offset", "row_size", "samples"), int)
        undamaged = all(type(root.get(key)) is kind for key, kind in kinds.items())
        undamaged = undamaged and isinstance(root.get("compression"), str | None) and type(shards.get("files")) is list
        undamaged = undamaged and all(key in shards for key in (*hashes[:2], *numbers[:2]))
        self.rule("index: keys", undamaged)
        if not undamaged:
            raise Unreadable
        undamaged = all(type(column) is dict and {*column} >= {"name", "type"} for column in root["columns"])
        undamaged = undamaged and all(type(text) is str for column in root["columns"] for text in column.values())
        if not self.rule("index: columns", undamaged):
            raise Unreadable
        self.rule("index: columns", all({*column} == {"name", "type"} for column in root["columns"]))
        for key in numbers:
            for number in shards.get(key, []):
                self.rule("index: integers", type(number) is int and 0 <= number < 2**63)
                if type(number) is not int or not 0 <= number < 2**63:
                    raise Unreadable
        for key in hashes:
            text = shards.get(key, "")
            undamaged = type(text) is str and re.fullmatch("[0-9a-f]*", text) is not None
            if not self.rule("index: hexadecimal", undamaged) and (
                type(text) is not str or not re.fullmatch("[0-9a-fA-F]*", text)
            ):
                raise Unreadable
        metadata = json.dumps(root["metadata"], ensure_ascii=False, separators=(",", ":"))
        self.rule("index: metadata", len(metadata.encode("utf-8", "surrogatepass")) <= 2**20)

    def _names(self, runs: list[Any], shards: int) -> list[str]:
        names: list[str] = []
        component = "[A-Za-z0-9][A-Za-z0-9._-]*"
        for run in runs:
            undamaged = type(run) is list and list(map(type, run)) == [str, str, int, int]
            if not self.rule("files: a run", undamaged):
                raise Unreadable
            prefix, suffix, first, count = run
            if not self.rule("files: numbers", first >= 0 and count >= 1 and first + count < 2**63) and count < 0:
                raise Unreadable
            for number in range(first, first + min(count, shards - len(names) + 1)):
                name = f"{prefix}{number:05d}{suffix}"
                self.rule(
                    "files: a name",
                    len(name.encode()) <= 512 and bool(re.fullmatch(f"{component}(/{component})*", name)),
                )
                names.append(name)
        return names


class _Type:
    def __init__(self, base: str, shape: list[int | None] | None, nullable: bool) -> None:
        self.base, self.shape, self.nullable = base, shape, nullable
        self.fixed = base in ITEMS and not nullable and None not in (shape or [])
        self.size = ITEMS.get(base, 0) * math.prod(dim for dim in shape or [] if dim is not None)


def _refuse(_: str) -> NoReturn:
    raise ValueError


def _is_text(data: bytes) -> bool:
    try:
        return data.decode() is not None
    except UnicodeDecodeError:
        return False


def _is_json(data: bytes) -> bool:
    try:
        json.dumps(json.loads(data.decode(), parse_constant=_refuse), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _is_msgpack(data: bytes) -> bool:
    try:
        msgpack.unpackb(data, strict_map_key=False, ext_hook=lambda code, _: _refuse(str(code)))
    except (ValueError, TypeError, RecursionError, MemoryError):
        return False
    return True
