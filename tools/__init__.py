"""The tools of a checkout: `python3 -m tools --help`."""
