"""Options of a storage, as users give them: `storage_options={"endpoint": "https://..."}`.

Each kind of storage has a dataclass with its options. Options of type `Secret` are never shown. `IN_HEADER` marks those
that are sent unchanged in a header or a URL. Options belong to one URL, so one run can read from several clouds and
endpoints. Their values are never stored in an index or a state, and never shown in an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, TypeVar

from mdsx.errors import UsageError, shown
from mdsx.secret import Secret, revealed

StorageOptions = Mapping[str, Any]
IN_HEADER = {"ascii": True}
"""The metadata of an option that is sent unchanged in a header or a URL."""
O = TypeVar("O", bound="BaseOptions")  # noqa: E741 - the one type here


@dataclass(frozen=True, kw_only=True)
class BaseOptions:
    """The options of every storage.

    `connect_timeout`: how many seconds to retry a first contact after a failure that a retry rarely cures (an unknown
    host, a refused connection, TLS, no such bucket); None for half a second, or no retry if there is no such bucket.
    """

    connect_timeout: float | None = None

    def __repr__(self) -> str:
        given = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return f"{type(self).__name__}({', '.join(f'{name}=...' for name in given)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class RemoteOptions(BaseOptions):
    """The options of every cloud: an `endpoint` other than the default, and `anonymous`, to send no credentials."""

    endpoint: str | None = None
    anonymous: bool = False


def parsed(kind: type[O], given: StorageOptions | None, url: str) -> O:
    """Return `given` as options of `kind`. Commands pass all values as text.

    Raise UsageError for an unknown name, or a value of the wrong type.
    """
    if given is None:
        return kind()
    if not isinstance(given, Mapping):
        raise UsageError('storage_options must be a dict, like {"region": "eu-west-1"}', found=type(given).__name__)
    known = {each.name: each for each in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            expected = ", ".join(sorted(known))
            raise UsageError("the storage has no such option", file=url, place=shown(name), expected=expected)
        values[name] = None if value is None else _value(value, known[name], url)
    return kind(**{name: value for name, value in values.items() if value is not None})


def _value(value: object, option: Field[Any], url: str) -> object:
    """Convert `value` to the option's type. Errors do not show it: it may be a secret in the wrong option."""
    name, wanted = option.name, str(option.type)
    if isinstance(value, Secret) and not wanted.startswith("Secret"):
        value = value.reveal()
    if wanted.startswith("bool"):
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.lower() in ("true", "1", "yes")
        raise UsageError("the option must be True or False", file=url, place=name)
    if wanted.startswith("float"):
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number < math.inf:
            raise UsageError(f"{name} must be a number of seconds, at least 0", file=url)
        return number
    if not wanted.startswith("Secret"):
        return _text(value, option, url)
    return Secret(_text(revealed(value) if isinstance(value, Secret) else value, option, url))


def _text(value: object, option: Field[Any], url: str) -> str:
    name = option.name
    if not isinstance(value, str) or not value:
        raise UsageError("the option must be text", file=url, place=name, found=type(value).__name__)
    if value != value.strip() or not value.isprintable():
        hint = "strip it, if it was read from a file"
        raise UsageError("the option has a line break or spaces around it", file=url, place=name, hint=hint)
    if "ascii" in option.metadata and not value.isascii():
        raise UsageError("the option has characters that are not ASCII", file=url, place=name)
    return value


def sealed(given: StorageOptions | None) -> StorageOptions | None:
    """Return options with each text wrapped as a Secret, to keep them: any text may be a secret. `parsed` accepts
    them."""
    if not isinstance(given, Mapping):
        return given
    return {name: Secret(value, ()) if isinstance(value, str) else value for name, value in given.items()}


def unsealed(given: StorageOptions | None) -> StorageOptions:
    """Return options as they were given, for a storage of another package."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in (given or {}).items()}
