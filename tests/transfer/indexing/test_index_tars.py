"""`index_tars`: one pass, resumable and incremental; which tars, which columns, which bytes; what is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import mdsx
from mdsx.foreign.tars import Names, PointerSchema, parse_text, point_tar
from mdsx.format import ShardView
from mdsx.storage import open_storage
from mdsx.transfer.indexing import tars as indexing
from tests.foreign.tars.sparse_tars import old_gnu
from tests.foreign.tars.tars import JPEG, npy, png, sample_members, tar_bytes, write_tar
from tests.writer.jobs import DieBefore, killed, start_job
from tools.fault_proxy import Proxy, cut
from tools.servers.http import HttpServer

INDEX = "_mdsx-tars.json"


def files(folder: Path) -> dict[str, bytes]:
    """Return the index and its pointer shards."""
    pointers = {path.name: path.read_bytes() for path in (folder / "_mdsx-tars").glob("*.mdsx")}
    return {INDEX: (folder / INDEX).read_bytes(), **pointers}


def rows(folder: Path, tar: int = 0) -> tuple[PointerSchema, np.ndarray[Any, Any], ShardView]:
    parsed = parse_text((folder / INDEX).read_bytes())
    view = ShardView.parse((folder / parsed.tars[tar].pointers).read_bytes())
    return parsed.pointers, view.rows, view


def stored(folder: Path, data: bytes, tar: int = 0) -> Iterator[dict[str, bytes | None]]:
    """Yield the bytes of each sample's pointed columns, and check its checksum."""
    pointers, found, view = rows(folder, tar)
    names = [column.name for column in view.schema.columns]
    decoder = mdsx.format.SampleDecoder(view.schema, {name: number for number, name in enumerate(names)})
    for number in range(len(found)):
        row = decoder.decode(view, number, verify=True)
        start, size = int(row["start"]), int(row["size"])
        assert xxhash.xxh3_64_intdigest(data[start : start + size]) == row["checksum"]
        sample: dict[str, bytes | None] = {}
        for place, k in enumerate(pointers.pointed):
            at, length = (int(each) for each in row["extents"][place])
            name = pointers.dataset.columns[k].name
            inline = row.get(f"inline{k}", b"")
            sample[name] = None if length == 2**32 - 1 else inline + data[start + at : start + at + length]
        yield sample


def members_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}  # type: ignore[union-attr]


def test_each_members_bytes_are_those_of_tarfile(tmp_path: Path) -> None:
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        folder = tmp_path / str(format)
        long = "d" * 60 + "/" + "k" * (150 if format != tarfile.USTAR_FORMAT else 70)
        members = [*sample_members(range(100)), (f"{long}.txt", "größe".encode()), (f"{long}.cls", b"3")]
        folder.mkdir()
        (folder / "0.tar").write_bytes(tar_bytes(members, format=format, mtime=1700000000.5))
        assert mdsx.index_tars(folder).samples == 101
        data, expected = (folder / "0.tar").read_bytes(), members_of(folder / "0.tar")
        for sample in stored(folder, data):
            assert sample["txt"] == expected[f"{(sample['__key__'] or b'').decode()}.txt"]
        _, found, view = rows(folder)
        number = [column.name for column in view.schema.columns].index("value2")
        assert found[f"column{number}"].tolist() == [*range(10)] * 10 + [3]


COLUMNS = {
    "a.jpg": JPEG,
    "a.png": png(),
    "a.txt": "ä".encode(),
    "a.json": b' {"x": [1, 2]}',
    "a.cls": b" 7\n",
    "a.bin": b"\0\xff",
    "a.vec.npy": npy(np.arange(4, dtype=np.float32)),
    "a.matrix.npy": npy(np.ones((2, 3), np.int16)),
    "a.score": b"0.5",
    "a.good": b"true",
    "a.maybe": b"12",
    "a.half": b"1.5",
    "a.brain": b"-2.5",
    "a.large": b"18446744073709551615",
}
TYPES = {
    "score": "float32",
    "good": "bool",
    "maybe": "int32?",
    "half": "bfloat16",
    "brain": "bfloat16?",
    "large": "uint64",
    "never": "int8?",
    "none.txt": "str?",
    "matrix.npy": "int16[*,3]",
}


