"""The quickstart: its measurements are right, so its verdict means something; and a whole run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools import ROOT, TOOLS
from tools.quickstart.command import pack
from tools.watch import CacheWatch, Watch


@pytest.mark.slow
def test_over_a_thousand_real_documents_are_packed(tmp_path: Path) -> None:
    names, count, size = pack(tmp_path, 1500)
    assert count > 1000
    tars = sorted(tmp_path.glob("*.tar"))
    assert names == f"{tmp_path}/stdlib-{{0000..{len(tars) - 1:04}}}.tar"
    members: set[str] = set()
    for path in tars:
        with tarfile.open(path) as tar:
            members.update(tar.getnames())
    assert len(members) == 2 * count
    assert {name.partition(".")[2] for name in members} == {"txt", "json"}
    assert size > 10_000_000


def test_the_watch_sees_the_highest_size_with_everything_below(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    with CacheWatch(str(tmp_path)) as watch:
        (tmp_path / "one").write_bytes(bytes(1000))
        (tmp_path / "deeper" / "two.part").write_bytes(bytes(500))
        looks = watch.looks
        while watch.looks < looks + 2:
            pass
        (tmp_path / "one").unlink()
    assert watch.highest == 1500


def test_a_watch_that_cannot_look_says_so() -> None:
    class Blind(Watch):
        interval = 0.001

        def look(self) -> None:
            raise PermissionError("it sees nothing")

    with pytest.raises(PermissionError, match="it sees nothing"), Blind():
        pass
    with pytest.raises(KeyError), Blind():  # an error of the block itself comes first
        raise KeyError


@pytest.mark.slow
class TestWhole:
    """The quickstart as users run it, but in the current environment."""

    @pytest.fixture
    def scratch(self) -> Iterator[Path]:
        """The temporary directory of the quickstart: a short path, because it holds sockets."""
        with tempfile.TemporaryDirectory() as directory:
            yield Path(directory)

    @pytest.fixture
    def started(self, tmp_path: Path, scratch: Path) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [*TOOLS, "quickstart", "--documents", "320"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch), "CI": "true"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            yield process
            process.kill()

    def left_in(self, scratch: Path) -> list[str]:
        """Return processes that name the temporary directory, and the files in it."""
        processes = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                processes += [command] if str(scratch) in command else []
        return [*processes, *map(str, scratch.iterdir())]

    def test_the_quickstart_is_exact_and_cleans_up(
        self, started: subprocess.Popen[str], tmp_path: Path, scratch: Path
    ) -> None:
        out, _ = started.communicate()
        assert started.returncode == 0, out
        found = dict(re.findall(r"^   (\w+) +(.+)$", out, re.MULTILINE))
        read = re.fullmatch(r"([\d,]+) of ([\d,]+) samples", found["read"])
        assert read is not None
        assert read[1] == read[2]
        assert (found["lost"], found["repeated"]) == ("0", "0")
        shapes = re.findall(r"on (\d) processes x (\d) workers?, batch size (\d+) \.\.\.$", out, re.MULTILINE)
        assert [shape[:2] for shape in shapes] == [("2", "2"), ("3", "1")]
        assert shapes[0][2] != shapes[1][2]
        assert not self.left_in(scratch)

    def test_interrupted_in_mid_training_it_leaves_nothing(
        self, started: subprocess.Popen[str], tmp_path: Path, scratch: Path
    ) -> None:
        assert started.stdout is not None
        lines = iter(started.stdout)
        assert any(line.startswith("     step 5,") for line in lines)
        started.send_signal(signal.SIGINT)
        out = "".join(lines)
        started.wait()
        assert started.returncode == 130, out
        assert "interrupted" in out
        assert not list(tmp_path.iterdir())
        assert not self.left_in(scratch)
