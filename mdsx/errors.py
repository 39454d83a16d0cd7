"""The errors of mdsx, split by blame.

MdsxError
├── FormatError              the bytes break the specification
│   ├── CorruptError         ... because they are damaged: fetch or write them again
│   └── UnsupportedError     ... or because they are newer than this reader: upgrade
├── MissingError             a dataset, shard, part or object does not exist
├── SkippedError             more samples failed than a run may leave out (max_skipped)
├── TransportError           storage did not answer, refused, or failed midway
│   ├── ForbiddenError       ... refused: credentials or permissions
│   ├── TruncatedError       ... sent fewer bytes than it announced
│   └── ChangedError         ... had the object replaced while it was read
└── UsageError               invalid arguments or calls: yours to fix (also a ValueError)
    ├── SampleError          a sample that does not fit its columns
    └── StateError           a checkpoint of another dataset or order

The code that knows the facts raises the error, once. An error names the file, the place in it, what was found, what was
expected, and the way out.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

from mdsx.secret import redacted

__all__ = [
    "ChangedError",
    "CorruptError",
    "ForbiddenError",
    "FormatError",
    "MdsxError",
    "MissingError",
    "SampleError",
    "SkippedError",
    "StateError",
    "TransportError",
    "TruncatedError",
    "UnsupportedError",
    "UsageError",
]


def shown(value: object, limit: int = 200) -> str:
    """Return `value` as errors show it: on one line, shortened. Never raise."""
    try:
        text = re.sub(r"\n\s*", " ", repr(value))
    except (ValueError, RecursionError):  # an integer of thousands of digits, deeply nested lists
        text = f"a {type(value).__name__} too large to be shown"
    return text if len(text) <= limit else text[: limit - 3] + "..."


_UNSEEN = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]")
"""Control characters except line feeds and tabs, line and paragraph separators, and changes of text direction."""


def visible(text: str) -> str:
    """Return `text` with an escape such as `\\u001b` in place of each character that would control a terminal.

    JSON stays valid: such characters occur only inside its strings, where these escapes are JSON's own.
    """
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_Error = TypeVar("_Error", bound="MdsxError")


class MdsxError(Exception):
    """Base of all errors that mdsx raises on purpose.

    The text says where the error is, what was found, what was expected and what to do. The attributes have the same
    facts, so that programs need not parse the text. Secrets in URLs are hidden.

    Attributes:
        message: What is wrong, in a sentence.
        file: The path or URL, or None.
        place: The field, offset, shard or sample in it, or None.
        found: What was found, or None.
        expected: What was expected, or None.
        hint: What to do, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        place: str | None = None,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        self.message = message = redacted(message)
        self.file = file = file and redacted(file)
        self.place = place = place and redacted(place)
        self.found = found = redacted(found) if isinstance(found, str) else found
        self.expected = expected = redacted(expected) if isinstance(expected, str) else expected
        self.hint = hint = hint and redacted(hint)
        where = ": ".join(part for part in (file, place) if part)
        text = f"{where}: {message}" if where else message
        facts = {"expected": expected, "found": found}
        if details := ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None):
            text += f" ({details})"
        if hint:
            text += f"; {hint}"
        super().__init__(visible(redacted(text)))  # also inside lists and dicts
        self._fields = {
            "message": message,
            "file": file,
            "place": place,
            "found": found,
            "expected": expected,
            "hint": hint,
        }

    def __reduce__(self) -> tuple[object, ...]:  # pickled with all fields
        return (
            _rebuild,
            (type(self), {key: value for key, value in self._fields.items() if value is not None}),
            vars(self),
        )


def _rebuild(kind: type[_Error], fields: dict[str, Any]) -> _Error:
    return kind(fields.pop("message"), **fields)


def restated(error: _Error, **changes: object) -> _Error:
    """Return a copy of an error with `changes` to its fields, such as another `hint`."""
    return _rebuild(type(error), {**error._fields, **changes})


class FormatError(MdsxError):
    """The bytes break the specification."""


class CorruptError(FormatError):
    """The bytes are damaged."""


class UnsupportedError(FormatError):
    """The bytes are of a version or kind that this version of mdsx does not know."""


class MissingError(MdsxError):
    """A dataset, shard, part or object does not exist."""


class SkippedError(MdsxError):
    """More samples failed than a run may leave out."""


class TransportError(MdsxError):
    """Storage did not answer, refused, or broke the connection; retries did not help."""


class ForbiddenError(TransportError):
    """Storage refused: credentials or permissions."""


class TruncatedError(TransportError):
    """Storage sent fewer bytes than it announced."""


class ChangedError(TransportError):
    """An object was replaced while it was read."""


class UsageError(MdsxError, ValueError):
    """An argument or a call is invalid."""


class SampleError(UsageError):
    """A sample does not fit its columns. Nothing of it was stored."""


class StateError(UsageError):
    """A checkpoint does not belong to this dataset and order."""
