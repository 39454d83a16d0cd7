"""A loader that nobody reads from uses no CPU: nothing in it polls."""

from __future__ import annotations

import subprocess
import sys

IDLE = """
import sys, time
import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

data = StreamingDataset(sys.argv[1], cache=mdsx.Cache(sys.argv[2], limit="10MB"))
batches = iter(StreamingDataLoader(data, 8))
next(batches)
before, since, calm = time.process_time(), time.monotonic(), 0
while calm < 3 and time.monotonic() - since < 60:  # what was begun may end first
    time.sleep(0.5)
    now = time.process_time()
    calm, before = (calm + 1 if now - before < 0.005 else 0), now
print(calm)
"""


def test_a_loader_that_nobody_reads_from_uses_no_cpu(remote_url: str, tmp_path: object) -> None:
    """In a process of its own: half a second in which it takes less than 1 % of a core, three times in a row."""
    done = subprocess.run(
        [sys.executable, "-c", IDLE, remote_url, f"{tmp_path}/cache"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "3"
