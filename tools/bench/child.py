"""One measurement, in a process of its own: `python -m tools.bench.child MODULE:FUNCTION JSON`.

Calls the function with the arguments of the JSON object (`scratch` only where it wants one), and prints what it
returns as the last line of standard output. The process then ends at once: workers that a loader still has are ended by
whoever started this.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no figure
    module, _, name = sys.argv[1].partition(":")
    arguments = json.loads(sys.argv[2])
    status = 0
    try:
        if "data" in arguments:
            _warm(Path(arguments["data"]))
        function = getattr(importlib.import_module(module), name)
        if "scratch" not in inspect.signature(function).parameters:
            arguments.pop("scratch", None)
        result = function(**arguments)
        output.write(json.dumps(result) + "\n")
    except BaseException as error:
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [""]
        line = lines[-1] if lines[0].startswith("Caught ") else lines[0]  # of one that a worker hands on, the last
        output.write(json.dumps({"error": f"{type(error).__name__}: {line}"[:300]}) + "\n")
        status = 1
    output.flush()
    sys.stderr.flush()
    os._exit(status)


def _warm(directory: Path) -> None:
    """Have all files in the page cache, so that no contestant is the first to read them."""
    buffer = bytearray(2**22)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


if __name__ == "__main__":
    main()
