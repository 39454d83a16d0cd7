"""The good files: the writer's for known samples, and possible ones of later versions and other writers."""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import xxhash

from mdsx.format import Encoder, Schema, ShardBuilder, ShardEntry, as_stored, build_index, compress
from tests.format import by_the_book, reference
from tests.vectors import bad_frames
from tests.vectors.vector import Good

Samples = Sequence[Mapping[str, Any]]

_INTEGERS = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
_LOW = {name: 0 if sign else -(2 ** (bits - 1)) for name, (sign, bits) in _INTEGERS.items()}
_HIGH = {name: 2**bits - 1 if sign else 2 ** (bits - 1) - 1 for name, (sign, bits) in _INTEGERS.items()}
_FLOATS = {"float16": 65504.0, "bfloat16": 2.0**127 * 255 / 128, "float32": 2.0**127 * (2 - 2.0**-23), "float64": 0.1}
_BASES = ("bool", *_INTEGERS, *_FLOATS)
_PNG = (
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
)
_WEBP = "524946461a000000574542505650384c0d0000002f00000010071011118888fe0700"
_JPEG = "ffd8ffe000104a46494600010100000100010000ffd9"


def write(columns: Mapping[str, str], samples: Samples) -> bytes:
    """Return one shard, by the writer's code."""
    encoder, builder = Encoder(Schema.from_columns(columns)), ShardBuilder(Schema.from_columns(columns), 2**40)
    builder.add(encoder.gather([value for sample in samples for value in encoder.sample(sample)[0]]))
    return bytes(builder.finish())


def _scalars() -> Samples:
    low = {"bool": False, **_LOW, **dict.fromkeys(_FLOATS, -0.0)}
    high = {"bool": True, **_HIGH, **_FLOATS}
    return [
        low,
        high,
        {**high, **dict.fromkeys(_FLOATS, float("inf"))},
        {**low, **dict.fromkeys(_FLOATS, float("nan"))},
    ]


def _arrays(shape: tuple[int, ...]) -> dict[str, Any]:
    """Yield an array of each base, with different items."""
    places = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    items: dict[str, Any] = {"bool": places % 2 == 1}
    items |= {base: places.astype(base) - (base[0] == "i") for base in _INTEGERS}
    items |= {base: (places / 4 - 1).astype("float32" if base == "bfloat16" else base).tolist() for base in _FLOATS}
    return {base: np.asarray(value, base) if base in _INTEGERS else value for base, value in items.items()}


_MSGPACK = [
    {"z": 1, "a": [b"\x00\xff", "text", None, True], "m": {1: "int key", b"k": -(2**63), "big": 2**64 - 1}},
    msgpack.Timestamp(-1, 999_999_999),
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    [0.5, float("nan"), float("-inf")],
    None,
]
_JSON = [{"z": 1, "a": [1.5, True, None, "é😀\n"]}, [], "text", 2**70, -0.5, None]

