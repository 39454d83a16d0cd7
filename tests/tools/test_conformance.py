"""The conformance matrix: mdsx is exact, and it exposes a wrong loader."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from tests.tools import ROOT, TOOLS
from tests.waiting import wait_until
from tools.account import Delivered, read_log
from tools.conformance import command
from tools.conformance.command import Row
from tools.conformance.matrix import EVEN, Cell, cells
from tools.conformance.run import (
    Batch,
    Result,
    count,
    count_epochs,
    cut,
    first_difference,
    global_batches,
    run_loader,
)
from tools.conformance.task import Task
from tools.environment import CannotInstall, PeerEnvironment
from tools.pages import put_between_marks
from tools.peers import NAMES, Peer, peer

COMMAND = (*TOOLS, "conformance")
Run = Callable[..., Result]


def cell(name: str) -> Cell:
    return next(each for each in cells() if each.name == name)


def took(epoch: int, step: int, *ids: int) -> Delivered:
    return Delivered(epoch, step, step, ids)


class TestCounting:
    """Lost, repeated, in other batches."""

    def test_a_global_batch_joins_all_ranks_of_a_step(self) -> None:
        ranks = [[took(0, 1, 1), took(0, 2, 3), took(1, 1, 5)], [took(0, 1, 2)]]
        assert global_batches(ranks) == [Batch(0, (1, 2)), Batch(0, (3,)), Batch(1, (5,))]

    def test_each_id_belongs_once_into_each_epoch(self) -> None:
        batches = [Batch(0, (0, 1, 1)), Batch(1, (0, 1, 2))]
        assert count_epochs(batches, range(3), 2) == [(1, 1), (0, 0)]

    def test_a_strange_id_counts_as_repeated(self) -> None:
        assert count_epochs([Batch(0, (0, 9))], range(1), 1) == [(0, 1)]

    def test_against_another_run_every_draw_counts(self) -> None:
        assert count([Batch(0, (1, 1, 2))], (1, 2, 2, 3)) == (2, 1)

    def test_batches_are_compared_as_sets_in_order(self) -> None:
        run = [Batch(0, (1, 2)), Batch(0, (3, 4))]
        assert first_difference(run, [Batch(0, (2, 1)), Batch(0, (4, 3))]) is None
        assert first_difference(run, [Batch(0, (1, 2)), Batch(0, (3, 5))]) == 1
        assert first_difference(run, run[:1]) == 1
        assert first_difference(run[:1], run) == 1

    def test_an_order_is_cut_epoch_by_epoch(self) -> None:
        order = [Batch(epoch, (number,)) for epoch in (0, 1) for number in range(5)]
        run = [Batch(0, (0, 1)), Batch(0, (2, 3)), Batch(0, (4,)), Batch(1, (0, 1, 2, 3)), Batch(1, (4,))]
        sizes = [(0, 2), (0, 2), (0, 2), (1, 4), (1, 4)]
        assert cut(order, sizes) == run
        assert cut(order, sizes[:4])[4:] == [Batch(1, (4,))]  # left out


class TestMatrix:
    """The cells."""

    def test_names_are_unique_and_some_are_quick(self) -> None:
        names = [each.name for each in cells()]
        assert len(set(names)) == len(names)
        assert 0 < sum(each.quick for each in cells()) < len(names)

    def test_the_seed_draws_where_runs_are_killed(self) -> None:
        assert cells(7) == cells(7)
        stops = {tuple(stop for _, stop in each.legs) for seed in range(5) for each in cells(seed)}
        assert len(stops) > len(cells())

    @pytest.mark.parametrize("seed", range(20))
    def test_every_leg_has_batches_to_do(self, seed: int) -> None:
        for each in cells(seed):
            taken = 0
            for shape, stop in each.legs:
                if stop is not None and stop.step is not None:
                    taken += stop.step * shape.global_batch
            samples = sum(data.samples for data in each.data)
            assert taken < samples or each.name == "last-batch"

    def test_the_last_batch_is_an_epochs_last(self) -> None:
        ((shape, stop), _) = cell("last-batch").legs
        assert stop is not None
        assert stop.step is not None
        assert stop.step * shape.global_batch == EVEN.samples


def test_a_task_crosses_process_borders() -> None:
    for each in cells():
        task = Task("d", "s", each.data, each.shapes[0], each.legs[0][1], 2, 7, (0.5, 0.5), ((3, (1.0, 0.0)),))
        assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task


def test_samples_after_the_checkpoint_do_not_count(tmp_path: Path) -> None:
    lines = [took(0, 1, 1).to_line(), '"checkpoint"\n', took(0, 2, 2).to_line(), "[0, 3, 3, [4"]
    (tmp_path / "log").write_text("".join(lines))
    log = read_log(tmp_path / "log")
    assert (log.delivered[: log.saved], log.delivered) == ([took(0, 1, 1)], [took(0, 1, 1), took(0, 2, 2)])


class TestWrongLoaders:
    """Real processes, really killed; each loader is wrong in one way."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Run:
        def run(kind: str, name: str = "same", limit: float = 60) -> Result:
            directory = tmp_path / f"{kind}-{name}"
            spec = f"tests.tools.wrong_loaders:{kind}"
            (result,) = run_loader(spec, None, directory, [cell(name)], seed=7, limit=limit)
            return result

        return run

    def test_a_correct_loader_is_exact(self, run: Run) -> None:
        for name in ("uninterrupted", "same", "twice-changed", "batch-odd", "last-batch", "epoch-end", "uneven"):
            result = run("exact", name)
            assert (result.status, result.lost, result.repeated, result.order) == ("exact", 0, 0, True), result

    def test_repeated_samples_are_counted(self, run: Run) -> None:
        result = run("repeats")
        assert (result.word, result.lost, result.repeated) == ("repeated 24", 0, 24)
        assert "epoch 0: lost 0, repeated 24" in result.detail

    def test_lost_samples_are_counted(self, run: Run) -> None:
        result = run("loses")
        assert (result.word, result.lost, result.repeated) == ("lost 3", 3, 0)

    @pytest.mark.slow
    def test_another_order_is_reported(self, run: Run) -> None:
        result = run("reorders")
        assert (result.word, result.lost, result.repeated, result.order) == ("order differs", 0, 0, False)

    def test_an_error_is_reported_by_its_first_line(self, run: Run) -> None:
        result = run("fails")
        assert result.status == "error"
        assert result.detail.startswith("resumed: rank ")
        assert result.detail.endswith("ValueError: no such state")

    @pytest.mark.slow
    def test_a_hang_ends_at_the_time_limit(self, run: Run) -> None:
        result = run("hangs", limit=5)
        assert result.status == "hang"

    def test_a_dataset_that_cannot_be_written_is_an_error(self, run: Run) -> None:
        assert run("unwritable").detail == "writing the dataset: rank 0: OSError: disk full"

    def test_documented_limits_are_no_failures(self, run: Run) -> None:
        result = run("unsupported")
        assert (result.word, result.detail) == ("unsupported", "It says so itself.")

    def test_a_loader_that_cannot_be_imported_fails_in_every_cell(self, tmp_path: Path) -> None:
        (result,) = run_loader("tests.tools.no_such_module:x", None, tmp_path, [cell("same")], seed=7, limit=60)
        assert result.status == "error"
        assert "no_such_module" in result.detail


