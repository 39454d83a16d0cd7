"""Benchmarks: mdsx, its peers and the limits of the machine, side by side. See docs/benchmarks.md."""
