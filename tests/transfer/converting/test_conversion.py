"""Tars become a dataset: the same samples in the same order, or an error that names tar, member and offset."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import mdsx
from mdsx import CorruptError, Dataset, MissingError, Progress, SampleError, UnsupportedError, UsageError
from mdsx.storage import open_storage
from mdsx.transfer.converting import Conversion
from tests.foreign.tars.tars import JPEG, Members, npy, png, sample_members, tar_bytes, write_tar
from tests.transfer.converting.tf_files import records
from tests.writer.jobs import DieBefore, killed, start_job


class Skips:
    """A `watch` that collects what was skipped."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def __call__(self, progress: Progress) -> None:
        self.errors += map(str, progress.problems)


def convert(folder: Path, *names: str, **options: Any) -> Conversion:
    return mdsx.convert("tar", [f"{folder}/{name}" for name in names or ("*.tar",)], folder / "out", **options)


def samples(folder: Path) -> list[dict[str, Any]]:
    return list(Dataset(folder / "out"))


def files(folder: Path) -> dict[str, str]:
    """Return every file below a folder, with its content."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """Four tars of 50 samples."""
    for tar in range(4):
        write_tar(tmp_path / f"x-{tar:04d}.tar", sample_members(range(50 * tar, 50 * tar + 50)))
    return tmp_path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Four tars of 400 samples: enough to store shards while others are still read. The last one is bad."""
    for tar in range(4):
        members = [*sample_members(range(400 * tar, 400 * tar + 400))]
        write_tar(tmp_path / f"x-{tar:04d}.tar", [*members, ("bad.txt", b"")] if tar == 3 else members)
    return tmp_path


# --- the result


def test_every_inferred_type_is_converted(tmp_path: Path) -> None:
    emb = np.arange(6, dtype=np.float32).reshape(2, 3)
    members = {
        "a/0001.jpg": JPEG, "a/0001.seg.png": png(), "a/0001.cls": b"7\n", "a/0001.txt": "grüße".encode(),
        "a/0001.json": b'{"w": 1.5, "tags": ["x"]}', "a/0001.npy": npy(emb), "a/0001.bin": b"\0\1",
    }  # fmt: skip
    write_tar(tmp_path / "x.tar", members.items())
    conversion = convert(tmp_path)
    assert conversion.columns == {
        "__key__": "str", "jpg": "jpeg", "seg.png": "png", "cls": "int64", "txt": "str",
        "json": "json", "npy": "float32[2,3]", "bin": "bytes",
    }  # fmt: skip
    assert (conversion.samples, conversion.skipped) == (1, 0)
    (sample,) = samples(tmp_path)
    np.testing.assert_array_equal(sample.pop("npy"), emb)
    assert sample == {
        "__key__": "a/0001", "jpg": JPEG, "seg.png": png(), "cls": 7, "txt": "grüße",
        "json": {"w": 1.5, "tags": ["x"]}, "bin": b"\0\1",
    }  # fmt: skip


def test_samples_keep_the_order_of_tars_and_members(four: Path) -> None:
    convert(four, "x-{0002,0000}.tar", "x-0001.tar")
    expected = [f"doc/{number:05d}" for number in [*range(100, 150), *range(100)]]
    assert [sample["__key__"] for sample in samples(four)] == expected


def test_compressed_tars_give_the_same_shards_as_plain_ones(tmp_path: Path) -> None:
    data = tar_bytes(sample_members(range(100)))
    compressors: dict[str, Callable[[bytes], bytes]] = {
        "x.tar": bytes, "x.tar.gz": gzip.compress, "x.tar.zst": zstandard.compress, "misnamed.tar": gzip.compress,
    }  # fmt: skip
    fingerprints = set()
    for name, compress in compressors.items():
        (tmp_path / name).write_bytes(compress(data))
        mdsx.convert("tar", [f"{tmp_path}/{name}"], tmp_path / f"{name}.out")
        fingerprints.add(Dataset(tmp_path / f"{name}.out").fingerprint)
    assert len(fingerprints) == 1


def test_a_column_declared_nullable_may_be_absent(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("1.txt", b"a"), ("2.txt", b"b"), ("2.cls", b"3"), ("3.txt", b"c")])
    convert(tmp_path, columns={"cls": "int64?"})
    assert [sample["cls"] for sample in samples(tmp_path)] == [None, 3, None]


