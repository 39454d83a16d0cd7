"""The check runs every step, even after a failed one. Its exit status reports failures."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tools.check import BESIDE, STEPS, Steps, run
from tools.console import Console, program

GOOD = ("good", ("this",))
BAD = ("bad", ("json.tool", "/nothing/here"))
GIVEN = argparse.Namespace(engines=False)
ROOT = Path(__file__).parent.parent.parent


def test_all_passed_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(GIVEN, (GOOD,), (GOOD,), tmp_path) == 0
    out = capsys.readouterr().out
    assert out.count("Beautiful is better than ugly.") == 2
    assert out.endswith("All passed.\n")


@pytest.mark.parametrize(("steps", "beside"), [((BAD, GOOD), ()), ((GOOD,), (BAD,))])
def test_a_failure_is_status_1_after_all_steps(
    steps: Steps, beside: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(GIVEN, steps, beside, tmp_path) == 1
    out = capsys.readouterr().out
    assert "No such file or directory" in out
    assert "Beautiful is better than ugly." in out
    assert out.endswith("FAILED: bad\n")


def test_what_runs_beside_the_steps_ends_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if an interrupt ends them."""
    started: list[subprocess.Popen[str]] = []
    monkeypatch.setattr(Console, "run", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr("tools.check.program", lambda *given: kept(program(*given)))

    @contextmanager
    def kept(context: AbstractContextManager[subprocess.Popen[str]]) -> Iterator[subprocess.Popen[str]]:
        with context as process:
            started.append(process)
            yield process

    with pytest.raises(KeyboardInterrupt):
        run(GIVEN, (GOOD,), (("endless", ("http.server", "0")),), tmp_path)
    assert [process.returncode for process in started] == [-signal.SIGTERM]


def test_the_tests_with_engines_run_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tools.check.ENGINES", (BAD,))
    assert run(argparse.Namespace(engines=True), (GOOD,), (GOOD,), tmp_path) == 1
    monkeypatch.setattr("tools.check.ENGINES", (GOOD,))
    assert run(argparse.Namespace(engines=True), (BAD,), (BAD,), tmp_path) == 0


def test_it_runs_lint_format_types_and_tests() -> None:
    assert [command[0] for _, command in (*STEPS, *BESIDE)] == ["ruff", "ruff", "tools.browser", "pytest", "mypy"]


@pytest.mark.parametrize("tool", ["api", "bench", "check", "conformance", "faults", "quickstart", "soak"])
def test_each_tool_explains_itself_without_the_environment(tool: str) -> None:
    bare = [str(Path(sys.executable).resolve()), "-S", "-m", "tools", tool]
    asked = subprocess.run([*bare, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"python3 -m tools {tool}" in asked.stdout
    assert "xit status 1" in asked.stdout or tool == "api"
    mistaken = subprocess.run([*bare, "--fats"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert mistaken.returncode == 2
    assert "--fats" in mistaken.stderr


def test_a_terminal_keeps_one_line_per_successful_step(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(live=True)
    assert console.run("numbers", [sys.executable, "-c", "print(1); print('22 passed in 3 s')"], ROOT) == 0
    out = capsys.readouterr().out
    assert "✓ numbers: 22 passed in 3 s" in out
    assert "\n1\n" not in out


def test_a_terminal_shows_a_failed_steps_output(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(live=True)
    assert (
        console.run("numbers", [sys.executable, "-c", "print('[red]1', flush=True); raise SystemExit('why')"], ROOT)
        == 1
    )
    out = capsys.readouterr().out
    assert "✗ numbers" in out
    assert "\n[red]1\nwhy\n" in out
