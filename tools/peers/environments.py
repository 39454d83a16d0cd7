"""A virtual environment for each peer, beside the project's own: `.venvs/<peer>`, made when it is first needed.

What a peer needs is pinned in `requirements/<peer>.txt`. What the project has too, PyTorch above all, is the project's,
pinned in constraints.txt: a path file puts those packages behind the peer's own, which may be of other versions.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent.parent
_REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
_TORCH = "torch=="


class CannotInstall(Exception):
    """A peer's packages cannot be installed; the text is pip's reason."""


class PeerEnvironment:
    """The environment of the peer whose requirements are in `requirements/<name>.txt`."""

    def __init__(self, name: str, root: Path = _ROOT, requirements: Path | None = None) -> None:
        self.name = name
        self.directory = root / ".venvs" / name
        self.python = self.directory / "bin" / "python"
        self._requirements = requirements or _REQUIREMENTS / f"{name}.txt"
        self._stamp = self.directory / "stamp"
        self._shared = Path(sysconfig.get_path("purelib"))

    def complete(self) -> bool:
        try:
            return self._stamp.read_text() == self._wanted() and self.python.exists()
        except FileNotFoundError:
            return False

    def install(self) -> None:
        """Make it anew. Raises CannotInstall with pip's reason."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._run([sys.executable, "-m", "venv", "--without-pip", str(self.directory)])
        packages = self.directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        (packages / "project.pth").write_text(f"{self._shared}\n")
        constraint = self.directory / "torch.txt"  # the one that is there already
        constraint.write_text(self._torch())
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check", "--no-input"]
        self._run([*pip, "install", "--quiet", "-r", str(self._requirements), "-c", str(constraint)])
        partial = self._stamp.with_suffix(".part")
        partial.write_text(self._wanted())
        os.replace(partial, self._stamp)

    def _torch(self) -> str:
        lines = (_ROOT / "constraints.txt").read_text().splitlines(keepends=True)
        return "".join(line for line in lines if line.startswith(_TORCH))

    def _wanted(self) -> str:
        constraints = (_ROOT / "constraints.txt").read_bytes()
        parts = [self._requirements.read_bytes(), constraints, str(self._shared).encode(), sys.version.encode()]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
            raise CannotInstall((errors or done.stderr.splitlines() or ["pip failed"])[-1].removeprefix("ERROR: "))