def test_options_reach_the_writer(four: Path) -> None:
    convert(four, shard_size="2KB", compression="zstd:5")
    shards = sorted((four / "out").glob("part-*/shard.*"))
    assert len(shards) > 4
    assert all(shard.name.endswith(".mdsx.zst") for shard in shards)


# --- names that mean something else


def warned(recwarn: pytest.WarningsRecorder) -> list[str]:
    return [str(warning.message) for warning in recwarn]


def test_with_last_dot_keys_contain_dots(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [(f"cam.{number:05d}.txt", b"") for number in range(399)])
    with pytest.warns(UserWarning, match=r"a single sample, 'cam', of 399 columns; .*--key-until last-dot") as warnings:
        assert convert(tmp_path).samples == 1
    assert warnings[0].filename == __file__
    conversion = mdsx.convert("tar", [f"{tmp_path}/x.tar"], tmp_path / "dots", key_until="last-dot")
    assert (conversion.samples, list(conversion.columns)) == (399, ["__key__", "txt"])
    assert Dataset(tmp_path / "dots")[398]["__key__"] == "cam.00398"


def test_more_than_50_inferred_columns_warn(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    days = [(f"{year}.{day:02d}.txt", b"") for year in (2023, 2024) for day in range(51)]
    write_tar(tmp_path / "x.tar", days)
    assert len(convert(tmp_path).columns) == 52
    (warning,) = warned(recwarn)
    assert "51 columns are inferred, one for each extension; the key ends at the first dot" in warning
    declared = {f"{day:02d}.txt": "str" for day in range(2)}
    mdsx.convert("tar", [f"{tmp_path}/x.tar"], tmp_path / "fewer", columns=declared)
    assert len(warned(recwarn)) == 1


def test_dropped_files_and_links_are_left_out(tmp_path: Path) -> None:
    """GNU tar packs them, with the README between samples."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("1.txt", "1.cls", "README", "notes.md"):
        (folder / name).write_bytes(b"1")
    (folder / "1.link").symlink_to("1.txt")
    names = ["1.txt", "README", "1.link", "notes.md", "1.cls"]
    subprocess.run(["tar", "-cf", tmp_path / "x.tar", "-C", folder, *names], check=True)
    with pytest.raises(SampleError, match=r"'README'.*has no extension.*; --drop README leaves out .*--on-error skip"):
        convert(tmp_path)
    with pytest.raises(SampleError, match=r"symbolic link to '1\.txt', .*`tar --dereference`; --drop link leaves out"):
        convert(tmp_path, drop=["README"])
    assert convert(tmp_path, drop=["README", "link", "notes.md"]).columns == {
        "__key__": "str",
        "txt": "str",
        "cls": "int64",
    }
    assert samples(tmp_path) == [{"__key__": "1", "txt": "1", "cls": 1}]


def test_an_option_that_matches_nothing_raises_or_warns(four: Path, recwarn: pytest.WarningsRecorder) -> None:
    write_tar(four / "one.tar", sample_members(range(3)))
    for options, option in (({"drop": ["jsn"]}, "--drop jsn"), ({"rename": {"a": "b;c"}}, "--rename a=b;c")):
        with pytest.raises(UsageError, match=rf"one\.tar: {option}: no member has .*; there are cls, txt"):
            convert(four, "one.tar", **options)
    assert not (four / "out").exists()
    convert(four, "x-*.tar", drop=["jsn"])  # a later tar may have it
    assert [text.partition(".tar: ")[2][:27] for text in warned(recwarn)] == ["--drop jsn: no member has t"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"on_error": "ignore"}, "on_error is unknown .*expected raise or skip"),
        ({"nan": "zero"}, "nan is unknown .*expected error or null"),
        ({"key_until": ""}, "key_until is unknown"),
        ({"columns": {"txt": "str"}, "drop": "txt"}, "declared, but dropped"),
    ],
)
def test_invalid_options_are_refused(four: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        convert(four, **options)
    assert not (four / "out").exists()


@pytest.mark.parametrize("options", [{"drop": ["b\udcff"]}, {"rename": {"a": "b\udcff"}}])
def test_an_option_that_is_not_unicode_text_is_refused(four: Path, options: dict[str, Any]) -> None:
    problem = r"drop or rename, is not Unicode text: it holds a surrogate \(found 'b\\udcff'\)"
    with pytest.warns(UserWarning, match="no member has"), pytest.raises(UsageError, match=problem):
        convert(four, **options)
    assert not (four / "out").exists()


# --- several processes


def test_any_number_of_processes_gives_the_same_dataset(four: Path) -> None:
    convert(four)
    alone = samples(four)
    seen = []
    for processes in (1, 2, 3):
        conversion = mdsx.convert(
            "tar", [f"{four}/*.tar"], four / f"out{processes}", shard_size="2KB", num_workers=processes
        )
        assert conversion.samples == 200
        assert list(Dataset(four / f"out{processes}")) == alone
        seen.append(files(four / f"out{processes}"))
    assert seen[0] == seen[1] == seen[2]
    assert "part-00003/shard.00000.mdsx" in seen[0]
    assert not any(name.startswith("_") for name in seen[0])


def test_an_error_in_one_process_ends_all(four: Path) -> None:
    write_tar(four / "x-0002.tar", [*sample_members(range(100, 120)), ("bad.txt", b"")])
    with pytest.raises(SampleError, match=r"x-0002\.tar: member 'bad\.txt', offset 40960: missing member"):
        convert(four, num_workers=2, shard_size="2KB")
    assert not (four / "out" / "index.json").exists()


def test_skips_are_reported_and_counted_across_processes(large: Path) -> None:
    skips = Skips()
    conversion = convert(large, num_workers=2, shard_size="3KB", on_error="skip", watch=skips)
    assert (conversion.samples, conversion.skipped) == (1600, 1)
    assert [error.partition("x-0003.tar: ")[2][:16] for error in skips.errors] == ["member 'bad.txt'"]


# --- a fault in a tar: an error and no index, or a logged skip


def damaged(change: Callable[[bytearray], bytes | bytearray | None]) -> bytes:
    data = bytearray(tar_bytes(sample_members(range(10))))
    return bytes(change(data) or data)


def flip(data: bytearray) -> None:
    data[6144] ^= 0xFF  # the header of doc/00003.txt


def inserted(members: Members) -> bytes:
    return tar_bytes([*sample_members(range(5)), *members, *sample_members(range(5, 10))])


BAD = {
    "cut in a body": (damaged(lambda data: data[:6658]), "member 'doc/00003.txt', offset 6144: tar is truncated", 3),
    "cut in a header": (
        damaged(lambda data: data[:6153]),
        "offset 6144, after member 'doc/00002.cls': tar is truncated",
        3,
    ),
    "cut between members": (damaged(lambda data: data[:6144]), "offset 6144, .*no end-of-archive block", 3),
    "a damaged header": (damaged(flip), "offset 6144, after member 'doc/00002.cls': header is damaged", 9),
    "a cut gzip": (gzip.compress(damaged(bytes))[:-20], "offset [0-9]+.*: gzip stream is truncated", None),
    "a wrong gzip checksum": (gzip.compress(damaged(bytes))[:-8] + bytes(8), "offset .*gzip stream is damaged", None),
    "a cut zstd": (zstandard.compress(damaged(bytes))[:-20], "offset [0-9]+.*: zstd stream is", None),
    "a missing member": (inserted([("odd.txt", b"")]), "member 'odd.txt', offset 10240: missing member", 10),
    "mixed extensions": (
        inserted([("odd.txt", b""), ("odd.cls", b"1"), ("odd.jpg", JPEG)]),
        "member 'odd.jpg', offset 11776: mixed extensions: .*the columns are txt, cls; --column 'jpg=jpeg",
        10,
    ),
    "a key twice": (
        inserted([("doc/00001.txt", b""), ("doc/00001.cls", b"1")]),
        "member 'doc/00001.txt', offset 10240: duplicate key: the tar has an earlier sample 'doc/00001'",
        10,
    ),
    "a column twice": (
        inserted([("odd.txt", b""), ("odd.TXT", b""), ("odd.cls", b"1")]),
        "member 'odd.TXT', offset 10752: sample has column 'txt' twice",
        10,
    ),
    "no extension": (inserted([("README", b"read me")]), "member 'README', offset 10240: has no extension", 10),
    "a value that does not parse": (
        inserted([("odd.txt", b""), ("odd.cls", b"cat")]),
        "member 'odd.cls', offset 10752: does not fit column 'cls' of type int64: 'cat' .*--column 'cls=str'",
        10,
    ),
    "a value out of range": (
        inserted([("odd.txt", b""), ("odd.cls", b"9" * 30)]),
        "member 'odd.cls', offset 10752: does not fit column 'cls' of type int64: expected .*--column 'cls=str'",
        10,
    ),
    "text that is not UTF-8": (
        inserted([("odd.txt", b"\xff"), ("odd.cls", b"1")]),
        "member 'odd.txt', offset 10240: .*--column 'txt=bytes'",
        10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_name_tar_member_and_offset(tmp_path: Path, name: str) -> None:
    data, message, _ = BAD[name]
    (tmp_path / "bad.tar").write_bytes(data)
    with pytest.raises((CorruptError, SampleError), match=rf"bad\.tar: {message}"):
        convert(tmp_path, columns={"cls": "int64"})
    assert not (tmp_path / "out" / "index.json").exists()


@pytest.mark.parametrize("name", BAD)
def test_skipping_continues_and_reports_each_error(tmp_path: Path, name: str) -> None:
    data, _, left = BAD[name]
    (tmp_path / "bad.tar").write_bytes(data)
    write_tar(tmp_path / "good.tar", sample_members(range(5)))
    skips = Skips()
    conversion = convert(tmp_path, "good.tar", "bad.tar", on_error="skip", watch=skips)
    got = samples(tmp_path)
    assert [sample["txt"] for sample in got] == [f"text of {int(sample['__key__'][-5:])}" for sample in got]
    assert len(got) == conversion.samples
    assert left is None or conversion.samples == 5 + left
    assert conversion.skipped == len(skips.errors) > 0
    assert all("bad.tar: " in error for error in skips.errors)


@pytest.mark.parametrize("data", [b"", b"no tar\n" * 1000])
def test_a_file_that_is_no_tar_raises(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(CorruptError, match=r"x\.tar: offset 0: is (empty|not a tar)"):
        convert(tmp_path)
    with pytest.raises(UsageError, match="no sample"):
        convert(tmp_path, on_error="skip")


def long_window(data: bytes) -> bytes:
    """Compress as `zstd --long=28` does."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize("compress", [bz2.compress, long_window])
@pytest.mark.parametrize("kind", ["tar", "jsonl", "tfrecord", "text"])
def test_a_compression_that_mdsx_cannot_read_is_an_error_even_if_damage_is_skipped(
    tmp_path: Path, kind: str, compress: Callable[[bytes], bytes]
) -> None:
    content = {
        "tar": tar_bytes(sample_members(range(5))),
        "jsonl": b'{"text": "a"}\n' * 5,
        "tfrecord": records([{"text": b"a"}] * 5),
        "text": b"a" * 5,
    }[kind]
    good, bad, out = tmp_path / f"good.{kind}", tmp_path / f"bad.{kind}", tmp_path / "out"
    good.write_bytes(content)
    bad.write_bytes(compress(content))
    run: Any = partial(mdsx.convert, kind)
    if kind == "text":
        run = partial(mdsx.tokenize, tokenizer="bytes", kind="text")
    for order in ([good, bad], [bad, good]):
        with pytest.raises(UnsupportedError, match=rf"bad\.{kind}: (is bzip2|zstd stream has a window)"):
            run(order, out, on_error="skip")
        assert not (out / "index.json").exists()
        shutil.rmtree(out, ignore_errors=True)


def test_an_invalid_image_names_its_member(tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", [("1.jpg", JPEG), ("2.jpg", b"GIF89a")])
    with pytest.raises(SampleError, match=r"member '2\.jpg', offset 1024: .*expected jpeg.*--column 'jpg=bytes'"):
        convert(tmp_path)


def test_an_array_of_another_shape_raises_with_a_fitting_type(tmp_path: Path) -> None:
    arrays = [np.zeros((2, 3), np.float32)] * 70 + [np.zeros((5, 3), np.float32)]
    write_tar(tmp_path / "x.tar", [(f"{number:03d}.npy", npy(array)) for number, array in enumerate(arrays)])
    with pytest.raises(SampleError, match=r"member '070\.npy', .*float32\[2,3\].*--column 'npy=float32\[\*,3\]'"):
        convert(tmp_path)
    assert convert(tmp_path, columns={"npy": "float32[*,3]"}).samples == 71


def test_empty_tars_among_others_are_allowed(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [])
    write_tar(tmp_path / "b.tar", sample_members(range(3)))
    write_tar(tmp_path / "c.tar", [])
    assert convert(tmp_path).samples == 3
    assert mdsx.convert("tar", [f"{tmp_path}/*.tar"], tmp_path / "parts", num_workers=2).samples == 3


def test_a_missing_source_raises_before_any_write(four: Path) -> None:
    with pytest.raises(MissingError, match=r"x-0004\.tar"):
        convert(four, "x-{0000..0004}.tar")
    assert not (four / "out").exists()


def test_a_forgotten_output_is_an_error(four: Path) -> None:
    with pytest.raises(UsageError, match="give the output's URL last"):
        mdsx.convert("tar", [f"{four}/x-0000.tar"], f"{four}/x-0001.tar")
    with pytest.raises(UsageError, match="give the output's URL last"):
        mdsx.convert("tar", [f"{four}/x-0000.tar"], "s3://bucket/x.tar.gz")


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "/".join(["x" * 200] * 25)])
def test_an_output_with_too_long_a_path_is_an_error(four: Path, name: str) -> None:
    with pytest.raises(UsageError, match="the path is too long; give a shorter path"):
        mdsx.convert("tar", f"{four}/x-0000.tar", four / name)


