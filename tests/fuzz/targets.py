"""Fuzz targets: each takes any bytes, and may raise only MdsxError.

A target begins with the bytes of one of its seeds, changed by its driver: hypothesis in `test_fuzz.py`, atheris
in `python -m tests.fuzz`. `resealed.py` first recomputes the checksums, so that the fuzzer
reaches the code after the checks.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
import zstandard
from typer.testing import CliRunner

import mdsx
from mdsx.base.braces import expand_braces
from mdsx.base.sizes import parse_size
from mdsx.checks.damage import verify
from mdsx.cli.app import app
from mdsx.cli.output import print_json
from mdsx.cli.show import as_line
from mdsx.errors import MdsxError
from mdsx.foreign.mds.encodings import parse_encoding
from mdsx.foreign.tars import INDEX_KEY, IndexedTar, build_text
from mdsx.foreign.tars.values import parse_npy
from mdsx.format import (
    SampleDecoder,
    Schema,
    ShardView,
    check_shard,
    claimed_raw_size,
    compress,
    parse_index,
    parse_type,
    seek_table_size,
    value_decoder,
)
from mdsx.format.frames import FrameReader, decompress_frame, frame_count, parse_seek_table
from mdsx.order import exact_weight
from mdsx.stream import OrderIdentity
from mdsx.transfer.converting import convert
from mdsx.transfer.converting.plan import decode_plan
from mdsx.transfer.converting.tf_example import BadMessage, parse_example
from tests.foreign.mds import plain
from tests.foreign.tars.indexed import pointers_of, tar_of
from tests.foreign.tars.sparse_tars import old_gnu, pax_sparse
from tests.foreign.tars.tars import JPEG, npy, png, sample_members, tar_bytes
from tests.format import by_the_book, reference
from tests.fuzz import resealed
from tests.transfer.converting.test_megatron import index as megatron_index
from tests.transfer.converting.tf_files import example, record

_MOST = 64  # samples, names, values to read of one input
_TYPES = (
    "bytes", "str", "json", "msgpack", "jpeg", "png", "int64?", "bool?", "bfloat16?", "uint16[*]", "float32[*,3]?",
    "bool[*]", "bfloat16[*,*]", "uint8[0,*]", "uint8[*,*,*,*,*,*,*,*]", "float64[2,2]?", "later", "later?",
    "str[*]", "json[*]?", "later[2]",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _index(data: bytes) -> None:
    index = parse_index(resealed.index(data))
    for shard in range(min(len(index.counts), _MOST)):
        index.shard_entry(shard)


def _shard(data: bytes) -> None:
    data = resealed.shard(data)
    check_shard(data)
    _read_all(ShardView.parse(data))


def _read_all(view: ShardView) -> None:
    known = {column.name: k for k, column in enumerate(view.schema.columns) if column.type.known}
    decoder = SampleDecoder(view.schema, known)
    for sample in range(min(view.samples, _MOST)):
        with contextlib.suppress(MdsxError):
            decoder.decode(view, sample, verify=True)


def _frames(data: bytes) -> None:
    """A compressed shard. The first 4 bytes give its raw size, the next 2 bytes give the size of its chunks."""
    raw_size, step = struct.unpack_from("<IH", data.ljust(6, b"\0"))
    stored = data[6:]
    with contextlib.suppress(MdsxError):
        claimed_raw_size(stored)
    tail = stored[-seek_table_size(raw_size) :]
    with contextlib.suppress(MdsxError):
        offsets = parse_seek_table(tail, raw_size=raw_size, size=len(stored))
        for low, high in zip(offsets[:_MOST].tolist(), offsets[1:].tolist(), strict=False):
            with contextlib.suppress(MdsxError):
                decompress_frame(stored[low:high], expected_size=min(raw_size, 2**20))
    reader = FrameReader(raw_size, len(stored))
    assert frame_count(raw_size) <= len(stored)
    for at in range(0, len(stored), max(step, 1 + len(stored) // 256)):
        for _ in reader.feed(stored[at : at + max(step, 1 + len(stored) // 256)]):
            pass
    reader.finish()


def _dataset(data: bytes) -> None:
    """A dataset of one shard, whose index is right except for what the first 8 bytes change."""
    lies, shard = data[:8].ljust(8, b"\0"), resealed.shard(data[8:])
    zstd = bool(lies[0] & 1) and len(shard) < 2**21
    index = _index_of(shard, zstd, lies)
    with tempfile.TemporaryDirectory() as folder:
        stored = compress(shard) if zstd else shard
        Path(folder, "index.json").write_bytes(resealed.index(json.dumps(index).encode()))
        Path(folder, index["shards"]["files"][0][0] + "00000" + index["shards"]["files"][0][1]).write_bytes(stored)
        _read_dataset(folder, mmap=bool(lies[0] & 2))


def _read_dataset(folder: str, *, mmap: bool) -> None:
    with contextlib.suppress(MdsxError):
        list(verify(folder))
    dataset = mdsx.Dataset(folder, mmap=mmap, cache=mdsx.Cache(Path(folder, "cache"), limit="16MiB"))
    some = min(len(dataset), _MOST)
    with contextlib.suppress(MdsxError):
        dataset[:some]
    for number in range(some):
        with contextlib.suppress(MdsxError):
            for value in dataset[number].values():
                as_line(value)
                print_json(value)


def _index_of(shard: bytes, zstd: bool, lies: bytes) -> dict[str, Any]:
    header = shard.ljust(64, b"\0")
    size, samples = struct.unpack_from("<I", header, 36)[0], struct.unpack_from("<Q", header, 16)[0]
    start = struct.unpack_from("<I", header, 12)[0]
    columns = json.loads(_SHARD[64 : 64 + reference.get(_SHARD, "schema_size")])
    with contextlib.suppress(ValueError, RecursionError):
        columns = json.loads(shard[start : start + size])
    stored = compress(shard) if zstd else shard
    shards: dict[str, Any] = {
        "files": [["shard.", ".mdsx.zst" if zstd else ".mdsx", 0, 1]],
        "samples": [samples + lies[1]],
        "row_key": f"{struct.unpack_from('<Q', header, 24)[0] ^ lies[7]:016x}",
        "size": [len(stored) + lies[2]],
        "xxh3_128": xxhash.xxh3_128_hexdigest(stored),
    }
    if zstd:
        shards |= {
            "raw_size": [len(shard) + (lies[3] << lies[4] % 48)],
            "raw_xxh3_128": xxhash.xxh3_128_hexdigest(shard),
        }
    return {
        "format": "mdsx",
        "version": 1,
        "columns": columns,
        "compression": "zstd" if zstd else None,
        "rows_offset": -(-(start + size) // 64) * 64 + 64 * lies[5],
        "row_size": struct.unpack_from("<I", header, 32)[0] + 8 * lies[6],
        "samples": samples + lies[1],
        "shards": shards,
        "fingerprint": "",
        "metadata": {},
    }


def _value(data: bytes) -> None:
    kind = _TYPES[data[0] % len(_TYPES)] if data else "bytes"
    value = value_decoder(parse_type(kind), "x")(memoryview(data[1:]))
    as_line(value)
    with contextlib.suppress(MdsxError):
        print_json(value)


def _type(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(MdsxError):
        kind = parse_type(text)
        assert str(kind) == text
    with contextlib.suppress(MdsxError):
        Schema.from_columns({"a": text, text: "int8"})
    schema = Schema.from_json(data)
    assert schema.json == data
    assert schema.row_dtype.itemsize == schema.row_size


def _tar(data: bytes) -> None:
    """A conversion; the first byte chooses the tar's compression, `on_error` and the options."""
    how, data = data[:1] or b"\0", resealed.tar(data[1:])
    wrapped = (data, zlib.compress(data, wbits=31), zstandard.compress(data))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.tar").write_bytes(wrapped[how[0] % 3])
        named: dict[str, Any] = {"key_until": "last-dot", "rename": {"x": "txt;text"}, "nan": "null"}
        options = named if how[0] & 8 else {}
        convert("tar", [f"{folder}/a.tar"], f"{folder}/out", on_error="skip" if how[0] & 4 else "raise", **options)


