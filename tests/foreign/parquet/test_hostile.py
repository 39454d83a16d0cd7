"""Files that are no Parquet, truncated, encrypted, or that lie: errors of ours that name the file, within bounds."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mdsx
from mdsx.foreign.parquet import FileColumns
from mdsx.foreign.parquet.footer import footer_offset, parse_footer
from mdsx.foreign.parquet.metadata import parse_metadata

TABLE = pa.table({"id": range(100), "text": [f"text {number}" for number in range(100)], "list": [[1, 2]] * 100})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "0.parquet"
    pq.write_table(TABLE, path, row_group_size=30, write_page_checksum=True)
    return path.read_bytes()


def footer_of(data: bytes) -> int:
    return footer_offset(data, size=len(data), file="file")


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "magic only": lambda data: b"PAR1",
    "twice the magic": lambda data: b"PAR1PAR1",
    "not a Parquet": lambda data: b"id,text\n1,one\n" * 100,
    "zip": lambda data: b"PK\x03\x04" + bytes(100),
    "truncated": lambda data: data[:-9],
    "truncated in the data": lambda data: data[:200],
    "footer of 4 GB": lambda data: data[:-8] + b"\xff\xff\xff\xffPAR1",
    "footer of 0 bytes": lambda data: data[:-8] + bytes(4) + b"PAR1",
    "footer of zeros": lambda data: data[: footer_of(data)] + bytes(500) + (500).to_bytes(4, "little") + b"PAR1",
    "footer of ones": lambda data: data[: footer_of(data)] + b"\xff" * 500 + (500).to_bytes(4, "little") + b"PAR1",
    "encrypted footer": lambda data: data[:-4] + b"PARE",
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, whole: bytes, cut: str) -> None:
    (tmp_path / "0.parquet").write_bytes(whole)
    (tmp_path / "1.parquet").write_bytes(CUTS[cut](whole))
    with pytest.raises(mdsx.FormatError) as raised:
        mdsx.index_parquet(tmp_path)
    assert raised.value.file == str(tmp_path / "1.parquet")
    assert not (tmp_path / "_mdsx-parquet.json").exists()


def test_encrypted_columns_are_unsupported(tmp_path: Path) -> None:
    class Kms(pe.KmsClient):  # type: ignore[misc]
        def __init__(self, config: object) -> None:
            super().__init__()

        def wrap_key(self, key: bytes, master: str) -> bytes:
            return base64.b64encode(key)

        def unwrap_key(self, wrapped: bytes, master: str) -> bytes:
            return base64.b64decode(wrapped)

    config = pe.EncryptionConfiguration(footer_key="footer", column_keys={"key": ["text"]}, plaintext_footer=True)
    properties = pe.CryptoFactory(Kms).file_encryption_properties(pe.KmsConnectionConfig(), config)
    pq.write_table(TABLE, tmp_path / "0.parquet", encryption_properties=properties)
    with pytest.raises(mdsx.UnsupportedError, match=r"0\.parquet.*encrypted"):
        mdsx.index_parquet(tmp_path)


@given(data=st.data())
def test_a_footer_that_lies_is_an_error_or_harmless(whole: bytes, data: st.DataObject) -> None:
    """Any bytes of the footer may be others: offsets beyond the file, negative sizes, hostile thrift."""
    offset = footer_of(whole)
    footer = bytearray(whole[offset:-8])
    for place in data.draw(st.lists(st.integers(0, len(footer) - 1), min_size=1, max_size=3)):
        footer[place] = data.draw(st.integers(0, 255))
    try:
        parsed = parse_footer(bytes(footer) + whole[-8:], offset=offset, file="file")
        columns = FileColumns.of(parsed)
    except mdsx.MdsxError:
        return
    for start, stop in columns.extents:
        assert 4 <= start < stop <= offset
    assert all(0 < rows <= 2**31 for rows in columns.rows)


@given(data=st.data())
def test_damaged_data_is_an_error_or_decodes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Without page checksums, damage is found only if decoding fails. It never crashes, and never is another error."""
    path = tmp_path_factory.mktemp("damaged") / "0.parquet"
    pq.write_table(TABLE, path, row_group_size=100, compression=data.draw(st.sampled_from(["none", "snappy", "zstd"])))
    mdsx.index_parquet(path)
    damaged = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(4, footer_of(bytes(damaged)) - 1), min_size=1, max_size=4)):
        damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    found = mdsx.Dataset(path.parent, cache=path.parent / "cache")
    with contextlib.suppress(mdsx.CorruptError):
        list(found)


