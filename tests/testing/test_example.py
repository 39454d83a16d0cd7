"""The package of docs/extending.md keeps the contracts of `mdsx.testing`, as any other package would show it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import mdsx
import mdsx.testing
from tests.testing.packages import EXAMPLE, install_example

ROOT = Path(mdsx.__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def contracts(paths: Sequence[Path], *options: str, tmp_path: Path) -> str:
    """Run the package's own tests in a process that finds it at `paths`. Return what it prints."""
    shutil.copy(EXAMPLE / "test_acme.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py", *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_package_keeps_the_contracts(tmp_path: Path) -> None:
    """Found by its entry points. Of the contract of formats, a part."""
    install_example(tmp_path / "site")
    chosen = "not TestLines or samples or resume or hostile or verify or pickled"
    assert " passed" in contracts((tmp_path / "site", EXAMPLE), "-k", chosen, tmp_path=tmp_path)


@pytest.mark.slow
def test_the_installed_package_keeps_the_contracts(tmp_path: Path) -> None:
    """Built and installed by pip, and all of the contracts."""
    source, site = shutil.copytree(EXAMPLE, tmp_path / "source"), tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, source], check=True)
    shutil.rmtree(source)
    assert " passed" in contracts((site,), tmp_path=tmp_path)


@pytest.mark.parametrize("name", ["frames", "lines", "sqlite"])
def test_the_page_has_each_module_which_is_short(name: str) -> None:
    text = (EXAMPLE / "acme" / f"{name}.py").read_text(encoding="utf-8")
    assert f"```python\n{text}```\n" in PAGE
    assert text.count("\n") < 100


def test_the_page_has_the_entry_points_and_the_tests() -> None:
    project = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    (points,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert points in project
    tests = (EXAMPLE / "test_acme.py").read_text(encoding="utf-8")
    for block in re.findall(r"^```python test_acme.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        assert block.rstrip() in tests


def test_each_contract_is_on_the_page() -> None:
    for name in mdsx.testing.__all__:
        assert f"`{name}`" in PAGE or f"{name}(" in PAGE
