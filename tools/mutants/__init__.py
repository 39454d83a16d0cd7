"""Mutation tests of the code that decides which sample comes when, and what its bytes are.

mutmut changes a copy of the project, one expression at a time, and runs the tests that reach the changed function. A
change that no test notices shows a promise that no test holds, or code that changes nothing.

`parts` says what is changed and which tests must notice. `survey` runs in mutmut's environment and lists the mutants
with their verdicts, and `typed` checks their types. `explained.toml` says why some cannot be noticed. `run` puts all of
this together.
"""
