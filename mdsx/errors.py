"""The errors of mdsx, split by blame.

MdsxError
├── FormatError              the bytes break the specification
│   ├── CorruptError         ... because they are damaged: fetch or write them anew
│   └── UnsupportedError     ... or because they are newer than this reader: upgrade
├── MissingError             what was named is not there
├── TransportError           storage did not answer, refused, or broke off
│   ├── ForbiddenError       ... it refused: credentials or permissions
│   ├── TruncatedError       ... it sent fewer bytes than it announced
│   └── ChangedError         ... the object was replaced while it was read
└── UsageError               the call cannot be meant so: yours to mend (also a ValueError)
    ├── SampleError          a sample that does not fit its columns
    └── StateError           a checkpoint of another dataset or another order

An error is made where the knowledge is, once, and says: which file, which place in it, what was found, what was
expected, and the way out.
"""

from __future__ import annotations

__all__ = [
    "ChangedError",
    "CorruptError",
    "ForbiddenError",
    "FormatError",
    "MdsxError",
    "MissingError",
    "SampleError",
    "StateError",
    "TransportError",
    "TruncatedError",
    "UnsupportedError",
    "UsageError",
]


class MdsxError(Exception):
    """Base of all errors that mdsx raises on purpose.

    `message` says what is wrong in a sentence. The other fields are optional. All are kept as attributes, so that
    programs need not parse the text: `file` (path or URL), `place` (field, offset, shard or sample in it), `found`,
    `expected`, `hint` (the way out).
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
        self.message = message
        self.file = file
        self.place = place
        self.found = found
        self.expected = expected
        self.hint = hint
        where = ": ".join(part for part in (file, place) if part)
        text = f"{where}: {message}" if where else message
        told = {"expected": expected, "found": found}
        if details := ", ".join(f"{name} {value}" for name, value in told.items() if value is not None):
            text += f" ({details})"
        if hint:
            text += f"; {hint}"
        super().__init__(text)
        self._fields = {
            "message": message,
            "file": file,
            "place": place,
            "found": found,
            "expected": expected,
            "hint": hint,
        }

    def __reduce__(self) -> tuple[object, ...]:  # crosses process borders whole
        return _rebuild, (type(self), {key: value for key, value in self._fields.items() if value is not None})


def _rebuild(kind: type[MdsxError], fields: dict[str, str]) -> MdsxError:
    return kind(fields.pop("message"), **fields)


class FormatError(MdsxError):
    """The bytes break the specification."""


class CorruptError(FormatError):
    """The bytes are damaged."""


class UnsupportedError(FormatError):
    """The bytes are of a version or kind that this reader does not know."""


class MissingError(MdsxError):
    """A dataset, shard, part or object is not there."""


class TransportError(MdsxError):
    """Storage did not answer, refused, or broke off; retries did not help."""


class ForbiddenError(TransportError):
    """Storage refused: credentials or permissions."""


class TruncatedError(TransportError):
    """Storage sent fewer bytes than it announced."""


class ChangedError(TransportError):
    """An object was replaced while it was read."""


class UsageError(MdsxError, ValueError):
    """The call cannot be meant so."""


class SampleError(UsageError):
    """A sample does not fit its columns; nothing of it was stored."""


class StateError(UsageError):
    """A checkpoint does not belong to this dataset and order."""
