"""Tars that others wrote are indexed, and each member's bytes are those that Python's tarfile reads.

`written/` has tars of webdataset 1.0.2 (ShardWriter) and of bsdtar 3.6.2 (`bsdtar --format FORMAT -cn -T NAMES`), in
gzip files: short and long names, names that are not ASCII, and names that ustar splits.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx

WRITTEN = Path(__file__).parent / "written"
LONG = "d" * 60 + "/" + "k" * 130


def check_members(folder: Path, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Index the tars in `folder` with all columns as bytes. Compare the members with those of tarfile, and return the
    samples with the inferred columns."""
    expected: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                file = tar.extractfile(member) if member.isreg() else None
                if file is not None:
                    expected[member.name] = file.read()
    kinds = dict.fromkeys({name.rpartition("/")[2].partition(".")[2] for name in expected}, "bytes")
    mdsx.index_tars(folder, columns=kinds, index=tmp_path / "index")
    dataset = mdsx.Dataset(folder, index=tmp_path / "index", cache=tmp_path / "cache")
    found = {f"{sample['__key__']}.{name}": sample[name] for sample in dataset for name in kinds}
    assert found == expected
    assert mdsx.verify(folder, index=tmp_path / "index").ok
    mdsx.index_tars(folder)
    return {sample["__key__"]: sample for sample in mdsx.Dataset(folder, cache=tmp_path / "cache")}


def unpacked(name: str, tmp_path: Path) -> Path:
    (tmp_path / "tars").mkdir()
    (tmp_path / "tars" / name).write_bytes(gzip.decompress((WRITTEN / f"{name}.gz").read_bytes()))
    return tmp_path / "tars"


def test_tars_of_webdatasets_shard_writer(tmp_path: Path) -> None:
    found = check_members(unpacked("webdataset.tar", tmp_path), tmp_path)
    assert len(found) == 6
    sample = found["train/003"]
    assert (sample["cls"], sample["txt"], sample["json"]) == (3, "text of 3, ä", {"number": 3})
    assert (sample["npy"].dtype, sample["npy"].tolist()) == (np.float32, [0, 3, 6])
    assert sample["jpg"] == b"\xff\xd8\xff\xe0" + b"\3" * 121


@pytest.mark.parametrize("name", ["bsdtar.tar", "bsdtar-ustar.tar", "bsdtar-pax.tar", "bsdtar-gnutar.tar"])
def test_tars_of_bsdtar(name: str, tmp_path: Path) -> None:
    found = check_members(unpacked(name, tmp_path), tmp_path)
    assert (found["a.b/003"]["txt"], found["a.b/003"]["cls"]) == ("text 3", 3)
    assert found["ünï"]["txt"] == "größe"
    assert found["l" * 90 + "/" + "m" * 80]["txt"] == "split"
    assert ("l" * 90 + "/" + "n" * 130 in found) == (name != "bsdtar-ustar.tar")


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")
@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_tars_of_gnu_tar(format: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    names = [f"a/{number:03d}" for number in range(60)]
    if format in ("oldgnu", "gnu", "pax"):
        names.append(LONG)
    for number, name in enumerate(names):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / f"{name}.json").write_text(json.dumps({"number": number}))
        (tree / f"{name}.cls").write_text(str(number))
    (tmp_path / "tars").mkdir()
    command = ["tar", f"--format={format}", "--sort=name", "-cf", str(tmp_path / "tars/0.tar"), "-C", str(tree), "."]
    subprocess.run(command, check=True)
    if "GNU" not in subprocess.run(["tar", "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("tar is not GNU's")
    with tarfile.open(tmp_path / "tars/0.tar") as tar:
        prefix = "./" if any(name.startswith("./") for name in tar.getnames()) else ""
    found = check_members(tmp_path / "tars", tmp_path)
    assert {key: sample["cls"] for key, sample in found.items()} == {
        f"{prefix}{name}": number for number, name in enumerate(names)
    }


def test_energons_index_of_webdatasets_tar(tmp_path: Path) -> None:
    """`written/` has what `energon prepare` of megatron-energon 7.4.1 wrote for the tar of webdataset."""
    folder = unpacked("webdataset.tar", tmp_path)
    (folder / "webdataset.tar").rename(folder / "a.tar")
    made = folder / ".nv-meta"
    made.mkdir()
    (made / "index.sqlite").write_bytes(gzip.decompress((WRITTEN / "energon-index.sqlite.gz").read_bytes()))
    (made / ".info.json").write_bytes((WRITTEN / "energon-info.json").read_bytes())
    assert not mdsx.index_tars(folder, from_index=made).checksums
    found = list(mdsx.Dataset(folder, cache=tmp_path / "cache"))
    assert [sample["cls"] for sample in found] == [0, 1, 2, 3, 4, 5]
    assert found[3]["npy"].tolist() == [0, 3, 6]
    query = (
        "SELECT content_byte_offset, content_byte_size FROM sample_parts WHERE sample_index = 3 AND part_name = 'jpg'"
    )
    with closing(sqlite3.connect(made / "index.sqlite")) as database:
        ((offset, size),) = database.execute(query)
    assert (folder / "a.tar").read_bytes()[offset : offset + size] == found[3]["jpg"]