def test_every_type_in_runs_and_one_by_one(tmp_path: Path) -> None:
    """The pointers do not depend on how the tar is cut into chunks."""
    members = [(f"{number:03d}/{name}", data) for number in range(60) for name, data in COLUMNS.items()]
    data = tar_bytes(members)
    write_tar(tmp_path / "0.tar", members)
    columns = mdsx.index_tars(tmp_path, columns=TYPES).columns
    assert columns["vec.npy"] == "float32[4]"
    found = [
        point_tar(
            (data[at : at + size] for at in range(0, len(data), size)),
            file="0.tar",
            size=len(data),
            columns=columns,
            names=Names(),
        )
        for size in (2**23, 100_000, 5000)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0].hash == xxhash.xxh3_128_hexdigest(data)
    assert found[0].pointers in files(tmp_path).values()
    sample = next(iter(stored(tmp_path, data)))
    assert sample["vec.npy"] == np.arange(4, dtype=np.float32).tobytes()
    assert sample["matrix.npy"] == b"\2\0\0\0" + np.ones((2, 3), np.int16).tobytes()
    assert (sample["maybe"], sample["never"], sample["none.txt"]) == (b"\x0c\0\0\0", None, None)
    assert sample["json"] == COLUMNS["a.json"]
    mdsx.convert("tar", str(tmp_path / "0.tar"), tmp_path / "copy", columns=TYPES)
    dataset, copy = mdsx.Dataset(tmp_path, cache=tmp_path / "cache"), mdsx.Dataset(tmp_path / "copy")
    assert (dataset[59]["half"], dataset[59]["brain"]) == (1.5, -2.5)
    assert all(str(one) == str(other) for one, other in zip(dataset, copy, strict=True))


# --- which tars


def test_braces_globs_and_folders_name_tars(tmp_path: Path) -> None:
    for number in range(4):
        write_tar(tmp_path / f"x/{number}.tar", sample_members(range(number, number + 2)))
    for hidden in (".a.tar", "_b.tar", "_tmp/c.tar"):
        write_tar(tmp_path / "x" / hidden, sample_members(range(2)))
    assert mdsx.index_tars(tmp_path).tars == 4
    assert mdsx.index_tars(str(tmp_path / "x/{0..2}.tar"), index=tmp_path / "i").tars == 3
    assert mdsx.index_tars(str(tmp_path / "x/[12].tar"), index=tmp_path / "j").tars == 2
    found = mdsx.index_tars([tmp_path / "x/3.tar", tmp_path / "x/0.tar"], index=tmp_path / "k")
    assert found.url == str(tmp_path / "x")
    assert [tar.name for tar in parse_text((tmp_path / "k" / INDEX).read_bytes()).tars] == ["3.tar", "0.tar"]
    with pytest.raises(mdsx.MissingError):
        mdsx.index_tars(tmp_path / "x/9.tar")
    with pytest.raises(mdsx.MissingError):
        mdsx.index_tars(str(tmp_path / "x/z*.tar"))


def test_tars_of_s3(s3_url: str) -> None:
    storage = open_storage(s3_url)
    for number in range(3):
        storage.put(f"a/{number}.tar", tar_bytes(sample_members(range(number * 10, number * 10 + 10))))
    found = mdsx.index_tars(f"{s3_url}/a/{{0..2}}.tar")
    assert (found.url, found.tars, found.samples, found.read) == (f"{s3_url}/a", 3, 30, 3)
    assert mdsx.index_tars(f"{s3_url}/a").read == 0
    storage.put("a/1.tar", tar_bytes(sample_members(range(100, 105))))
    found = mdsx.index_tars(f"{s3_url}/a")
    assert (found.read, found.samples) == (1, 25)
    assert all(tar.etag for tar in parse_text(storage.get("a/" + INDEX).data).tars)


