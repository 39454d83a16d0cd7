"""Tests of the tools."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_PROGRAM = """
import sys
from tools.__main__ import run
from tools.commands import parser
sys.exit(run(parser().parse_args()))
"""
TOOLS = (sys.executable, "-c", _PROGRAM)
"""`python3 -m tools` in the current environment."""
