"""The guides for users of other loaders: their tables list every argument, and their programs run.

`from_<peer>.py` has what the peer's environment runs, and `test_from_<peer>.py` the tests.
"""