def test_damage_names_row_group_and_column(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "0.parquet"
    path.write_bytes(whole)
    mdsx.index_parquet(path)
    metadata = pq.read_metadata(path)
    damaged = bytearray(whole)
    chunk = metadata.row_group(2).column(1)
    damaged[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(damaged)
    data = mdsx.Dataset(tmp_path, cache=tmp_path / "cache")
    assert data[0]["text"] == "text 0"
    with pytest.raises(mdsx.CorruptError, match=r"0\.parquet: row group 2, column 'text'"):
        data[60]
    assert data.select_columns(["id"])[60] == {"id": 60}
    (problem,) = mdsx.verify(tmp_path)
    assert "0.parquet: row group 2, column 'text'" in str(problem)


def test_a_footer_that_claims_more_rows_is_an_error(tmp_path: Path) -> None:
    """A group's number of rows is not that of its pages."""
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "many.parquet", compression="none", use_dictionary=False)
    pq.write_table(pa.table({"id": range(99)}), tmp_path / "few.parquet", compression="none", use_dictionary=False)
    many, few = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("many", "few"))
    data = few[: footer_of(few)].ljust(footer_of(many), b"\0") + many[footer_of(many) :]
    (tmp_path / "lie").mkdir()
    (tmp_path / "lie" / "0.parquet").write_bytes(data)
    mdsx.index_parquet(tmp_path / "lie")
    with pytest.raises(mdsx.CorruptError, match=r"0\.parquet"):
        list(mdsx.Dataset(tmp_path / "lie", cache=tmp_path / "cache"))


def test_a_row_group_that_lists_its_column_chunks_twice_is_damaged() -> None:
    schema = b"\x29\x2c" + b"\x48\x01r\x15\x02\0" + b"\x15\x02\x38\x01a\0"
    chunk = b"\x1c" + b"\x3c\x66\x14\x16\x14\x26\x08\0\0"  # 10 bytes from byte 4 on
    once, again = b"\x19" + chunk, b"\x09\x02" + chunk
    head, tail = schema + b"\x16\x02" + b"\x19\x1c", b"\x26\x02\0" + b"\0"  # one row
    assert parse_metadata(head + once + tail, file="file").chunks.shape == (1, 1, 5)
    with pytest.raises(mdsx.CorruptError, match="column chunks twice"):
        parse_metadata(head + once + again + tail, file="file")


def test_text_that_is_not_utf8_is_an_error_of_its_sample(tmp_path: Path) -> None:
    bad = pa.array([b"fine", b"\xff\xfe"]).cast(pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, bad.buffers())
    pq.write_table(pa.table({"text": text}), tmp_path / "0.parquet", use_dictionary=False)
    mdsx.index_parquet(tmp_path)
    data = mdsx.Dataset(tmp_path, cache=tmp_path / "cache")
    with pytest.raises(mdsx.CorruptError, match="UTF-8"):
        list(data)


def test_nulls_inside_lists_are_an_error_that_names_the_row(tmp_path: Path) -> None:
    table: Any = pa.table({"list": [[1], [2, None], None]})
    pq.write_table(table, tmp_path / "0.parquet", use_dictionary=False)
    mdsx.index_parquet(tmp_path)
    with pytest.raises(mdsx.CorruptError, match="row group 0"):
        list(mdsx.Dataset(tmp_path, cache=tmp_path / "cache"))
