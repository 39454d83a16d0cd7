"""The headless Chromium of the tests of pages: the one on this machine. Nothing is installed unless somebody asks.

`python3 -m tools.browser` prints its path; with `--install` it first installs Debian's package, if there is none.
"""

from __future__ import annotations

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

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_HINT = "install it, or on Debian as root: python3 -m tools check --all --install-browser"


def chromium() -> str:
    """Return the path of Chromium. Raise RuntimeError, which says how to install it, if there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError(f"Chromium is not installed: {_HINT}")
    return found


def install() -> None:
    """Install Debian's package, as root. Raise RuntimeError if that fails."""
    for arguments in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
        command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=600", *arguments]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
            )
        except FileNotFoundError:
            raise RuntimeError("there is no apt-get: install Chromium as your system does") from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"apt-get cannot {arguments[0]}: {error.stderr[-2000:]}") from None


def main() -> str:
    """Return the path, after an installation if that is asked for and needed."""
    if "--install" in sys.argv and not any(map(shutil.which, NAMES)):
        install()
    return chromium()


if __name__ == "__main__":
    try:
        print(main())
    except RuntimeError as error:
        sys.exit(str(error))
