"""The base types: one module for each family of values, with a record for each type (see `record.py`).

`mdsx/format/bases.py` lists them. docs/stored-formats.md says how to add one.
"""