def _stream(data: bytes) -> None:
    """A tar as it comes, compressed or not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.tar").write_bytes(data)
        convert("tar", [f"{folder}/a.tar"], f"{folder}/out", on_error="skip")


def _tfrecord(data: bytes) -> None:
    """A TFRecord file; the first byte says whether the checksums are corrected, and how it is compressed."""
    how, data = data[:1] or b"\0", data[1:]
    data = resealed.tfrecord(data) if how[0] & 4 else data
    wrapped = (data, zlib.compress(data), zlib.compress(data, wbits=31), zstandard.compress(data))[how[0] % 4]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.tfrecord").write_bytes(wrapped)
        convert("tfrecord", f"{folder}/a.tfrecord", f"{folder}/out", on_error="skip" if how[0] & 8 else "raise")


def _example(data: bytes) -> None:
    """A tf.train.Example."""
    with contextlib.suppress(BadMessage):
        parse_example(data)


def _megatron(data: bytes) -> None:
    """The index of a Megatron dataset, and 64 bytes of tokens; the first byte says what a sample is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.idx").write_bytes(data[1:])
        Path(folder, "a.bin").write_bytes(bytes(range(64)))
        per: Any = "document" if data[:1] < b"\x80" else "sequence"
        convert("megatron", f"{folder}/a", f"{folder}/out", on_error="skip", per=per)