_SHARDS: dict[str, tuple[str, dict[str, str], Samples]] = {
    "scalars": ("Each scalar type: least and greatest values, infinities, NaN.", {b: b for b in _BASES}, _scalars()),
    "scalars-nullable": (
        "Each scalar type, nullable: variable-size, 4 values and a sample of nulls.",
        {base: f"{base}?" for base in _BASES},
        [*_scalars(), dict.fromkeys(_BASES)],
    ),
    "arrays-fixed": (
        "A fixed array of each scalar type, in an order that needs padding inside the row.",
        {base: f"{base}[2,3]" for base in _BASES},
        [_arrays((2, 3))],
    ),
    "arrays-nullable": (
        "Fixed arrays, nullable.",
        {base: f"{base}[3]?" for base in _BASES},
        [dict.fromkeys(_BASES), _arrays((3,))],
    ),
    "arrays-starred": (
        "An array of each scalar type with one starred dimension of two, of 2, 0 and 1 rows.",
        {base: f"{base}[*,3]" for base in _BASES},
        [_arrays((2, 3)), _arrays((0, 3)), _arrays((1, 3))],
    ),
    "arrays-shapes": (
        "Arrays of 8 dimensions, of dimension 0, with every dimension starred, starred and nullable.",
        {"a": "uint8[1,2,1,2,1,2,1,2]", "b": "float64[0]", "c": "int16[*,*]", "d": "uint16[*]?", "e": "uint8[0,*]"},
        [
            {
                "a": np.arange(16, dtype=np.uint8).reshape(1, 2, 1, 2, 1, 2, 1, 2),
                "b": np.zeros(0),
                "c": np.arange(6, dtype=np.int16).reshape(3, 2),
                "d": None,
                "e": np.zeros((0, 7), np.uint8),
            },
            {
                "a": np.zeros((1, 2, 1, 2, 1, 2, 1, 2), np.uint8),
                "b": np.zeros(0),
                "c": np.zeros((0, 5), np.int16),
                "d": np.array([1, 2, 3], np.uint16),
                "e": np.zeros((0, 0), np.uint8),
            },
        ],
    ),
    "text": (
        "bytes and str: empty, null, of several scripts, with U+0000.",
        {"bytes": "bytes", "maybe bytes": "bytes?", "str": "str", "maybe str": "str?"},
        [
            {"bytes": b"", "maybe bytes": None, "str": "", "maybe str": None},
            {"bytes": bytes(range(256)), "maybe bytes": b"", "str": "naïve 文字 😀\0", "maybe str": ""},
        ],
    ),
    "images": (
        "jpeg and png: encoded bytes, kept as they are.",
        {"jpeg": "jpeg", "png": "png", "maybe jpeg": "jpeg?", "maybe png": "png?"},
        [{"jpeg": bytes.fromhex(_JPEG), "png": bytes.fromhex(_PNG), "maybe jpeg": None, "maybe png": None}],
    ),
    "lists": (
        "Lists of each type that takes them: of two values, of none, null; and a list with an empty value.",
        {base: f"{base}[*]?" for base in ("bytes", "str", "json", "msgpack", "jpeg", "png")} | {"texts": "str[*]"},
        [
            {
                "bytes": [b"\x00\xff", b""],
                "str": ["", "é😀"],
                "json": [None, {"z": [1], "a": 2}],
                "msgpack": [None, {1: b"x"}],
                "jpeg": [bytes.fromhex(_JPEG)],
                "png": [bytes.fromhex(_PNG)],
                "texts": [""],
            },
            {base: [] for base in ("bytes", "str", "json", "msgpack", "jpeg", "png", "texts")},
            {**dict.fromkeys(("bytes", "str", "json", "msgpack", "jpeg", "png")), "texts": ["a", "b", "c"]},
        ],
    ),
    "json": (
        "json: every kind of value. In `json` None is the JSON null, in `json?` it is no value.",
        {"json": "json", "maybe": "json?"},
        [{"json": value, "maybe": value} for value in _JSON],
    ),
    "msgpack": (
        "msgpack: maps in order, bin, large integers, timestamps. In `msgpack` None is nil, in `msgpack?` no value.",
        {"msgpack": "msgpack", "maybe": "msgpack?"},
        [{"msgpack": value, "maybe": value} for value in _MSGPACK],
    ),
    "later-bases": (
        "The bases of minor version 1: float8_e4m3fn in all shapes, which is never in the rows, and webp.",
        {
            "float8": "float8_e4m3fn",
            "maybe float8": "float8_e4m3fn?",
            "pair": "float8_e4m3fn[2]",
            "float8s": "float8_e4m3fn[*]",
            "webp": "webp",
            "maybe webp": "webp?",
            "webps": "webp[*]",
        },
        [
            {
                "float8": 448.0,
                "maybe float8": None,
                "pair": [-0.0, 2.0**-9],
                "float8s": [1.0, float("nan"), -448.0],
                "webp": bytes.fromhex(_WEBP),
                "maybe webp": None,
                "webps": [bytes.fromhex(_WEBP)] * 2,
            },
            {
                "float8": -(2.0**-6),
                "maybe float8": 1.75,
                "pair": [0.1, 17.5],
                "float8s": [],
                "webp": bytes.fromhex(_WEBP),
                "maybe webp": bytes.fromhex(_WEBP),
                "webps": [],
            },
        ],
    ),
    "media": (
        "The first bytes of sound, video and AVIF, of each kind that the bases of minor version 1 take.",
        {"avif": "avif", "wav": "wav", "flac": "flac?", "mp3": "mp3[*]", "mp4": "mp4"},
        [
            {
                "avif": b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf",
                "wav": b"RIFF\x24\0\0\0WAVEfmt ",
                "flac": b"fLaC\0\0\0\x22",
                "mp3": [b"ID3\x04\0\0\0\0\0\0", *(bytes((255, each)) for each in (0xFB, 0xFA, 0xF3, 0xF2, 0xE3, 0xE2))],
                "mp4": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom",
            },
            {
                "avif": b"\0\0\0\x1cftypavis\0\0\0\0avismsf1miaf",
                "wav": b"RF64\xff\xff\xff\xffWAVEds64",
                "flac": b"ID3\x04\0\0\0\0\0\0fLaC",
                "mp3": [],
                "mp4": b"\0\0\0\x14ftypqt  \0\0\x02\0qt  ",
            },
            {
                "avif": b"\0\0\0\x14ftypavif\0\0\0\0avif",
                "wav": b"BW64\xff\xff\xff\xffWAVEds64",
                "flac": None,
                "mp3": [],
                "mp4": b"\0\0\0\x18ftypiso5\0\0\2\0iso5dash",
            },
        ],
    ),
    "package-types": (
        "Types of packages, with lists of them: the values are those of bytes, whatever the package is.",
        {"frame": "acme.Frame", "maybe": "acme.Frame?", "frames": "acme-codecs.video.frame_2[*]?"},
        [
            {name: as_stored([value])[0] for name, value in sample.items()}
            for sample in (
                {"frame": b"\0any\xff", "maybe": b"", "frames": [b"one", b""]},
                {"frame": b"", "maybe": None, "frames": None},
                {"frame": b"x", "maybe": b"y", "frames": []},
            )
        ],
    ),
    "names": (
        "Column names: of 255 bytes, of one, with spaces, brackets and other scripts.",
        {"é" * 127 + "x": "bool", "x": "int8", " ": "int8", "[*]?": "int8", "文字/😀": "str"},
        [{"é" * 127 + "x": True, "x": 1, " ": 2, "[*]?": 3, "文字/😀": "text"}],
    ),
    "many-samples": (
        "300 samples, so that row checksums need their seed.",
        {"id": "uint32", "text": "str?"},
        [{"id": number, "text": f"sample {number}" if number % 3 else None} for number in range(300)],
    ),
}
WORKED_COLUMNS = {"id": "uint16", "ok": "bool", "text": "str?", "tags": "uint8[*]"}
WORKED_SAMPLES: Samples = [
    {"id": 7, "ok": True, "text": "héllo", "tags": [1, 2, 3]},
    {"id": 65535, "ok": False, "text": None, "tags": []},
]


