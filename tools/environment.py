"""The project's virtual environment `.venv`, in which every tool runs, and one for each peer, `.venvs/<peer>`.

Runs on a bare Python 3.11 with the standard library alone. `.venv` beside pyproject.toml is complete only with its
stamp, a hash of what was installed, which is written last. An interrupted installation starts over. One process
installs at a time; others wait for it.

A peer's packages are pinned in `tools/peers/requirements/<peer>.txt`. Packages that the project has too, PyTorch above
all, are the project's: a path file adds them after the peer's own, which may be of other versions.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.console import Console

_ROOT = Path(__file__).resolve().parent.parent
_STEPS = (
    ("install PyTorch", ("torch",)),  # by far the largest: has a line of its own
    ("install the build backend", ("setuptools",)),
    ("install mdsx and its tools", ("--no-build-isolation", "-e", ".[torch,test]")),
)
"""What pip installs, step by step, within constraints.txt."""


def require_python() -> None:
    """Exit with a message if this Python is too old."""
    if sys.version_info < (3, 11):  # noqa: UP036  an older one gets a message instead of a syntax error
        sys.exit(f"mdsx needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}")


def enter_environment() -> None:
    """Return inside the project's environment. Another Python is replaced by one in the environment."""
    environment = Environment(_ROOT)
    if not environment.complete():
        environment.install()
    if Path(sys.prefix).resolve() != environment.directory.resolve():
        sys.stdout.flush()
        os.execv(environment.python, [str(environment.python), *sys.orig_argv[1:]])


class Stamp:
    """A file that marks an environment as complete: a hash of the files and values that it was made from."""

    def __init__(self, path: Path, files: Sequence[Path], *values: str) -> None:
        self._path, self._files, self._values = path, files, values

    def valid(self) -> bool:
        return self._path.exists() and self._path.read_text() == self._wanted()

    def write(self) -> None:
        partial = self._path.with_suffix(".part")
        partial.write_text(self._wanted())
        os.replace(partial, self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def _wanted(self) -> str:
        parts = [*(file.read_bytes() for file in self._files), *(value.encode() for value in self._values)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()


class Environment:
    """The virtual environment of the checkout at `root`, made by `steps`: titles and pip's arguments."""

    def __init__(self, root: Path, steps: tuple[tuple[str, tuple[str, ...]], ...] = _STEPS) -> None:
        self.root = root
        self.steps = steps
        self.directory = root / ".venv"
        self.python = self.directory / "bin" / "python"
        files = (root / "pyproject.toml", root / "constraints.txt")
        self._stamp = Stamp(self.directory / "mdsx-stamp", files, str(self.directory))
        self._unfinished = self.directory / "mdsx-unfinished"
        self._log = root / ".venv.log"

    def complete(self) -> bool:
        """Whether everything in pyproject.toml and constraints.txt is installed."""
        return self._stamp.valid() and self.python.exists()

    def install(self) -> None:
        """Create the environment, or update it. Exit with a message if that fails."""
        with (self.root / "pyproject.toml").open() as lock:
            _lock(lock.fileno())
            if self.complete():  # thanks to the process that we waited for
                return
            started = time.monotonic()
            _say(f"Setting up the environment in {self.directory}: once, it takes some minutes")
            self._log.write_bytes(b"")
            self._make(lock.fileno())
            _say(f"The environment is ready after {time.monotonic() - started:.0f} s")

    def _make(self, lock: int) -> None:
        if self._unfinished.exists() or not self._has_pip():
            python = os.path.realpath(sys.executable)  # which may be the one that is removed here
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir()
            self._unfinished.touch()
            self._run("make .venv", [python, "-m", "venv", str(self.directory)], lock)
        self._unfinished.touch()
        self._stamp.remove()
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        for title, arguments in self.steps:
            self._run(title, [*pip, "install", "-c", "constraints.txt", *arguments], lock)
        self._unfinished.unlink()
        self._stamp.write()
        self._log.unlink()

    def _has_pip(self) -> bool:
        if not self.python.exists():
            return False
        command = [str(self.python), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def _run(self, title: str, command: list[str], lock: int) -> None:
        """Run one step with its output in the log. The child holds the lock too, in case this process is killed."""
        started = time.monotonic()
        _say(f"  {title} ...")
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock,)
            )
            try:
                while process.poll() is None:
                    if sys.stdout.isatty():
                        width = shutil.get_terminal_size().columns - 1
                        text = f"    {time.monotonic() - started:.0f} s  {(self._lines() or [''])[-1].strip()}"
                        print(f"\r\x1b[K{text[:width]}", end="", flush=True)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=0.2)
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                raise
        clear = "\r\x1b[K" if sys.stdout.isatty() else ""
        seconds = f"({time.monotonic() - started:.0f} s)"
        if process.returncode:
            _say(f"{clear}  {title}: failed with status {process.returncode} {seconds}")
            tail = "".join(f"    {line}\n" for line in self._lines()[-15:])
            sys.exit(f"{tail}The whole output is in {self._log}; start again when the cause is fixed.")
        _say(f"{clear}  {title}: done {seconds}")

    def _lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()


class CannotInstall(Exception):
    """A peer's packages cannot be installed; the text is pip's reason."""


class PeerEnvironment:
    """The environment of the peer whose requirements are in `tools/peers/requirements/<name>.txt`."""

    def __init__(self, name: str, root: Path = _ROOT, requirements: Path | None = None) -> None:
        self.directory = root / ".venvs" / name
        self.python = self.directory / "bin" / "python"
        self._requirements = requirements or _ROOT / "tools" / "peers" / "requirements" / f"{name}.txt"
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


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("Another process is setting up the environment: waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _say(text: str) -> None:
    print(text, flush=True)
