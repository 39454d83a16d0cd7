"""The benchmarks count and judge right, hide no failure, and run end to end. Nothing here is timed."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tools import pages, workloads
from tools.__main__ import run
from tools.bench import measure
from tools.bench.goals import GOALS
from tools.bench.report import Report, section, update_tables
from tools.bench.run import Runner, environments
from tools.bench.subject import Contestant, Goal, Subject, number
from tools.bench.subjects import all_subjects
from tools.commands import parser
from tools.misses import least_misses
from tools.processes import Call, CallFailed, members, stream

MODULE = "tests.tools.bench_contestants"
TINY = 0.0001
LINES = (("loader", "-32"), ("random", ""), ("write", ""))  # of README's table


def contestant(name: str, kind: str = "peer", prepare: Call | None = None, **arguments: Any) -> Contestant:
    return Contestant(name, Call(f"{MODULE}:{name}", arguments), prepare, kind)


def subject(*contestants: Contestant, **more: Any) -> Subject:
    return Subject("s", "a subject", contestants, **more)


def measured(of: Subject, *values: list[float]) -> Subject:
    for each, its in zip(of.contestants, values, strict=True):
        each.rounds = [{of.figure: value} for value in its]
    return of


class TestRounds:
    """The turns of the contestants, and their figures."""

    def run(self, tmp_path: Path, of: Subject, rounds: int, answers: Mapping[str, list[Any]]) -> list[str]:
        turns: list[str] = []

        def answer(what: Call, *, scratch: Path, limit: float) -> Iterator[dict[str, Any]]:
            name = what.function.partition(":")[2]
            turns.append(name)
            value = answers[name].pop(0)
            if isinstance(value, str):
                raise CallFailed(value)
            yield {"samples/s": value}

        Runner(tmp_path, rounds, stream=answer).run(of)
        return turns

    def test_contestants_alternate_and_the_median_counts(self, tmp_path: Path) -> None:
        of = subject(contestant("a"), contestant("b"))
        turns = self.run(tmp_path, of, 3, {"a": [5.0, 1.0, 2.0], "b": [7.0, 8.0, 9.0]})
        assert turns == ["a", "b"] * 3
        assert [line.median("samples/s") for line in of.contestants] == [2.0, 8.0]
        assert of.contestants[0].values("samples/s") == [5.0, 1.0, 2.0]

    def test_the_median_of_an_even_number_is_between(self) -> None:
        assert measured(subject(contestant("a")), [1.0, 4.0]).contestants[0].median("samples/s") == 2.5

    def test_a_failed_contestant_stops_with_a_reason(self, tmp_path: Path) -> None:
        of = subject(contestant("a"), contestant("b"))
        turns = self.run(tmp_path, of, 3, {"a": [5.0, "it broke"], "b": [7.0, 8.0, 9.0]})
        assert turns == ["a", "b", "a", "b", "b"]
        assert of.contestants[0].failure == "round 2: it broke"
        assert of.contestants[0].median("samples/s") == 5.0

    def test_data_is_prepared_once(self, tmp_path: Path) -> None:
        made = Call(f"{MODULE}:make", {"size": 3})
        of = subject(contestant("a", prepare=made), contestant("b", prepare=made))
        turns = self.run(tmp_path, of, 2, {"make": [0.0], "a": [1.0, 1.0], "b": [1.0, 1.0]})
        assert turns == ["make", "a", "b", "a", "b"]
        assert not any(line.failure for line in of.contestants)

    def test_data_that_cannot_be_written_is_a_failure(self, tmp_path: Path) -> None:
        made = Call(f"{MODULE}:make")
        of = subject(contestant("a", prepare=made), contestant("b", prepare=made))
        turns = self.run(tmp_path, of, 2, {"make": ["disk full"], "a": [], "b": []})
        assert [line.failure for line in of.contestants] == ["round 1: its data could not be written: disk full"] * 2
        assert turns == ["make"]  # not tried again

    def test_skipped_contestants_are_listed_with_the_reason(self, tmp_path: Path) -> None:
        peer = Contestant("peer", Call("x:y", {}, "grain"))
        ours = Contestant("ours", Call("x:z"), kind="mdsx")
        runner = Runner(tmp_path, 1, stream=lambda *_, **__: [{"samples/s": 1.0}], missing={"grain": "no wheel"})
        runner.run(of := subject(peer, ours))
        assert [each.failure for each in of.contestants] == ["not installed: no wheel", ""]
        runner.run(of, ["mdsx"])
        assert [each.failure for each in of.contestants] == ["left out", ""]

    def test_data_may_need_the_environment_of_a_peer(self, tmp_path: Path) -> None:
        """It is installed although the peer itself is left out."""
        of = subject(Contestant("ours", Call("x:z"), prepare=Call("x:write", {}, "mosaicml"), kind="mdsx"))
        assert environments([of], ["mdsx"]) == ["mosaicml"]
        Runner(tmp_path, 1, missing={"mosaicml": "no wheel"}).run(of, ["mdsx"])
        assert of.contestants[0].failure == "not installed: no wheel"


class TestProcesses:
    """Each measurement runs in its own process, which always ends."""

    def call(self, tmp_path: Path, name: str, limit: float = 60.0, **arguments: Any) -> dict[str, Any]:
        *_, found = stream(Call(f"{MODULE}:{name}", arguments), scratch=tmp_path, limit=limit)
        return dict(found)

    def test_figures_come_back_whatever_is_printed(self, tmp_path: Path) -> None:
        found = self.call(tmp_path, "talk", value=3)
        assert found["value"] == 3
        assert found["pid"] != os.getpid()
        assert found["temporary"] == str(tmp_path)

    def test_an_error_is_reported_by_kind_and_text(self, tmp_path: Path) -> None:
        with pytest.raises(CallFailed, match=r"^ValueError: it broke$"):
            self.call(tmp_path, "fail")

    def test_a_death_is_reported_with_its_last_output(self, tmp_path: Path) -> None:
        with pytest.raises(CallFailed, match="died with status 3: last words"):
            self.call(tmp_path, "die")

    def test_a_hanging_process_is_ended_with_its_children(self, tmp_path: Path) -> None:
        with pytest.raises(CallFailed, match="made no end in 2 s"):
            self.call(tmp_path, "hang", limit=2.0, scratch=str(tmp_path))
        session = int((tmp_path / "session").read_text())
        assert members(session=session) == []

    def test_children_that_are_left_are_ended(self, tmp_path: Path) -> None:
        assert members(session=int(self.call(tmp_path, "leave_child")["session"])) == []


class TestGoals:
    """A figure, or its ratio to the best of others, against a bound."""

    def judge(
        self, goal: Goal, higher: bool = True, a: float = 10.0, b: float = 4.0, c: float = 5.0
    ) -> tuple[Any, Any]:
        of = subject(contestant("a"), contestant("b"), contestant("c"), goals=(goal,), figure="x/s" if higher else "s")
        (verdict,) = measured(of, [a], [4.0], [5.0]).verdicts()
        return verdict.value, verdict.word == "met"

    def test_against_the_best_of_others(self) -> None:
        assert self.judge(Goal("", "a", ("b", "c"), at_least=2)) == (2.0, True)
        assert self.judge(Goal("", "a", ("b", "c"), at_least=2.1)) == (2.0, False)

    def test_the_least_is_best_where_less_is_better(self) -> None:
        assert self.judge(Goal("", "a", ("b", "c"), at_most=2.5), higher=False) == (2.5, True)

    def test_a_goal_may_be_an_absolute_bound(self) -> None:
        assert self.judge(Goal("", "a", at_most=10)) == (10.0, True)
        assert self.judge(Goal("", "a", at_most=9.9)) == (10.0, False)
        assert self.judge(Goal("", "a", at_most=0), a=0.0) == (0.0, True)

    def test_what_is_missing_is_not_measured(self) -> None:
        of = subject(
            contestant("a"), contestant("b"), goals=(Goal("", "a", ("b",), at_least=1), Goal("", "b", at_least=1))
        )
        verdicts = measured(of, [1.0], []).verdicts()
        assert [(verdict.value, verdict.word) for verdict in verdicts] == [(None, "not measured")] * 2

    def test_a_goal_has_one_bound_and_known_contestants(self) -> None:
        with pytest.raises(ValueError, match="one bound"):
            Goal("", "a")
        with pytest.raises(ValueError, match="no contestant"):
            subject(contestant("a"), goals=(Goal("", "b", at_least=1),))


class TestMeasuring:
    """The counting, with a clock that the test moves."""

    def test_samples_count_from_the_first_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def epoch() -> Iterator[int]:
            now[0] += 5.0  # to the first batch
            yield 0
            for batch in range(9):
                now[0] += 0.1
                yield batch

        figures = measure.rate_of_epochs(epoch, 32, 320)
        assert figures["samples/s"] == pytest.approx(320)
        assert figures["first batch s"] == pytest.approx(5.0)

    def test_an_epoch_that_takes_long_to_start_counts_from_its_first_batch(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def epoch() -> Iterator[int]:
            now[0] += 0.25  # to the first batch
            for batch in range(11):
                yield batch
                now[0] += 0.125

        figures = measure.rate_of_epochs(epoch, 32, 32 * 11)
        assert figures["next epoch ms"] == pytest.approx(375)
        assert figures["first batch s"] == pytest.approx(0.25)

    def test_a_long_epoch_is_left_and_its_begin_is_the_warm_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def epoch() -> Iterator[int]:
            for batch in range(10**9):
                now[0] += 1.0 if batch < 3 else 0.5
                yield batch

        figures = measure.rate_of_epochs(epoch, 64, 64 * 10**9)
        assert figures["samples/s"] == pytest.approx(128)
        assert now[0] < 20

    def test_the_last_batch_may_be_short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def epoch() -> Iterator[int]:
            for batch in range(3):
                now[0] += 1.0
                yield batch

        assert measure.rate_of_epochs(epoch, 10, 25)["samples/s"] == pytest.approx(15 / 2)

    def test_processor_time_counts_children_but_for_some(self) -> None:
        before = measure.cpu_seconds()
        burn = "import os\nwhile sum(os.times()[:2]) < 0.6: pass\nprint(1, flush=True)\ninput()"
        with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            assert measure.cpu_seconds() - before >= 0.5
            assert measure.cpu_seconds([child.pid]) - before < 0.5
            child.communicate(b"\n")
        assert measure.cpu_seconds() - before >= 0.5  # it has ended

    def test_the_least_that_a_cache_must_fetch(self) -> None:
        """By eviction of the shard that is needed last: worked by hand."""
        assert least_misses([[0], [1], [2], [0], [1], [2]], capacity=2) == [1, 1, 1, 0, 1, 0]
        assert least_misses([[0], [1], [2], [0], [1], [2]], capacity=3) == [1, 1, 1, 0, 0, 0]
        assert least_misses([[0, 1], [1, 2], [0]], capacity=1) == [2, 1, 1]  # what a step uses is there together

    def test_memory_of_this_process(self) -> None:
        found = measure.memory_of(psutil.Process())
        assert 0 < found["private"] <= found["rss"]
        assert found["anonymous"] > 0


class TestWorkloads:
    """The samples are functions of their numbers."""

    @pytest.mark.parametrize("name", workloads.SIZES)
    def test_a_part_has_the_same_samples(self, name: str) -> None:
        whole, part = ([workloads.sample(name, number) for number in range(first, 12)] for first in (0, 7))
        assert [str(sample) for sample in whole[7:]] == [str(sample) for sample in part]
        assert len({str(sample) for sample in whole}) == 12

    def test_sizes_are_near_the_documented_ones(self) -> None:
        def size(name: str) -> float:
            return sum(workloads.size_of(workloads.sample(name, number)) for number in range(50)) / 50

        assert size("tokens") == 4096
        assert 90_000 < size("images") < 115_000
        assert 180 < size("text") < 230

    def test_images_are_pictures(self) -> None:
        assert workloads.pixels(workloads.jpeg(5)).shape == (384, 512, 3)


class TestReport:
    """Tables, JSON and pages."""

    def report(self) -> Report:
        of = subject(
            Contestant("mdsx", Call("x:a"), kind="mdsx"),
            Contestant("LitData, 2 workers", Call("x:b")),
            goals=(Goal("twice LitData", "mdsx", ("LitData, 2 workers",), at_least=2),),
        )
        measured(of, [123_456.0, 100.0, 200_000.0], [1000.0])
        of.contestants[1].failure = "round 2: it broke"
        return Report((of,), {"cores": "2"}, {"mdsx": "0"}, "abc", "2026-01-01", 3, 1.0)

    def test_numbers_have_three_digits(self) -> None:
        assert [number(value) for value in (1234567.0, 100.4, 12.345, 0.01234, 0.0)] == [
            "1,230,000",
            "100",
            "12.3",
            "0.0123",
            "0",
        ]

    def test_failures_and_goals_are_in_the_tables(self) -> None:
        text = section(self.report().subjects[0])
        assert "| **mdsx** | 123,000 | 100 .. 200,000 |" in text
        assert "| LitData, 2 workers | 1,000 | 1,000 .. 1,000 | round 2: it broke |" in text
        assert "twice LitData: met (123 x, goal ≥ 2)" in text

    def test_json_has_every_figure_and_verdict(self) -> None:
        (found,) = json.loads(self.report().to_json())["subjects"]
        assert [each["rounds"][0]["samples/s"] for each in found["contestants"]] == [123_456.0, 1000.0]
        assert found["verdicts"][0]["word"] == "met"

    def test_readme_gets_the_best_of_each_loader(self) -> None:
        ways = [contestant(name) for name in ("LitData, 0 workers", "LitData, 2 workers", "mdsx", "memcpy")]
        names = [f"{how}-{name}{end}" for how, end in LINES for name in workloads.SIZES]
        subjects = [measured(Subject(name, name, ways), [3.0], [5.0], [7.0], [9.0]) for name in names]
        ways[-1].kind = "limit"
        report = replace(self.report(), subjects=subjects)
        assert f"| {names[0]} | 5 | **7** |" in report.summary()
        assert replace(report, subjects=subjects[1:]).summary() == ""

    def test_a_run_of_some_subjects_leaves_the_others_as_they_are(self, tmp_path: Path) -> None:
        (tmp_path / "docs").mkdir()
        page = tmp_path / "docs" / "benchmarks.md"
        page.write_text(
            "top\n<!-- bench: about -->\n<!-- end of bench: about -->\n"
            "<!-- bench: goals -->\n| another | 3 x | met |\n| dropped | 3 x | met |\n"
            "| twice LitData | 1 x | **missed** |\n"
            "<!-- end of bench: goals -->\n<!-- bench: tables -->\n"
            "<!-- bench: s -->\nold\n<!-- end of bench: s -->\n<!-- bench: t -->\nkept\n<!-- end of bench: t -->\n"
            "<!-- bench: u -->\ndropped\n<!-- end of bench: u -->\n"
            "<!-- end of bench: tables -->\nend\n"
        )
        report = self.report()
        of = report.subjects[0]
        new, kept = (
            replace(of, name="new", goals=()),
            replace(of, name="t", goals=(Goal("another", "mdsx", at_least=1),)),
        )
        update_tables(replace(report, subjects=(of, new)), (kept, of, new), tmp_path)
        written = page.read_text()
        assert written.startswith("top\n<!-- bench: about -->\n2026-01-01, commit abc, 3 rounds")
        assert "| another | 3 x | met |\n| twice LitData | 123 x, goal ≥ 2 | met |\n<!--" in written
        assert written.endswith("<!-- end of bench: new -->\n<!-- end of bench: tables -->\nend\n")
        assert "| **mdsx** | 123,000 | 100 .. 200,000 |" in written
        assert "Measured 2026-01-01, commit abc, 3 rounds" in written
        assert "old" not in written
        assert "-->\nkept\n<!--" in written
        assert "dropped" not in written  # a goal and a subject that nothing measures any more


class TestSubjects:
    """All subjects exist, and mdsx's run from end to end."""

    def test_names_are_unique(self) -> None:
        names = [each.name for each in all_subjects(1.0)]
        assert len(set(names)) == len(names)

    def test_every_goal_belongs_to_a_subject(self) -> None:
        assert GOALS.keys() <= {each.name for each in all_subjects(1.0)}
        goals = [goal.text for its in GOALS.values() for goal in its]
        assert len(set(goals)) == len(goals)

    def test_without_a_gpu_its_subjects_are_measured_only_by_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        for arguments, listed in ((["--list"], Path("/dev/nvidia0").exists()), (["--list", "gpu-*"], True)):
            assert run(parser().parse_args(["bench", *arguments])) == 0
            assert ("gpu-tokens" in capsys.readouterr().out) == listed

    def test_every_function_is_there(self) -> None:
        for each in all_subjects(1.0):
            for one in each.contestants:
                for what in (one.call, one.prepare):
                    if what is not None:
                        assert callable(pkgutil.resolve_name(what.arguments.get("function", what.function))), what

    def test_in_place_all_read_the_same_files(self) -> None:
        found = [each for each in all_subjects(1.0) if each.name.startswith(("mds-", "parquet-", "tar-"))]
        assert len(found) == 7
        for each in found:
            assert {one.kind for one in each.contestants} == {"mdsx", "peer"}
            first, *others = (one.prepare for one in each.contestants)
            assert first is not None
            assert all(other == first for other in others)

    def test_the_command_lists_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(parser().parse_args(["bench", "--list", "write-*"])) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [f"write-{name}" for name in workloads.SIZES]

    def test_a_name_that_nothing_has_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="no subject matches loder-tokens"):
            run(parser().parse_args(["bench", "--list", "write-*", "loder-tokens"]))
        with pytest.raises(SystemExit, match="2"):
            parser().parse_args(["bench", "--loaders", "mdsx,litdat"])
        assert "unknown loader 'litdat'" in capsys.readouterr().err

    @pytest.mark.slow
    def test_mdsx_runs_from_end_to_end(self, tmp_path: Path) -> None:
        program = (
            "import sys; from tools.bench import measure; measure.SECONDS = 0.01;"
            "from tests.tools import bench_contestants; bench_contestants.run_all(sys.argv[1], float(sys.argv[2]))"
        )
        command = [sys.executable, "-c", program, str(tmp_path), str(TINY)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert len(found) > 40
        assert all(found.values()), found


def test_the_versions_of_every_subjects_environments_are_shown() -> None:
    found = pages.versions(environments(list(all_subjects(1.0))))
    assert {"mdsx", "datasets", "grain", "mosaicml-streaming"} <= set(found)
