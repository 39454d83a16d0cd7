"""The measurements: each is a function that is called in a fresh process and returns its figures (bench/subject.py)."""
