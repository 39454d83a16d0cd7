"""Many threads share two arenas, so freed memory does not accumulate."""

from __future__ import annotations

import platform
import subprocess
import sys
import textwrap

import pytest

_CHILD = """
import ctypes, threading
from mdsx.process import REQUESTS, Share

def work(number):
    together.wait()
    bytearray(200_000)  # below what glibc maps by itself

share, together = Share(REQUESTS), threading.Barrier(17)
calls = [share.submit(work, number) for number in range(16)]
together.wait()
for call in calls:
    call.result()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w")))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_sixteen_threads_allocate_from_two_arenas() -> None:
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(_CHILD)], capture_output=True, text=True, timeout=60)
    assert 1 <= found.stdout.count("<heap nr") <= 2, found.stderr
