"""Lists the mutants of the working directory, each as a line of JSON. mutmut's own environment runs this."""

from __future__ import annotations

import json
from collections.abc import Iterator

NOT_FOUND = 255  # a name of a test with escaped characters; mutmut calls it a timeout
NOTICED = ("killed", "timeout", "segfault", "caught by type check")


def mutants() -> Iterator[dict[str, str]]:
    """Yield `name`, `function`, `verdict` and, of those that were not noticed, `was` and `now`: the changed lines."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    for path in walk_mutatable_files():
        found = SourceFileMutationData(path=path)
        found.load()
        for name, code in found.exit_code_by_key.items():
            verdict = "tests not found" if code == NOT_FOUND else status_by_exit_code[code]
            lines = [] if verdict in NOTICED else get_diff_for_mutant(name, path=path).splitlines()[2:]
            was, now = ("\n".join(line[1:].strip() for line in lines if line.startswith(mark)) for mark in "-+")
            yield {"name": name, "function": function_of(name), "verdict": verdict, "was": was, "now": now}


def function_of(name: str) -> str:
    """Return a function's name in Python. mutmut's is `module.x_f__mutmut_3` or `module.xǁClassǁf__mutmut_3`."""
    module, _, mangled = name.partition("__mutmut_")[0].rpartition(".")
    return f"{module}.{mangled[2:].replace('ǁ', '.')}"


if __name__ == "__main__":
    for each in mutants():
        print(json.dumps(each))