# --- rerun


def test_a_finished_conversion_is_not_done_again(four: Path) -> None:
    convert(four)
    before = files(four / "out")
    again = convert(four)
    assert (again.already, again.samples) == (True, 200)
    assert files(four / "out") == before


@pytest.mark.parametrize("processes", [1, 2])
def test_a_rerun_reports_the_same_skips(four: Path, processes: int) -> None:
    for tar in (1, 3):
        write_tar(four / f"x-{tar:04d}.tar", [*sample_members(range(50 * tar, 50 * tar + 50)), ("bad.txt", b"")])
    first, second = Skips(), Skips()
    options: dict[str, Any] = {"on_error": "skip", "num_workers": processes}
    done = convert(four, **options, watch=first)
    kept = files(four / "out")
    again = convert(four, **options, watch=second)
    assert (done.samples, done.skipped, done.already) == (200, 2, False)
    assert (again.samples, again.skipped, again.already) == (200, 2, True)
    assert sorted(second.errors) == sorted(first.errors)
    assert files(four / "out") == kept
    assert sorted(name for name in kept if name.startswith("_")) == ["_convert/skipped.json"]


@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_a_damaged_record_of_skips_is_an_error(four: Path, byte: bytes) -> None:
    write_tar(four / "x-0003.tar", [*sample_members(range(150, 200)), ("bad.txt", b"")])
    convert(four, on_error="skip")
    record = four / "out" / "_convert" / "skipped.json"
    record.write_bytes(record.read_bytes().replace(b"bad", byte + b"ad"))
    with pytest.raises(CorruptError, match=r"skipped\.json: not a conversion's tallies"):
        convert(four, on_error="skip")


