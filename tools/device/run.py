"""The parts, one after another; each is tried by itself, and reported even if others fail.

`python3 tools/device/run.py --out figures.json` needs no environment of its own, only PyTorch and mdsx's own
dependencies, and uses what is there of torchvision, Pillow and OpenCV.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

PARTS = {"bytes": "sameness", "overlap": "overlap", "scale": "scale", "decode": "decoders", "train": "training"}
"""The module of each part, which has its function `part`."""


def run(given: argparse.Namespace) -> int:
    import torch

    from tools.device.data import Bench

    threads = given.threads or len(os.sched_getaffinity(0))
    found: dict[str, Any] = {"machine": machine(), "threads": threads}
    failed = False
    with TemporaryDirectory(prefix="mdsx-device-") as folder:
        bench = Bench(Path(folder), torch.device(given.device), threads, given.decoder, small=given.small)
        for name in given.parts:
            since = time.perf_counter()
            print(f"\n== {name}", flush=True)
            try:
                found[name] = import_module(f"tools.device.{PARTS[name]}").part(bench)
                table(found[name])
            except Exception as error:  # the next parts may work
                traceback.print_exc()
                found[name] = {"error": f"{type(error).__name__}: {error}"}
            found[f"{name} seconds"] = round(time.perf_counter() - since, 1)
            failed = failed or "error" in found[name] or any("error" in each for each in rows(found[name]).values())
            print(f"{name}: {found[f'{name} seconds']} s", flush=True)
            if given.out:
                Path(given.out).write_text(json.dumps(found, indent=1) + "\n")
    return int(failed)


def rows(part: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: value for name, value in part.items() if isinstance(value, dict)}


def table(part: dict[str, Any]) -> None:
    """Print the rows of a part, and its other figures."""
    lines = rows(part)
    keys = list(dict.fromkeys(key for line in lines.values() for key in line))
    width = max((len(name) for name in lines), default=0)
    if lines:
        print(" " * width, *(f"{key:>16}" for key in keys))
    for name, line in lines.items():
        print(f"{name:{width}}", *(f"{_shown(line.get(key, '')):>16}" for key in keys))
    for name, value in part.items():
        if name not in lines:
            print(f"{name}: {_shown(value)}")
    sys.stdout.flush()


def _shown(value: Any) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def machine() -> dict[str, Any]:
    """Return what the figures are of."""
    import torch

    import mdsx

    found = {"python": platform.python_version(), "torch": torch.__version__, "mdsx": mdsx.__version__}
    found["cores"] = str(len(os.sched_getaffinity(0)))
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    for name in ("torchvision", "PIL", "simplejpeg", "cykooz_resizer", "cv2", "numpy"):
        try:
            found[name] = getattr(__import__(name), "__version__", "there")
        except Exception as error:  # torchvision raises other errors, for another PyTorch
            found[name] = f"none: {type(error).__name__}"
    return found


def attempt(work: Any, *args: Any) -> dict[str, Any]:
    """Return what `work` returns, or the error that it raises."""
    try:
        found: dict[str, Any] = work(*args)
    except Exception as error:  # one row of several
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    return found


def main() -> int:
    from tools.commands import device

    parser = argparse.ArgumentParser(description=device.__doc__)
    device.arguments(parser.add_argument)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
