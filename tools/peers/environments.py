"""A virtual environment for each peer, beside the project's own: `.venvs/<peer>`, created when first needed.

A peer's packages are pinned in `requirements/<peer>.txt`. Packages that the project has too, PyTorch above all, are the
project's, pinned in constraints.txt: a path file adds them after the peer's own, which may be of other versions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from tools.environment import Stamp

if TYPE_CHECKING:
    from tools.console import Console

_ROOT = Path(__file__).resolve().parent.parent.parent
_REQUIREMENTS = Path(__file__).resolve().parent / "requirements"


class CannotInstall(Exception):
    """A peer's packages cannot be installed; the text is pip's reason."""


class PeerEnvironment:
    """The environment of the peer whose requirements are in `requirements/<name>.txt`."""

    def __init__(self, name: str, root: Path = _ROOT, requirements: Path | None = None) -> None:
        self.directory = root / ".venvs" / name
        self.python = self.directory / "bin" / "python"
        self._requirements = requirements or _REQUIREMENTS / f"{name}.txt"
        self._packages = self.directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        self._shared = sysconfig.get_path("purelib")
        files = (self._requirements, _ROOT / "constraints.txt")
        self._stamp = Stamp(self.directory / "stamp", files, self._shared, sys.version)

    def complete(self) -> bool:
        return self._stamp.valid() and self.python.exists()

    def install(self) -> None:
        """Create it. Raise CannotInstall with pip's reason."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._run([sys.executable, "-m", "venv", "--without-pip", str(self.directory)])
        (self._packages / "project.pth").write_text(f"{self._shared}\n")
        constraint = self.directory / "torch.txt"  # the PyTorch that is there already
        lines = (_ROOT / "constraints.txt").read_text().splitlines(keepends=True)
        constraint.write_text("".join(line for line in lines if line.startswith("torch==")))
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check", "--no-input"]
        self._run([*pip, "install", "--quiet", "-r", str(self._requirements), "-c", str(constraint)])
        self._stamp.write()

    def version(self, package: str) -> str:
        """The version of a package in it."""
        found = next(iter(distributions(name=package, path=[str(self._packages), self._shared])), None)
        return found.version if found else "not installed"

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
            raise CannotInstall((errors or done.stderr.splitlines() or ["pip failed"])[-1].removeprefix("ERROR: "))


def install_missing(console: Console, names: Iterable[str | None]) -> dict[str | None, str]:
    """Create the environments that do not exist; return why some cannot be created."""
    missing: dict[str | None, str] = {}
    for name in dict.fromkeys(names):
        if name is None or (environment := PeerEnvironment(name)).complete():
            continue
        with console.step(f"Installing {name} into {environment.directory.relative_to(_ROOT)}") as step:
            try:
                environment.install()
            except CannotInstall as error:
                step.passed, step.result = False, str(error)
                missing[name] = str(error)
                console.say(f"  {error}")
    return missing