def shards() -> list[Good]:
    found = [
        Good(f"good/{name}.mdsx", about, write(columns, samples)) for name, (about, columns, samples) in _SHARDS.items()
    ]
    found.append(
        Good("good/worked.mdsx", "The shard that format-spec.md takes apart.", write(WORKED_COLUMNS, WORKED_SAMPLES))
    )
    return found + [Good(f"good/{name}.mdsx", about, data) for name, about, data in _others()]


def _others() -> list[tuple[str, str, bytes]]:
    """Yield files that this version reads, but never writes."""
    base = by_the_book.shard(
        {"id": "uint16", "text": "str"}, [{"id": b"\1\0", "text": b"one"}, {"id": b"\2\0", "text": b""}]
    )
    opaque = by_the_book.shard(
        {"id": "uint8", "clip": "video?", "bits": "int4[2]", "more": "a.b-c_9[*,3]?"},
        [
            {"id": b"\1", "clip": b"any", "bits": b"\x12", "more": b"any"},
            {"id": b"\2", "clip": None, "bits": b"", "more": None},
        ],
    )
    return [
        ("empty", "A shard of 0 samples: valid to read, never written.", reference.emptied(base)),
        ("minor-1", "A later minor version with a header of 72 bytes.", reference.enlarged(base, 72)),
        (
            "minor-1-largest-header",
            "A later minor version with a header of 4096 bytes.",
            reference.enlarged(base, 4096),
        ),
        (
            "opaque",
            "Columns of types that are not known, with and without dimensions: located, but not decoded.",
            opaque,
        ),
        (
            "json-foreign",
            "json of other writers: white space, escapes, repeated keys, numbers beyond binary64.",
            _json(),
        ),
        (
            "msgpack-foreign",
            "msgpack of other writers: long forms, repeated keys, timestamps of 4, 8, 12 bytes.",
            _msgpack(),
        ),
        (
            "msgpack-keys",
            "msgpack maps: keys that look alike, NaN twice, and a repeated integer in another form.",
            _msgpack_keys(),
        ),
        (
            "msgpack-extensions",
            "msgpack timestamps of 4, 8 and 12 bytes, each as ext 8, ext 16 and ext 32.",
            _msgpack_extensions(),
        ),
        (
            "spans",
            "Types that span 2^31 - 1 bytes, and one byte less: an unknown base counts a byte for each item.",
            by_the_book.shard(
                {"a": "int4[2147483647]", "b": "uint8[2147483647]?", "c": "uint16[*,1073741823]"},
                [{"a": b"any", "b": None, "c": bytes(4)}],
            ),
        ),
        ("schema-largest", "A schema of 2^20 bytes, and no sample.", _largest_schema()),
        ("levels", "json and msgpack of 500 levels, as many as a reader must read, alone and in lists.", _levels()),
        ("fixed-only", "No variable-size column, so no heap.", by_the_book.shard({"id": "uint16"}, [{"id": b"\1\2"}])),
    ]