def test_a_kill_after_the_index_keeps_the_skips(large: Path) -> None:
    undisturbed = convert(large, shard_size="10MB", on_error="skip")
    assert undisturbed.skipped == 1
    code = KILLED.replace("left -= 1", "left -= key.endswith('skipped.json')").replace("3KB", "10MB")  # in one part
    command = [sys.executable, "-c", code, "0", f"{large}/*.tar", str(large / "again")]
    assert subprocess.run(command, check=False).returncode == -9
    assert (large / "again" / "index.json").exists()
    assert not (large / "again" / "_convert" / "skipped.json").exists()
    again = mdsx.convert("tar", [f"{large}/*.tar"], large / "again", shard_size="10MB", on_error="skip")
    assert (again.already, again.samples, again.skipped) == (True, 1600, 1)
    assert files(large / "again") == files(large / "out")


def test_the_first_100_skips_of_each_tar_are_kept(tmp_path: Path) -> None:
    bad = [(f"bad{number}.txt", b"") for number in range(130)]
    write_tar(tmp_path / "x.tar", [*sample_members(range(70)), *bad])
    assert convert(tmp_path, on_error="skip").skipped == 130
    skips = Skips()
    assert convert(tmp_path, on_error="skip", watch=skips).skipped == 130
    assert len(skips.errors) == 100


