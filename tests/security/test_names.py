"""No name leads outside: not in an index, not in a tar, and no hash that names a file in the cache."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.checks.damage import verify
from mdsx.errors import CorruptError, MdsxError, SampleError, UsageError
from mdsx.format import parse_index
from mdsx.storage import open_storage
from mdsx.transfer.converting import convert
from tests.foreign.tars.sparse_tars import header, pax
from tests.foreign.tars.tars import tar_bytes
from tests.format import by_the_book, reference
from tests.format.reference import seal_index

_SHARD = by_the_book.shard({"x": "str"}, [{"x": b"text"}])

OUTSIDE = [
    "../", "../../etc/", "a/../../", "./", "a/./", "/", "/etc/", "//host/", "a//", "~/", "~root/", "$HOME/",
    "s3://bucket/", "file:///", "http://host/", "https:", "C:", "C:\\", "..\\", "a\\b", "\\\\host\\", "%2e%2e/",
    "%2F", "a\0", "\0", "a\n", " ", "a /", "\u2024\u2024/", "\uff0e\uff0e/", "\u2215", "é", "-", ".", ".hidden/",
    "_mdsx/", "*", "?", "a;b", "|", "`id`", "'", '"', "<", "\u202e", "a" * 513, "a" * 10_000, "../" * 4000,
]  # fmt: skip
"""Prefixes that no name may have."""


def index_with(**shards: Any) -> bytes:
    index = reference.index({"x": "str"}, [_SHARD])
    index["shards"] |= shards
    return seal_index(index)


@pytest.mark.parametrize("prefix", OUTSIDE, ids=lambda prefix: ascii(prefix)[:30])
def test_a_name_that_leads_outside_raises_showing_it(prefix: str) -> None:
    for run in ([f"{prefix}shard.", ".mdsx", 0, 1], [prefix, ".mdsx", 0, 1]):
        if run[0] in ("a" * 512,):
            run[0] += "a"
        with pytest.raises(
            CorruptError, match=r"here/index\.json: shards\.files\[0\]: this may not be a file's name"
        ) as caught:
            parse_index(index_with(files=[run]), file="here/index.json")
        assert len(str(caught.value)) < 5000


@pytest.mark.parametrize(
    "suffix", ["/../../x", "/..", "/", "/.", "\\..\\x", "\0", "\n", "?x", "#x", "%00", ":stream", " "]
)
def test_a_name_that_ends_outside_raises(suffix: str) -> None:
    with pytest.raises(CorruptError, match="may not be a file's name"):
        parse_index(index_with(files=[["shard.", suffix, 0, 1]]))


def test_storage_refuses_keys_that_lead_outside(tmp_path: Path) -> None:
    for storage in (open_storage(tmp_path), open_storage("s3://bucket/prefix")):
        for key in ("../x", "a/../x", "/x", "a//x", "./x", "a\\x", "a\0x", "", ".."):
            for verb in (storage.get, storage.delete, storage.path, lambda key: storage.put(key, b"")):  # noqa: B023
                with pytest.raises(UsageError, match="without"):
                    verb(key)


def test_names_that_differ_only_in_case_are_never_confused(tmp_path: Path) -> None:
    """If a file system treats them as one file, the hash of the second is wrong: an error, never other bytes."""
    other = by_the_book.shard({"x": "str"}, [{"x": b"TEXT"}])
    index = reference.index({"x": "str"}, [_SHARD, other])
    index["shards"]["files"] = [["shard.", ".mdsx", 0, 1], ["SHARD.", ".mdsx", 0, 1]]
    (tmp_path / "index.json").write_bytes(seal_index(index))
    (tmp_path / "shard.00000.mdsx").write_bytes(_SHARD)
    (tmp_path / "SHARD.00000.mdsx").write_bytes(other)
    assert [sample["x"] for sample in mdsx.Dataset(tmp_path)[:]] == ["text", "TEXT"]
    (tmp_path / "SHARD.00000.mdsx").write_bytes(_SHARD)  # as on such a file system
    assert [problem.file for problem in verify(tmp_path)] == [f"{tmp_path}/SHARD.00000.mdsx"]


@pytest.mark.parametrize("hash", ["../" * 10 + "ab", "/" + "a" * 31, "A" * 32, "a" * 31, "a" * 33, "\0" * 32, "é" * 16])
def test_names_of_cache_files_are_hexadecimal(hash: str) -> None:
    with pytest.raises(CorruptError, match=r"hexadecimal|not as many digits"):
        parse_index(index_with(xxh3_128=hash))
    index = reference.index({"x": "str"}, [_SHARD])
    index["fingerprint"] = hash
    with pytest.raises(CorruptError, match="fingerprint: it is not that of these shards"):
        parse_index(seal_index(index))


def test_links_in_a_local_dataset_are_followed(tmp_path: Path) -> None:
    """The caches of Hugging Face and git-annex use them. A link's target is read as a shard, or refused."""
    with mdsx.Writer(tmp_path / "real", {"x": "str"}) as out:
        out.write({"x": "text"})
    (tmp_path / "linked").mkdir()
    for name in ("index.json", "shard.00000.mdsx"):
        (tmp_path / "linked" / name).symlink_to(tmp_path / "real" / name)
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    assert mdsx.Dataset(tmp_path / "linked")[0] == mdsx.Dataset(tmp_path / "folder")[0] == {"x": "text"}
    (tmp_path / "linked" / "shard.00000.mdsx").unlink()
    (tmp_path / "linked" / "shard.00000.mdsx").symlink_to(tmp_path / "private")
    (tmp_path / "private").write_bytes(b"a private key: PLANTED" * 100)
    with pytest.raises(MdsxError, match="magic") as caught:
        mdsx.Dataset(tmp_path / "linked")[0]
    assert b"key".hex(" ") not in str(caught.value)  # of another file, the error shows 8 bytes
    (tmp_path / "linked" / "shard.00000.mdsx").unlink()
    (tmp_path / "linked" / "shard.00000.mdsx").symlink_to("/dev/zero")
    with pytest.raises(mdsx.MissingError, match="a FIFO or a device"):
        mdsx.Dataset(tmp_path / "linked")[0]