def _json() -> bytes:
    texts = [
        b' { "a" : 1 , "b" : [ ] , "a" : 2 }\r\n\t',
        b'"\\ud83d\\uDE00\\/\\u0041\\u0000"',
        b"[1e999,-1E+400,1e-999,-0,-0.0,0.1e1,18446744073709551616]",
    ]
    return by_the_book.shard({"json": "json"}, [{"json": text} for text in texts])


def _msgpack() -> bytes:
    values = [
        b"\xdf\0\0\0\2\xd9\1a\xcd\0\1\xa1a\2",
        b"\x97\xd6\xff\0\0\0\5\xd7\xff\0\0\0\4\0\0\0\5\xc7\x0c\xff\0\0\0\1" + b"\xff" * 8
        + b"\xca\x3f\x80\0\0\xd3" + b"\xff" * 8 + b"\xc6\0\0\0\1x\xdd\0\0\0\0",
    ]  # fmt: skip
    return by_the_book.shard({"msgpack": "msgpack"}, [{"msgpack": value} for value in values])


def _msgpack_keys() -> bytes:
    nan = b"\xcb\x7f\xf8" + bytes(6)
    maps = [
        b"\x86\x01\xa1a\xa11\xa1b\xc4\x011\xa1c\xc0\xa1d\xc2\xa1e\xd6\xff\0\0\0\1\xa1f",  # of six types
        b"\x84\x07\x01\xca\x3f\xc0\0\0\x02\xcd\0\x07\x03\xcb\x3f\xf8" + bytes(6) + b"\x04",  # 7 and 1.5 twice
        b"\x83" + nan + b"\x01\x05\x02" + nan + b"\x03",
    ]
    return by_the_book.shard({"msgpack": "msgpack"}, [{"msgpack": made} for made in maps])


def _msgpack_extensions() -> bytes:
    times = (
        struct.pack(">I", 2**32 - 1),
        struct.pack(">Q", 999_999_999 << 34 | 2**34 - 1),
        struct.pack(">Iq", 7, -(2**40)),
    )
    heads = ((b"\xc7", ">B"), (b"\xc8", ">H"), (b"\xc9", ">I"))
    made = [code + struct.pack(size, len(time)) + b"\xff" + time for code, size in heads for time in times]
    return by_the_book.shard({"msgpack": "msgpack"}, [{"msgpack": b"\x99" + b"".join(made)}])


def _largest_schema() -> bytes:
    names = [f"{number:0255}" for number in range(3731)]
    size = len(json.dumps([{"name": name, "type": "int8"} for name in names], separators=(",", ":")))
    last = "x" * (2**20 - size - len(',{"name":"","type":"int8"}'))
    columns = dict.fromkeys([*names, last], "int8")
    return reference.emptied(by_the_book.shard(columns, [dict.fromkeys(columns, b"\0")]))


