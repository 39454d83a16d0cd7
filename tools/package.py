"""Builds the wheel and the source distribution, and tests both as a stranger gets them.

Each test runs in a new virtual environment, in an empty folder, away from the checkout. `tools/installed.py` is what
runs there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mdsx
from tools.console import Console
from tools.environment import VENV
from tools.processes import ROOT

PYTHONS = ("3.12", "3.13")  # beside the one that runs this
_LARGE = ("torch", "ray", "spark", "datasets")
"""Extras of hundreds of megabytes: their oldest versions are not installed."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)]+)(?=\))")
_NO_SERVERS = ("-m", "pytest", "--no-servers", "-n", "2", "--dist", "worksteal")


class Failed(Exception):
    """A test failed; the text is its output."""


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def extras() -> list[str]:
    """Return the names of all extras that users install."""
    return [name for name in project()["optional-dependencies"] if name != "test"]


def run(given: argparse.Namespace) -> int:
    """Return 1 if a test failed."""
    console, failed = Console(), list[str]()
    if given.tag and given.tag != f"v{mdsx.__version__}":
        console.print(f"The tag is {given.tag}, but the version in mdsx/__init__.py is {mdsx.__version__}.")
        return 1
    with TemporaryDirectory(prefix="mdsx-package-") as directory:
        work = Path(directory)
        with console.step("Build the source distribution, and the wheel from it") as step:
            sdist, wheel = build(work)
            step.result = f"{sdist.name}, {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)"
        for title, check in checks(work, sdist, wheel, everything=given.all):
            with console.step(title) as step:
                try:
                    step.result = next(check)
                except Failed as error:
                    step.passed = False
                    console.print(str(error))
                    failed.append(title)
        if given.out and not failed:
            Path(given.out).mkdir(parents=True, exist_ok=True)
            for each in (sdist, wheel):
                shutil.copy(each, given.out)
    console.print(f"FAILED: {', '.join(failed)}" if failed else "All passed.")
    return int(bool(failed))


def build(work: Path) -> tuple[Path, Path]:
    """Build both from the project's files. The README's links then lead to the repository: it is PyPI's page, too."""
    staged = work / "staged"
    for name in _files():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, staged / name)
    readme = staged / "README.md"
    readme.write_text(absolute_links(readme.read_text(encoding="utf-8")), encoding="utf-8")
    backend = "import sys; from setuptools import build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
    _run([sys.executable, "-c", backend, "sdist", str(work)], staged)
    (sdist,) = work.glob("*.tar.gz")
    _run([sys.executable, "-c", backend, "wheel", str(work)], unpacked(sdist, work / "for-wheel"))
    (wheel,) = work.glob("*.whl")
    return sdist, wheel


def _files() -> list[str]:
    """Return the tracked files; outside of git, as in a source distribution, those that it lists."""
    sources = ROOT / "mdsx.egg-info" / "SOURCES.txt"
    if not (ROOT / ".git").exists() and sources.exists():
        return [name for name in sources.read_text(encoding="utf-8").splitlines() if (ROOT / name).is_file()]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def absolute_links(text: str) -> str:
    """Return Markdown whose relative links lead to the repository."""
    return _LINK.sub(rf"{project()['urls']['Repository']}/blob/main/\1", text)


def unpacked(sdist: Path, directory: Path) -> Path:
    shutil.unpack_archive(sdist, directory)
    (found,) = directory.iterdir()
    return found


