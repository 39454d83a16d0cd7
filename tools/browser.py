"""A headless Chromium for tests of pages: the one on this machine, else Debian's package, which this installs.

`python3 -m tools.browser` does that ahead of the tests, since it takes a minute or two.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys

ARGUMENTS = (
    "--no-sandbox",  # a root user, or a container, has no sandbox; the tests open only their own pages
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # it would look for its maker's hosts
    "--disable-component-update",
    "--disable-sync",
)
"""What a test starts it with, besides `--headless` and a user data directory of its own."""

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_HINT = "install it (Debian: apt-get install chromium)"


def chromium() -> str:
    """Return the path of Chromium. Install it if it is missing; raise RuntimeError if that is impossible."""
    found = _find()
    if found is None:
        with open(__file__) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _find()
            if found is None:
                _install()
                found = _find()
    if found is None:
        raise RuntimeError(f"Chromium is not installed: {_HINT}")
    return found


def _find() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _install() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise RuntimeError(f"Chromium is not installed: {_HINT}")
    for arguments in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
        done = subprocess.run(
            ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=600", *arguments],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"apt-get cannot {arguments[0]}: {done.stderr[-2000:]}; {_HINT}")


if __name__ == "__main__":
    try:
        print(chromium())
    except RuntimeError as error:
        sys.exit(str(error))