def _levels() -> bytes:
    json, pack = b"[" * 499 + b"{}" + b"]" * 499, b"\x91" * 499 + b"\x80"
    one = {"json": json, "msgpack": pack}
    lists = {f"{name}s": struct.pack("<II", 1, len(value)) + value for name, value in one.items()}
    columns = {"json": "json", "msgpack": "msgpack", "jsons": "json[*]", "msgpacks": "msgpack[*]"}
    return by_the_book.shard(columns, [{**one, **lists}])


# --- datasets

_COLUMNS = {"id": "int64", "tokens": "uint16[200000]", "text": "str"}


def _raw_shards() -> list[bytes]:
    """Return three shards; the first two have more than 1 MiB each, so more than one frame."""
    samples = [
        {"id": number, "tokens": np.full(200_000, number, np.uint16), "text": f"sample {number}"} for number in range(7)
    ]
    return [write(_COLUMNS, samples[first:last]) for first, last in ((0, 3), (3, 6), (6, 7))]


def entry(name: str, stored: bytes, raw: bytes) -> ShardEntry:
    samples = reference.get(raw, "samples")
    hashes = xxhash.xxh3_128_hexdigest(stored), xxhash.xxh3_128_hexdigest(raw)
    return ShardEntry(name, samples, reference.get(raw, "row_key"), len(stored), hashes[0], len(raw), hashes[1])


def _plain_dataset() -> list[Good]:
    columns = {"id": "int64", "text": "str"}
    samples = [{"id": number, "text": "x" * number} for number in range(5)]
    raw = [write(columns, samples[:2]), write(columns, samples[2:])]
    entries = [entry(f"shard.{number:05d}.mdsx", shard, shard) for number, shard in enumerate(raw)]
    index = build_index(Schema.from_columns(columns), None, entries, {"made by": "mdsx", "é": [1, None]})
    found = [Good("good/plain/index.json", "A dataset of two shards, uncompressed, with metadata.", index)]
    sizes = [[len(str(sample["text"])) for sample in part] for part in (samples[:2], samples[2:])]
    data = reference.lengths(json.loads(index)["fingerprint"], "text", "bytes", sizes)
    found.append(Good("good/plain/_lengths/text.u32", "The lengths of its samples by a column.", data))
    return found + [Good(f"good/plain/{made.name}", "", shard) for made, shard in zip(entries, raw, strict=True)]


def _compressed_dataset() -> list[Good]:
    raw = _raw_shards()
    stored = [compress(shard) for shard in raw]
    entries = [entry(f"shard.{k:05d}.mdsx.zst", a, b) for k, (a, b) in enumerate(zip(stored, raw, strict=True))]
    index = build_index(Schema.from_columns(_COLUMNS), "zstd", entries)
    about = "A compressed dataset of three shards, of 2, 2 and 1 frames. Its bytes depend on the version of libzstd."
    found = [Good("good/zstd/index.json", about, index, libzstd=True)]
    return found + [
        Good(f"good/zstd/{made.name}", "", data, libzstd=True, raw_size=made.raw_size)
        for made, data in zip(entries, stored, strict=True)
    ]


