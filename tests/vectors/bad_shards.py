"""Shards that break one rule each. Everything else is right, including checksums."""

from __future__ import annotations

import struct

import xxhash

from tests.format.by_the_book import shard
from tests.format.reference import (
    emptied,
    enlarged,
    get,
    patch,
    put,
    row_at,
    row_checksums,
    row_key,
    seal,
    seal_rows,
    with_key,
)
from tests.vectors.vector import Bad

_COLUMNS = {"id": "uint16", "ok": "bool", "text": "str", "note": "str?"}
_VALUES: list[tuple[bytes | None, ...]] = [
    (b"\1\0", b"\1", b"first", b"a"),
    (b"\2\0", b"\0", b"second", None),
    (b"\3\0", b"\1", b"third", b""),
]
_BASE = shard(_COLUMNS, [dict(zip(_COLUMNS, values, strict=True)) for values in _VALUES])
WIDE = {f"{number:0255}": "int8" for number in range(3732)}
"""Columns whose schema has more than 1 MiB."""
_ROW, _HEAP = get(_BASE, "row_size"), get(_BASE, "heap_offset")
_SECOND = row_at(_BASE, 1)  # checksum 8, start 8, lengths 2 * 4, id 2, ok 1, padding 5
_FIXED = shard({"id": "uint16"}, [{"id": b"\1\0"}])


def _sealed(**fields: int) -> bytes:
    return seal(put(_BASE, **fields))


def _header() -> list[Bad]:
    def bad(name: str, about: str, data: bytes, says: str) -> Bad:
        return Bad(f"bad/header-{name}.mdsx", about, data, says)

    size = len(_BASE)
    schema_end = 64 + get(_BASE, "schema_size")
    return [
        bad("nothing", "An empty file.", b"", "shorter than a header"),
        bad("major-2-short", "A higher major version, in 63 bytes.", _sealed(major=2)[:63], "shorter than a header"),
        bad("63-bytes", "The file is shorter than a header.", _BASE[:63], "shorter than a header"),
        bad("magic", "The magic is another one.", seal(put(_BASE, magic=b"\x89MDSX\r\r\x1a")), "this is no mdsx shard"),
        bad("major-0", "Major version 0 has never been.", _sealed(major=0), "there is no such version"),
        bad("size-56", "The header size is below 64.", put(_BASE, header_size=56), "wrong header size"),
        bad("size-68", "The header size is no multiple of 8.", enlarged(_BASE, 68), "wrong header size"),
        bad("size-4104", "The header size is above 4096.", enlarged(_BASE, 4104), "wrong header size"),
        bad(
            "schema-size",
            "The schema has more than 1 MiB.",
            emptied(shard(WIDE, [dict.fromkeys(WIDE, b"\0")])),
            "the schema is too large",
        ),
        bad("cut-in-schema", "The file ends within the schema.", _BASE[:100], "the file ends before its schema does"),
        bad("checksum", "The header checksum is another one.", put(_BASE, checksum=0), "header or schema are damaged"),
        bad(
            "damaged",
            "A bit of the minor version is flipped.",
            put(_BASE, minor=1),
            "header or schema are damaged",
        ),
        bad(
            "schema-damaged",
            "The header checksum is that of another schema.",
            _other_schema(),
            "header or schema are damaged",
        ),
        bad(
            "row-size-odd", "The row size is no multiple of 8.", _sealed(row_size=_ROW + 4), "row size: wrong row size"
        ),
        bad("row-size-large", "The row size is 2^31.", _sealed(row_size=2**31), "row size: wrong row size"),
        bad("row-size-other", "The row size is not what the columns need.", *_other_row_size()),
        bad(
            "heap-offset",
            "The heap begins 64 bytes late.",
            _late_heap(),
            "offset of the heap: wrong",
        ),
        bad(
            "samples", "One sample more than the heap's offset tells.", _sealed(samples=6), "offset of the heap: wrong"
        ),
        bad(
            "samples-2-62",
            "So many samples that 64 bits overflow.",
            _sealed(samples=2**62),
            "offset of the heap: wrong",
        ),
        bad("file-size-2-63", "The file size is 2^63.", _sealed(file_size=2**63), "the shard is too large"),
        bad("file-size", "The file size is one byte too large.", _sealed(file_size=size + 1), "not as long as it says"),
        bad("cut", "The file lacks its last byte.", _BASE[:-1], "not as long as it says"),
        bad("longer", "A byte follows the heap.", _BASE + b"\0", "not as long as it says"),
        bad("cut-in-rows", "The file ends before the heap, as it says.", *_ends_in_rows()),
        bad(
            "padding-1", "Not zero between schema and rows.", patch(_BASE, schema_end, b"\1"), "between schema and rows"
        ),
        bad("padding-2", "Not zero between rows and heap.", patch(_BASE, _HEAP - 1, b"\1"), "between rows and heap"),
        bad("key", "The header checksum is that of another row key.", _other_header_key(), "are damaged"),
        bad("heap-of-none", "A heap, but no variable-size column.", _with_heap(_FIXED), "belong to no sample"),
        bad("heap-of-0", "A heap, but no sample.", _with_heap(emptied(_BASE)), "belong to no sample"),
    ]