def test_another_conversion_to_a_finished_place_is_refused(four: Path) -> None:
    convert(four)
    for names, options in ((["x-0000.tar"], {}), ([], {"shard_size": 1000}), ([], {"columns": {"cls": "int32"}})):
        with pytest.raises(UsageError, match="that this conversion did not write"):
            convert(four, *names, **options)
    write_tar(four / "x-0001.tar", sample_members(range(150, 200)))  # the same size
    with pytest.raises(UsageError, match="that this conversion did not write"):
        convert(four)


def test_the_times_of_tars_do_not_matter(large: Path) -> None:
    def touch(time: int) -> None:
        for path in large.glob("*.tar"):
            os.utime(path, (time, time))

    mdsx.convert("tar", [f"{large}/*.tar"], large / "undisturbed", shard_size="3KB", on_error="skip")
    touch(1)
    with pytest.raises(SampleError):
        convert(large, shard_size="3KB")
    touch(2)
    assert convert(large, shard_size="3KB", on_error="skip").samples == 1600
    assert files(large / "out") == files(large / "undisturbed")
    touch(3)
    assert convert(large, shard_size="3KB", on_error="skip").already


def test_without_a_shard_a_corrected_command_works(four: Path) -> None:
    write_tar(four / "x-0003.tar", [("1.txt", b"a"), ("1.cls", b"cat")])
    with pytest.raises(SampleError, match="--column 'cls=str'"):
        convert(four)
    assert convert(four, columns={"cls": "str"}).samples == 151


