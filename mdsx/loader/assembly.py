"""Assemble a training loop's batches from columns: arrays, or samples through `transform` and `collate_fn`.

With `on_error="skip"`, samples that are damaged, or for which `transform` raises, are left out. The batch carries a
text for each of them. The loader logs and counts them when it returns the batch, so each sample counts once: batches
that are prepared but never returned, or made twice, do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from mdsx.datasets import Sample
from mdsx.errors import CorruptError, UsageError
from mdsx.format import BOOL, INT64, ColumnType, Schema
from mdsx.loader.collation import Listed, emptied, with_mask
from mdsx.shards import Columns, as_samples, present
from mdsx.stream import (
    INFO_FIELDS,
    Batch,
    Failure,
    Info,
    Packing,
    RankGroups,
    generator,
    info_columns,
    info_records,
    packed_samples,
    place_of,
)

Transform = Callable[..., Any]
Collate = Callable[[list[Any]], Any]
OnError = Literal["raise", "skip"]
BUCKET = "bucket"
"""In batches of one shape, the key of samples and batches for their bucket."""

_IN_TRANSFORM, _IN_COLLATE = "mdsx: in transform", "mdsx: in collate_fn"

_PLAIN = ColumnType(INT64.name)  # type of keys that packing adds: their arrays stay as they are
_BOOL = ColumnType(BOOL.name)


class ArrayBackend(NamedTuple):
    """How batches hold values: as arrays of NumPy or of another library."""

    array: Callable[[ColumnType, Any], Any]  # from an array in storage form
    column: Callable[[ColumnType, Any], Any]  # from a column in storage form: an array, or a list
    listed: Listed
    collate: Collate


class PartialBatch(NamedTuple):
    """A batch without some of its samples; it says which, and why."""

    batch: Any
    skipped: tuple[str, ...]


def assemble(
    backend: ArrayBackend,
    schema: Schema,
    batch: Batch,
    transform: Transform | None,
    collate: Collate | None,
    fill: int = 0,
) -> Any:
    """Return the batch of `next()`: columns as arrays and lists, or samples, transformed and collated. `fill`: the
    number of samples to fill up to with repeated ones, marked by a mask; 0 for no filling."""
    if transform is None and collate is None:
        return _from_columns(backend, schema, batch, fill)
    return _from_samples(backend, batch, list(transformed(schema, batch, transform)), collate, fill)


def assemble_undamaged(
    backend: ArrayBackend,
    schema: Schema,
    batch: Batch,
    transform: Transform | None,
    collate: Collate | None,
    fill: int,
    stand_ins: Callable[[], Iterator[Batch]],
) -> Any:
    """As `assemble`, without the samples that fail; if any do, return a PartialBatch.

    If no sample is left, return a batch as for a rank without samples, made from the first good one of `stand_ins`.
    """
    failures, ours = list(batch.damaged), not batch.stand_in
    if transform is None and collate is None:
        if failures and not len(batch.positions) and fill:
            batch, _ = _stand_in(schema, None, stand_ins(), failures)
        made = _from_columns(backend, schema, batch, fill)
    else:
        samples = list[Any]()
        for result in _transformed_each(schema, batch, transform):
            (failures if isinstance(result, Failure) else samples).append(result)
        if failures and not samples:
            batch, samples = _stand_in(schema, transform, stand_ins(), failures)
        made = _from_samples(backend, batch, samples, collate, fill)
    return PartialBatch(made, skipped_lines(failures)) if failures and ours else made


class PackedBatch(NamedTuple):
    """A batch of groups in storage form."""

    columns: Columns  # in storage form
    types: dict[str, ColumnType]  # of the packed ones
    skipped: tuple[str, ...] = ()
    like: Mapping[str, Any] | None = None  # a sample's values of keys without a type, in case the batch has none


def pack_run(batch: Batch, packing: Packing, counts: Sequence[int]) -> Iterator[PackedBatch]:
    """Yield the packed rows, or the padded batch, of each step in `batch`, without damaged samples. `counts`: how many
    samples each step has."""
    skipped = skipped_lines(batch.damaged)
    groups = batch.groups or list(map(RankGroups.alone, counts))
    like = None if batch.info is None else {batch.info: Info.fromkeys(INFO_FIELDS, 0)}
    for columns in packing.batches(batch.columns, groups, partial(_named, batch)):
        yield PackedBatch(columns, packing.types, skipped, like)


def pack_transformed(
    schema: Schema,
    batch: Batch,
    transform: Transform,
    packing: Packing,
    stand_ins: Callable[[], Iterator[Batch]],
    *,
    skip: bool,
) -> PackedBatch:
    """Return the packed batch of one step, from transformed samples; with `skip`, without those that fail.

    If no sample is left, the first good one of `stand_ins` determines the keys and types of the batch.
    """
    (groups,) = batch.groups or [RankGroups.alone(len(batch.positions))]
    results = list(_transformed_each(schema, batch, transform) if skip else transformed(schema, batch, transform))
    places = [place for place, each in enumerate(results) if not isinstance(each, Failure)]
    failed = [(place, each) for place, each in enumerate(results) if isinstance(each, Failure)]
    like = None
    if not places:
        like = _stand_in(schema, transform, stand_ins(), [*batch.damaged, *(each for _, each in failed)])[1][0]
    whole = [each for place, each in failed if groups.firsts[place] == 0]  # a sample counts with its first piece
    columns, types = packed_samples(
        [results[place] for place in places],
        groups.kept(np.array(places, np.int64)),
        packing.layout,
        like=like,
        place_of=lambda number: _named(batch, places[number]),
    )
    return PackedBatch(columns, types, skipped_lines([*batch.damaged, *whole]), like)


def presented_groups(
    backend: ArrayBackend, batch: PackedBatch, kinds: Mapping[str, ColumnType], *, nested: bool
) -> dict[str, Any] | PartialBatch:
    """Return a batch of groups as arrays and lists; a PartialBatch if samples were left out. `kinds`: the columns'
    types; empty after a transform, which may change them. `nested`: whether other columns have a list for each row."""
    types, found = {**kinds, **batch.types}, dict[str, Any]()
    for name, values in batch.columns.items():
        if isinstance(values, int):
            found[name] = values
        elif isinstance(values, dict):  # for columns with lengths of their own
            found[name] = {of: _key(backend, value) for of, value in values.items()}
        elif not isinstance(values, list):
            found[name] = backend.array(types.get(name, _PLAIN), values)
        elif nested:
            found[name] = [_packed_list(backend, row, kinds.get(name)) for row in values]
        elif name in kinds:
            found[name] = backend.column(kinds[name], values)
        else:
            found[name] = _joined(backend, name, values, batch.like)
    return PartialBatch(found, batch.skipped) if batch.skipped else found


def _key(backend: ArrayBackend, value: Any) -> Any:
    return value if isinstance(value, int) else backend.array(_PLAIN, value)


def _packed_list(backend: ArrayBackend, values: list[Any], kind: ColumnType | None) -> list[Any]:
    """Return the values of a row's samples."""
    found: list[Any] = backend.listed(values) if kind is None else backend.column(kind, values)
    return found