def _late_heap() -> bytes:
    data = _BASE[:_HEAP] + bytes(64) + _BASE[_HEAP:]
    return seal(put(data, heap_offset=_HEAP + 64, file_size=len(data)))


def _other_schema() -> bytes:
    """Return a shard whose header checksum covers other names of columns; everything else is right."""
    columns = {name.upper(): kind for name, kind in _COLUMNS.items()}
    other = shard(columns, [dict(zip(columns, values, strict=True)) for values in _VALUES])
    end = 64 + get(_BASE, "schema_size")
    return put(other, checksum=xxhash.xxh3_64_intdigest(other[:56] + _BASE[64:end]))


def _other_header_key() -> bytes:
    other = seal(put(_BASE, row_key=get(_BASE, "row_key") ^ 1))
    return put(_BASE, checksum=get(other, "checksum"))


def _other_row_size() -> tuple[bytes, str]:
    samples = [{"id": b"\1\0"} for _ in range(4)]  # 4 rows of 16 bytes, or of 8 and 32 bytes more: the same heap offset
    return seal(put(shard({"id": "uint16"}, samples), row_size=8)), "not the size that the columns need"


def _ends_in_rows() -> tuple[bytes, str]:
    data = put(_BASE, file_size=_HEAP - 8)[: _HEAP - 8]
    return seal(data), "the file ends before its heap begins"


def _with_heap(data: bytes) -> bytes:
    return seal(put(data + b"heap", file_size=len(data) + 4))