def test_a_rerun_may_add_skipping_but_change_no_option(large: Path) -> None:
    with pytest.raises(SampleError):
        convert(large, shard_size="3KB")
    for options, field in (
        ({"shard_size": "6KB"}, "shard_size 6000, not 3000"),
        ({"shard_size": "3KB", "compression": "zstd"}, "compression zstd, not None"),
        ({"shard_size": "3KB", "columns": {"cls": "str"}}, "columns .*'cls': 'str'.*, not .*'cls': 'int64'"),
    ):
        with pytest.raises(UsageError, match=f"unfinished conversion; this would be another: {field}"):
            convert(large, **options)
    with pytest.raises(UsageError, match="another: 3 files, not 4"):
        convert(large, "x-{0000..0002}.tar", shard_size="3KB")
    conversion = convert(large, shard_size="3KB", on_error="skip")
    assert (conversion.samples, conversion.skipped) == (1600, 1)
    assert len(samples(large)) == 1600


def test_a_conversion_begun_with_skipping_keeps_skipping(large: Path) -> None:
    command = [sys.executable, "-c", KILLED, "9", f"{large}/*.tar", str(large / "out")]
    assert subprocess.run(command, check=False).returncode == -9
    with pytest.raises(UsageError, match="another: without --on-error skip"):
        convert(large, shard_size="3KB")


def new(number: int) -> dict[str, str]:
    return {"text": f"new {number}"}


@pytest.mark.parametrize(("place", "parts"), [("", 1), ("", 2), ("part-00000", 2)])
@pytest.mark.parametrize("samples", [1, 100])
def test_what_a_writer_has_begun_is_refused_and_kept(tmp_path: Path, place: str, parts: int, samples: int) -> None:
    """Otherwise the writer's finished shards would stay in place of as many samples of the source."""
    out, columns = tmp_path / "out", {"text": "str"}
    with mdsx.Writer(out / place, columns, shard_size=1024) as writer:
        for number in range(samples):
            writer.write({"text": f"old {number}"})
        before = files(out)
        with pytest.raises(UsageError, match=r"another program has begun.*finish it with that program"):
            mdsx.build(new, range(200), out, columns, shard_size=1024, parts=parts)
        assert files(out) == before


def test_a_part_beside_a_dataset_of_one_part_stays(tmp_path: Path) -> None:
    """It may be meant for `mdsx append`."""
    with mdsx.Writer(tmp_path / "part-00007", {"text": "str"}) as writer:
        writer.write(new(7))
    assert mdsx.build(new, range(20), tmp_path, {"text": "str"}, parts=1).samples == 20
    assert len(mdsx.Dataset(tmp_path / "part-00007")) == 1