_ORDER = OrderIdentity(1, 7, 8, 64, True, "f" * 32, 100, 100, ((0, (Fraction(1), Fraction(2))),))
_STATE = _ORDER.state(3, 40)
_LARGE = {"epoch": "!5000", "phases": [[0, ["1/3", 1.5]]]}


def _state(data: bytes) -> None:
    found = _object(data)
    _ORDER.check(found)


def _weights(data: bytes) -> None:
    """Numbers and what may replace them in a mixture's arguments."""
    found = _object(data)
    for value in found if isinstance(found, list) else [found]:
        with contextlib.suppress(MdsxError):
            exact_weight(value, "weight")
        with contextlib.suppress(MdsxError):
            mdsx.Mixture([("nowhere", value)])
        with contextlib.suppress(MdsxError):
            parse_size(value, name="shard_size")


def _object(data: bytes) -> Any:
    """Return an object from MessagePack; 16 bytes or text `!digits` stand for larger integers."""
    try:
        found = msgpack.unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, RecursionError):
        raise MdsxError("no object") from None
    return _grown(found)


def _grown(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _grown(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_grown(value) for value in found]
    if isinstance(found, str) and found[:1] == "!" and found[1:].isascii() and found[1:].isdigit():
        return 10 ** (int(found[1:5]) % 6000)
    return found


def _text(data: bytes) -> None:
    """Sizes and braces."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(MdsxError):
        parse_size(text)
    expand_braces(text)


def _npy(data: bytes) -> None:
    with contextlib.suppress(ValueError):  # the caller, which knows the member, raises the error
        parse_npy(data)


def _records(data: bytes) -> None:
    """An unfinished dataset: the writer's record, a journal, and a conversion's plan, separated by zero bytes."""
    record, journal, plan = [*data.split(b"\0", 2), b"", b""][:3]
    with contextlib.suppress(MdsxError):
        decode_plan(plan, file="plan.json")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Path(folder, "_mdsx").mkdir()
        Path(folder, "_mdsx/writer.json").write_bytes(record)
        Path(folder, "_mdsx/journal.00000.json").write_bytes(resealed.index(journal))
        for number in range(65):
            Path(folder, f"shard.{number:05d}.mdsx").write_bytes(_SHARD)
        with mdsx.Writer(folder, _COLUMNS, shard_size=_RECORD_SIZE, resume=True) as out:
            assert out.samples >= 0


def _mds(data: bytes) -> None:
    """An MDS dataset of one shard: a byte of options, the index, a mark, and the shard's stored file."""
    how, (text, _, stored) = data[:1] or b"\0", data[1:].partition(_MARK)
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        index = json.loads(text)
        (shard,) = index["shards"]
        if how[0] & 1:  # the right size
            (shard["zip_data"] or shard["raw_data"])["bytes"] = len(stored)
            text = json.dumps(index).encode()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "index.json").write_bytes(text)
        for suffix in ("", *_COMPRESSIONS):
            Path(folder, f"shard.mds{'.' * bool(suffix)}{suffix}").write_bytes(stored)
        _read_dataset(folder, mmap=bool(how[0] & 2))


