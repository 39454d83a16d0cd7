"""Many threads share two arenas, so freed memory does not accumulate, unless MALLOC_ARENA_MAX chooses a number."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap

import pytest

_CHILD = """
import ctypes, threading
from mdsx.base.process import REQUESTS, Share

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
@pytest.mark.parametrize(("chosen", "arenas"), [({}, {1, 2}), ({"MALLOC_ARENA_MAX": "9"}, {9})])
def test_sixteen_threads_share_two_arenas_unless_the_user_chose(chosen: dict[str, str], arenas: set[int]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"} | chosen
    command = [sys.executable, "-c", textwrap.dedent(_CHILD)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert found.stdout.count("<heap nr") in arenas, found.stderr