# --- tars


def special(kind: bytes, name: str = "a.bin", link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info.tobuf(tarfile.PAX_FORMAT)


END = bytes(1024)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (special(tarfile.SYMTYPE, link="/etc/passwd"), "symbolic link to '/etc/passwd', and has no bytes of its own"),
        (special(tarfile.SYMTYPE, link="../" * 30 + "etc/passwd"), "is a symbolic link"),
        (special(tarfile.LNKTYPE, link="/etc/passwd"), "is a hard link"),
        (special(tarfile.CHRTYPE), "is a character device"),
        (special(tarfile.BLKTYPE), "is a block device"),
        (special(tarfile.FIFOTYPE), "is a FIFO"),
        (special(b"Z"), "is of type"),
        (pax({"linkpath": "/etc/passwd"}) + special(tarfile.SYMTYPE, link="x"), "symbolic link to '/etc/passwd'"),
        (header("a.bin", 0) + header("a.bin", 0), "column 'bin' twice"),
    ],
)  # fmt: skip
def test_a_member_without_bytes_of_its_own_raises(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "a.tar").write_bytes(data + END)
    with pytest.raises((SampleError, CorruptError), match=says):
        convert("tar", [f"{tmp_path}/a.tar"], tmp_path / "out")
    assert not list(tmp_path.rglob("*.mdsx"))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/cron.d/x.bin",
        "../../x.bin",
        "a/../../../x.bin",
        "C:\\x.bin",
        "s3://bucket/x.bin",
        "~/x.bin",
        "x" * 300 + ".bin",
    ],
)
def test_a_members_name_is_never_used_as_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(tar_bytes([(name, b"data")]))
    convert("tar", [f"{tmp_path}/in/a.tar"], tmp_path / "out")
    assert mdsx.Dataset(tmp_path / "out")[0] == {"__key__": name.removesuffix(".bin"), "bin": b"data"}
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert made == {"in", "in/a.tar", "out", "out/index.json", "out/shard.00000.mdsx"}


def test_only_some_pax_records_count(tmp_path: Path) -> None:
    data = pax({"path": "../real.bin", "size": "4"}) + header("fake.exe", 0) + b"data".ljust(512, b"\0")
    strange = {f"key{k}": "x" for k in range(100)} | {"GNU.sparse.major": "1", "GNU.sparse.realsize": "99999999999"}
    data = pax(strange, kind=b"g") + data + END
    (tmp_path / "a.tar").write_bytes(data)
    convert("tar", [f"{tmp_path}/a.tar"], tmp_path / "out")
    assert mdsx.Dataset(tmp_path / "out")[0] == {"__key__": "../real", "bin": b"data"}


def test_a_folder_in_a_tar_is_not_created(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("../outside")
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(buffer.getvalue())
    with pytest.raises(UsageError, match="no sample"):
        convert("tar", [f"{tmp_path}/in/a.tar"], tmp_path / "in" / "out")
    assert sorted(os.listdir(tmp_path)) == ["in"]
    assert json.dumps(sorted(os.listdir(tmp_path / "in"))) == '["a.tar"]'
