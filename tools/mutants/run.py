"""Runs mutmut over the parts in copies of the checkout, and compares what survives with what is explained."""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sysconfig
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import pages
from tools.console import Console, Step, temporary_directory
from tools.environment import PeerEnvironment, install_missing
from tools.mutants.parts import PARTS, Part
from tools.mutants.survey import NOTICED
from tools.processes import ROOT, end_session

EXPLAINED = Path(__file__).with_name("explained.toml")
PAGE = ROOT / "docs" / "reliability.md"
_LAST_LINES = 20


@dataclass(frozen=True)
class Mutant:
    """A changed function, and how it ended. `was`, `now`: the changed lines, unless the change was noticed. `name`:
    mutmut's."""

    function: str
    verdict: str
    was: str
    now: str
    name: str = ""

    def __str__(self) -> str:
        changed = [f"  - {line}" for line in self.was.splitlines()] + [f"  + {line}" for line in self.now.splitlines()]
        return "\n".join([f"{self.function}: {self.verdict}", *changed])


@dataclass(frozen=True)
class Explanation:
    """Why no test can notice a change; `now` is None for any change of these lines, and `was` for any of the function.

    Of the function "*", `was` and `now` are parts of lines: the change anywhere of one into the other.
    """

    function: str
    why: str
    was: str | None = None
    now: str | None = None

    def fits(self, mutant: Mutant) -> bool:
        if self.function == "*":
            assert self.was is not None
            assert self.now is not None
            return mutant.was.replace(self.was, self.now) == mutant.now
        return self.function == mutant.function and self.was in (None, mutant.was) and self.now in (None, mutant.now)


@dataclass(frozen=True)
class Outcome:
    """What became of a part's mutants. `unexplained`: those that nobody noticed or explained."""

    part: Part
    verdicts: Mapping[str, int]
    explained: Mapping[Mutant, Explanation]
    unexplained: Sequence[Mutant]


def run(given: argparse.Namespace) -> int:
    """Return 1 if a mutant is neither killed nor explained, or an explanation fits no mutant."""
    names = [each.name for each in PARTS]
    if unknown := set(given.parts) - set(names):
        raise SystemExit(f"no part is called {sorted(unknown)[0]}; there are {', '.join(names)}")
    console, explanations = Console(), read_explanations(EXPLAINED)
    if missing := install_missing(console, ["mutmut"]):
        raise SystemExit(f"mutmut cannot be installed: {missing['mutmut']}")
    outcomes = []
    with temporary_directory("mdsx-mutants-", given.scratch) as scratch:
        for part in PARTS:
            if not given.parts or part.name in given.parts:
                with console.step(f"Mutants: {part.name}") as step:
                    mutants = mutate(part, scratch / part.name, step, given.processes, explanations)
                    outcomes.append(judge(part, mutants, explanations))
                    step.passed = not outcomes[-1].unexplained
                    step.result = f"{len(mutants):,}, of which {len(outcomes[-1].unexplained):,} are not explained"
                console.print("\n".join(map(str, outcomes[-1].unexplained)))
    used = {id(each) for outcome in outcomes for each in outcome.explained.values()}
    stale = [each for each in explanations if id(each) not in used and not given.parts]
    for each in stale:
        console.print(f"{EXPLAINED.name} explains what no mutant does: {each.function}: {each.was or 'any'}")
    for outcome in outcomes:
        page = section(outcome)
        console.page(page)
        if given.docs:
            pages.put_between_marks(PAGE, "mutants", outcome.part.name, page)
    return int(bool(stale) or any(outcome.unexplained for outcome in outcomes))


def read_explanations(path: Path) -> list[Explanation]:
    return [Explanation(**each) for each in tomllib.loads(path.read_text()).get("explained", ())]


def judge(part: Part, mutants: Iterable[Mutant], explanations: Sequence[Explanation]) -> Outcome:
    verdicts, explained, unexplained = Counter[str](), dict[Mutant, Explanation](), list[Mutant]()
    for mutant in mutants:
        verdicts[mutant.verdict] += 1
        if mutant.verdict not in NOTICED:
            found = next((each for each in explanations if each.fits(mutant)), None)
            if found:
                explained[mutant] = found
            else:
                unexplained.append(mutant)
    return Outcome(part, verdicts, explained, unexplained)


def mutate(
    part: Part, copy: Path, step: Step, processes: int | None, explanations: Sequence[Explanation] = ()
) -> list[Mutant]:
    """Run mutmut in `copy`, a copy of the checkout that earlier runs may have left. Raise SystemExit if it fails.

    Mutants that ran out of time are tested once more, one at a time: a busy machine may have been the reason.
    """
    update(copy)
    (copy / "setup.cfg").write_text(configuration(part, copy))
    results = copy / "mutants"
    if results.exists():
        forget(results, judge(part, survey(copy), explanations).unexplained)
        (results / "mutmut-stats.json").unlink(missing_ok=True)  # there may be new tests
    _run_mutmut(copy, step, processes or len(os.sched_getaffinity(0)))
    if late := [mutant for mutant in survey(copy) if mutant.verdict == "timeout"]:
        forget(results, late)
        _run_mutmut(copy, step, 1)
    return survey(copy)