def _mds_value(data: bytes) -> None:
    """A value of MDS; the first byte chooses its encoding."""
    encoding = parse_encoding(_ENCODINGS[data[0] % len(_ENCODINGS)] if data else "bytes", "x", None)
    assert encoding is not None
    value = value_decoder(encoding.type, "x")(memoryview(data[1:]))
    as_line(value)
    with contextlib.suppress(MdsxError):
        print_json(value)


def _parquet(data: bytes) -> None:
    """A Parquet file, which is indexed and read."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Path(folder, "0.parquet").write_bytes(data)
        mdsx.index_parquet(folder)
        _read_dataset(folder, mmap=False)


def _parquet_index(data: bytes) -> None:
    """An index of an undamaged Parquet file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "0.parquet").write_bytes(_PARQUET)
        Path(folder, "_mdsx-parquet.json").write_bytes(resealed.index_of_files(data))
        _read_dataset(folder, mmap=False)


def _tars_index(data: bytes) -> None:
    """An index of an undamaged tar."""
    with tempfile.TemporaryDirectory() as folder:
        _write_tar(folder, _POINTERS)
        Path(folder, INDEX_KEY).write_bytes(resealed.index_of_files(data))
        _read_dataset(folder, mmap=True)


def _tars_pointers(data: bytes) -> None:
    """The pointers of an undamaged tar. The first byte says whether they have checksums, and where they are read."""
    how, pointers = data[:1] or b"\0", resealed.shard(data[1:])
    with tempfile.TemporaryDirectory() as folder:
        _write_tar(folder, pointers, checksums=bool(how[0] & 1))
        _read_dataset(folder, mmap=bool(how[0] & 2))


def _write_tar(folder: str, pointers: bytes, *, checksums: bool = True) -> bytes:
    """Write an undamaged tar with these pointers, and return their index."""
    samples = min(max(struct.unpack_from("<Q", pointers.ljust(64, b"\0"), 16)[0], 1), 2**40)
    tar, hash = xxhash.xxh3_128_hexdigest(_TAR), xxhash.xxh3_128_hexdigest(pointers)
    entry = IndexedTar("0.tar", len(_TAR), "", tar if checksums else None, samples, "p.mdsx", len(pointers) or 1, hash)
    text = build_text(Schema.from_columns(_TAR_COLUMNS), [entry])
    for name, content in {"0.tar": _TAR, "p.mdsx": pointers, INDEX_KEY: text}.items():
        Path(folder, name).write_bytes(content)
    return text


_TAR_COLUMNS = {"__key__": "str", "a": "uint16[*]?", "e": "float32[2]", "n": "int8?", "t": "json?", "c": "int64"}
_TAR_SAMPLES: list[dict[str, Any]] = [
    {"__key__": None, "a": [1, 2, 3], "e": [1, 2], "n": 5, "t": {"k": [1]}, "c": 7},
    {"__key__": "elsewhere", "a": None, "e": [1, 2], "n": None, "t": None, "c": -7},
]
_TAR = tar_of(_TAR_COLUMNS, _TAR_SAMPLES)
_POINTERS = pointers_of(_TAR_COLUMNS, _TAR_SAMPLES, _TAR)


def _tars_text() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return _write_tar(folder, _POINTERS)


_CODES = {0, 1, 2, 3, 130}


def _arguments(data: bytes) -> None:
    """A command line, its words separated by zero bytes."""
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]
    with _nowhere():
        result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in _CODES, result.exit_code