def _joined(backend: ArrayBackend, name: str, values: list[Any], like: Mapping[str, Any] | None) -> Any:
    """Return one key's values of transformed samples, joined as in batches of samples."""
    if values:
        return backend.collate([{name: value} for value in values])[name]
    return [] if like is None else emptied({name: like[name]}, backend.collate)[name]


def _named(batch: Batch, number: int) -> str:
    return place_of(*_numbers(batch, number))


def skipped_lines(failures: Sequence[Failure]) -> tuple[str, ...]:
    """Return a line for the log for each sample left out."""
    lines = [f"{failure.place}: {type(failure.error).__name__}: {failure.error}" for failure in failures]
    return tuple(line for _, line in sorted(zip([failure.position for failure in failures], lines, strict=True)))


def _stand_in(
    schema: Schema, transform: Transform | None, candidates: Iterator[Batch], failures: list[Failure]
) -> tuple[Batch, list[Any]]:
    """Return the first single sample that succeeds. If none does, raise the first of `failures`, or their own error."""
    errors = [failure.error for failure in failures[:1]]
    for batch in candidates:
        try:
            return batch, list(transformed(schema, batch, transform))
        except Exception as raised:  # its own batch reports it
            errors.append(raised)
    error = errors[0] if errors else CorruptError("every sample near an empty batch is damaged")
    error.add_note("mdsx: all samples of this batch failed, and so did those near it: an empty batch has no structure")
    raise error


def _from_columns(backend: ArrayBackend, schema: Schema, batch: Batch, fill: int) -> Any:
    """Return a batch of columns."""
    count = len(batch.positions)
    columns = {name: _filled(values, fill - count) for name, values in batch.columns.items()}
    made = presented(backend, schema, columns)
    if batch.info is not None:
        made[batch.info] = presented_info(backend, columns[batch.info])
    if batch.bucket is not None:
        made[BUCKET] = batch.bucket
    return _masked(backend, made, batch, count, fill)


def _filled(column: Any, more: int) -> Any:
    """Return a column in storage form, or a list of samples, with copies of its first value `more` times."""
    if more <= 0:
        return column
    if isinstance(column, np.ndarray):
        return np.concatenate((column, np.repeat(column[:1], more, axis=0)))
    return [*column, *(_again(column[0]) for _ in range(more))]


def _again(value: Any) -> Any:
    try:
        return deepcopy(value)
    except TypeError:  # memory views are read-only, and cannot be copied
        return value if isinstance(value, memoryview) else copy(value)


