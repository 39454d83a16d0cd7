"""Write docs/api.md from the docstrings."""

RUN = "tools.api:run"
