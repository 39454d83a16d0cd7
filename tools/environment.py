"""The project's virtual environment: makes it where it is not there, then goes on inside it.

Rules: runs on a bare Python 3.11 with the standard library alone. `.venv` beside pyproject.toml counts as complete only
with its stamp, a hash of what was installed, which is written last; one whose installation broke off is made anew.
One process installs at a time, whoever else comes waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_SOURCES = ("pyproject.toml", "constraints.txt")
_STEPS = (
    ("install PyTorch", ("torch",)),  # the largest by far: told apart
    ("install the build backend", ("setuptools",)),
    ("install mdsx and its tools", ("--no-build-isolation", "-e", ".[torch,test]")),
)
"""What pip is asked for, step by step, each within constraints.txt."""


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


class Environment:
    """The virtual environment of the checkout at `root`, made by `steps`: titles and pip's arguments."""

    def __init__(self, root: Path, steps: tuple[tuple[str, tuple[str, ...]], ...] = _STEPS) -> None:
        self.root = root
        self.steps = steps
        self.directory = root / ".venv"
        self.python = self.directory / "bin" / "python"
        self._stamp = self.directory / "mdsx-stamp"
        self._unfinished = self.directory / "mdsx-unfinished"
        self._log = root / ".venv.log"

    def complete(self) -> bool:
        """Whether all that pyproject.toml and constraints.txt ask for is installed."""
        try:
            return self._stamp.read_text() == self.wanted() and self.python.exists()
        except FileNotFoundError:
            return False

    def wanted(self) -> str:
        """The stamp of a complete environment: a hash of what is to be installed, and where."""
        parts = [str(self.directory).encode(), *((self.root / name).read_bytes() for name in _SOURCES)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def install(self) -> None:
        """Make the environment, or bring it up to date; exits with a message where that fails."""
        with (self.root / "pyproject.toml").open() as lock:
            _lock(lock.fileno())
            if self.complete():  # thanks to the one that we waited for
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
        self._stamp.unlink(missing_ok=True)
        pip = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
        for title, arguments in self.steps:
            self._run(title, [*pip, "install", "-c", "constraints.txt", *arguments], lock)
        self._finish()

    def _has_pip(self) -> bool:
        if not self.python.exists():
            return False
        command = [str(self.python), "-c", "import pip, sys; sys.exit(sys.version_info < (3, 11))"]
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def _finish(self) -> None:
        partial = self._stamp.with_suffix(".part")
        partial.write_text(self.wanted())
        self._unfinished.unlink()
        os.replace(partial, self._stamp)
        self._log.unlink()

    def _run(self, title: str, command: list[str], lock: int) -> None:
        """One step, with its output in the log. It holds the lock too: should this process be killed, it still runs."""
        progress = _Progress(title, self._log)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(lock,)
            )
            try:
                while process.poll() is None:
                    progress.show()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=0.2)
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                raise
        if process.returncode:
            progress.end(f"failed with status {process.returncode}")
            tail = "".join(f"    {line}\n" for line in _lines(self._log)[-15:])
            sys.exit(f"{tail}The whole output is in {self._log}; start again when the cause is mended.")
        progress.end("done")


class _Progress:
    """One line for a step: on a terminal it lives, elsewhere it stands when the step ends."""

    def __init__(self, title: str, log: Path) -> None:
        self._title = title
        self._log = log
        self._started = time.monotonic()
        self._live = sys.stdout.isatty()
        if not self._live:
            _say(f"  {title} ...")

    def show(self) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            text = f"  {self._title} {self._seconds()}  {(_lines(self._log) or [''])[-1].strip()}"
            print(f"\r\x1b[K{text[:width]}", end="", flush=True)

    def end(self, word: str) -> None:
        _say(("\r\x1b[K" if self._live else "") + f"  {self._title}: {word} {self._seconds()}")

    def _seconds(self) -> str:
        return f"({time.monotonic() - self._started:.0f} s)"


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("Another process is setting up the environment: waiting for it")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _say(text: str) -> None:
    print(text, flush=True)