class TestPeers:
    """Facts about each loader that need no package."""

    @pytest.mark.parametrize("name", NAMES)
    def test_each_is_imported_without_its_package(self, name: str) -> None:
        found = peer(name)
        assert found.name == name
        for each in cells():
            found.excluded(each)
        assert set(found.findings) <= {each.name for each in cells()}

    def test_mdsx_supports_every_cell(self) -> None:
        assert not [each.name for each in cells() if peer("mdsx").excluded(each)]

    def test_a_failed_installation_is_reported_with_its_reason(self, tmp_path: Path) -> None:
        (tmp_path / "requirements.txt").write_text("./no-such-directory\n")
        environment = PeerEnvironment("peer", tmp_path, tmp_path / "requirements.txt")
        with pytest.raises(CannotInstall, match="no-such-directory"):
            environment.install()
        assert not environment.complete()


class TestReport:
    """The tables."""

    class Loader(Peer):
        name, title = "peer", "Peer"
        findings: ClassVar = {"same": "It rounds."}

    results = (
        Result(cell("same"), "inexact", 2, 1, None, "epoch 0: lost 2, repeated 1"),
        Result(cell("uneven"), "unsupported", detail="It cannot."),
    )
    rows = (Row(Loader(), {"peer": "1.0"}, results),)

    def test_markdown_has_a_line_for_each_cell(self) -> None:
        assert command.markdown(self.rows).splitlines()[2] == "| killed, resumed | lost 2, repeated 1 |"

    def test_details_have_measurement_finding_and_documentation(self) -> None:
        details = command.details(self.rows)
        assert "- It rounds. **killed, resumed**: lost 2, repeated 1 (epoch 0: lost 2, repeated 1)" in details
        assert "- *uneven shards*: unsupported: It cannot." in details

    def test_json_has_the_command_that_repeats_each_cell(self) -> None:
        first, _ = json.loads(command.to_json(self.rows, seed=7))["cells"]
        assert first["command"].endswith("--loaders peer --cells same --seed 7")
        assert first["finding"] == "It rounds."

    def test_only_text_between_the_marks_is_replaced(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("a\n<!-- matrix: table -->\nold\n<!-- end of matrix: table -->\nb\n")
        put_between_marks(page, "matrix", "table", "new\n")
        assert page.read_text() == "a\n<!-- matrix: table -->\nnew\n<!-- end of matrix: table -->\nb\n"
        with pytest.raises(ValueError, match="no marks"):
            put_between_marks(page, "matrix", "other", "new\n")


def test_the_documents_have_the_whole_matrix() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    for each in cells():
        assert re.search(rf"^\| {re.escape(each.title)} \| ok \|", page, re.MULTILINE), each.title
    readme = (ROOT / "README.md").read_text()
    for name in (name for name in NAMES if peer(name).in_conformance):
        title = peer(name).title
        assert re.search(rf"^\| {re.escape(title)} \S+ \|", readme, re.MULTILINE), title
        assert f"### {title} " in page


@pytest.mark.slow
def test_mdsx_is_exact(tmp_path: Path) -> None:
    """0 lost, 0 repeated and equal batches: the quick part of the matrix, by the command."""
    command = [*COMMAND, "--quick", "--json", str(tmp_path / "it.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "it.json").read_text())["cells"]
    assert [each["cell"] for each in results] == [each.name for each in cells() if each.quick]
    for each in results:
        assert (each["status"], each["lost"], each["repeated"], each["order"]) == ("exact", 0, 0, True), each


@pytest.mark.slow
def test_interrupted_it_leaves_no_process(tmp_path: Path) -> None:
    command = [*COMMAND, "--loaders", "mdsx", "--scratch", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.glob("mdsx/*/rank*.jsonl")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running = _descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted"
    assert len(running) > 1  # the host and a rank
    wait_until(lambda: not any(map(_alive, running)))


def test_an_unknown_name_is_refused() -> None:
    command = [*COMMAND, "--cells", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown cell 'nonsense'" in done.stderr


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return children + [each for child in children for each in _descendants(child)]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
