"""What the tests of stored formats share: each format, and a dataset of it, on the local disk and far away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mdsx.shards import formats, shards
from mdsx.testing import far_disk
from mdsx.testing.far_disk import FarDisk
from mdsx.testing.format_case import Written
from mdsx.testing.subject import FIRST, OTHER, Subject, shards_of
from tests.shards.formats.documents import DocumentsFormat
from tests.shards.formats.json_lines import LinesFormat
from tests.shards.formats.more_lines import MoreFormat
from tests.shards.formats.subjects import SUBJECTS


@pytest.fixture(autouse=True)
def _formats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = (*formats.all_formats(), LinesFormat(), MoreFormat(), DocumentsFormat())
    monkeypatch.setattr(formats, "all_formats", lambda: known)
    monkeypatch.setattr(shards, "open_storage", far_disk.open_far)
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
    FarDisk.requests.clear()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Returns a dataset with samples from a number on, which nobody may change."""
    found: dict[tuple[str, int], Path] = {}

    def written(subject: Subject, first: int) -> Path:
        if (subject.name, first) not in found:
            folder = tmp_path_factory.mktemp(subject.name) / "data"
            subject.write(folder, shards_of(subject.columns, first))
            found[subject.name, first] = folder
        return found[subject.name, first]

    return written


@pytest.fixture(params=SUBJECTS, ids=str)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture
def folder(subject: Subject, written: Written, tmp_path: Path) -> Path:
    """A dataset of the format, which the test may damage."""
    return Path(shutil.copytree(written(subject, FIRST), tmp_path / "data"))


@pytest.fixture
def other(subject: Subject, written: Written) -> Path:
    """Other samples of the same sizes."""
    return written(subject, OTHER)


@pytest.fixture
def far(folder: Path) -> str:
    """The URL of the same dataset, read as from remote storage."""
    return f"{far_disk.SCHEME}{folder}"


@pytest.fixture(params=["local", "far"])
def url(request: pytest.FixtureRequest, folder: Path, far: str) -> str:
    return str(folder) if request.param == "local" else far