def checks(work: Path, sdist: Path, wheel: Path, *, everything: bool) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield (title, test): a test yields its result once, or raises Failed."""
    yield "Without an extra: every missing one is named, the quickstart", _installed(work, wheel, "", quickstart=True)
    yield "With PyTorch: the README's examples, the quickstart", _installed(work, wheel, "torch", quickstart=True)
    if not everything:
        return
    yield "With PyTorch, images and audio: the examples", _installed(work, wheel, "torch,images,audio", name="pictures")
    for extra in extras():
        if extra != "torch":
            yield f"With the extra {extra} alone", _installed(work, wheel, extra)
    for version in PYTHONS:
        yield f"Python {version}", _other_python(work, wheel, version)
    yield "macOS: types alone", _types("--platform", "darwin")
    light = ",".join(extra for extra in extras() if extra not in _LARGE)
    yield "The oldest dependencies", _installed(work, wheel, light, name="oldest", pins=oldest(), quickstart=True)
    yield "The newest dependencies", _installed(work, wheel, light, name="newest", pins=[], quickstart=True)
    yield "The tests of the source distribution that need no server", _tests(work, sdist)


def _installed(
    work: Path, wheel: Path, extra: str, *, name: str = "", pins: Sequence[str] | None = None, quickstart: bool = False
) -> Iterator[str]:
    python, seconds = environment(work, wheel, extra, name or extra or "plain", pins)
    yield f"installed in {seconds:.0f} s{_try(work, python, extra, quickstart=quickstart)}"


def _other_python(work: Path, wheel: Path, version: str) -> Iterator[str]:
    """Test another Python if there is one; else check the sources for it. PyTorch is not tested with it."""
    interpreter = find_python(version)
    if interpreter is None:
        yield f"not installed here: {next(_types('--python-version', version))}"
        return
    python, seconds = environment(work, wheel, "", f"python{version}", [], interpreter)
    yield f"installed in {seconds:.0f} s{_try(work, python, '', quickstart=True)}"


def _types(*target: str) -> Iterator[str]:
    """Check that the sources use only what another Python or another system has."""
    _run([sys.executable, "-m", "mypy", *target, "mdsx"], ROOT)
    yield "types were checked"


def _tests(work: Path, sdist: Path) -> Iterator[str]:
    """Run the tests of the source distribution in the project's environment, whose mdsx is then that of the sdist."""
    output = _run([sys.executable, *_NO_SERVERS], unpacked(sdist, work / "for-tests"), timeout=1500)
    yield next(line for line in reversed(output.splitlines()) if " passed" in line).strip("= ")


def _try(work: Path, python: Path, extra: str, *, quickstart: bool) -> str:
    """Try what is installed there, and say what was seen."""
    with TemporaryDirectory(dir=work) as empty:
        program = [str(python), str(ROOT / "tools" / "installed.py"), str(ROOT), extra, *extras()]
        seen = [line for line in _run(program, Path(empty)).splitlines() if line.startswith("tried")]
        if quickstart:  # it fails if a sample was lost or repeated
            page = Path(empty, "quickstart.html")
            output = _run([str(python), "-m", "mdsx", "quickstart", "--json", "--html", str(page)], Path(empty))
            seconds = json.loads(output[output.index("{") :])["seconds"]
            first, last = seconds["first_step"], seconds["all"]
            seen.append(f"quickstart: the first batch after {first} s, all after {last} s")
    return "".join(f"; {each}" for each in seen)


def environment(
    work: Path, wheel: Path, extra: str, name: str, pins: Sequence[str] | None, python: str = sys.executable
) -> tuple[Path, float]:
    """Make an environment with the wheel and an extra. Return its Python, and the seconds that pip took. `pins`: of
    dependencies; None: those of the checkout."""
    directory, constraints = work / "environments" / name, work / f"{name}.txt"
    _run([os.path.realpath(python), *VENV, str(directory)], work)
    lines = (ROOT / "constraints.txt").read_text().splitlines() if pins is None else pins
    constraints.write_text("\n".join(lines) + "\n")
    made = directory / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(made), "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "install"]
    started = time.monotonic()
    _run([*pip, "-c", str(constraints), f"{wheel}[{extra}]" if extra else str(wheel)], work)
    return made, time.monotonic() - started


def oldest() -> list[str]:
    """Return pins to the oldest versions that pyproject.toml allows."""
    dependencies: Mapping[str, Sequence[str]] = project()["optional-dependencies"]
    users = [each for name in extras() if name not in _LARGE for each in dependencies[name]]
    found = dict[str, str]()
    for requirement in [*project()["dependencies"], *users]:
        name, _, version = requirement.partition(">=")
        plain = name.partition("[")[0]
        found[plain] = max(found.get(plain, "0"), version, key=lambda text: list(map(int, text.split("."))))
    return [f"{name}=={version}{'.*' * (version.count('.') < 2)}" for name, version in found.items()]


def find_python(version: str) -> str | None:
    """Return another Python that runs, or None. pyenv's are found even if they are not chosen."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(f"python{version}"), *map(str, home.glob(f"{version}.*/bin/python"))):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def _run(command: Sequence[str], directory: Path, timeout: float = 900) -> str:
    """Return the output of a command. Raise Failed if it fails, or does not end in `timeout` seconds."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept["MDSX_CACHE"] = str(directory / "cache")  # a stranger's is empty
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: no end in {timeout:.0f} s") from None
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        raise Failed(f"{' '.join(command)}\n{output[-4000:]}")
    return output
