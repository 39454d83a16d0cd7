"""Progress: verify, repair and convert report it in the same way; and the line that shows it."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import mdsx
from mdsx.base import progress
from tests.foreign.tars.tars import sample_members, write_tar
from tests.terminal import terminal

CALLS: dict[str, Callable[[Path, Callable[[mdsx.Progress], object]], object]] = {
    "verify": lambda folder, watch: mdsx.verify(folder / "data", watch=watch),
    "repair": lambda folder, watch: mdsx.repair(folder / "data", watch=watch),
    "convert": lambda folder, watch: mdsx.convert("tar", f"{folder}/x.tar", folder / "again", watch=watch),
}


@pytest.mark.parametrize("call", CALLS)
def test_progress_grows_until_everything_is_read(call: str, tmp_path: Path) -> None:
    write_tar(tmp_path / "x.tar", sample_members(range(50)))
    mdsx.convert("tar", [f"{tmp_path}/x.tar"], tmp_path / "data", shard_size="1KB")
    seen: list[mdsx.Progress] = []
    CALLS[call](tmp_path, seen.append)
    assert [each.size for each in seen] == sorted(each.size for each in seen)
    assert {each.of_size for each in seen} == {seen[-1].size}
    assert seen[-1].samples == 50
    assert seen[-1].shards == seen[-1].of_shards
    assert not any(each.problems for each in seen)


def test_a_status_line_is_written_over_and_ended_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PERIOD", 0.01)
    texts = itertools.chain(["a long line", "short"], itertools.repeat("x" * 200))
    written = threading.Semaphore(0)

    def text() -> str:
        written.release()
        return next(texts)

    with terminal() as sent:
        line = progress.StatusLine(text)
        for _ in range(3):
            assert written.acquire(timeout=60)
        line.close()
        line.close()
    shown = "".join(sent)
    assert shown.startswith("\ra long line\rshort      \r" + "x" * 119)  # shortened, so that it never wraps
    assert shown.endswith("x\r\n")
    assert shown.count("\n") == 1


def test_a_status_line_is_shown_in_a_notebook() -> None:
    class OutStream(io.StringIO):
        """As ipykernel's: no terminal, but it understands a carriage return."""

    OutStream.__module__ = "ipykernel.iostream"
    with redirect_stderr(OutStream()) as stream:
        progress.StatusLine(lambda: "half").close()
    assert stream.getvalue() == "\rhalf\n"


def test_a_status_line_is_not_written_to_a_file() -> None:
    with redirect_stderr(io.StringIO()) as stream:
        threads = threading.active_count()
        line = progress.StatusLine(lambda: "half")
        assert threading.active_count() == threads
        line.close()
    assert not stream.getvalue()


def test_a_process_without_stderr_has_no_status_line() -> None:
    with redirect_stderr(None):
        progress.StatusLine(lambda: "half").close()


def test_a_closed_stream_does_not_disturb() -> None:
    with terminal():
        line = progress.StatusLine(lambda: "half")
    line.close()


def test_what_a_task_repeats_counts_once() -> None:
    totals = progress.Totals(2)
    totals.reach("a", 5, 100)
    totals.reach("b", 1, 10)
    totals.reach("a", 2, 40)  # another attempt
    assert totals.sums == [6, 110]
    totals.reach("a", 6, 120)
    assert totals.sums == [7, 130]
