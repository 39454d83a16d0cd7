"""The check runs every step, even after a failed one. Its exit status reports failures."""

from __future__ import annotations

import os
import pkgutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT
from tools import commands
from tools.check import HEADING, STEPS, run_steps, steps_of
from tools.console import Console

GOOD = ("good", ("this",))
BAD = ("bad", ("json.tool", "/nothing/here"))

TESTS = """
import subprocess, sys
import pytest

@pytest.fixture(scope="session")
def server():
    yield
    sum(range(3 * 10**7))

def test_works_in_a_child(server):
    subprocess.run([sys.executable, "-S", "-c", "sum(range(3 * 10**7))"], check=True)

@pytest.mark.slow
def test_is_slow():
    pass

@pytest.mark.slow_if("number > LAST and id != 'last'")
@pytest.mark.parametrize("number", [1, 2, 3, pytest.param(4, id="last")])
def test_is_slow_with_some_numbers(number):
    pass

LAST = 2

@pytest.mark.engines
@pytest.mark.parametrize("number", range(3))
def test_needs_engines(number):
    pass
"""


def test_all_passed_is_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_steps((GOOD, GOOD), tmp_path) == 0
    out = capsys.readouterr().out
    assert out.count("Beautiful is better than ugly.") == 2
    assert out.endswith("All passed.\n")


def test_a_failure_is_status_1_after_all_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_steps((BAD, GOOD), tmp_path) == 1
    out = capsys.readouterr().out
    assert "No such file or directory" in out
    assert "Beautiful is better than ugly." in out
    assert out.endswith("FAILED: bad\n")


def test_an_interrupt_ends_the_running_step() -> None:
    step = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    code = "import sys; from pathlib import Path; from tools.console import Console; Console(live=False)"
    code += f".run('endless', [sys.executable, '-c', {step!r}], Path('.'))"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as console:
        assert console.stdout is not None
        title, pid = console.stdout.readline(), int(console.stdout.readline())
        console.send_signal(signal.SIGINT)
        console.wait()
    assert title == "endless ...\n"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_runs_lint_format_types_and_tests() -> None:
    assert [command[0] for _, command in STEPS] == ["ruff", "ruff", "mypy", "pytest"]


def test_all_leaves_no_test_out() -> None:
    """What the fast check leaves out has a mark, and a step of its own."""
    everything = steps_of(everything=True)
    assert everything[: len(STEPS)] == STEPS == steps_of()
    marks = [
        command[command.index("-m") + 1] for _, command in everything if command[0] == "pytest" and "-m" in command
    ]
    options = (ROOT / "pyproject.toml").read_text().partition("addopts = ")[2].splitlines()[0]
    assert f"-m '{' and '.join(f'not {mark}' for mark in marks)}'" in options


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_tests_end_with_their_seconds_and_what_was_left_out(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    configuration = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "tests.summary")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *configuration, "-p", "no:cacheprovider", "-n", processes, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    _, *lines, end = done.stdout[done.stdout.index(HEADING) :].splitlines()
    seconds = {name: float(number) for number, _, name in (line.strip().partition(" ") for line in lines[:-2])}
    assert seconds.keys() == {"test_it.py", "fixture server", "imports and collection"}
    assert min(seconds.values()) > 0
    assert lines[-2].endswith("in all; above 10: none")
    assert lines[-1] == "left to `python3 -m tools check --all`: 5 tests"
    assert end.startswith("4 passed")


@pytest.mark.parametrize("tool", [each.name for each in pkgutil.iter_modules(commands.__path__)])
def test_each_tool_explains_itself_without_the_environment(tool: str) -> None:
    bare = [str(Path(sys.executable).resolve()), "-S", "-m", "tools", tool]
    asked = subprocess.run([*bare, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"python3 -m tools {tool}" in asked.stdout
    assert "xit status 1" in asked.stdout or tool in ("buckets", "pretrain", "shuffling")
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


def test_a_terminal_shows_a_successful_steps_end(capsys: pytest.CaptureFixture[str]) -> None:
    code = f"print(1); print({HEADING!r}); print('2.0 a module')"
    assert Console(live=True).run("tests", [sys.executable, "-c", code], ROOT, shown_from=HEADING) == 0
    assert capsys.readouterr().out.endswith(f"\n{HEADING}\n2.0 a module\n")