def test_a_rerun_with_other_processes_keeps_the_parts(large: Path) -> None:
    with pytest.raises(SampleError):
        convert(large, shard_size="3KB", num_workers=2)
    assert convert(large, shard_size="3KB", on_error="skip", num_workers=1).samples == 1600
    parts = [path.name for path in sorted((large / "out").glob("*"))]
    assert parts == ["_convert", "index.json", "part-00000", "part-00001", "part-00002", "part-00003"]


KILLED = """
import os, signal, sys
import mdsx
from mdsx.storage import local

put, left = local.LocalStorage.put, int(sys.argv[1])

def deadly(self, key, *pieces):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, key, *pieces)

local.LocalStorage.put = deadly
mdsx.convert("tar", [sys.argv[2]], sys.argv[3], shard_size="3KB", on_error="skip")
"""


@pytest.mark.slow
def test_a_rerun_after_any_kill_gives_the_same_result(large: Path) -> None:
    for tar in (0, 2):  # bad samples at the start, in the middle and at the end
        good = list(sample_members(range(400 * tar, 400 * tar + 400)))
        bad = [("a.txt", b""), *good[:260], ("b.txt", b""), ("b.cls", b"9" * 30), *good[260:], ("c.txt", b"")]
        write_tar(large / f"x-{tar:04d}.tar", bad)
    undisturbed = convert(large, shard_size="3KB", on_error="skip")
    assert (undisturbed.samples, undisturbed.skipped) == (1600, 7)
    for writes in (0, 1, 2, 7, 15):
        command = [sys.executable, "-c", KILLED, str(writes), f"{large}/*.tar", str(large / "again")]
        assert subprocess.run(command, check=False).returncode == -9
    assert list((large / "again").glob("part-*/shard.*"))
    again = mdsx.convert("tar", [f"{large}/*.tar"], large / "again", shard_size="3KB", on_error="skip")
    assert (again.samples, again.skipped) == (1600, 7)
    assert files(large / "again") == files(large / "out")


@pytest.mark.parametrize(("size", "parts"), [("1MiB", 1), ("90KB", 4)])
def test_a_kill_leaves_no_file_behind(four: Path, size: str, parts: int) -> None:
    """Not even one that is being written, or the record of a writer whose index is just durable."""
    convert(four, shard_size=size)
    undisturbed = files(four / "out")
    assert len([name for name in undisturbed if "shard" in name]) == parts
    again = [four / str(number) for number in range(4)]
    hooks = [DieBefore("plan.json"), DieBefore("part.00000.json"), DieBefore("index.json"),
             DieBefore("writer.json", "unlink")]  # fmt: skip
    for out, hook in zip(again, hooks, strict=True):
        job = partial(mdsx.convert, "tar", f"{four}/*.tar", str(out), shard_size=size)
        assert killed(start_job(job, hook=hook))
        assert files(out) != undisturbed
        job()
        assert files(out) == undisturbed


def test_a_rerun_does_not_read_finished_tars(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.transfer.converting.record._SAVE_EVERY", 0)
    with pytest.raises(SampleError):
        convert(large, shard_size="3KB")
    seen: list[Progress] = []
    convert(large, shard_size="3KB", on_error="skip", watch=seen.append)
    sizes = [path.stat().st_size for path in sorted(large.glob("*.tar"))]
    assert (seen[0].size, seen[0].samples, seen[0].of_size) == (0, 0, sum(sizes))
    assert seen[1].size in (sizes[0], sum(sizes[:2]), sum(sizes[:3]))  # up to the durable shards
    assert seen[1].samples >= 400
    assert (seen[-1].size, seen[-1].samples) == (sum(sizes), 1600)


# --- S3


@pytest.mark.slow_if("processes == 2")
@pytest.mark.parametrize("processes", [1, 2])
def test_from_s3_to_s3(four: Path, s3_url: str, processes: int) -> None:
    storage = open_storage(f"{s3_url}/tars")
    for path in four.glob("*.tar"):
        storage.put(path.name, path.read_bytes())
    conversion = mdsx.convert(
        "tar", [f"{s3_url}/tars/x-{{0000..0003}}.tar"], f"{s3_url}/out", shard_size="2KB", num_workers=processes
    )
    convert(four, shard_size="2KB")
    assert conversion.samples == 200
    assert Dataset(f"{s3_url}/out", cache=four / "cache").fingerprint == Dataset(four / "out").fingerprint
    assert not list(open_storage(f"{s3_url}/out").list("_"))
