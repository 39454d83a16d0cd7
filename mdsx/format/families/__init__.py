"""The base types: one module for each family, with a record for each type (see `record.py`).

`mdsx/format/bases.py` lists them. docs/stored-formats.md explains how to add one.
"""