def test_tars_of_web_servers_are_indexed_elsewhere(tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / f"x/{number}.tar", sample_members(range(2)))
    with HttpServer(tmp_path / "x") as server:
        found = mdsx.index_tars(server.url("") + "/{0..1}.tar", index=tmp_path / "index")
        assert (found.tars, found.samples) == (2, 4)
    with pytest.raises(mdsx.UsageError, match="must not have a query"):
        mdsx.index_tars("https://a.example/0.tar?sig=secret", index=tmp_path / "index")


def test_tars_without_samples_are_left_out(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", [])
    write_tar(tmp_path / "1.tar", sample_members(range(3)))
    found = mdsx.index_tars(tmp_path)
    assert (found.tars, found.samples) == (2, 3)
    assert [tar.name for tar in parse_text((tmp_path / INDEX).read_bytes()).tars] == ["1.tar"]
    assert mdsx.index_tars(tmp_path).read == 0


# --- one pass


def test_the_bytes_do_not_depend_on_the_processes(tmp_path: Path) -> None:
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", sample_members(range(number * 50, number * 50 + 50)))
    seen: list[mdsx.Progress] = []
    mdsx.index_tars(tmp_path, watch=seen.append)
    one = files(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.tar"))
    assert (seen[-1].samples, seen[-1].size, seen[-1].of_size, seen[-1].shards) == (150, size, size, 3)
    mdsx.index_tars(tmp_path, index=tmp_path / "two", num_workers=2)
    assert files(tmp_path / "two") == one
    assert len(one) == 4


def test_a_pass_over_the_same_tars_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tar(tmp_path / "0.tar", sample_members(range(10)))
    write_tar(tmp_path / "1.tar", sample_members(range(10, 20)))
    mdsx.index_tars(tmp_path)
    first, stamp = files(tmp_path), (tmp_path / INDEX).stat().st_mtime_ns

    def refuse(*arguments: object, **options: object) -> Iterator[bytes]:
        raise AssertionError("read a tar")

    monkeypatch.setattr(indexing, "_read", refuse)
    assert mdsx.index_tars(tmp_path).read == 0
    assert (files(tmp_path), (tmp_path / INDEX).stat().st_mtime_ns) == (first, stamp)


def test_only_added_and_replaced_tars_are_read(tmp_path: Path) -> None:
    for number in (1, 2):
        write_tar(tmp_path / f"{number}.tar", sample_members(range(number * 10, number * 10 + 10)))
    mdsx.index_tars(tmp_path)
    write_tar(tmp_path / "0.tar", sample_members(range(3)))
    write_tar(tmp_path / "2.tar", sample_members(range(50, 54)))
    found = mdsx.index_tars(tmp_path)
    assert (found.read, found.samples) == (2, 17)
    mdsx.index_tars(tmp_path, index=tmp_path / "fresh")
    fresh = files(tmp_path / "fresh")
    assert {name: files(tmp_path)[name] for name in fresh} == fresh
    assert len(files(tmp_path)) == 5  # jobs that run may still read the pointers of the old 2.tar
    write_tar(tmp_path / "3.tar", sample_members(range(60, 64)))
    mdsx.index_tars(tmp_path)
    assert len(files(tmp_path)) == 5


def test_other_options_read_all_tars_again(tmp_path: Path) -> None:
    for number in range(2):
        write_tar(tmp_path / f"{number}.tar", sample_members(range(number * 10, number * 10 + 10)))
    assert mdsx.index_tars(tmp_path).columns == {"__key__": "str", "txt": "str", "cls": "int64"}
    found = mdsx.index_tars(tmp_path, drop="cls", rename={"text": "txt"})
    assert (found.columns, found.read) == ({"__key__": "str", "text": "str"}, 2)
    assert mdsx.index_tars(tmp_path, columns={"cls": "uint8"}).columns["cls"] == "uint8"


PROGRAM = """
import sys, mdsx
from mdsx.transfer.indexing import tars
read = tars.point_tar
def point(chunks, *, file, **options):
    if file.endswith("2.tar"):
        print("reading", flush=True)
        sys.stdin.read()  # until it is killed
    return read(chunks, file=file, **options)
tars.point_tar = point
mdsx.index_tars(sys.argv[1])
"""


def test_after_a_kill_no_finished_tar_is_read_again(tmp_path: Path) -> None:
    for number in range(4):
        write_tar(tmp_path / f"{number}.tar", sample_members(range(number * 10, number * 10 + 10)))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"reading\n"
    os.kill(program.pid, signal.SIGKILL)
    program.communicate()
    assert not (tmp_path / INDEX).exists()
    found = mdsx.index_tars(tmp_path)
    assert (found.read, found.samples) == (2, 40)
    mdsx.index_tars(tmp_path, index=tmp_path / "fresh")
    assert files(tmp_path) == files(tmp_path / "fresh")
    assert sorted(path.name for path in (tmp_path / "_mdsx-tars").glob("*.json")) == ["passes.json"]


def test_a_kill_leaves_no_file_behind(tmp_path: Path) -> None:
    tar = tmp_path / "0.tar"
    write_tar(tar, sample_members(range(10)))
    mdsx.index_tars(tmp_path, index=tmp_path / "fresh")
    pointers, *_ = [path.name for path in (tmp_path / "fresh/_mdsx-tars").glob("*.mdsx")]
    for number, name in enumerate((pointers, "passes.json", INDEX)):
        index = partial(mdsx.index_tars, str(tmp_path), index=str(tmp_path / f"{number}"))
        assert killed(start_job(index, hook=DieBefore(name)))
        index()
        assert files(tmp_path / f"{number}") == files(tmp_path / "fresh")
        assert not list((tmp_path / f"{number}").rglob("*.mdsx-tmp"))


# --- what is refused


def test_another_dataset_and_another_index_at_the_place(tmp_path: Path) -> None:
    write_tar(tmp_path / "0.tar", sample_members(range(3)))
    write_tar(tmp_path / "1.tar", sample_members(range(3, 6)))
    (tmp_path / "index.json").write_text(json.dumps({"wids_version": 1, "shardlist": []}))  # WebDataset's own
    mdsx.index_tars(tmp_path)
    with pytest.raises(mdsx.UsageError, match=r"1\.tar.*--replace-index"):
        mdsx.index_tars(tmp_path / "0.tar")
    assert mdsx.index_tars(tmp_path / "0.tar", replace_index=True).samples == 3
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(mdsx.UsageError, match="another dataset is here"):
        mdsx.index_tars(tmp_path)


def test_an_index_whose_read_breaks_off_is_not_replaced(proxy: Proxy, s3_url: str) -> None:
    storage = open_storage(s3_url)
    for number in range(2):
        storage.put(f"a/{number}.tar", tar_bytes(sample_members(range(3))))
    mdsx.index_tars(f"{s3_url}/a")
    index, rule = storage.get(f"a/{INDEX}").data, proxy.add(cut(), key=f"*/{INDEX}")
    with pytest.raises(mdsx.TruncatedError, match=INDEX):
        mdsx.index_tars(f"{s3_url}/a/0.tar")
    assert rule.hits
    proxy.clear()
    assert storage.get(f"a/{INDEX}").data == index


def test_compressed_tars_are_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(gzip.compress(tar_bytes(sample_members(range(3)))))
    with pytest.raises(mdsx.UnsupportedError, match=r"0\.tar.*gzip.*mdsx convert tar"):
        mdsx.index_tars(tmp_path)
    (tmp_path / "0.tar").rename(tmp_path / "0.tar.gz")
    for url in (tmp_path, tmp_path / "0.tar.gz"):
        with pytest.raises(mdsx.UnsupportedError, match=r"0\.tar\.gz.*mdsx convert tar"):
            mdsx.index_tars(url)


def test_a_tar_whose_first_name_begins_like_bzip2_is_a_tar(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "0.tar", [("BZhou_1.txt", b"a"), ("BZhou_2.txt", b"b")]).read_bytes()
    mdsx.convert("tar", str(tmp_path / "0.tar"), tmp_path / "out")
    assert [sample["txt"] for sample in mdsx.Dataset(tmp_path / "out")] == ["a", "b"]
    assert mdsx.index_tars(tmp_path / "0.tar").samples == 2
    assert [sample["txt"] for sample in stored(tmp_path, data)] == [b"a", b"b"]


def hard_link() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("0.txt"))
        info = tarfile.TarInfo("1.txt")
        info.type, info.linkname = tarfile.LNKTYPE, "0.txt"
        tar.addfile(info)
    return buffer.getvalue()


NEGATIVE = npy(np.zeros((1, 5), np.float32)).replace(b"(1, 5), }", b"(-1,-5),}")
BITS = npy(np.zeros(2, np.uint16))


def with_npy(array: Any, **options: Any) -> bytes:
    return tar_bytes([("0.x.npy", npy(np.zeros(2, np.float32))), ("1.x.npy", npy(array, **options))])


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        (with_npy(np.zeros(2, ">f4")), {}, r"member '1\.x\.npy', offset 1024.*big-endian.*mdsx convert tar"),
        (
            tar_bytes([("0.x.npy", npy(np.zeros((2, 2)))), ("1.x.npy", npy(np.asfortranarray(np.ones((2, 2)))))]),
            {},
            r"'1\.x\.npy', offset 1024.*Fortran order.*mdsx convert tar",
        ),
        (with_npy(np.array([None]), allow_pickle=True), {"x.npy": "float32[*]"}, r"'1\.x\.npy'.*pickled objects"),
        (old_gnu([(0, 512)], 2048, bytes(512), "0.bin") + bytes(1024), {}, r"'0\.bin', offset 0: is sparse.*convert"),
        (hard_link(), {"txt": "str"}, r"'1\.txt', offset 512.*hard link"),
        (tar_bytes([("0.txt", b"a"), ("1.txt", b"b"), ("0.txt", b"c")]), {}, r"'0\.txt', offset 2048: duplicate key"),
        (tar_bytes([("0.txt", b"a"), ("1.txt", b"\xff")]), {}, r"'1\.txt', offset 1024: does not fit column 'txt'"),
        (tar_bytes([("0.cls", b"1"), ("1.cls", b"x")]), {"cls": "int64"}, r"'1\.cls', offset 1024.*not an integer"),
        (tar_bytes([("0.cls", b"1"), ("1.cls", b"300")]), {"cls": "uint8"}, r"'1\.cls', offset 1024.*300"),
        (tar_bytes([("0.txt", b"1"), ("1.txt", b"x"), ("1.cls", b"")]), {}, r"'1\.cls'.*mixed extensions"),
        (tar_bytes(sample_members(range(20)))[:-12000], {}, r"truncated|no end-of-archive"),
        (tar_bytes([("0.json", b"{}"), ("1.json", b"NaN")]), {}, r"'1\.json'.*`mdsx convert tar` with --nan null"),
        (tar_bytes([("0.x", b'["a"]')]), {"x": "str[*]"}, r"str\[\*\].*cannot be read in place"),
        (tar_bytes([("0.x", BITS), ("1.x", BITS)]), {"x": "bfloat16[*]"}, r"type uint16, but the column bfloat16"),
        (tar_bytes([("0.x", npy(np.ones(2, np.uint8)))]), {"x": "bool[*]"}, r"type uint8, but the column bool"),
        (tar_bytes([("0.x", NEGATIVE)]), {"x": "float32[*,*]"}, r"'0\.x'.*a dimension is negative"),
        (tar_bytes([("0.json", b"{}"), ("1.json", b"[1e999]")]), {}, r"'1\.json'"),
    ],
)
def test_what_cannot_be_read_in_place_names_tar_member_and_way_out(
    tmp_path: Path, data: bytes, columns: Mapping[str, str], message: str
) -> None:
    (tmp_path / "0.tar").write_bytes(data)
    with pytest.raises(mdsx.MdsxError, match=message) as error:
        mdsx.index_tars(tmp_path, columns=columns)
    assert not (tmp_path / INDEX).exists()
    assert "on-error" not in str(error.value)


