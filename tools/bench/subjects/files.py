"""Work on whole datasets: verifying one, converting tars; and opening one in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

import mdsx
from tools.bench import limits
from tools.bench.measure import Figures, timed
from tools.bench.subject import Subject
from tools.bench.subjects import alone, call, prepare, workloads
from tools.bench.subjects.s3 import size_of

_PROCESSES = 2
_GIGABYTE = 2**18  # samples of 4 KiB
_OPEN = """
import json, sys, time
started = time.perf_counter()
import mdsx
imported = time.perf_counter()
mdsx.Dataset(sys.argv[1])[0]
print(json.dumps({"s": time.perf_counter() - started, "import s": imported - started}))
"""


def subjects(scale: float) -> list[Subject]:
    sizes = {each.name: each for each in workloads(scale)}
    tokens = call(prepare, "mdsx", **sizes["tokens"].arguments)
    many = call(prepare, "mdsx", workload="tokens", samples=int(_GIGABYTE * scale))
    tars = call(prepare, "webdataset", **sizes["images"].arguments)
    return [
        Subject(
            name="verify",
            title="tokens: mdsx verify, local",
            figure="MB/s",
            contestants=[
                alone("mdsx", "mdsx verify", verify, many),
                alone("limit", "XXH3-128, all cores", limits.hashed, many),
            ],
        ),
        Subject(
            name="convert-tar",
            title=f"images: mdsx convert tar, {_PROCESSES} processes",
            figure="MB/s",
            contestants=[
                alone("mdsx", "mdsx convert tar", convert, tars),
                alone("limit", "copy and fsync", limits.copied, tars),
            ],
        ),
        Subject(
            name="opening",
            title="a fresh process opens a local dataset and reads a sample",
            figure="s",
            more=("import s",),
            contestants=[alone("mdsx", "mdsx", opening, tokens)],
            note="From before `import mdsx` on, after the start of Python.",
        ),
    ]


def verify(data: str) -> Figures:
    """The second of two runs: the first one starts with the imports."""
    for _ in range(2):
        found, took = timed(lambda: mdsx.verify(data))
    if not found.ok:
        raise ValueError(str(list(found)))
    return {"MB/s": size_of(data) / took / 1e6}


def convert(data: str) -> Figures:
    target, columns = tempfile.mkdtemp(), {"image": "bytes", "label": "int64"}
    _, took = timed(
        lambda: mdsx.convert("tar", f"{data}/*.tar", f"{target}/out", columns=columns, num_workers=_PROCESSES)
    )
    return {"MB/s": size_of(data) / took / 1e6}


def opening(data: str) -> Figures:
    """The second of two processes: the first one compiles Python's modules."""
    command = [sys.executable, "-c", _OPEN, data]
    *_, found = (subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2))
    return dict(json.loads(found))
