"""The project's environment: made once, complete only with its stamp, made anew where its making broke off."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import environment
from tools.environment import Environment

FAILING = (("install what is not there", ("--no-index", "./nothing-here")),)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "constraints.txt").write_text("x==1\n")
    return tmp_path


def test_it_is_made_once_and_stands_for_what_was_asked(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    environment = Environment(checkout, steps=())
    assert not environment.complete()
    environment.install()
    assert environment.complete()
    assert "ready" in capfd.readouterr().out
    environment.install()
    assert capfd.readouterr().out == ""

    (checkout / "constraints.txt").write_text("x==2\n")
    assert not environment.complete()
    kept = environment.directory / "kept"
    kept.touch()
    environment.install()  # brought up to date, not made anew
    assert environment.complete()
    assert kept.exists()
    assert not Environment(checkout.rename(checkout.with_name("moved")), steps=()).complete()  # its scripts name paths


def test_a_failed_installation_names_its_log_and_is_made_anew(checkout: Path) -> None:
    environment = Environment(checkout, steps=FAILING)
    with pytest.raises(SystemExit, match=r"nothing-here[\s\S]*\.venv\.log"):
        environment.install()
    assert not environment.complete()
    rubbish = environment.directory / "half-installed"
    rubbish.touch()
    Environment(checkout, steps=()).install()
    assert environment.complete()
    assert not rubbish.exists()


def test_the_standard_library_is_enough_for_it() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import tools.environment; print(sorted(sys.modules))"
    root = str(Path(environment.__file__).parent.parent)
    bare = [str(Path(sys.executable).resolve()), "-I", "-S", "-c", program, root]
    loaded = subprocess.run(bare, check=True, capture_output=True, text=True).stdout
    assert "tools.environment" in loaded


def test_an_old_python_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer"):
        environment.require_python()


def test_everything_that_is_installed_is_pinned() -> None:
    """But for what a distribution pins itself, as PyTorch does its CUDA libraries."""
    root = Path(environment.__file__).parent.parent
    lines = (root / "constraints.txt").read_text().splitlines()
    assert all(len(list(Requirement(line).specifier)) == 1 and "==" in line for line in lines)
    pinned = {canonicalize_name(Requirement(line).name) for line in lines}
    wanted, seen = [Requirement("mdsx[torch,test]"), Requirement("setuptools")], set()
    while wanted:
        requirement = wanted.pop()
        seen.add(canonicalize_name(requirement.name))
        extras = requirement.extras or {""}
        for text in metadata.requires(requirement.name) or ():
            following = Requirement(text)
            if following.marker and not any(following.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            name = canonicalize_name(following.name)
            if name not in seen and not any(one.operator == "==" for one in following.specifier):
                wanted.append(following)
    assert not seen - pinned - {"mdsx"}
