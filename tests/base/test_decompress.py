"""The content decides between plain, gzip and zstd. A truncated or damaged stream raises for each of them."""

from __future__ import annotations

import bz2
import gzip
import io
import time
import zlib
from collections.abc import Callable

import pytest
import zstandard

from mdsx import CorruptError, UnsupportedError
from mdsx.base.decompress import decompress
from tests.foreign.tars.tars import chunked

CONTENT = b"".join(f"line {number}\n".encode() for number in range(20_000))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


COMPRESSORS: list[Callable[[bytes], bytes]] = [gzip.compress, zstd]


def read(data: bytes, size: int = 1000) -> bytes:
    return b"".join(decompress(chunked(data, size)))


@pytest.mark.parametrize("size", [1, 7, 4096, 10**9])
@pytest.mark.parametrize("compress", [bytes, *COMPRESSORS])
def test_any_chunks_decompress_to_the_content(compress: Callable[[bytes], bytes], size: int) -> None:
    content = CONTENT[:20_000] if size == 1 else CONTENT
    assert read(compress(content), size) == content


def test_zlib_is_decompressed_where_it_is_expected() -> None:
    for level in (0, 1, 6, 9):
        data = zlib.compress(CONTENT, level)
        assert b"".join(decompress(chunked(data), zlib_too=True)) == CONTENT
        assert read(data) == data
    with pytest.raises(CorruptError, match="zlib stream is truncated"):
        list(decompress(chunked(data[:-5]), zlib_too=True))


@pytest.mark.parametrize("compress", COMPRESSORS)
def test_concatenated_streams_decompress_as_one(compress: Callable[[bytes], bytes]) -> None:
    assert read(compress(CONTENT) + compress(b"and more")) == CONTENT + b"and more"


def test_skippable_zstd_frames_are_skipped() -> None:
    skippable = b"\x5e\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    assert read(skippable + zstd(CONTENT) + skippable) == CONTENT


def test_zstd_without_content_size_is_read() -> None:
    buffer = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(buffer, closefd=False) as writer:
        writer.write(CONTENT)
    assert read(buffer.getvalue()) == CONTENT


@pytest.mark.parametrize("size", [1, 10**9])
def test_a_zstd_window_of_more_than_128_mib_is_refused_but_not_called_damage(size: int) -> None:
    content = CONTENT[:20_000]
    for log in (27, 28, 31):
        parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=log)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        data = stream.compress(content) + stream.flush()
        if log == 27:
            assert read(data, size) == content
            continue
        with pytest.raises(UnsupportedError, match=r"window of more than 128 MiB; decompress it .*--long=31"):
            read(data, size)


@pytest.mark.parametrize("compress", COMPRESSORS)
@pytest.mark.parametrize("left", [5, 12, 1000, -1])
def test_a_truncated_stream_raises(compress: Callable[[bytes], bytes], left: int) -> None:
    with pytest.raises(CorruptError, match=r"is truncated|is damaged"):
        read(compress(CONTENT)[:left])


@pytest.mark.parametrize("compress", COMPRESSORS)
@pytest.mark.parametrize("place", [0.5, -4])
def test_a_flipped_byte_is_an_error(compress: Callable[[bytes], bytes], place: float) -> None:
    data = bytearray(compress(CONTENT))
    data[int(len(data) * place) if place > 0 else int(place)] ^= 0xFF
    with pytest.raises(CorruptError, match="is damaged"):
        read(bytes(data))


def test_gzip_may_be_padded_only_with_zeros() -> None:
    assert read(gzip.compress(CONTENT) + bytes(10_000)) == CONTENT
    with pytest.raises(CorruptError, match="is damaged"):
        read(gzip.compress(CONTENT) + b"garbage")


@pytest.mark.parametrize("compress", COMPRESSORS)
def test_a_bomb_decompresses_in_bounded_pieces(compress: Callable[[bytes], bytes]) -> None:
    pieces = [len(piece) for piece in decompress(iter([compress(bytes(64 * 2**20))]))]
    assert sum(pieces) == 64 * 2**20
    assert max(pieces) <= 40 * 2**20


def test_gzip_unpacks_without_and_zstd_within_a_limit() -> None:
    content = bytes(100 * 2**20)
    assert sum(len(piece) for piece in decompress(iter([gzip.compress(content, 1)]))) == len(content)
    dense = content + b"".join(number.to_bytes(4, "big") for number in range(2**16))
    assert sum(len(piece) for piece in decompress(iter([zstd(dense[::-1])]))) == len(dense)
    with pytest.raises(CorruptError, match="1,100 times"):
        read(zstd(content))


def test_many_small_streams_take_linear_time() -> None:
    stream = gzip.compress(b"x")
    began = time.process_time()
    assert len(b"".join(decompress(iter([stream * 250_000])))) == 250_000
    assert time.process_time() - began < 20  # 1 s on an idle machine; a minute if each stream copies the rest


@pytest.mark.parametrize("text", [b"BZh", b"BZh9", b"BZhou wrote this\n", b"BZh91 and BZh91AY\n"])
@pytest.mark.parametrize("size", [1, 1000])
def test_text_that_begins_like_bzip2_is_plain(text: bytes, size: int) -> None:
    assert read(text, size) == text


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (bz2.compress(b"text"), "bzip2"),
        (bz2.compress(b"text", 1), "bzip2"),
        (bz2.compress(b""), "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"PK\x03\x04", "zip"),
    ],
)
def test_other_compressions_are_refused_by_name(head: bytes, name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        read(head + bytes(1000))
