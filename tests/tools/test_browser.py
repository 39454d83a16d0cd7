"""Chromium is found, or installed by Debian's tools, or missed with a hint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import browser

NAME = browser._NAMES[0]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def test_it_is_found_on_the_path(programs: Path) -> None:
    write(programs / NAME, "")
    assert browser.chromium() == str(programs / NAME)


def test_it_is_installed_if_it_is_missing(programs: Path) -> None:
    program = programs / NAME
    script = f'echo "$@" >> {programs}/said; case "$*" in *install*) echo > {program}; /bin/chmod 700 {program};; esac'
    write(programs / "apt-get", script)
    assert browser.chromium() == str(programs / NAME)
    update, install = (programs / "said").read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends chromium")


def test_a_failed_installation_says_why(programs: Path) -> None:
    write(programs / "apt-get", "echo no network >&2; exit 100")
    with pytest.raises(RuntimeError, match="cannot update: no network"):
        browser.chromium()


def test_it_says_what_to_install(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="apt-get install chromium"):
        browser.chromium()
    write(programs / "apt-get", "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="apt-get install chromium"):
        browser.chromium()
