"""Small files that claim much: how to make and read each of them, and the expected error.

`CASES` is the table: a name, a function that makes the file, its reader, the kind of error (None: it is read cheaply),
and the error's text. Each case runs in a process of its own, with bounded memory and time (`test_bounds.py`).
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zstandard

import mdsx
from mdsx.base.braces import expand_braces
from mdsx.checks.damage import repair, verify
from mdsx.cli.show import cat
from mdsx.errors import CorruptError, MdsxError, MissingError, SampleError, StateError, UnsupportedError, UsageError
from mdsx.format import Schema, check_shard, parse_index, parse_type, value_decoder
from mdsx.format.frames import decompress_frame
from mdsx.stream import OrderIdentity
from mdsx.transfer.converting import convert
from mdsx.transfer.exporting import export
from tests.foreign.mds import plain
from tests.foreign.tars.sparse_tars import header, old_gnu, pax, pax_sparse
from tests.foreign.tars.tars import npy, png, tar_bytes
from tests.format import by_the_book, reference
from tests.format.reference import put, seal, seal_index, seal_rows
from tests.transfer.converting.test_megatron import index as megatron_index
from tests.transfer.converting.tf_files import masked

END = bytes(1024)
MOST = 2**32 - 1


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    error: type[MdsxError] | None = None
    says: str = ""
    most: int = 100_000  # bytes of the file


Data = bytes | Callable[[], bytes]
"""Bytes, or a function that makes them when a test needs them, if that takes time."""


# --- shards and datasets


def one(kind: str, value: bytes | None, samples: int = 1) -> bytes:
    """Return a shard of samples with this value in their only column."""
    return by_the_book.shard({"x": kind}, [{"x": value}] * samples)


def bytes_of(data: Data) -> bytes:
    return data if isinstance(data, bytes) else data()


def stored(data: Data, *, raw: bytes | None = None, **lies: Any) -> Callable[[Path], object]:
    """Write a dataset of one shard; `raw` if it is compressed; `lies` are false fields of the index."""

    def make(folder: Path) -> None:
        shard = bytes_of(data)
        columns = {column["name"]: column["type"] for column in reference.schema(raw or shard)}
        index = reference.index(columns, [shard], None if raw is None else [raw])
        index["shards"] |= {key: [value] for key, value in lies.items()}
        index["samples"] = sum(index["shards"]["samples"])
        index["fingerprint"] = reference.fingerprint(index)
        (folder / "index.json").write_bytes(seal_index(index))
        prefix, suffix, *_ = index["shards"]["files"][0]
        (folder / f"{prefix}00000{suffix}").write_bytes(shard)

    return make


def everything(folder: Path) -> None:
    """Verify a dataset, read it sample by sample, all at once and by range, and print it."""
    problems = list(verify(folder, num_threads=1))
    for in_place in (True, False):
        dataset = mdsx.Dataset(folder, mmap=in_place, cache=mdsx.Cache(folder / "cache", limit="64MiB"))
        for number in range(min(len(dataset), 3)):
            dataset[number]
        dataset[: min(len(dataset), 20)]
    with redirect_stdout(io.StringIO()):
        cat(str(folder), count=3, as_json=True)
    for problem in problems:
        raise problem


def repaired(folder: Path) -> None:
    for problem in repair(folder, drop_damaged=True, dry_run=True):
        raise problem


def frames() -> bytes:
    """Return one frame, with a seek table that tells of 2^17 frames of 4 GiB."""
    return reference.frame(bytes(2**20)) + reference.seek_table([(MOST, 2**20)] * 2**17)


def value(kind: str, data: bytes) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    """Return a dataset with this stored value and right checksums."""
    return stored(one(kind, data)), everything


def claims(**fields: int) -> bytes:
    return seal(put(one("str", b"text"), **fields))


def sharing(samples: int, size: int) -> bytes:
    """Return samples that all claim the same `size` bytes of JSON."""
    shard = one("json", b"[" + b"0," * (size // 2) + b"0]")
    row, start, heap = shard[128:152], reference.rows_offset(shard), shard[reference.get(shard, "heap_offset") :]
    rows = padded64(row * samples)
    made = shard[:start] + rows + heap
    return seal_rows(seal(put(made, samples=samples, heap_offset=start + len(rows), file_size=len(made))))


def rowless(columns: dict[str, str]) -> bytes:
    """Return a shard without samples, whose rows would be large."""
    shard = reference.emptied(by_the_book.shard(columns, []))
    return seal(put(shard, row_size=Schema.from_columns(columns).row_size))


def padded64(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def columns(count: int) -> bytes:
    """Return a shard without samples, with many columns."""
    return rowless({f"{k}": "str" for k in range(count)})


def checked(folder: Path) -> None:
    for problem in check_shard((folder / "shard.00000.mdsx").read_bytes()):
        raise problem


def alone(shard: Data) -> Callable[[Path], object]:
    return lambda folder: (folder / "shard.00000.mdsx").write_bytes(bytes_of(shard))


def fifo(name: str) -> Callable[[Path], object]:
    """Return a function that makes an undamaged dataset with a FIFO instead of a file."""

    def make(folder: Path) -> None:
        stored(one("str", b"text"))(folder)
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return make


def sparse(name: str) -> Callable[[Path], object]:
    """Return a function that makes a dataset one of whose files is followed by a hole."""

    def make(folder: Path) -> None:
        lies: dict[str, Any] = {"size": 2**31} if name.endswith("mdsx") else {}
        stored(one("str", b"text"), **lies)(folder)
        os.truncate(folder / name, 2**31)

    return make


def exported(kind: Literal["jsonl", "parquet"]) -> Callable[[Path], object]:
    return lambda folder: export(kind, folder, folder / "out", num_workers=1)


# --- indexes


def index(text: Callable[[dict[str, Any]], str]) -> Callable[[Path], object]:
    made = reference.index({"x": "str"}, [one("str", b"text")])
    return lambda folder: (folder / "index.json").write_bytes(seal_index(text(made)))


def member(name: str, json_text: str) -> Callable[[dict[str, Any]], str]:
    """Return the index with other text after a key."""

    def text(made: dict[str, Any]) -> str:
        whole = dict(made)
        target = whole["shards"] if name in whole["shards"] else whole
        target[name] = "@"
        return json.dumps(whole, separators=(",", ":")).replace('"@"', json_text).removesuffix("}")

    return text


def opened(folder: Path) -> None:
    parse_index((folder / "index.json").read_bytes())


# --- tars


def tar(data: Data) -> Callable[[Path], object]:
    return lambda folder: (folder / "a.tar").write_bytes(bytes_of(data))


def converted(folder: Path, **options: Any) -> None:
    convert("tar", [f"{folder}/a.tar"], folder / "out", columns={"bin": "bytes", "pack": "msgpack?"}, **options)


def skipping(folder: Path) -> None:
    converted(folder, on_error="skip")
    assert sum(path.stat().st_size for path in (folder / "out").iterdir()) < 2**27


def tfrecord(size: int) -> Callable[[Path], object]:
    """Write a compressed TFRecord file of one record of `size` zeros."""

    def make(folder: Path) -> None:
        length = struct.pack("<Q", size)
        (folder / "a.tfrecord").write_bytes(zstandard.compress(length + masked(length) + bytes(size)))

    return make


def megatron(sizes: list[int], claims: int = 0) -> Callable[[Path], object]:
    """Write an indexed dataset of 60,000 bytes, whose sequences all begin at 0; maybe the index `claims` many."""

    def make(folder: Path) -> None:
        (folder / "a.bin").write_bytes(bytes(60_000))
        data = megatron_index(sizes, [0] * len(sizes), [0, len(sizes)])
        (folder / "a.idx").write_bytes(data[:18] + struct.pack("<Q", claims) + data[26:] if claims else data)

    return make


def holes(count: int, name: str) -> bytes:
    """Return a tar.gz of members that are 64 MiB of holes."""
    records = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**26)}
    members = (
        pax_sparse(records | {"GNU.sparse.name": name.format(number)}, b"0\n".ljust(512, b"\0"))
        for number in range(count)
    )
    return gzip.compress(b"".join(members) + END)


def packed(name: str, data: bytes) -> bytes:
    return gzip.compress(tar_bytes([(name, data)]))


def numpy_file(text: str) -> Callable[[Path], object]:
    """Return a tar with a NumPy file that has this header."""
    data = text.encode() + b"\n"
    return tar(tar_bytes([("a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(data)) + data)]))


def arrays(folder: Path) -> None:
    convert("tar", [f"{folder}/a.tar"], folder / "out")


def bomb(compress: Callable[[bytes], bytes]) -> bytes:
    """Return a tar with a member of 300 MiB of zeros."""
    size = 300 * 2**20
    return compress(header("a.bin", size) + bytes(size) + END)


# --- MDS


def mds(encoding: str, value: bytes, **lies: Any) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    """Return an MDS dataset of one sample with this stored value; `lies` are false fields of the index."""
    raw = plain.shard_bytes({"x": encoding}, [{"x": value}])

    def make(folder: Path) -> None:
        shard = plain.entry({"x": encoding}, "shard.mds", raw, 1)
        (folder / "shard.mds").write_bytes(raw)
        (folder / "index.json").write_bytes(plain.index_bytes([{**shard, **lies}]))

    return make, everything


_BZIP2 = zlib.decompress(
    base64.b85decode(
        b"c-nJ{%CIzaj8qGb<l}sFpE17Af#CoH1BU{GL4&WG(*o6%Tn*EQhWw(^yyuKMLJllIc}B2`Gpw4+lvtIMT)5o3cPh=%@X&fy-QEBIN)bqg"
    )
)
"""300 MiB of zeros by bzip2, which takes seconds to make."""


def mds_bomb(name: str, size: int, raw_size: int) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    """Return an MDS dataset whose compressed file holds `size` zeros; the index says that they are `raw_size`."""

    def make(folder: Path) -> None:
        stored = _BZIP2 if name == "bz2" else plain.compress(name, bytes(size))
        shard = plain.entry({"x": "bytes"}, "shard.mds", b"", 1)
        shard["raw_data"]["bytes"] = raw_size
        (folder / f"shard.mds.{name}").write_bytes(stored)
        (folder / "index.json").write_bytes(plain.index_bytes([plain.zipped(shard, name, stored)]))

    return make, verified


def verified(folder: Path) -> None:
    for problem in verify(folder, num_threads=1):
        raise problem


# --- frames


def frame(**fields: Any) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    data = reference.frame(b"raw bytes", **fields)

    def read(folder: Path) -> None:
        decompress_frame((folder / "frame").read_bytes(), expected_size=9)

    return lambda folder: (folder / "frame").write_bytes(data), read


# --- arguments and states


def nothing(folder: Path) -> None:
    return None


def state(fields: Mapping[str, Any]) -> Callable[[Path], object]:
    order = OrderIdentity(1, 7, 8, 64, True, "f" * 32, 100, 100, ((0, (Fraction(1), Fraction(2))),))
    return lambda folder: order.check({**order.state(3, 40), **fields})


def braces(text: str) -> Callable[[Path], object]:
    return lambda folder: expand_braces(text)


_MESSAGES: Sequence[tuple[str, bytes]] = (
    ("an array of 2^32 - 1 items", b"\xdd\xff\xff\xff\xff"),
    ("a map of 2^32 - 1 entries", b"\xdf\xff\xff\xff\xff"),
    ("a text of 4 GiB", b"\xdb\xff\xff\xff\xff"),
    ("bytes of 4 GiB", b"\xc6\xff\xff\xff\xff"),
    ("an extension of 4 GiB", b"\xc9\xff\xff\xff\xff\xff"),
    ("arrays in 60,000 arrays", b"\x91" * 60_000),
    ("arrays in arrays that claim as many items as bytes", b"\xdd\0\0\xf0\0" * 12_000),
    ("maps as keys of maps", b"\x81" * 60_000),
)
_NPY = "{'descr': '<f8', 'fortran_order': False, 'shape': (@), }"
_RAW = one("str", b"text")

CASES = [
    Case("shard: 2^40 samples", alone(claims(samples=2**40)), checked, CorruptError, "offset of the heap"),
    Case("shard: 2^64 - 1 samples", alone(claims(samples=2**64 - 1)), checked, CorruptError, "offset of the heap"),
    Case("shard: a schema of 4 GiB", alone(claims(schema_size=MOST)), checked, CorruptError, "schema is too large"),
    Case("shard: a file of 2^62 bytes", alone(claims(file_size=2**62)), checked, CorruptError,
         "not as long as it says"),
    Case(
        "shard: rows of 2 GiB, but none of them",
        stored(lambda: rowless({"x": "uint8[2147483000]"})), everything,
    ),
    Case("shard: a row of 2^31 - 1 items", alone(one("uint8[2147483647]?", None)), checked),
    Case("shard: 20,000 columns", stored(lambda: columns(20_000)), everything, most=2**21),
    Case(
        "shard: 4,000 samples that share 200 kB of JSON", alone(lambda: sharing(4000, 200_000)), checked,
        CorruptError, "also belong to other samples", most=400_000,
    ),
    Case("array: 2^32 - 1 rows", *value("float32[*,3]", b"\xff" * 4), CorruptError, "dimensions are too large"),
    Case(
        "array: dimensions beyond 64 bits", *value("uint8[*,*,*]", b"\xff" * 12), CorruptError, "are too large"
    ),
    Case(
        "array: 2^24 rows of no items, to be printed", *value("uint8[*,*]", b"\0\0\0\1" + bytes(4)),
        UnsupportedError, "cannot be printed",
    ),
    Case("list: 2^32 - 1 values", *value("str[*]", b"\xff" * 4), CorruptError, "ends within its lengths"),
    Case(
        "list: 2^30 lengths of 2^32 - 1", *value("str[*]", struct.pack("<I", 2**30) + b"\xff" * 64), CorruptError,
        "ends within its lengths",
    ),
    Case("list: a value of 2^32 - 1 bytes", *value("bytes[*]", b"\1\0\0\0" + b"\xff" * 4), CorruptError, "wrong size"),
    *(Case(f"msgpack: {name}", *value("msgpack", data), CorruptError, "not MessagePack") for name, data in _MESSAGES),
    Case("json: 90,000 brackets", *value("json", b"[" * 90_000), CorruptError, "nested too deeply"),
    Case(
        "json: 90,000 braces", *value("json", b'{"":' * 20_000), CorruptError, "nested too deeply"
    ),
    Case("json: a number of 90,000 digits", *value("json", b"9" * 90_000), CorruptError, "too many digits"),
    Case("json: a number of 90,000 digits of a fraction", *value("json", b"0." + b"9" * 90_000)),
    Case("json: 1e999999999", *value("json", b"[1e999999999,-1e999999999]")),
    Case("json: 499 levels, to be printed", *value("json", b"[" * 499 + b"]" * 499)),
    Case("msgpack: 499 levels, to be printed", *value("msgpack", b"\x91" * 499 + b"\xc0")),
    Case("frame: 2^40 bytes of content", *frame(content_size=2**40), CorruptError, "wrong content size"),
    Case("frame: no content size", *frame(content_size=None, window=0x50), CorruptError, "wrong content size"),
    Case("frame: a window of 2 GiB", *frame(window=0xA8), CorruptError, "window is too large"),
    Case("frame: a window of 3.75 TiB", *frame(window=0xFF), CorruptError, "too much memory"),
    Case("frame: a dictionary", *frame(dictionary=7), CorruptError, "needs a dictionary"),
    Case("frame: empty blocks without end", *frame(blocks_before=30_000), None),
    Case(
        "zstd: a raw size of 2^50", stored(reference.compressed(_RAW), raw=_RAW, raw_size=2**50), everything,
        CorruptError, "cannot hold its frames",
    ),
    Case(
        "zstd: a raw size of 2^40", stored(reference.compressed(_RAW), raw=_RAW, raw_size=2**40), everything,
        CorruptError, "cannot hold its frames",
    ),
    *(
        Case(
            f"zstd: a seek table of 2^17 frames, to be {name}", stored(frames, raw=_RAW, raw_size=2**37), read,
            CorruptError, "no zstd frame", most=2**21,
        )
        for name, read in (("verified", verified), ("repaired", repaired))
    ),
    Case(
        "index: 2^60 samples in a shard of 2^62 bytes", stored(_RAW, samples=2**57, size=2**62), everything,
        MdsxError, "size",
    ),
    Case("index: a run of 10^12 files", index(member("files", '[["shard.",".mdsx",0,1000000000000]]')), opened,
         CorruptError, "not as many shards"),
    Case("index: a run of 2^63 files", index(member("files", f'[["shard.",".mdsx",0,{2**63}]]')), opened, CorruptError,
         "files"),
    Case("index: 2^62 samples", index(member("samples", f"[{2**62}]")), opened, CorruptError, "samples"),
    Case("index: a number of 90,000 digits", index(member("size", f"[{'9' * 90_000}]")), opened, CorruptError, "size"),
    Case("index: metadata of 40,000 brackets", index(member("metadata", "[" * 40_000 + "]" * 40_000)), opened,
         CorruptError, "nested too deeply|not a JSON object"),
    Case("index: 90,000 brackets", index(lambda made: '{"format":"mdsx","version":1,' + "[" * 90_000), opened,
         CorruptError, "JSON"),
    Case("index: a type of 90,000 digits",
         index(lambda made: json.dumps(made, separators=(",", ":")).replace('"str"',
         f'"int8[{"9" * 90_000}]"').removesuffix("}")),
         opened, CorruptError, "2\\^3"),
    Case("dataset: a FIFO for an index", fifo("index.json"), everything, MissingError, "no dataset|not a file"),
    Case("dataset: a FIFO for a shard", fifo("shard.00000.mdsx"), everything, MissingError, "not a file, but a FIFO"),
    *(
        Case(f"mds: {name} of 300 MiB of zeros", *mds_bomb(name, 300 * 2**20, 1000), CorruptError,
             "more than the index says|damaged|too few to hold|buffer", most=2**24)
        for name in ("br", "bz2", "gz", "snappy", "zstd")
    ),
    *(
        Case(f"mds: {name} that claims 4 GiB", *mds_bomb(name, 1000, 2**32 - 1), CorruptError,
             "too few to hold|memory|early", most=2**24)
        for name in ("br", "snappy")
    ),
    *(
        Case(f"mds: {name} of 300 MiB of zeros, as its index says", *mds_bomb(name, 300 * 2**20, 300 * 2**20),
             CorruptError, "too few to hold.*1,100 times", most=2**24)
        for name in ("br", "bz2", "zstd")
    ),
    *(
        Case(f"mds: an encoding of {count} dimensions", *mds(f"ndarray:uint8:{','.join(['9999999999'] * count)}", b""),
             CorruptError, "not an encoding|Expected `int`", most=2_000_000)
        for count in (64, 65, 100_000)
    ),
    Case("dataset: an index of 2 GiB of holes", sparse("index.json"), everything, CorruptError, "the file is sparse",
         most=2**32),
    Case("dataset: a shard of 2 GiB of holes", sparse("shard.00000.mdsx"), everything, CorruptError, "", most=2**32),
    *(
        Case(f"export: {kind} of an array of nothing, of 30,000,000", stored(shard), read, UsageError, says)
        for kind, read, refuses in (
            ("jsonl", exported("jsonl"), "without items"),
            ("parquet", exported("parquet"), "lists of size 0"),
        )
        for shard, says in (
            (one("uint8[*,*]", struct.pack("<II", 30_000_000, 0)), "without items"),
            (one("uint8[30000000,0]", b""), refuses),
        )
    ),
    Case("mds: 2^30 samples", *mds("str", b"text", samples=2**30), CorruptError, "size is impossible"),
    Case("mds: an array of 63 dimensions of 2^64 - 1", *mds("ndarray", b"\x08\xff" + b"\xff" * 504), CorruptError,
         "wrong size"),
    Case("mds: an array of nothing, of 2^64 - 1", *mds("ndarray", b"\x08\x0b" + b"\xff" * 8 + bytes(8)), CorruptError,
         "NumPy has no such array"),
    Case("mds: a picture of 2^32 x 2^32 pixels", *mds("pil", b"\xff" * 8 + b"\1\0\0\0L"), CorruptError, "wrong size"),
    Case("mds: a picture of 2^32 x 0 pixels", *mds("pil", b"\xff" * 4 + b"\0\0\0\0\1\0\0\0L"), MdsxError, ""),
    Case("mds: a list of 2^32 - 1 pictures", *mds("list[jpeg]", bytes(4) + b"\xff" * 60), CorruptError, "ends within"),
    Case("mds: an integer of 90,000 digits", *mds("str_int", b"9" * 90_000), CorruptError, "not an integer"),
    Case("mds: a number of 10^999999999999999999", *mds("str_decimal", b"1E999999999999999999")),
    Case("tar: a sparse member of 4 GiB", tar(old_gnu([(2**32 - 20, 8)], 2**32 - 12, b"stored!!") + END), converted,
         MdsxError, "is sparse: 4,294,967,284 bytes, but only 8 are stored"),
    Case(
        "tar: a sparse member of 4 GiB in a pax header",
        tar(pax_sparse({"GNU.sparse.major": "1", "GNU.sparse.realsize": str(2**32 - 12)}, b"0\n".ljust(512,
         b"\0")) + END),
        converted, MdsxError, "is sparse",
    ),
    Case("tar: a sample of 12 members of 64 MiB of holes", tar(lambda: holes(12, "a.c{}")), arrays, MdsxError,
         "is sparse", most=400),
    Case("tar: 1,000 samples of 64 MiB of holes", tar(lambda: holes(1000, "{}.bin")), skipping, most=20_000),
    Case("tar: 60 MB of JSON in 60 kB", tar(lambda: packed("a.json", b"[" + b"[]," * 2 * 10**7 + b"0]")), arrays,
         SampleError, "have far more bytes, decompressed, than the tar's file"),
    Case("tar: 60 MB of MessagePack in 60 kB",
         tar(lambda: packed("a.pack", b"\xdd" + struct.pack(">I", 6 * 10**7) + b"\x90" * 6 * 10**7)), converted,
         SampleError, "have far more bytes, decompressed, than the tar's file"),
    Case("tar: 60 MB of digits in 60 kB", tar(lambda: packed("a.cls", b"1" * 6 * 10**7)),
         lambda folder: convert("tar", [f"{folder}/a.tar"], folder / "out", columns={"cls": "int64"}), SampleError,
         "is not an integer"),
    Case("tar: a sparse map of 10^18 pieces",
         tar(pax_sparse({"GNU.sparse.major": "1", "GNU.sparse.realsize": "9"}, b"1000000000000000000\n") + END),
         converted, CorruptError, "sparse member is damaged"),
    Case("tar: a sparse map without end",
         tar(lambda: gzip.compress(header("g.bin", 8, b"S", at_482=b"\1") + (bytes(504) + b"\1" + bytes(7)) * 200_000)),
         converted, CorruptError, "map of a sparse member", most=700_000),
    Case("tar: pax headers without end", tar(lambda: gzip.compress(pax({"comment": "x" * 2**19}) * 100)), converted,
         CorruptError,
         "extended header", most=700_000),
    Case("tar: a member of 2^60 bytes", tar(header("a.bin", 2**60) + END), converted, MdsxError,
         "too large|may be truncated"),
    Case("tar: a member of 2^87 bytes", tar(header("a.bin", 2**87) + END), converted, MdsxError,
         "too large|may be truncated"),
    Case("tar: a size below zero", tar(header("a.bin", 0, at_124=b"\xff" * 12) + END), converted, CorruptError,
         "not a tar"),
    Case("tar: a pax size below zero", tar(pax({"size": "-512"}) + header("a.bin", 0) + END), converted, CorruptError,
         "pax header is damaged"),
    Case("tar: a pax size of 90,000 digits", tar(pax({"size": "9" * 90_000}) + header("a.bin", 0) + END), converted,
         CorruptError, "pax header is damaged"),
    Case("tar: a header of 2^40 bytes", tar(header("long", 2**40, b"L") + END), converted, CorruptError,
         "extended header"),
    Case("tar: zstd of 300 MiB of zeros", tar(lambda: bomb(zstandard.compress)), converted, CorruptError,
         "1,100 times its size"),
    Case("tar: a gzip bomb as a member, which stays as it is", tar(lambda: tar_bytes([("a.bin",
         gzip.compress(bytes(2**24)))])),
         converted),
    Case("tar: a picture of 60,000 x 60,000 pixels, which stays as it is",
         tar(tar_bytes([("a.png", png()[:16] + struct.pack(">II", 60_000, 60_000) + png()[24:])])), arrays),
    Case("npy: a shape of 2^60", numpy_file(_NPY.replace("@", f"{2**60},")), arrays,
         MdsxError, "has 0"),
    Case("npy: nothing of 10^30", numpy_file(_NPY.replace("@", f"0, {10**30}")),
         arrays, MdsxError, "impossible shape"),
    Case("npy: 9,000 signs", numpy_file("-" * 9000 + "1"), arrays, MdsxError, "not a NumPy file"),
    Case("npy: 9,000 brackets", numpy_file("[" * 9000), arrays, MdsxError, "not a NumPy file"),
    Case("npy: a header that never ends", numpy_file("{'descr': ("), arrays, MdsxError, "not a NumPy file"),
    Case("npy: a call", numpy_file("__import__('os').abort()"), arrays, MdsxError, "not a NumPy file"),
    Case("npy: pickled objects", tar(tar_bytes([("a.npy", npy(np.array([{}]), allow_pickle=True))])), arrays,
         MdsxError, "pickled"),
    Case("tfrecord: a record of 64 MiB of zeros, compressed", tfrecord(2**26),
         lambda folder: convert("tfrecord", f"{folder}/a.tfrecord", folder / "out"), CorruptError, "is too large"),
    Case("megatron: 2^40 sequences", megatron([1], claims=2**40),
         lambda folder: convert("megatron", f"{folder}/a", folder / "out"), CorruptError, "has another size"),
    Case("megatron: a document of 3,000 times the same sequence", megatron([30_000] * 3000),
         lambda folder: convert("megatron", f"{folder}/a", folder / "out"), CorruptError, "sequences overlap"),
    Case("state: 1e999999999 as a weight", nothing, state({"phases": [[0, ["1e999999999", 1]]]}), StateError,
         "phases"),
    Case("state: an epoch of 10,000 digits", nothing, state({"epoch": 10**10_000}), StateError, "epoch"),
    Case("state: a seed of 10,000 digits", nothing, state({"seed": 10**10_000}), StateError, "seed"),
    Case("braces: 100,000 opened", nothing, braces("{" * 100_000), UsageError, "too long"),
    Case("braces: 4,000 opened", nothing, braces("{" * 4000)),
    Case("braces: 1,300 choices of two", nothing, braces("{,}" * 1300), UsageError, "more than"),
    Case("braces: 2,000 in each other", nothing, braces("{," * 1300 + "}" * 1300), UsageError, "nested"),
    Case("braces: 10^12 names", nothing, braces("{0..999999999999}"), UsageError, "more than"),
    Case("braces: 10^6 names of 4,000 digits", nothing, braces(f"{{{'0' * 4000}1..999999}}"), UsageError,
         "long names"),
    Case("type: 90,000 dimensions", nothing, lambda folder: parse_type(f"int8[{'1,' * 90_000}1]"), CorruptError,
         "dimensions"),
    Case("type: spans that wrap around", nothing, lambda folder: parse_type("int8[65536,65536]"), CorruptError,
         "span"),
    Case("values: 8 dimensions of 2^32 - 1",
         nothing, lambda folder: value_decoder(parse_type("int8[*,*,*,*,*,*,*,*]"), "x")(memoryview(b"\xff" * 32)),
         CorruptError, "dimensions are too large"),
]  # fmt: skip
