"""A look at the first samples of the tars, before anything is written: which columns there are, and what seems odd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from mdsx.convert.archive import Member, read_members
from mdsx.convert.columns import infer_columns
from mdsx.convert.names import FIRST_DOT, Names, is_hidden
from mdsx.convert.samples import TarSample, group_samples
from mdsx.convert.sources import Source, read_chunks
from mdsx.convert.tape import printable
from mdsx.errors import CorruptError, UsageError

_SAMPLES = 64  # looked at; fewer where they are large
_BYTES = 2**26
_ERRORS = 1000  # skipped in a tar that has samples
_MANY = 50  # columns


@dataclass(frozen=True, slots=True)
class Look:
    """The columns of the dataset, and sentences that warn of what may be meant otherwise."""

    columns: dict[str, str]
    warnings: list[str]


@dataclass(slots=True)
class _Seen:
    """What was seen of one tar; `whole` where it was all of it."""

    samples: list[TarSample] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    whole: bool = True


def look_at(sources: Sequence[Source], declared: Mapping[str, str], names: Names, *, skip: bool) -> Look:
    """Look at the first samples of the first tar that has any.

    Raises the first error in them, unless they are to be skipped; UsageError where there is no sample, or where an
    option names what no tar has.
    """
    errors: list[str] = []
    for place, source in enumerate(sources):
        seen = _see(source, names, skip)
        errors += seen.errors
        if seen.samples:
            return _judge(seen, source.url, declared, names, only=len(sources) == 1, last=place + 1 == len(sources))
    found = f"{len(errors):,} that are not sound, the first: {errors[0]}" if errors else None
    raise UsageError("there is no sample in the tars", file=sources[0].url, found=found)


def _see(source: Source, names: Names, skip: bool) -> _Seen:
    seen, size = _Seen(), 0
    with closing(read_chunks(source, lambda count: None)) as chunks:
        members = _noted(read_members(chunks, file=source.url), seen.members)
        for item in group_samples(members, file=source.url, names=names):
            if len(seen.samples) == _SAMPLES or size > _BYTES or (seen.samples and len(seen.errors) >= _ERRORS):
                seen.whole = False
                break
            if isinstance(item, TarSample):
                seen.samples.append(item)
                size += sum(len(member.data) for member in item.members.values())
            elif skip:
                seen.errors.append(str(item))
            else:
                raise item
    return seen


def _noted(items: Iterable[Member | CorruptError], names: list[str]) -> Iterator[Member | CorruptError]:
    for item in items:
        if isinstance(item, Member) and not is_hidden(item.name):
            names.append(item.name)
        yield item


def _judge(seen: _Seen, file: str, declared: Mapping[str, str], names: Names, *, only: bool, last: bool) -> Look:
    warnings: list[str] = []
    for sentence in names.unused(seen.members):
        if seen.whole and last:
            raise UsageError(sentence, file=file)
        warnings.append(f"{file}: {sentence}, in the samples that were looked at")
    columns = infer_columns(seen.samples, declared, file=file, names=names, warn=warnings.append)
    inferred = len(columns.keys() - declared.keys()) - 1
    dotted = names.key_until == FIRST_DOT and any(name.rpartition("/")[2].count(".") > 1 for name in seen.members)
    hint = "; the key ends at the first dot of a name: --key-until last-dot lets it end at the last" if dotted else ""
    if len(seen.samples) == 1 and seen.whole and (only or dotted):
        sample = seen.samples[0]
        count = f"{len(sample.members):,} columns" if len(sample.members) > 1 else "one column"
        warnings.append(f"{file}: holds a single sample, {printable(sample.key)}, of {count}{hint}")
    elif inferred > _MANY:
        warnings.append(f"{file}: {inferred:,} columns are inferred, one for each extension{hint}")
    return Look(columns, warnings)
