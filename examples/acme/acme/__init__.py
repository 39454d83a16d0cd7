"""A column type, a stored format and a storage for mdsx: see docs/extending.md."""
