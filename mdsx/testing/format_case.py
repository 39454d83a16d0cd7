"""What the tests of a stored format share: a dataset in this format, on the local disk and in remote storage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from mdsx.shards import formats, shards
from mdsx.testing import far_disk
from mdsx.testing.far_disk import FarDisk
from mdsx.testing.subject import FIRST, OTHER, Subject, shards_of

Written = Callable[[Subject, int], Path]


class Often(Protocol):
    """How often to try a random case: `short` times, or `long` times with pytest's option `--long`, if it exists."""

    def __call__(self, short: int, long: int) -> int: ...


class FormatCase:
    """The fixtures. A subclass adds `subject`."""

    @pytest.fixture(autouse=True)
    def _known(self, subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        known = formats.all_formats()
        if subject.format.name not in [each.name for each in known]:
            monkeypatch.setattr(formats, "all_formats", lambda: (*known, subject.format))
        monkeypatch.setattr(shards, "open_storage", far_disk.open_far)
        monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "cache"))
        FarDisk.requests.clear()

    @pytest.fixture
    def often(self, pytestconfig: pytest.Config) -> Often:
        long_run = bool(pytestconfig.getoption("--long", default=False))
        return lambda short, long: long if long_run else short

    _folders: ClassVar[dict[tuple[Path, str, int], Path]] = {}

    @pytest.fixture
    def written(self, tmp_path_factory: pytest.TempPathFactory) -> Written:
        """Return a function that writes a dataset with samples from a number on. Tests must not change it."""

        def written(subject: Subject, first: int) -> Path:
            key = (tmp_path_factory.getbasetemp(), subject.name, first)
            if key not in self._folders:
                folder = tmp_path_factory.mktemp(subject.name) / "data"
                subject.write(folder, shards_of(subject.columns, first))
                self._folders[key] = folder
            return self._folders[key]

        return written

    @pytest.fixture
    def folder(self, subject: Subject, written: Written, tmp_path: Path) -> Path:
        """Return a dataset in the format, which the test may damage."""
        return Path(shutil.copytree(written(subject, FIRST), tmp_path / "data"))

    @pytest.fixture
    def other(self, subject: Subject, written: Written) -> Path:
        """Return a dataset of other samples with the same sizes."""
        return written(subject, OTHER)

    @pytest.fixture
    def far(self, folder: Path) -> str:
        """Return a URL of the same dataset that is read like remote storage."""
        return f"{far_disk.SCHEME}{folder}"

    @pytest.fixture(params=["local", "far"])
    def url(self, request: pytest.FixtureRequest, folder: Path, far: str) -> str:
        return str(folder) if request.param == "local" else far
