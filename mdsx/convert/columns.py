"""Which columns a dataset made from tars has: declared ones, and others inferred from a look at the first samples.

A type is inferred from the last part of the extension (`seg.png` is png). That of a NumPy file is inferred from the
arrays in the samples that were looked at: dimensions in which they differ are starred. Numbers (`cls`, `id`, `index`)
are int64 where all that were looked at are, else str. A column that several extensions become is bytes, unless all
mean one type. `__key__` comes first.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from mdsx.convert.archive import Member
from mdsx.convert.names import KEY, Names
from mdsx.convert.npy import MAGIC, parse_npy
from mdsx.convert.samples import TarSample
from mdsx.convert.tape import printable
from mdsx.errors import SampleError, UsageError, shown
from mdsx.format import ColumnType, Schema, parse_type

Columns = dict[str, str]

_BY_EXTENSION = {
    **dict.fromkeys(("cls", "id", "index"), "int64"),
    **dict.fromkeys(("txt", "text"), "str"),
    **dict.fromkeys(("jpg", "jpeg"), "jpeg"),
    "json": "json",
    "png": "png",
}
_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")
_PLAIN = Names()


def parse_declared(texts: Iterable[str], renamed: Iterable[str] = ()) -> Columns:
    """The columns that `--column name=type` options declare: in lower case, as extensions are, or as `renamed` ones."""
    columns: Columns = {}
    for text in texts:
        name, equals, kind = text.rpartition("=")
        name = name if name in renamed else name.lower()
        if not equals:
            raise UsageError("a column is declared as name=type", found=shown(text))
        if columns.setdefault(name, kind) != kind:
            raise UsageError(f"column {name!r} is declared twice", found=f"{columns[name]} and {kind}")
    return columns


def check_declared(columns: Mapping[str, str]) -> Columns:
    """Declared `columns` with each type in its one text. Raises UsageError."""
    if columns.get(KEY, "str") != "str":
        raise UsageError(f"column {KEY!r} holds the samples' keys: its type is str", found=columns[KEY])
    checked = Schema.from_columns(columns).columns if columns else ()
    return {column.name: str(column.type) for column in checked}


def type_of_extension(name: str) -> str:
    """The type of column `name` by its extension alone."""
    return _BY_EXTENSION.get(name.rpartition(".")[2], "bytes")


def infer_columns(
    samples: Sequence[TarSample],
    declared: Mapping[str, str],
    *,
    file: str,
    names: Names = _PLAIN,
    warn: Callable[[str], object] = lambda warning: None,
) -> Columns:
    """The columns of a dataset whose first samples are these, out of the tar `file`: the key, then as they stand in it.

    Taken are the extensions that most of these samples have. `declared` types override what is inferred; declared
    columns that most samples do not have come last. `warn` is called with what the caller should know of a choice.
    Raises SampleError where no column type fits.
    """
    nullable = {name for name, kind in declared.items() if parse_type(kind).nullable}
    sets = [frozenset(sample.members) - nullable for sample in samples]
    common = Counter(sets).most_common(1)[0][0]
    typical = samples[sets.index(common)]
    columns = {KEY: "str"}
    for name, member in typical.members.items():
        if name == KEY:
            raise SampleError(f"extension {KEY!r} is taken by the key's column", file=file, place=member.place)
        columns[name] = declared.get(name) or _inferred(name, samples, file, names, warn)
    columns |= {name: kind for name, kind in declared.items() if name not in columns}
    try:
        Schema.from_columns(columns)
    except UsageError as refusal:
        for name, member in typical.members.items():
            try:
                Schema.from_columns({name: columns[name]})
            except UsageError as error:
                hint = f"--drop {shlex.quote(name)} leaves it out, --rename 'NEW={name}' gives it another name"
                raise SampleError(str(error), file=file, place=member.place, hint=hint) from None
        hint = "are dots part of the keys? --key-until last-dot"
        raise SampleError(f"{len(columns):,} columns are too many: {refusal}", file=file, hint=hint) from None
    return columns


def _inferred(name: str, samples: Sequence[TarSample], file: str, names: Names, warn: Callable[[str], object]) -> str:
    members = [sample.members[name] for sample in samples if name in sample.members]
    extensions = dict.fromkeys((*names.rename.get(name, ()), *(names.split(member.name)[1] for member in members)))
    kinds = {"npy" if _last(extension) == "npy" else type_of_extension(extension) for extension in extensions}
    kind = kinds.pop() if len(kinds) == 1 else "bytes"
    if kind == "npy":
        return _array_type(name, members, file)
    return _number_type(name, members, file, warn) if kind == "int64" else kind


def _number_type(name: str, members: Sequence[Member], file: str, warn: Callable[[str], object]) -> str:
    """int64, but str or bytes where a member holds something else: class names, for instance."""
    others = [member for member in members if not _is_int64(member.data)]
    if not others:
        return "int64"
    kind = "str" if all(_is_text(member.data) for member in members) else "bytes"
    if len(others) < len(members):
        warn(
            f"{file}: {others[0].place}: is no int64, but others of column {printable(name)} are; "
            f"the column is {kind}; --column {name}=int64 makes it an error"
        )
    return kind


def _is_int64(data: bytes) -> bool:
    if data.startswith(MAGIC):
        return True  # whatever it holds, it is no text
    return len(data) < 100 and bool(_INTEGER.fullmatch(data)) and -(2**63) <= int(data) < 2**63


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _last(extension: str) -> str:
    return extension.rpartition(".")[2]


def _array_type(name: str, members: Sequence[Member], file: str) -> str:
    found: list[tuple[Member, NDArray[Any]]] = []
    broken: list[tuple[Member, ValueError]] = []  # of single samples: who reads those names them
    for member in members:
        try:
            found.append((member, parse_npy(member.data)))
        except ValueError as error:
            broken.append((member, error))

    def refusal(message: str, member: Member, **fields: object) -> SampleError:
        hint = f"--column {name}=bytes takes NumPy files as they are"
        return SampleError(message, file=file, place=member.place, hint=hint, **fields)

    if not found:
        raise refusal(str(broken[0][1]), broken[0][0])
    first = found[0][1]
    for member, array in found:
        if array.dtype != first.dtype or array.ndim != first.ndim:
            raise refusal(
                f"arrays of column {name!r} differ in dtype or number of dimensions",
                member,
                found=f"{array.dtype} of shape {array.shape}",
                expected=f"{first.dtype} of shape {first.shape} as in the first sample",
            )
    if not ColumnType(str(first.dtype)).scalar:
        raise refusal(f"there is no column type for dtype {first.dtype}", found[0][0])
    sizes = zip(*(array.shape for _, array in found), strict=True)
    shape = tuple(dims[0] if len(set(dims)) == 1 else None for dims in sizes)
    return str(ColumnType(str(first.dtype), shape or None))
