"""Tests of the tools."""

import sys

TOOLS = (sys.executable, "-c", "import sys; from tools.__main__ import parse, run; sys.exit(run(parse(sys.argv[1:])))")
"""`python3 -m tools` in the current environment."""
