"""The types of packages: bases with a dot, such as `acme.Frame`. Their values are stored like `bytes`.

The name before the first dot is that of the type's package. Functions that a program registers encode and decode the
values, or else the entry point `mdsx.types` of the package with this name. Without either, the column cannot be
decoded, but its bytes can be read and copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mdsx.base.plugins import find
from mdsx.errors import CorruptError, MdsxError, UnsupportedError, UsageError, shown
from mdsx.format.families.binary import BYTES
from mdsx.format.families.record import Object
from mdsx.format.inputs import Refused, describe

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+")
_RESERVED = ("mds", "mdsx")


class StoredBytes(bytes):
    """A stored value of a package's type. It is written without calling the package."""


def as_stored(values: Iterable[Any]) -> list[Any]:
    """Mark bytes, lists of bytes and None as stored values for a writer."""
    return [
        value if value is None else as_stored(value) if isinstance(value, list) else StoredBytes(value)
        for value in values
    ]


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoder and the decoder of a package's type. Unpickling a codec registers it."""

    name: str
    encode: Encode
    decode: Decode

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (self.name, self.encode, self.decode)


_registered = dict[str, Codec]()
_installed = dict[str, Codec]()  # from entry points


def register(name: str, *, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> None:
    """Add a column type whose values you encode yourself.

        mdsx.register("acme.Frame", encode=Frame.SerializeToString, decode=Frame.FromString)

        with mdsx.Writer("s3://bucket/frames", {"id": "int64", "frame": "acme.Frame", "more": "acme.Frame[*]?"}) as out:
            out.write({"id": 1, "frame": Frame(...), "more": None})

    The name is stored in the dataset, so a reader must register the type too, before it reads the column. Other columns
    can be read without it, and `mdsx.Cast("frame", "bytes")` reads the stored bytes. Worker processes get the types
    that this process has registered. A package registers its types by entry points (docs/extending.md).

    Args:
        name: The package's name, a dot or a colon, and the type's name. It is stored with a dot. Errors suggest
            installing the package.
        encode: A function from a value to its bytes. If it raises an exception, the sample is refused. Spawned worker
            processes must be able to import it from a module.
        decode: A function from bytes to the value. Spawned worker processes must be able to import it too.

    If a type is registered again, the last call counts.

    Raises:
        UsageError: The name does not have this form, or is reserved.
    """
    name = dotted(name)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "a package's name, a dot, and the type's name, of letters, digits, _ and -, such as 'acme.Frame'"
        raise UsageError("a type cannot be registered under this name", found=shown(name), expected=expected)
    if package_of(name) in _RESERVED:
        raise UsageError(f"types that begin with {package_of(name)!r} are mdsx's own", found=name)
    for what, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise UsageError(f"{what} must be a function", place=name, found=shown(function))
    _registered[name] = Codec(name, encode, decode)


def dotted(text: Any) -> Any:
    """Return the stored name of a type. Users may write a colon, as in `acme:Frame`, in place of its dot."""
    return text.replace(":", ".", 1) if isinstance(text, str) else text


def package_of(name: str) -> str:
    """Return the name of a type's package."""
    return name.partition(".")[0]


def codecs_of(names: Iterable[str]) -> tuple[Codec, ...]:
    """Return this process's codecs of these types, to pickle them for a process that gets only the types' names."""
    return tuple(_registered[name] for name in dict.fromkeys(names) if name in _registered)


def _received(name: str, encode: Encode, decode: Decode) -> Codec:
    return _registered.setdefault(name, Codec(name, encode, decode))


def codec(name: str) -> Codec | None:
    """Return the codec of a type; None if it is neither installed nor registered. Raise UsageError for a package whose
    entry point cannot be used."""
    if (found := _registered.get(name) or _installed.get(name)) is not None:
        return found
    plugin = find("mdsx.types", name)
    if plugin is None:
        return None
    encode, decode = (getattr(plugin.value, part, None) for part in ("encode", "decode"))
    if _normalized(plugin.distribution) != _normalized(package_of(name)):
        message = f"the package {plugin.distribution} has a type whose name begins with another package's name"
        expected = f"{_normalized(plugin.distribution)}."
        raise UsageError(message, place="entry points mdsx.types", found=name, expected=expected)
    if not callable(encode) or not callable(decode):
        message = f"the type {name!r} of the package {plugin.distribution} has no functions `encode` and `decode`"
        raise UsageError(message, found=shown(plugin.value), hint=f"upgrade or uninstall {plugin.distribution}")
    return _installed.setdefault(name, Codec(name, encode, decode))


def is_available(name: str) -> bool:
    """Return whether values of this type can be encoded and decoded here."""
    try:
        return codec(name) is not None
    except MdsxError:
        return False


def missing(name: str, column: str | None = None, *, read: str = BYTES.name) -> UnsupportedError:
    """Return the error for a type that is not available here. `read`: the type of the stored bytes of `column`."""
    of, package = f"column {column!r} has" if column else "a value has", package_of(name)
    cast = f", or read the stored bytes with mdsx.Cast({column!r}, {read!r})" if column else ""
    return UnsupportedError(
        f"{of} type {name!r} of the package {package!r}, which is not installed",
        hint=f"install {package!r}, if you trust it, or import the module that calls mdsx.register({name!r}, ...); or "
        f"leave the column out{cast}",
    )


@lru_cache(maxsize=1024)
def package_base(name: str) -> Object:
    """Return the record of a package's type. If the type is not available, the record's functions raise errors."""

    def encoder() -> Callable[[object], bytes]:
        def encode(value: object) -> bytes:
            if type(value) is StoredBytes:
                return value
            found = codec(name)
            if found is None:
                error = missing(name)
                raise Refused(f"a registered type, but {name} is not registered", describe(value), hint=error.hint)
            try:
                data = found.encode(value)
            except Exception as error:
                message = f"{describe(value)}: {type(error).__name__}: {error}"
                raise Refused(f"a value that the encoder of {name} takes", message) from error
            if not isinstance(data, bytes | bytearray | memoryview):
                raise Refused(f"bytes from the encoder of {name}", describe(data))
            return bytes(data)

        return encode

    def decode(data: memoryview) -> object:
        found = codec(name)
        if found is None:
            raise missing(name)
        try:
            return found.decode(bytes(data))
        except Exception as error:
            raise CorruptError(f"the decoder of {name} failed: {type(error).__name__}: {error}") from error

    return Object(
        name=name, kind="bytes", arrow=BYTES.arrow, form=BYTES.form, encoder=encoder, decode=decode, given=StoredBytes
    )


def _normalized(distribution: str) -> str:
    """Return the normalized form of a distribution's name, which is the same for all its spellings."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
