"""Run a program in a process without PyTorch."""

from __future__ import annotations

import subprocess
import sys

_REFUSAL = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("there is no torch here")

sys.meta_path.insert(0, Refused())
"""


def run_without_torch(program: str, *arguments: str) -> None:
    """Run `program` where importing PyTorch raises ImportError. Raise CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-c", _REFUSAL + program, *arguments], check=True)
