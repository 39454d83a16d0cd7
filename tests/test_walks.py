"""The walks of ARCHITECTURE.md list the modules in which a function runs: with constructors, storage and workers.

A process that has imported all it needs walks; each module is noted when its first function runs, in all threads and
worker processes. If a list is wrong, the error has the right one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import mdsx
from tools.servers.s3 import S3Server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"

_PROGRAM = """
import os, sys, threading
import mdsx, mdsx.torch
walk, url, cache, out = sys.argv[1:]
root = os.path.dirname(mdsx.__file__)
seen, file = set(), os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code not in seen:
        seen.add(code)
        if code.co_filename.startswith(root) and code.co_name[0] != "<":
            os.write(file, (code.co_filename[len(root) + 1 :] + "\\n").encode())

def write(url=url):
    with mdsx.Writer(url, {"tokens": "uint16[*]"}) as writer:
        for _ in range(8):
            writer.write({"tokens": [1, 2, 3]})

def batch(num_workers=0, **options):
    dataset = mdsx.torch.StreamingDataset(url, shuffle=True, cache=cache)
    loader = mdsx.torch.StreamingDataLoader(dataset, num_workers=num_workers, **options)
    for _ in loader:
        pass

walks = {
    "written": write,
    "cold": lambda: batch(batch_size=4),
    "workers": lambda: batch(batch_size=4, num_workers=1),
    "packed": lambda: batch(batch_size=1, batching=mdsx.Pack(8, length="tokens")),
}
if walk == "written":  # what is imported on first use
    write(url + "-before")
else:
    walks[walk]()
    cache += "-again"
sys.setprofile(note)
threading.setprofile(note)
walks[walk]()
sys.setprofile(None)
threading.setprofile(None)
"""


@pytest.mark.parametrize("walk", ["written", "cold", "workers", "packed"])
def test_each_walk_has_its_modules(walk: str, s3: S3Server, s3_url: str, tmp_path: Path) -> None:
    url, out = str(tmp_path / "data"), tmp_path / "modules"
    if walk != "written":
        url = f"{s3_url}/data"
        with mdsx.Writer(url, {"tokens": "uint16[*]"}) as writer:
            for _ in range(8):
                writer.write({"tokens": [1, 2, 3]})
    program = [sys.executable, "-c", _PROGRAM, walk, url, str(tmp_path / "cache"), str(out)]
    subprocess.run(program, check=True, timeout=120, cwd=ROOT)
    found = {module for module in out.read_text().split() if "/" in module}
    before = listed("cold") if walk in ("workers", "packed") else set()
    assert listed(walk) == found - before, f"ARCHITECTURE.md should have:\n{shown(walk, found, before)}"


def listed(walk: str) -> set[str]:
    """Return the modules of a walk in ARCHITECTURE.md."""
    (line,) = re.findall(rf"^\| {walk} \|.*$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    packages = re.findall(r"`([\w/]+)/`: ([\w ]+)", line)
    return {f"{package}/{name}.py" for package, names in packages for name in names.split()}


def shown(walk: str, modules: set[str], before: set[str]) -> str:
    """Return the line of a walk in ARCHITECTURE.md: without what those `before` it have."""
    packages = defaultdict(list)
    for module in sorted(modules - before):
        package, _, name = module.removesuffix(".py").rpartition("/")
        packages[package].append(name)
    each = "; ".join(f"`{package}/`: {' '.join(names)}" for package, names in packages.items())
    return f"| {walk} | {len(modules)} | {each} |"
