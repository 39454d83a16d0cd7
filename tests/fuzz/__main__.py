"""`python -m tests.fuzz [TARGET ...] [--seconds 60]`: run the targets under atheris, which searches for failures.

Needs atheris (`pip install atheris`, for Python 3.11 and 3.12), which the tests do not depend on. Each target runs
in a process of its own. A finding is kept as a file in `tests/fuzz/corpus/TARGET/`, one for each kind of error and
place in the code; `test_fuzz.py` replays them all. Exit status: 0 if nothing was found.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
_SLOW, _LARGE = 20, 3000  # seconds and MiB that one input may take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        _fuzz(asked.targets[0], asked.seconds)
        return
    from tests.fuzz.targets import TARGETS

    found = 0
    for target in asked.targets or TARGETS:
        before = set(CORPUS.glob(f"{target}/*"))
        command = [sys.executable, "-m", "tests.fuzz", target, "--seconds", str(asked.seconds), "--inside"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)|^Done (\d+) runs", done.stderr, re.MULTILINE)
        number = max((int(a or b) for a, b in runs), default=0)
        new = sorted(set(CORPUS.glob(f"{target}/*")) - before)
        found += len(new) + (done.returncode != 0)
        print(f"{target}: {number:,} executions, {len(new)} findings, exit status {done.returncode}", flush=True)
        for path in new:
            print(f"  {path.relative_to(CORPUS)}")
        if done.returncode:
            print(done.stderr[-2000:])
    sys.exit(1 if found else 0)


def _fuzz(target: str, seconds: int) -> None:
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with atheris.instrument_imports(include=["mdsx", "tests.fuzz.resealed"]):
        from tests.fuzz.targets import TARGETS, allowed

    def run(data: bytes) -> None:
        try:
            allowed(target, data)
        except Exception as error:
            _keep(target, data, error)

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(TARGETS[target].seeds):
            Path(folder, f"seed-{number}").write_bytes(seed)
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={seconds}", f"-timeout={_SLOW}", f"-rss_limit_mb={_LARGE}", "-max_len=20000"]
        options += ["-print_final_stats=1", f"-artifact_prefix={CORPUS / target}/"]
        atheris.Setup([sys.argv[0], *options, folder], run)
        atheris.Fuzz()


def _keep(target: str, data: bytes, error: Exception) -> None:
    """Keep the input, unless one with the same error at the same place exists."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/mdsx/" in frame.filename]
    place = f"{Path(frames[-1].filename).stem}-{frames[-1].name}" if frames else "elsewhere"
    path = CORPUS / target / f"{type(error).__name__}-{place}"
    if not path.exists():
        path.write_bytes(data)


main()
