"""The columns of a dataset made from tars: declared, or inferred from the first samples.

A type is inferred from the last component of the extension (`seg.png` is png). The type of a NumPy column is inferred
from its arrays in the first samples; dimensions in which they differ are starred. Numbers (`cls`, `id`, `index`) are
int64 if all values in these samples are, otherwise str. A column of several extensions is bytes, unless all extensions
have the same type. `__key__` comes first.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from mdsx.errors import CorruptError, SampleError, UsageError
from mdsx.foreign.npy import NPY_MAGIC
from mdsx.foreign.tars.blocks import printable
from mdsx.foreign.tars.grouping import SKIP, TarSample, group_samples
from mdsx.foreign.tars.members import TarMember, read_members
from mdsx.foreign.tars.names import FIRST_DOT, KEY, Names, is_hidden
from mdsx.foreign.tars.values import parse_npy, type_of_extension
from mdsx.format import BYTES, INT64, STR, ColumnType, Schema, parse_type

_SAMPLES = 64  # first samples from which columns are inferred; fewer if they are large
_BYTES = 2**26
_ERRORS = 1000  # in a tar with samples, after which no more samples are read
_MANY = 50  # columns, after which a warning is given
_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")

ColumnTypes = dict[str, str]


def check_declared(columns: Mapping[str, str]) -> ColumnTypes:
    """Return declared `columns` with each type in its canonical form. Raise UsageError."""
    if columns.get(KEY, STR.name) != STR.name:
        raise UsageError(f"column {KEY!r} holds the samples' keys, so its type must be str", found=columns[KEY])
    checked = Schema.from_columns(columns).columns if columns else ()
    return {column.name: str(column.type) for column in checked}


# --- the first samples


@dataclass(slots=True)
class _FirstSamples:
    """The first samples of one tar. `errors`: the number of invalid ones; `problem`: the first error. `whole`: these
    are all of them."""

    samples: list[TarSample] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    errors: int = 0
    problem: str = ""
    whole: bool = True


def find_columns(
    files: Sequence[str],
    read: Callable[[int], Generator[bytes]],
    declared: Mapping[str, str],
    names: Names,
    *,
    skip: bool,
    way_out: str = SKIP,
) -> tuple[ColumnTypes, list[str]]:
    """Return the columns, from the first samples of the first tar that has samples, and warnings about likely mistakes.

    `read(i)` yields the bytes of the tar `files[i]` in chunks. Raise the first error in these samples, unless `skip` is
    set; `way_out`: see `Grouper`. Raise UsageError if there are no samples, or if an option names something that is in
    no tar.
    """
    errors, problem = 0, ""
    for place, file in enumerate(files):
        with closing(read(place)) as chunks:
            first = _first_samples(chunks, file, names, skip, way_out)
        errors, problem = errors + first.errors, problem or first.problem
        if first.samples:
            return _judge(first, file, declared, names, only=len(files) == 1, last=place + 1 == len(files))
    found = f"{errors:,} invalid ones, the first: {problem}" if errors else None
    raise UsageError("there is no sample in the tars", file=files[0], found=found)


def _first_samples(chunks: Iterator[bytes], file: str, names: Names, skip: bool, way_out: str) -> _FirstSamples:
    first, size = _FirstSamples(), 0
    members = _noted(read_members(chunks, file=file), first.members)
    for item in group_samples(members, file=file, names=names, way_out=way_out):
        if len(first.samples) == _SAMPLES or size > _BYTES or (first.samples and first.errors >= _ERRORS):
            first.whole = False
            break
        if isinstance(item, TarSample):
            first.samples.append(item)
            size += sum(len(member.data) for member in item.members.values())
        elif skip:
            first.errors, first.problem = first.errors + 1, first.problem or str(item)
        else:
            raise item
    return first


def _noted(items: Iterable[TarMember | CorruptError], names: list[str]) -> Iterator[TarMember | CorruptError]:
    for item in items:
        if isinstance(item, TarMember) and not is_hidden(item.name):
            names.append(item.name)
        yield item


def _judge(
    first: _FirstSamples, file: str, declared: Mapping[str, str], names: Names, *, only: bool, last: bool
) -> tuple[ColumnTypes, list[str]]:
    warnings: list[str] = []
    for sentence in names.unused(first.members):
        if first.whole and last:
            raise UsageError(sentence, file=file)
        warnings.append(f"{file}: {sentence}, among the first samples")
    columns = infer_columns(first.samples, declared, file=file, names=names, warn=warnings.append)
    inferred = len(columns.keys() - declared.keys()) - 1
    dotted = names.key_until == FIRST_DOT and any(name.rpartition("/")[2].count(".") > 1 for name in first.members)
    hint = "; the key ends at the first dot of a name: --key-until last-dot ends it at the last" if dotted else ""
    if len(first.samples) == 1 and first.whole and (only or dotted):
        sample = first.samples[0]
        count = f"{len(sample.members):,} columns" if len(sample.members) > 1 else "one column"
        warnings.append(f"{file}: holds a single sample, {printable(sample.key)}, of {count}{hint}")
    elif inferred > _MANY:
        warnings.append(f"{file}: {inferred:,} columns are inferred, one for each extension{hint}")
    return columns, warnings


# --- types


def infer_columns(
    samples: Sequence[TarSample],
    declared: Mapping[str, str],
    *,
    file: str,
    names: Names,
    warn: Callable[[str], object],
) -> ColumnTypes:
    """Return the columns of a dataset with these first samples, from the tar `file`: the key, then the extensions.

    Extensions are included, in their order, if most samples have them. `declared` types override inferred ones;
    declared columns that most samples lack come last. `warn` is called about doubtful choices. Raise SampleError if no
    column type fits.
    """
    nullable = {name for name, kind in declared.items() if parse_type(kind).nullable}
    sets = [frozenset(sample.members) - nullable for sample in samples]
    common = Counter(sets).most_common(1)[0][0]
    typical = samples[sets.index(common)]
    columns = {KEY: STR.name}
    for name, member in typical.members.items():
        if name == KEY:
            raise SampleError(f"extension {KEY!r} is reserved for the key's column", file=file, place=member.place)
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
    kinds = {"npy" if _is_npy(extension) else type_of_extension(extension) for extension in extensions}
    kind = kinds.pop() if len(kinds) == 1 else BYTES.name
    if kind == "npy":
        return _array_type(name, members, file)
    return _number_type(name, members, file, warn) if kind == INT64.name else kind


def _is_npy(extension: str) -> bool:
    return extension.rpartition(".")[2] == "npy"


def _number_type(name: str, members: Sequence[TarMember], file: str, warn: Callable[[str], object]) -> str:
    """Return int64; or str or bytes if a member has another value, such as a class name."""
    others = [member for member in members if not _is_int64(member.data)]
    if not others:
        return INT64.name
    kind = STR.name if all(_is_text(member.data) for member in members) else BYTES.name
    if len(others) < len(members):
        warn(
            f"{file}: {others[0].place}: is not an int64, but others of column {printable(name)} are; "
            f"the column is {kind}; --column {name}=int64 makes this an error"
        )
    return kind


def _is_int64(data: bytes) -> bool:
    if data.startswith(NPY_MAGIC):
        return True  # whatever its array is, it is not text
    return len(data) < 100 and bool(_INTEGER.fullmatch(data)) and -(2**63) <= int(data) < 2**63


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _array_type(name: str, members: Sequence[TarMember], file: str) -> str:
    found: list[tuple[TarMember, NDArray[Any]]] = []
    broken: list[tuple[TarMember, ValueError]] = []  # reported when they are converted, unless all are broken
    for member in members:
        try:
            found.append((member, parse_npy(member.data)))
        except ValueError as error:
            broken.append((member, error))

    def refusal(message: str, member: TarMember, **fields: object) -> SampleError:
        hint = f"--column {name}=bytes stores NumPy files as they are"
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