@pytest.mark.parametrize(
    "bad",
    [
        [("x/1.txt", b"\xff"), ("x/1.cls", b"1")],
        [("x/1.txt", b"a"), ("x/1.cls", b"1_0")],
        [("x/1.txt", b"a"), ("x/1.cls", b"300")],
        [("x/1.txt", b"a")],
        [("x/1.txt", b"a"), ("x/1.cls", b"1"), ("x/1.png", b"")],
        [("x/1.txt", b"a"), ("x/1.cls", b"1"), ("x/1.TXT", b"a")],
        [("doc/00003.txt", b"a"), ("doc/00003.cls", b"1")],
        [("README", b"")],
    ],
)
def test_errors_inside_runs_are_those_of_a_conversion(tmp_path: Path, bad: list[tuple[str, bytes]]) -> None:
    members = [*sample_members(range(100)), *bad, *sample_members(range(100, 200))]
    write_tar(tmp_path / "0.tar", members)
    columns = {"cls": "uint8"}
    with pytest.raises(mdsx.SampleError) as converted:
        mdsx.convert("tar", str(tmp_path / "0.tar"), tmp_path / "out", columns=columns)
    with pytest.raises(mdsx.SampleError) as indexed:
        mdsx.index_tars(tmp_path / "0.tar", columns=columns)
    for field in ("message", "file", "place", "found", "expected"):
        assert getattr(indexed.value, field) == getattr(converted.value, field)


