"""Checks the types of mutants in the working directory, in mutmut's own environment: `typed.py mypy ...`.

mutmut fails if mypy finds an error outside of a mutant, which a mutant of another function can cause: its values get
another type. This leaves those errors out.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path


def main() -> int:
    found = subprocess.run([sys.executable, "-m", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
    for line in found.stdout.splitlines():
        error = json.loads(line)
        if any(error["line"] in lines for lines in mutants_of(error["file"])):
            print(line)
    return found.returncode


@cache
def mutants_of(path: str) -> list[range]:
    """Return the lines of each mutant in a file."""
    functions = (node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.FunctionDef))
    return [range(each.lineno, (each.end_lineno or 0) + 1) for each in functions if "__mutmut_" in each.name]


if __name__ == "__main__":
    sys.exit(main())
