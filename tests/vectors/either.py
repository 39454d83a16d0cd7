"""Files that a reader may read or refuse: beyond what every language, or every parser, can hold."""

from __future__ import annotations

from tests.format import reference
from tests.format.by_the_book import shard
from tests.vectors.vector import Either


def vectors() -> list[Either]:
    one, deep = b"\xcb\x3f\xf0" + bytes(6), 501
    keys = b"\x83\x01\xa1a" + one + b"\xa1b\xc3\xa1c"
    zeros = b"\x84\x00\xa1a\xcb" + bytes(8) + b"\xa1b\xcb\x80" + bytes(7) + b"\xa1c\xc2\xa1d"
    levels = "[" * deep + "]" * deep
    return [
        Either(
            "either/msgpack-keys.mdsx",
            "msgpack maps with the keys 1, 1.0 and true, and 0, 0.0, -0.0 and false: entries of their own.",
            shard({"a": "msgpack"}, [{"a": keys}, {"a": zeros}]),
            shown=True,
        ),
        Either(
            "either/json-digits.mdsx",
            "json: an integer of 5,000 digits.",
            shard({"a": "json"}, [{"a": b"1" + b"0" * 4999}]),
        ),
        Either("either/json-levels.mdsx", "json of 501 levels.", shard({"a": "json"}, [{"a": levels.encode()}])),
        Either(
            "either/msgpack-levels.mdsx",
            "msgpack of 501 levels.",
            shard({"a": "msgpack"}, [{"a": b"\x91" * (deep - 1) + b"\x90"}]),
        ),
        Either(
            "either/index-digits.json",
            "Metadata with an integer of 5,000 digits.",
            _index('"metadata":{"a":1' + "0" * 4999 + "}"),
        ),
        Either(
            "either/index-levels.json",
            "Metadata of 501 levels.",
            _index('"metadata":{"a":' + levels[1:-1] + "}"),
        ),
        Either(
            "either/index-unknown-surrogate.json",
            "Half of a surrogate pair in the value of a key that is not known.",
            _index('"metadata":{},"later":"\\ud83d"'),
        ),
    ]


def _index(metadata: str) -> bytes:
    return reference.index_text(
        {"id": "uint16"}, [shard({"id": "uint16"}, [{"id": b"\1\0"}])], {'"metadata":{}': metadata}
    )
