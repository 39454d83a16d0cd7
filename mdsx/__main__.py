"""`python -m mdsx` is `mdsx`."""

from __future__ import annotations

from mdsx.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