def _from_samples(backend: ArrayBackend, batch: Batch, samples: list[Any], collate: Collate | None, fill: int) -> Any:
    """Return a batch of `samples`, which were made from `batch`."""
    if collate is None and samples and all(sample is None for sample in samples):
        hint = "does it lack a return? to leave out a sample, let it raise with on_error='skip', or give a collate_fn"
        raise UsageError("transform returned None", hint=hint)
    filled = _filled(samples, fill - len(samples))
    made = _collated(batch, filled, collate or backend.collate, empty=batch.stand_in and not fill)
    if batch.bucket is not None and collate is None and isinstance(made, MutableMapping):
        made[BUCKET] = batch.bucket
    return _masked(backend, made, batch, len(samples), fill)


def _masked(backend: ArrayBackend, made: Any, batch: Batch, count: int, fill: int) -> Any:
    """Return a batch, with the mask of its own samples if it was filled up."""
    if not fill:
        return made
    return with_mask(made, backend.array(_BOOL, np.arange(fill) < (0 if batch.stand_in else count)))


def check_empty(schema: Schema, batch: Batch, transform: Transform | None, collate: Collate) -> None:
    """Raise what `collate` raises for a single sample, or UsageError if its batches cannot be cut to 0 samples."""
    try:
        samples = list(transformed(schema, batch, transform))
    except Exception:  # the transform may need a worker's state; if not, its own batch raises this again
        return
    _collated(batch, samples, collate, empty=True)


def _collated(batch: Batch, samples: list[Any], collate: Collate, *, empty: bool) -> Any:
    try:
        return emptied(samples[0], collate) if empty else collate(samples)
    except StopIteration as error:
        raise RuntimeError("collate_fn raised StopIteration") from error
    except Exception as error:
        error.add_note(f"{_IN_COLLATE}, for {_span(batch)}")
        raise


def presented(backend: ArrayBackend, schema: Schema, columns: Columns) -> Columns:
    """Return columns in storage form as arrays [n, ...], or as lists."""
    return {column.name: backend.column(column.type, columns[column.name]) for column in schema.columns}


def presented_info(backend: ArrayBackend, fields: Any) -> dict[str, Any]:
    """Return the fields of `info_column`, int64 [n, 5], as arrays [n]."""
    return {name: backend.array(_PLAIN, values) for name, values in info_columns(np.asarray(fields)).items()}


def _samples(schema: Schema, batch: Batch) -> list[Sample]:
    samples = as_samples(present(schema, batch.columns), len(batch.positions))
    if batch.info is not None:
        for sample, record in zip(samples, info_records(batch.columns[batch.info]), strict=True):
            sample[batch.info] = record
    if batch.bucket is not None:
        for sample in samples:
            sample[BUCKET] = batch.bucket
    return samples


def transformed(schema: Schema, batch: Batch, transform: Transform | None) -> Iterator[Any]:
    """Yield a batch's samples, transformed. Exceptions of `transform` name the sample."""
    samples = _samples(schema, batch)
    if transform is None:
        yield from samples
        return
    number = 0
    try:  # around all samples: a `try` and a call for each would take as long as a small transform
        if batch.seeds is None:
            for number, sample in enumerate(samples):  # noqa: B007
                yield transform(sample)
        else:
            for number, (sample, seed) in enumerate(zip(samples, batch.seeds.tolist(), strict=True)):  # noqa: B007
                yield transform(sample, generator(seed))
    except Exception as error:
        raise _noted(error, batch, number)  # noqa: B904  it is `error` itself, or has it as its cause


def _transformed_each(schema: Schema, batch: Batch, transform: Transform | None) -> Iterator[Any]:
    """As `transformed`, with a Failure in place of each sample for which `transform` raises."""
    for number, sample in enumerate(_samples(schema, batch)):
        try:
            if transform is None:
                result: Any = sample
            elif batch.seeds is None:
                result = transform(sample)
            else:
                result = transform(sample, generator(int(batch.seeds[number])))
        except Exception as error:
            result = Failure(*_numbers(batch, number), _noted(error, batch, number))
        yield result


def failed_in_transform(error: BaseException) -> bool:
    """Return whether `transform` raised the error."""
    return any(note.startswith(_IN_TRANSFORM) for note in getattr(error, "__notes__", ()))


def failed_in_collate(error: BaseException) -> bool:
    """Return whether `collate_fn` raised the error."""
    return any(note.startswith(_IN_COLLATE) for note in getattr(error, "__notes__", ()))


def _noted(error: Exception, batch: Batch, number: int) -> Exception:
    """Return an error of `transform` with a note that names the sample. StopIteration, which would end the loop
    silently, becomes a RuntimeError."""
    if isinstance(error, StopIteration):
        stopped = RuntimeError("transform raised StopIteration")
        stopped.__cause__ = error
        error = stopped
    error.add_note(f"{_IN_TRANSFORM}, at {place_of(*_numbers(batch, number))}")
    return error


def _numbers(batch: Batch, number: int) -> tuple[int, int, int]:
    return int(batch.positions[number]), int(batch.shards[number]), int(batch.samples[number])


def _span(batch: Batch) -> str:
    if not len(batch.positions):
        return "a batch of 0 samples"
    return f"{len(batch.positions)} samples from position {batch.positions.min()} to {batch.positions.max()}"
