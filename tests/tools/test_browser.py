"""Chromium is found or missed with a hint. It is installed only if somebody asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import ROOT
from tools import browser
from tools.check import steps_of

NAME = browser.NAMES[0]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is all of PATH, but for an `apt-get` that notes what it is asked and installs Chromium."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    program = folder / NAME
    installed = f"echo > {program}; /bin/chmod 700 {program}"
    write(folder / "apt-get", f'echo "$@" >> {folder}/said; case "$*" in *install*) {installed};; esac')
    return folder


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.browser", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_is_found_on_the_path(programs: Path) -> None:
    write(programs / NAME, "")
    assert browser.chromium() == str(programs / NAME)
    assert run("--install").stdout == f"{programs / NAME}\n"
    assert not (programs / "said").exists()


def test_nothing_is_installed_unasked(programs: Path) -> None:
    with pytest.raises(RuntimeError, match=r"python3 -m tools check --all --install-browser$"):
        browser.chromium()
    found = run()
    assert found.returncode == 1
    assert found.stderr.startswith("Chromium is not installed: ")
    assert not (programs / "said").exists()
    assert ("tools.browser",) in dict(steps_of(everything=True)).values()


def test_it_is_installed_if_somebody_asks(programs: Path) -> None:
    assert ("tools.browser", "--install") in dict(steps_of(everything=True, install_browser=True)).values()
    assert run("--install").stdout == f"{programs / NAME}\n"
    update, install = (programs / "said").read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends chromium")


def test_a_failed_installation_says_why(programs: Path) -> None:
    write(programs / "apt-get", "echo no network >&2; exit 100")
    assert run("--install").stderr == "apt-get cannot update: no network\n\n"
    (programs / "apt-get").unlink()
    assert run("--install").stderr.startswith("there is no apt-get")
