"""pyarrow, an extra of mdsx, imported on first use."""

from __future__ import annotations

from typing import Any

from mdsx.errors import UsageError


class _Arrow:
    """The module `pyarrow`."""

    def __getattr__(self, name: str) -> Any:
        try:
            import pyarrow
            import pyarrow.compute
        except ImportError as error:
            raise UsageError("Arrow data needs the package pyarrow", hint="pip install 'mdsx[parquet]'") from error
        found = getattr(pyarrow, name)
        setattr(self, name, found)  # the next access finds it at once
        return found


pa: Any = _Arrow()