@contextlib.contextmanager
def _nowhere() -> Iterator[None]:
    """Yield an empty folder, in a process without credentials."""
    before, folder = dict(os.environ), os.getcwd()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null"}
    os.environ |= {"AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    try:
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            try:
                yield
            finally:
                os.chdir(folder)
    finally:
        os.environ.clear()
        os.environ.update(before)


# --- seeds

_COLUMNS = {
    "id": "uint16", "ok": "bool", "grid": "float32[2,2]", "half": "bfloat16", "text": "str", "raw": "bytes?",
    "tree": "json", "pack": "msgpack?", "ids": "uint16[*]", "maybe": "int64?", "image": "jpeg",
}  # fmt: skip
_SAMPLES: list[dict[str, Any]] = [
    {
        "id": k, "ok": k == 1, "grid": np.ones((2, 2), np.float32), "half": 1.5, "text": "text ß"[: 3 * k],
        "raw": None if k else b"raw", "tree": {"a": [k, None, 1.5], "$ref": "http://127.0.0.1:9/"},
        "pack": {"k": [k, b"x", {}]}, "ids": list(range(k)), "maybe": k or None, "image": JPEG,
    }
    for k in range(3)
]  # fmt: skip


def _written(columns: dict[str, str], samples: list[dict[str, Any]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with mdsx.Writer(folder, columns) as out:
            for sample in samples:
                out.write(sample)
        return Path(folder, "shard.00000.mdsx").read_bytes()


_SHARD = _written(_COLUMNS, _SAMPLES)
_SMALL = by_the_book.shard({"n": "uint32", "text": "str"}, [{"n": bytes(4), "text": b"one"}] * 2)
_OPAQUE = by_the_book.shard({"clip": "later?", "b": "bool[3]"}, [{"clip": b"??", "b": b"\0\1\0"}])
_RECORD_SIZE = 4096
_INDEX = reference.seal_index(
    reference.index({"n": "uint32", "text": "str"}, [_SMALL], metadata={"a": [1, {"b": None}]})
)
_ZSTD_INDEX = reference.seal_index(
    reference.index({"n": "uint32", "text": "str"}, [reference.compressed(_SMALL)], [_SMALL])
)


def _compressed(raw: bytes, step: int = 100) -> bytes:
    return struct.pack("<IH", len(raw), step) + compress(raw)


def _tars() -> tuple[bytes, ...]:
    members = [("a.txt", b"text"), ("a.cls", b"1"), ("a.json", b'{"k":[1]}'), ("a.png", png()), ("a.jpg", JPEG)]
    members += [("a.npy", npy(np.arange(6).reshape(2, 3)))]
    long = [("long/" * 40 + "c.txt", b"name"), ("é.txt", b"not ASCII")]
    return (tar_bytes(members), tar_bytes(list(sample_members(range(2)))), *(tar_bytes(long, format=k) for k in (1, 2)))


def _sparse() -> bytes:
    """Return a member of pax sparse format 1.0, and one of the old GNU type."""
    records = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4096", "size": "520"}
    return (
        pax_sparse(records, b"1\n4000\n8\n".ljust(512, b"\0") + b"stored!!")
        + old_gnu([(512, 8)], 1024, b"stored!!")
        + bytes(1024)
    )


def _record() -> bytes:
    columns = json.loads(Schema.from_columns(_COLUMNS).json)
    record = {
        "format": "mdsx-writer",
        "version": 1,
        "columns": columns,
        "shard_size": _RECORD_SIZE,
        "compression": None,
    }
    record |= {"shard_version": "1.0", "libzstd": None, "owner": "0123456789abcdef"}
    journal = reference.index(_COLUMNS, [_SHARD] * 64)
    plan: dict[str, Any] = {
        "out": "/x",
        "sources": [{"url": "/a.tar", "size": 3, "etag": "x"}],
        "columns": {"a": "str"},
    }
    plan |= {"shard_size": 100, "compression": None, "nan": "null", "on_error": "raise", "parts": 1}
    plan |= {"names": {"key_until": "last-dot", "rename": {"a": ["txt"]}, "drop": ["README"]}}
    return b"\0".join((json.dumps(record).encode(), json.dumps(journal).encode(), json.dumps(plan).encode()))


def _words(*lines: str) -> tuple[bytes, ...]:
    return tuple(line.encode().replace(b" ", b"\0") for line in lines)


def _values() -> tuple[bytes, ...]:
    texts: dict[str, bytes] = {
        "json": b'{"a":[1,2.5,"x",null,1e999]}',
        "msgpack": msgpack.packb({"a": [1, b"x", 2**63], 3: 1.5}),
    }
    texts |= {"uint16[*]": b"\2\0\0\0\1\0\2\0", "float32[*,3]?": bytes(4), "str": "ß".encode(), "int64?": bytes(8)}
    texts |= {"str[*]": b"\2\0\0\0\1\0\0\0\2\0\0\0aas", "json[*]?": b"\1\0\0\0\2\0\0\0[]"}
    return tuple(bytes([_TYPES.index(kind)]) + data for kind, data in texts.items())


_MARK = b"\0 the shard \0"
_COMPRESSIONS = ("br", "bz2", "gz", "snappy", "zstd")
_MDS = {
    "a": "ndarray", "b": "bytes", "f": "ndarray:float32:2", "i": "int", "j": "json", "n": "ndarray:uint8", "p": "pil",
    "s": "str", "x": "str_int",
}  # fmt: skip
_PIL = struct.pack("<3I", 2, 1, 1) + b"L" + b"\1\2"
_ENCODINGS = (
    "ndarray", "ndarray:float32", "pil", "list[pil]", "list[jpeg]", "jpeg_array", "str_int", "str_float", "str_decimal",
    "json", "ndarray:int8:1,1,1,1,1,1,1,1,1", "pkl",
)  # fmt: skip


def _mds_seeds() -> tuple[bytes, ...]:
    samples: list[dict[str, Any]] = [
        {
            "a": np.ones((k, 1, 2), np.int16), "b": b"b" * k, "f": np.ones(2, np.float32), "i": k, "j": [k, None],
            "n": np.arange(k, dtype=np.uint8), "p": _PIL, "s": "text ß" * k, "x": 10**k,
        }
        for k in range(3)
    ]  # fmt: skip
    raw = plain.shard_bytes(_MDS, samples)
    bare, hashed = (plain.entry(_MDS, "shard.mds", raw, 3, names) for names in ((), ("xxh64",)))
    seeds = [(0, bare, raw), (1, bare, raw), (2, hashed, raw), (3, bare, raw)]
    for name in _COMPRESSIONS:
        stored = plain.compress(name, raw)
        seeds.append((1, plain.zipped(bare, name, stored), stored))
    return tuple(bytes([how]) + plain.index_bytes([shard]) + _MARK + stored for how, shard, stored in seeds)


def _mds_values() -> tuple[bytes, ...]:
    array = plain.encode("ndarray", np.ones((2, 3), np.float32))
    items = struct.pack("<4I", 0, 2, len(_PIL), len(_PIL)) + 2 * _PIL
    values = (
        array, array[1:], _PIL, items, items, items[4:], b"-12", b"1e300", b"-1E+50", b'{"a":[1,null]}', b"\7", b"."
    )  # fmt: skip
    return tuple(bytes([number]) + value for number, value in enumerate(values))


def _parquet_file(**options: Any) -> bytes:
    table = pa.table(
        {
            "a": range(5),
            "s": ["x", None, "text", "x", ""],
            "l": [[1, 2], [], None, [3], [4]],
            "d": [{"k": 1, "v": ["a", None]}] * 5,
            "t": pa.array(range(5), pa.timestamp("us")),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2, **options)
    return out.getvalue()


def _parquet_text() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "0.parquet").write_bytes(_PARQUET)
        mdsx.index_parquet(folder)
        return Path(folder, "_mdsx-parquet.json").read_bytes()


_PARQUET = _parquet_file()
_EXAMPLES = tuple(
    example({"image": JPEG, "label": number, "ids": list(range(200 * number, 200 * number + 30)), "box": [0.5] * 4,
             "texts": [b"text", b""]}, package)
    for number, package in enumerate(("packed", "unpacked", "packed"))
)  # fmt: skip

TARGETS = {
    "arguments": Target(
        _arguments,
        _words(
            "info .", "cat x --start 3 --count 2 --json", "verify file:///nowhere --num-threads 2", "merge . --parts 3",
            "convert tar a-{00..03}.tar out --column json=json? --compression zstd:3 --shard-size 1MiB --on-error skip",
            "convert tfrecord a-{0..2} out --column x=float32[*,4] --rename x=y --drop z",
            "convert megatron a out --per sequence --column tokens=int32[*]",
            "convert tar a.tar out --key-until last-dot --rename image=jpg;png --drop README --nan null",
            "info s3://KEY:SECRET@bucket/prefix", "--version", "info s3://[::1]/x", "info file:///%00",
            "index parquet . --column a=int8 --replace-index",
        ),
    ),
    "dataset": Target(_dataset, tuple(bytes([how, *bytes(7)]) + raw for how in range(4) for raw in (_SHARD, _SMALL))),
    "frames": Target(_frames, (_compressed(_SHARD), _compressed(bytes(2**20 + 5), 7), _compressed(b"x"))),
    "index": Target(_index, (_INDEX, _ZSTD_INDEX)),
    "mds": Target(_mds, _mds_seeds()),
    "mds-value": Target(_mds_value, _mds_values()),
    "megatron": Target(
        _megatron,
        tuple(
            per + megatron_index([4, 0, 12, 16], [0, 8, 8, 32], [0, 1, 3, 4], dtype=dtype)
            for per in (b"\0", b"\xff")
            for dtype in ("uint16", "int8")
        ),
    ),
    "npy": Target(_npy, (npy(np.arange(6).reshape(2, 3)), npy(np.array(["a"])), npy(np.zeros((0, 3), ">f8")))),
    "parquet": Target(_parquet, (_PARQUET, _parquet_file(compression="zstd", data_page_version="2.0"))),
    "parquet-index": Target(_parquet_index, (_parquet_text(),)),
    "records": Target(_records, (_record(),)),
    "shard": Target(_shard, (_SHARD, _SMALL, _OPAQUE)),
    "state": Target(_state, (msgpack.packb(_STATE), msgpack.packb(_STATE | _LARGE))),
    "stream": Target(_stream, (_tars()[0], zlib.compress(_tars()[0], wbits=31), zstandard.compress(_tars()[0]))),
    "tar": Target(
        _tar,
        (
            *(bytes([how]) + tar for how, tar in enumerate((*_tars(), _sparse()))),
            *(bytes([how]) + tar for how in (8, 12) for tar in _tars()[:2]),
        ),
    ),
    "tars-index": Target(_tars_index, (_tars_text(),)),
    "tars-pointers": Target(_tars_pointers, tuple(bytes([how]) + _POINTERS for how in range(4))),
    "text": Target(_text, (b"64MiB", b"1.5 GB", b"a-{000..010..5}.tar", b"{a,{b,c}}{x..z}", b"{{{{,}}}")),
    "tf-example": Target(_example, _EXAMPLES),
    "tfrecord": Target(_tfrecord, tuple(bytes([how]) + b"".join(map(record, _EXAMPLES)) for how in range(16))),
    "type": Target(_type, (b"uint16[*,3]?", b"later", b'[{"name":"a","type":"uint8[4]"},{"name":"b","type":"str?"}]')),
    "value": Target(_value, _values()),
    "weights": Target(_weights, (msgpack.packb([0.5, 3, "1/3", "64MiB", "!5000"]), msgpack.packb([1e308, -1, True]))),
}  # fmt: skip


def allowed(target: str, data: bytes) -> None:
    """Run a target. Let every exception pass except MdsxError."""
    with contextlib.suppress(MdsxError), contextlib.redirect_stdout(io.StringIO()):
        TARGETS[target].run(data)
