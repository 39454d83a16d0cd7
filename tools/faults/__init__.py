"""mdsx and its peers in the same faults: `python3 -m tools.faults`. See docs/reliability.md."""