def _indexes() -> list[Good]:
    columns = {"id": "uint16"}
    schema = Schema.from_columns(columns)
    shard = by_the_book.shard(columns, [{"id": b"\1\0"}])
    names = [
        "part-00000/shard.00000.mdsx",
        "part-00000/shard.00001.mdsx",
        "part-00001/shard.00000.mdsx",
        "a/b_c-9.99999.x",
    ]
    names.append("a/b_c-9.100000.x")
    known = reference.index(columns, [shard])
    future: dict[str, Any] = {key: known.pop(key) for key in ("format", "version")}
    future |= {"future": {"nested": [1, "x"]}, **known}
    future["shards"] |= {"crc": [1]}
    spaced = reference.index(columns, [shard, shard])
    spaced = {**{key: spaced.pop(key) for key in ("format", "version")}, **dict(reversed(spaced.items()))}
    begins = '{"format":"mdsx","version":1,'
    text = begins + "\n" + json.dumps(spaced, indent=1)[1:].partition('"version": 1,')[2]
    text = text.replace('"metadata"', '"met\\u0061data"').removesuffix("}")
    bare = reference.index(columns, [shard])
    del bare["compression"]
    return [
        Good("good/index-empty.json", "An index of no shards.", build_index(schema, None, [])),
        Good(
            "good/index-runs.json",
            "File names in runs: folders, and numbers of more than five digits.",
            build_index(schema, None, [entry(name, shard, shard) for name in names]),
        ),
        Good(
            "good/index-unknown-keys.json",
            "Keys of a later minor version, to be ignored.",
            reference.seal_index(future),
        ),
        Good(
            "good/index-any-json.json",
            "Other than its beginning and its end, any JSON: spaces, line feeds, an escape, keys in another order.",
            reference.seal_index(text),
        ),
        Good(
            "good/index-no-compression.json",
            "No `compression` at all: the same as null, which is what is written.",
            reference.seal_index(bare),
        ),
        Good(
            "good/index-limits.json",
            "Metadata of 500 levels and with an integer of 4,000 digits: what every reader must read.",
            _text({'"metadata":{}': '"metadata":{"a":' + "[" * 499 + "]" * 499 + ',"b":1' + "0" * 3999 + "}"}),
        ),
        Good(
            "good/index-metadata-largest.json",
            "Metadata of 2^20 bytes.",
            _text({'"metadata":{}': '"metadata":{"a":"' + "x" * (2**20 - 8) + '"}'}),
        ),
        Good(
            "good/index-files-last.json",
            "A file's number of 2^63 - 2: first + count is below 2^63.",
            _text({'".mdsx",0,1': f'".mdsx",{2**63 - 2},1'}),
        ),
        Good("good/index-samples-largest.json", "2^62 - 1 samples.", _most_samples()),
        Good(
            "good/index-minus-zero.json",
            "`-0` where an integer is 0.",
            _text({'".mdsx",0,1': '".mdsx",-0,1'}),
        ),
        Good(
            "good/index-requires-none.json",
            "No required feature.",
            _text({'"metadata":{}': '"metadata":{},"requires":[]'}),
        ),
        Good(
            "good/index-repeated-keys.json",
            "Keys twice, also in `shards` and in metadata: the last value counts, at the place of the first.",
            _text(
                {
                    '"samples":1,': '"samples":1,"samples":1,',
                    '"row_size":16,': '"row_size":16,"row_size":16,',
                    '"metadata":{}': '"metadata":{"a":1,"b":2,"a":3}',
                }
            ),
        ),
        Good(
            "good/index-reserved-name.json",
            "A shard whose name no writer gives, since it begins with `index-`: readers accept it.",
            build_index(schema, None, [entry("index-00000.mdsx", shard, shard)]),
        ),
        Good(
            "good/index-long-name.json",
            "A file name of 512 bytes.",
            build_index(schema, None, [entry(f"{'a/' * 240}{'b' * 27}00000", shard, shard)]),
        ),
    ]


def _text(changed: dict[str, str]) -> bytes:
    return reference.index_text({"id": "uint16"}, [by_the_book.shard({"id": "uint16"}, [{"id": b"\1\0"}])], changed)


def _most_samples() -> bytes:
    """Return an index of 2^59 samples of 8 bytes in each of 8 shards, less one."""
    made = reference.index({"id": "uint8[0]"}, [by_the_book.shard({"id": "uint8[0]"}, [{"id": b""}])] * 8)
    counts, offset = [2**59] * 7 + [2**59 - 1], made["rows_offset"]
    made["samples"] = sum(counts)
    made["shards"] |= {"samples": counts, "size": [by_the_book.up(offset + 8 * count, 64) for count in counts]}
    made["fingerprint"] = reference.fingerprint(made)
    return reference.seal_index(made)


def vectors() -> list[Good]:
    about = "Frames made block by block, as no libzstd does it; the raw bytes are no shard."
    frames = Good("good/frames.zst", about, bad_frames.good(), raw_size=bad_frames.RAW_SIZE)
    about = "Frames with a window of 8 MiB, of a single segment, and with a dictionary field of 0."
    other = Good("good/frames-headers.zst", about, bad_frames.other(), raw_size=bad_frames.RAW_SIZE)
    about = "A frame of 2^20 + 2^16 bytes, the largest."
    largest = Good("good/frames-largest.zst", about, bad_frames.largest(), raw_size=bad_frames.RAW_SIZE)
    return [*shards(), *_plain_dataset(), *_compressed_dataset(), frames, other, largest, *_indexes()]