def _schemas() -> list[Bad]:
    """Yield schemas that break a rule; the shards have no samples. `row` is the row size for a reader without the rule:
    it takes an invalid type as one of a later version."""

    def bad(name: str, about: str, schema: str | bytes, says: str, row: int = 16) -> Bad:
        schema = schema if isinstance(schema, bytes) else schema.encode("utf-8", "surrogatepass")
        offset = -(-(64 + len(schema)) // 64) * 64
        fields = {"heap_offset": offset, "file_size": offset, "schema_size": len(schema), "row_size": row}
        data = (put(shard({"a": "int8"}, [])[:64], **fields) + schema).ljust(offset, b"\0")
        return Bad(f"bad/schema-{name}.mdsx", about, seal(put(data, row_key=row_key(data, []))), says)

    def named(name: str) -> str:
        return f'[{{"name":"{name}","type":"int8"}}]'

    def typed(text: str) -> str:
        return f'[{{"name":"a","type":"{text}"}}]'

    one, form, kind = '{"name":"a","type":"int8"}', "not canonical JSON", "is not a column type"
    return [
        bad("empty", "No schema.", "", form),
        bad("no-column", "No column.", "[]", form, 8),
        bad("no-list", "An object in place of the list.", one, form),
        bad("nested", "20,000 brackets.", "[" * 20_000, form),
        bad("space", "A space.", f"[{one[:-1]} }}]", form),
        bad("line-feed", "A line feed at the end.", f"[{one}]\n", form),
        bad("comma", "A comma too many.", f"[{one},]", form),
        bad("behind", "Something follows.", f"[{one}][]", form),
        bad("order", "`type` before `name`.", '[{"type":"int8","name":"a"}]', form),
        bad("key", "A third key.", '[{"name":"a","type":"int8","x":1}]', form),
        bad("key-twice", "A key twice.", '[{"name":"a","name":"a","type":"int8"}]', form),
        bad("escape", "An escape where the character itself must stand.", named("\\u00e9"), form),
        bad("no-utf-8", "No UTF-8.", named("?").encode().replace(b"?", b"\xff"), "not UTF-8"),
        bad("surrogate", "A surrogate in UTF-8.", named("\ud800"), "not UTF-8"),
        bad("name-empty", "A name of no bytes.", named(""), "has 0 bytes"),
        bad("name-long", "A name of 256 bytes.", named("é" * 128), "has 256 bytes"),
        bad("name-control", "A control character in a name.", named("a\x1f"), "holds the character"),
        bad("name-delete", "U+007F in a name.", named("a\x7f"), "holds the character"),
        bad("name-c1", "U+0085, a control character, in a name.", named("a\x85"), "holds the character"),
        bad("name-backslash", "An escaped slash in a name.", named("a\\/b"), form),
        bad("name-twice", "Two columns of one name.", f"[{one},{one}]", "is a duplicate"),
        bad("type-empty", "A type of no characters.", typed(""), kind, 24),
        bad("type-space", "A space in a type.", typed("uint8[2, 3]"), "without leading zeros", 24),
        bad("type-open", "A bracket that is not closed.", typed("uint8[2"), kind, 24),
        bad("type-no-dimension", "Brackets without a dimension.", typed("uint8[]"), "without leading zeros", 24),
        bad("type-zero", "A dimension with a leading zero.", typed("uint8[02]"), "without leading zeros", 24),
        bad("type-negative", "A negative dimension.", typed("uint8[-1]"), "without leading zeros", 24),
        bad("type-digits", "A dimension in digits that are not ASCII.", typed("uint8[٣]"), "without leading zeros", 24),
        bad("type-marks", "Two question marks.", typed("int8??"), kind, 24),
        bad("type-mark-first", "The question mark before the dimensions.", typed("uint8?[2]"), kind, 24),
        bad("type-9-dimensions", "9 dimensions.", typed("uint8[1,1,1,1,1,1,1,1,1]"), "more than 8"),
        bad("type-dimension", "A dimension of 2^32.", typed("uint8[*,4294967296]"), "span 2^31 bytes", 24),
        bad(
            "type-span",
            "A dimension of 2^31, though the array has no items.",
            typed("uint8[0,2147483648]"),
            "span 2^31",
            8,
        ),
        bad("type-array-of-str", "A list with a fixed dimension.", typed("str[2]"), "a list has one dimension", 24),
        bad("type-list-of-lists", "A list with two dimensions.", typed("str[*,*]"), "a list has one dimension", 24),
        bad("type-slash", "A slash in a base.", typed("a/b"), kind, 24),
        bad(
            "type-unknown-zero", "A leading zero after an unknown base.", typed("int4[02]"), "without leading zeros", 24
        ),
        bad(
            "type-unknown-9-dimensions",
            "An unknown base with 9 dimensions.",
            typed("int4[1,1,1,1,1,1,1,1,1]"),
            "more than 8",
            24,
        ),
        bad("type-span-items", "2^30 items of two bytes.", typed("uint16[*,1073741824]"), "span 2^31", 24),
        bad("type-unknown-span", "An unknown base with 2^31 items.", typed("int4[2147483648]"), "span 2^31", 24),
        bad("row-2-31", "Columns that need a row of 2^31 bytes.", typed("uint8[2147483640]"), "wrong row size", 2**31),
    ]


def _full() -> list[Bad]:
    """Yield files that the full check refuses. Row checksums are recomputed if other bytes change."""

    def bad(name: str, about: str, data: bytes, says: str) -> Bad:
        return Bad(f"bad/rows-{name}.mdsx", about, data, says, full=True)

    def texts(place: int, **fields: int) -> bytes:
        """Return two samples, `one` and `two`; the one in `place` has another start or length."""
        data = shard({"text": "str"}, [{"text": b"one"}, {"text": b"two"}])
        at = row_at(data, place)
        if "start" in fields:
            data = patch(data, at + 8, struct.pack("<Q", fields["start"]))
        return seal_rows(patch(data, at + 16, struct.pack("<I", fields.get("length", 3))))

    outside, behind = "its heap bytes lie outside the heap", "do not begin where those before end"
    flags = shard({"ok": "bool[3]"}, [{"ok": b"\1\0\1"}, {"ok": b"\0\0\2"}])
    return [
        bad("checksum", "A row checksum is another one.", patch(_BASE, _SECOND, b"\0" * 8), "its bytes are right, but"),
        bad("value", "A fixed-size value is changed.", patch(_BASE, _SECOND + 24, b"\7"), "sample 1: its checksum"),
        bad("heap", "A byte of the heap is changed.", patch(_BASE, _HEAP + 7, b"X"), "sample 1: its checksum"),
        bad("twice", "A row in the place of the next.", _row_twice(), "sample 1: its checksum"),
        bad("of-another", "A row of another shard of the same columns.", _row_of_another(), "sample 1: its checksum"),
        bad("key", "A row key that is not that of the rows, under which all are right.", _other_key(), "row key: it"),
        bad("null", "Null, but the column is not nullable.", shard({"a": "str"}, [{"a": None}]), "not nullable"),
        bad("outside", "Heap bytes that end behind the heap.", texts(1, length=4), outside),
        bad("overflow", "A start and a length with a sum of 2^64 + 1.", texts(1, start=2**64 - 2), outside),
        bad("late", "The first sample's heap bytes do not begin at 0.", texts(0, start=1, length=2), behind),
        bad("gap", "A gap between the heap bytes of two samples.", texts(0, length=2), behind),
        bad("overlap", "Heap bytes that belong to two samples.", texts(0, length=4), behind),
        bad("gap-at-end", "Heap bytes behind the last sample's.", texts(1, length=2), "the samples do not fill it"),
        bad(
            "padding",
            "Padding of a row is not zero.",
            seal_rows(patch(_BASE, _SECOND + 31, b"\1")),
            "padding of the row",
        ),
        bad(
            "bool",
            "A bool of 2.",
            seal_rows(patch(_BASE, _SECOND + 26, b"\2")),
            "column 'ok': a bool is neither 0 nor 1",
        ),
        bad("bools", "A bool of 2 in a fixed array.", flags, "sample 1, column 'ok': a bool is neither 0 nor 1"),
    ]


def _row_twice() -> bytes:
    data = shard({"id": "uint16"}, [{"id": b"\1\0"}, {"id": b"\2\0"}])
    return patch(data, row_at(data, 1), data[row_at(data, 0) : row_at(data, 1)])


def _row_of_another() -> bytes:
    one, other = (shard({"id": "uint16"}, [{"id": b"\1\0"}, {"id": last}]) for last in (b"\2\0", b"\3\0"))
    return patch(one, row_at(one, 1), other[row_at(other, 1) :][: get(other, "row_size")])


def _other_key() -> bytes:
    checksums = row_checksums(_BASE)
    return with_key(_BASE, row_key(_BASE, checksums) ^ 1, checksums)


def _values() -> list[Bad]:
    """Yield values of variable-size columns that their types do not allow, with right checksums."""

    def bad(name: str, about: str, kind: str, value: bytes, says: str) -> Bad:
        return Bad(
            f"bad/value-{name}.mdsx", about, shard({"a": kind}, [{"a": value}]), f"column 'a': {says}", full=True
        )

    def dims(*sizes: int) -> bytes:
        return struct.pack(f"<{len(sizes)}I", *sizes)

    deep, text, pack = 20_000, "this is not JSON", "this is not MessagePack"
    return [
        bad("scalar", "A nullable scalar of 3 bytes.", "int32?", b"abc", "a value of type 'int32?' has the wrong size"),
        bad("array", "A nullable fixed array of 6 bytes too few.", "uint16[4]?", b"ab", "a value of type"),
        bad("bool", "A nullable bool of 2.", "bool?", b"\2", "a bool is neither 0 nor 1"),
        bad("bools", "A bool of 255 in an array.", "bool[*]", dims(2) + b"\1\xff", "a bool is neither 0 nor 1"),
        bad(
            "dimensions",
            "An array that ends within its dimensions.",
            "uint8[*,*]",
            b"\1\0\0\0\1",
            "an array ends within",
        ),
        bad(
            "array-short",
            "An array with an item too few.",
            "uint16[*]",
            dims(3) + b"abcd",
            "an array of shape (3,) has",
        ),
        bad(
            "array-long",
            "An array with a byte too many.",
            "uint16[*,2]",
            dims(1) + b"abcde",
            "an array of shape (1, 2) has",
        ),
        bad("array-overflow", "Dimensions with 2^64 bytes.", "uint64[*,*]", dims(2**31, 2**30), "an array's dim"),
        bad(
            "array-empty",
            "No items, but dimensions that span 2^31 bytes.",
            "uint8[*,*,*]",
            dims(0, 2**15, 2**16),
            "an array's dimensions are too large",
        ),
        bad("list-cut", "A list that ends within its count.", "str[*]", b"\1\0\0", "a list ends within its lengths"),
        bad("list-count", "A list with a length too few.", "str[*]", dims(3, 1, 1), "a list ends within its lengths"),
        bad("list-count-large", "A list of 2^32 - 1 values.", "json[*]", dims(2**32 - 1) + b"12", "a list ends within"),
        bad(
            "list-short", "A list with a byte too few.", "bytes[*]", dims(2, 1, 2) + b"ab", "a list has the wrong size"
        ),
        bad("list-long", "A list with a byte too many.", "bytes[*]?", dims(1, 1) + b"ab", "a list has the wrong size"),
        bad(
            "list-overflow",
            "Lengths whose sum is right only in 32 bits.",
            "bytes[*]",
            dims(2, 2**32 - 1, 3) + b"ab",
            "a list has the wrong size",
        ),
        bad(
            "list-item", "A list with text that is not UTF-8.", "str[*]", dims(2, 1, 1) + b"a\xff", "this is not UTF-8"
        ),
        bad(
            "list-of-package",
            "A list of a package's type with a byte too few.",
            "acme.Frame[*]",
            dims(2, 1, 2) + b"ab",
            "a list has the wrong size",
        ),
        bad("str", "A byte that is never in UTF-8.", "str", b"a\xff", "this is not UTF-8"),
        bad("str-surrogate", "A surrogate in UTF-8.", "str", b"\xed\xa0\x80", "this is not UTF-8"),
        bad("str-overlong", "U+0000 in two bytes.", "str", b"\xc0\x80", "this is not UTF-8"),
        bad("str-cut", "A character that is cut.", "str?", b"\xe2\x82", "this is not UTF-8"),
        bad("json", "No JSON.", "json", b"{'a':1}", text),
        bad("json-empty", "JSON of no bytes.", "json", b"", text),
        bad("json-two", "Two JSON values.", "json", b"1 2", text),
        bad("json-nan", "NaN.", "json", b"[NaN]", f"{text}: NaN"),
        bad("json-infinity", "Infinity.", "json?", b"-Infinity", f"{text}: -Infinity"),
        bad("json-utf-8", "JSON that is not UTF-8.", "json", b'"\xff"', text),
        bad("json-surrogate", "An escape that is half of a pair.", "json", b'["\\ud83d"]', text),
        bad("json-surrogate-key", "An escaped surrogate in a key.", "json", b'{"\\uDE00\\ud83d":1}', text),
        bad("json-surrogate-low", "An escape that is the lower half of a pair.", "json", b'"\\uDE00"', text),
        bad(
            "json-maps-deep",
            "20,000 objects in each other.",
            "json",
            b'{"":' * deep + b"0" + b"}" * deep,
            "the JSON is",
        ),
        bad("json-bom", "A byte order mark.", "json", b"\xef\xbb\xbf1", text),
        bad("json-leading-zero", "A number with a leading zero.", "json", b"01", text),
        bad("json-control", "A line feed in a string.", "json", b'"\n"', text),
        bad("json-deep", "20,000 brackets.", "json", b"[" * deep + b"]" * deep, "the JSON is nested too deeply"),
        bad("msgpack-empty", "MessagePack of no bytes.", "msgpack", b"", pack),
        bad("msgpack-cut", "A string that is cut.", "msgpack", b"\xa3ab", pack),
        bad("msgpack-two", "Two MessagePack values.", "msgpack", b"\1\2", pack),
        bad("msgpack-c1", "The byte that is never used.", "msgpack", b"\xc1", pack),
        bad("msgpack-extension", "An extension type.", "msgpack", b"\xd4\5x", f"{pack}: extension type 5"),
        bad("msgpack-timestamp", "A timestamp of 1 byte.", "msgpack?", b"\xd4\xffx", pack),
        bad("msgpack-timestamp-16", "A timestamp of 16 bytes.", "msgpack", b"\xd8\xff" + bytes(16), pack),
        bad(
            "msgpack-nanoseconds",
            "A timestamp of 10^9 nanoseconds.",
            "msgpack",
            b"\xc7\x0c\xff" + struct.pack(">Iq", 10**9, 0),
            pack,
        ),
        bad("msgpack-utf-8", "A string that is not UTF-8.", "msgpack", b"\xa1\xff", pack),
        bad("msgpack-count", "An array that claims 2^32 - 1 items.", "msgpack", b"\xdd\xff\xff\xff\xff\1", pack),
        bad("msgpack-deep", "20,000 arrays in each other.", "msgpack", b"\x91" * deep + b"\0", pack),
        bad("msgpack-maps-deep", "20,000 maps in each other.", "msgpack", b"\x81\0" * deep + b"\0", pack),
        bad(
            "msgpack-extension-32", "An extension type, as ext 32.", "msgpack", b"\xc9\0\0\0\1\0x", f"{pack}: extension"
        ),
        bad("msgpack-extension-cut", "An extension that is cut.", "msgpack", b"\xc8\0\x04\xff\0", pack),
        bad(
            "msgpack-nanoseconds-8",
            "A timestamp of 8 bytes with 10^9 nanoseconds.",
            "msgpack",
            b"\xd7\xff" + struct.pack(">Q", 10**9 << 34),
            pack,
        ),
        bad("msgpack-key-array", "A map with an array as key.", "msgpack", b"\x81\x90\1", pack),
        bad("msgpack-key", "A map with a map as key.", "msgpack", b"\x81\x80\1", pack),
    ]


def _unsupported() -> list[Bad]:
    return [
        Bad("unsupported/major-2.mdsx", "A higher major version.", _sealed(major=2), "the shard is of version 2.0"),
        Bad("unsupported/major-2-only.mdsx", "A higher major version, all else another.", _major_2(), "version 2.7"),
    ]


def _major_2() -> bytes:
    return _BASE[:8] + b"\2\0\7\0" + b"\xff" * 116


def vectors() -> list[Bad]:
    return [*_header(), *_schemas(), *_full(), *_values(), *_unsupported()]
