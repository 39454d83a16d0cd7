"""The checksum at the end of an index, of lengths and of a selection."""

from __future__ import annotations

import pytest
import xxhash

from mdsx.format import begins_sealed, is_sealed
from mdsx.format.seal import checksums, seal

TEXT = b'{"format":"mdsx","version":1'
SEALED = seal(TEXT)


def test_the_checksum_is_that_of_all_bytes_before_it() -> None:
    assert TEXT + b',"checksum":"' + xxhash.xxh3_64_hexdigest(TEXT).encode() + b'"}\n' == SEALED
    assert checksums(SEALED) == (xxhash.xxh3_64_hexdigest(TEXT),) * 2
    assert checksums(memoryview(SEALED)) == checksums(SEALED)
    assert checksums(TEXT)[1] is None
    assert checksums(seal(b"")) == (xxhash.xxh3_64_hexdigest(b""),) * 2


@pytest.mark.parametrize("place", [0, 5, len(TEXT) - 1, len(TEXT) + 15])
def test_one_changed_byte_breaks_the_seal(place: int) -> None:
    assert is_sealed(SEALED)
    assert not is_sealed(SEALED[:place] + bytes([SEALED[place] ^ 1]) + SEALED[place + 1 :])
    assert not is_sealed(SEALED[:-1])
    assert not is_sealed(b"")


def test_an_index_and_what_belongs_to_it_begin_like_this() -> None:
    assert begins_sealed(TEXT)
    assert begins_sealed(b'{"format":"mdsx-selection","version":1')
    assert not begins_sealed(TEXT[:10])
    assert not begins_sealed(b" " + TEXT)
