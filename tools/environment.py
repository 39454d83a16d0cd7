"""The project's virtual environment `.venv`, in which every tool runs, and one for each peer, `.venvs/<peer>`.

Runs on a bare Python 3.11 with the standard library alone. An environment is complete only with its stamp, a hash of
what it was made from, which is written last. One process installs at a time; others wait for it.

A peer's packages, with all that it uses of its requirements, are pinned in `tools/peers/requirements/<peer>.txt`.
Packages that the project has too, PyTorch above all, are the project's: a path file adds them after the peer's own,
which may be of other versions.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from tools.console import Console

_ROOT = Path(__file__).resolve().parent.parent
_BY_PATH = ("--config-settings", "editable_mode=compat")  # a path file; setuptools' finder takes 30 ms at each start
_STEPS = (
    ("Install PyTorch", ("torch", "setuptools")),  # by far the largest: has a line of its own
    ("Install mdsx and its tools", ("--no-build-isolation", *_BY_PATH, "-e", ".[torch,test]")),
)
"""What pip installs, step by step, within constraints.txt."""
_UNFINISHED = "unfinished"
VENV = ("-m", "venv")
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_INSTALL = ("install", "--no-compile")  # of 12,000 modules a few are imported: Python compiles them then


def require_python() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  an older one gets a message instead of a syntax error
        sys.exit(f"mdsx needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}")


def enter_environment() -> None:
    """Return inside the project's environment. Another Python is replaced by one in the environment."""
    environment = ProjectEnvironment(_ROOT)
    environment.install()
    if Path(sys.prefix).resolve() != environment.directory.resolve():
        sys.stdout.flush()
        os.execv(environment.python, [str(environment.python), *sys.orig_argv[1:]])


class Environment:
    """A virtual environment in `directory`, made from some files and values."""

    def __init__(self, directory: Path, files: Sequence[Path], *values: str) -> None:
        self.directory, self.python, self._stamp = directory, directory / "bin" / "python", directory / "mdsx-stamp"
        self._files, self._values = files, values

    def complete(self) -> bool:
        """Whether everything is installed, as the files say now."""
        return self.python.exists() and self._stamped() == self._wanted()

    def _stamped(self) -> str:
        return self._stamp.read_text() if self._stamp.exists() else ""

    def _wanted(self) -> str:
        parts = [*(file.read_text() for file in self._files), *self._values]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class ProjectEnvironment(Environment):
    """The environment of the checkout at `root`, made by `steps`: titles and pip's arguments."""

    def __init__(self, root: Path, steps: Sequence[tuple[str, Sequence[str]]] = _STEPS) -> None:
        directory = root / ".venv"  # its scripts name it
        super().__init__(directory, (root / "pyproject.toml", root / "constraints.txt"), str(directory))
        self.root, self.steps = root, steps

    def install(self) -> None:
        """Create or update the environment, unless it is complete. Exit with a message if that fails."""
        if self.complete():
            return
        print(f"Setting up the environment in {self.directory}: once, it takes some minutes", flush=True)
        with (self.root / "pyproject.toml").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.complete():  # thanks to another process
                return
            python = os.path.realpath(sys.executable)  # not the one in the environment
            clear = ["--clear"] if self._stamped() == _UNFINISHED or not self.python.exists() else []
            if clear or not self._stamped():
                self._run("Make .venv", [python, *VENV, *clear, str(self.directory)], lock)
            self._stamp.write_text(_UNFINISHED)
            quiet = () if sys.stdout.isatty() else ("--quiet",)
            for title, arguments in self.steps:
                pip = [str(self.python), *_PIP, *_INSTALL, *quiet, "-c", "constraints.txt"]
                self._run(title, [*pip, *arguments], lock)
            self._stamp.write_text(self._wanted())
        print("The environment is ready")

    def _run(self, title: str, command: list[str], lock: TextIO) -> None:
        """Run one step. The child holds the lock too, in case this process is killed."""
        print(f"  {title} ...", flush=True)
        done = subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, pass_fds=(lock.fileno(),), check=False)
        if done.returncode:
            sys.exit(f"{title}: failed with status {done.returncode}. Start again when the cause is fixed.")


class CannotInstall(Exception):
    """A peer's packages cannot be installed; the text is pip's reason."""


class PeerEnvironment(Environment):
    """The environment of the peer whose requirements are in `tools/peers/requirements/<name>.txt`. Without `shared`, it
    has nothing of the project's."""

    def __init__(self, name: str, root: Path = _ROOT, requirements: Path | None = None, *, shared: bool = True) -> None:
        self._requirements = requirements or _ROOT / "tools" / "peers" / "requirements" / f"{name}.txt"
        self._shared = sysconfig.get_path("purelib") if shared else ""
        files = (self._requirements, _ROOT / "constraints.txt")
        super().__init__(root / ".venvs" / name, files, self._shared, sys.version)
        self.packages = self.directory / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"

    def install(self) -> None:
        """Create the environment, unless it is complete. Raise CannotInstall."""
        with self._requirements.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.complete():  # perhaps thanks to another process
                return
            if self.directory.is_symlink() or self.directory.parent.is_symlink():
                raise CannotInstall(f"{self.directory} leads to another checkout's environment: remove the link")
            self._run("-m", "venv", "--clear", "--without-pip", str(self.directory))
            if self._shared:
                (self.packages / "project.pth").write_text(f"{self._shared}\n")
            packages = ("--no-deps", "-r", str(self._requirements))
            self._run(*_PIP, "--python", str(self.python), *_INSTALL, "--quiet", *packages)
            self._stamp.write_text(self._wanted())

    def version(self, package: str) -> str:
        found = next(iter(distributions(name=package, path=[str(self.packages), self._shared])), None)
        return found.version if found else "not installed"

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([sys.executable, *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["pip failed"]
            raise CannotInstall(errors[-1].removeprefix("ERROR: "))


def install_missing(console: Console, names: Iterable[str | None]) -> dict[str | None, str]:
    """Create the environments that do not exist; return why some cannot be created."""
    missing: dict[str | None, str] = {}
    for name in filter(None, dict.fromkeys(names)):
        environment = PeerEnvironment(name)
        if not environment.complete():
            with console.step(f"Installing {name} into {environment.directory.relative_to(_ROOT)}") as step:
                try:
                    environment.install()
                except CannotInstall as error:
                    step.passed, step.result = False, str(error)
                    missing[name] = str(error)
    return missing
