"""mdsx and its peers under the same faults: `python3 -m tools faults`. See docs/reliability.md."""
