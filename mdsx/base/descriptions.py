"""What users describe in JSON or TOML: plans, mixtures and states."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mdsx.base.strict_json import parse_json
from mdsx.errors import CorruptError, UsageError, shown


def read_description(path: Path) -> Any:
    """Return the value in a JSON file, or in a TOML file, which ends in `.toml`. Raise UsageError, also for a key that
    an object has twice: one of its values would be lost."""
    kind = "TOML" if path.suffix == ".toml" else "JSON"
    try:
        data = path.read_bytes()
        return tomllib.loads(data.decode()) if kind == "TOML" else parse_json(data, unique_keys=True)
    except OSError as error:
        raise UsageError("the file cannot be read", file=str(path), found=str(error)) from None
    except (ValueError, CorruptError) as error:
        raise UsageError(f"the file is not valid {kind}", file=str(path), found=str(error)) from None


def fields(found: Any, names: tuple[str, ...], *, file: str, place: str | None = None) -> dict[str, Any]:
    """Return an object that has no fields but `names`. Raise UsageError."""
    if not isinstance(found, Mapping):
        raise UsageError("not an object", file=file, place=place, found=shown(found), expected=", ".join(names))
    if unknown := [name for name in found if name not in names]:
        raise UsageError("unknown field", file=file, place=place, found=shown(unknown[0]), expected=", ".join(names))
    return dict(found)