def mask(*items: int) -> bytes:
    """Return a NumPy file of bools with these bytes, as `pixels.view(bool)` has. NumPy takes all but 0 as True."""
    return npy(np.array(items, np.uint8).view(np.bool_))


@pytest.mark.parametrize("bad", [mask(0, 255), mask(0, 255, 0)], ids=["header of the others", "own header"])
@pytest.mark.parametrize("around", [1, 100], ids=["one by one", "in a run"])
def test_bools_other_than_0_and_1_are_refused_in_place_but_converted(tmp_path: Path, around: int, bad: bytes) -> None:
    numbers = range(2 * around + 1)
    write_tar(tmp_path / "0.tar", [(f"{number}.x.npy", bad if number == around else mask(0, 1)) for number in numbers])
    columns = {"x.npy": "bool[*]"}
    with pytest.raises(mdsx.SampleError, match=rf"'{around}\.x\.npy'.*neither 0 nor 1.*`mdsx convert tar`"):
        mdsx.index_tars(tmp_path, columns=columns)
    assert not (tmp_path / INDEX).exists()
    mdsx.convert("tar", str(tmp_path / "0.tar"), tmp_path / "out", columns=columns)
    assert mdsx.Dataset(tmp_path / "out")[around]["x.npy"].view(np.uint8).tolist()[:2] == [0, 1]


def test_hidden_and_dropped_members_are_left_out_of_runs(tmp_path: Path) -> None:
    members = [
        each
        for name, data in sample_members(range(100))
        for each in [(name, data), (f"doc/._{name[4:]}", b"mac"), (f"{name[:9]}.log", b"x"), ("doc/notes.txt", b"n")]
    ]
    data = write_tar(tmp_path / "0.tar", members).read_bytes()
    assert mdsx.index_tars(tmp_path, drop=["log", "notes.txt"]).samples == 100
    assert [sample["txt"] for sample in stored(tmp_path, data)] == [f"text of {k}".encode() for k in range(100)]