def _run_mutmut(copy: Path, step: Step, processes: int) -> None:
    command = [str(PeerEnvironment("mutmut").directory / "bin" / "mutmut"), "run", "--max-children", str(processes)]
    programs = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"  # the servers of tests
    log = copy.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=copy, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, "PYTHONPATH": "", "COLUMNS": "120", "PATH": programs},
        )  # fmt: skip
    try:
        while process.poll() is None:
            step.note(_last_lines(log, 1))
            time.sleep(1)
    finally:
        end_session(process.pid)  # a test that was ended may have left processes
        process.wait()
    if process.returncode:
        raise SystemExit(f"{_last_lines(log)}\nmutmut ended with status {process.returncode} in {copy}")


def _last_lines(log: Path, count: int = _LAST_LINES) -> str:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - 2**14, 0))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-count:])


def survey(copy: Path) -> list[Mutant]:
    """Return the mutants that mutmut has made in `copy`."""
    command = [str(PeerEnvironment("mutmut").python), str(Path(__file__).with_name("survey.py"))]
    found = subprocess.run(command, cwd=copy, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    return [Mutant(**json.loads(line)) for line in found.stdout.splitlines()]


def update(copy: Path) -> None:
    """Make `copy` equal to the checkout's files.

    A file that is equal keeps its time, so that mutmut keeps what it found in it.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    for path in [path for path in copy.rglob("*.py") if "mutants" not in path.relative_to(copy).parts[:1]]:
        if str(path.relative_to(copy)) not in names:
            path.unlink()
    for name in names:
        target = copy / name
        if not target.exists() or not filecmp.cmp(ROOT / name, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)


def forget(results: Path, mutants: Iterable[Mutant]) -> None:
    """Have mutmut test `mutants` again."""
    names = {mutant.name for mutant in mutants}
    for path in results.rglob("*.py.meta"):
        found = json.loads(path.read_text())
        codes = found["exit_code_by_key"]
        found["exit_code_by_key"] = {name: None if name in names else code for name, code in codes.items()}
        path.write_text(json.dumps(found))


def configuration(part: Part, copy: Path) -> str:
    """Return mutmut's settings: the checkout has none, so that it has no second list of parts."""
    beside = sorted(each.name for each in copy.iterdir() if each.name not in ("mdsx", "tests", "mutants", "setup.cfg"))
    types = [str(PeerEnvironment("mutmut").python), str(Path(__file__).with_name("typed.py"))]
    types += ["mypy", "--output", "json", "--disable-error-code", "unused-ignore"]
    types += sorted({each.removesuffix("/*") for each in part.files})
    arguments = ["-p", "no:cacheprovider", "-p", "tools.mutants.reached", "--timeout=30"]
    options: dict[str, Sequence[str]] = {
        "source_paths": ["mdsx"],
        "only_mutate": part.files,
        "also_copy": beside,
        "pytest_add_cli_args_test_selection": part.tests,
        "pytest_add_cli_args": [
            *arguments,
            *(f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in part.without),
        ],
        "do_not_mutate_patterns": [
            r"\braise \w",
            r"""(["'])((?!\1).)*\w \S((?!\1).)*\w \S((?!\1).)*\1""",
        ],  # texts for people
        "type_check_command": types,
        "process_isolation": ["forkserver"],  # PyTorch and servers start threads
        "timeout_multiplier": ["2"],
        "timeout_constant": ["3"],
        "use_git_change_detection": ["false"],
    }
    indented = "\n    "  # what continues an option's value in such a file
    return "\n".join(["[mutmut]", *(f"{name} = {indented.join(values)}" for name, values in options.items()), ""])


def section(outcome: Outcome) -> str:
    """Return how the mutants of a part ended, and a table of why no test can notice the explained ones."""
    total, typed = sum(outcome.verdicts.values()), outcome.verdicts.get("caught by type check", 0)
    tests = sum(outcome.verdicts.get(each, 0) for each in NOTICED) - typed
    counts = f"tests notice {tests:,}, and the type checker {typed:,}. {len(outcome.explained):,} are explained"
    rest = f", and {len(outcome.unexplained):,} are neither" if outcome.unexplained else ""
    reasons = Counter((mutant.function, each.why) for mutant, each in outcome.explained.items())
    rows = [[f"`{function}`", str(count), why] for (function, why), count in sorted(reasons.items())]
    explained = pages.table(["function", "mutants", "why no test can notice"], rows, right=[1]) if rows else ""
    return f"Of the {total:,} mutants of the {outcome.part.name}, {counts}{rest}.\n\n{explained}"
