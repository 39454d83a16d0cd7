"""Repair a dataset: write a correct index of undamaged shards.

Rules:
- No file of the dataset is changed, truncated or deleted, except that the index is replaced. The undamaged samples of a
  damaged shard are written to a new file next to it, whose name begins with `repaired.`. No file is overwritten.
- Nothing is dropped without permission: if anything would be dropped, nothing is written.
- A sample is undamaged if its checksum matches with the row key from the index or, without an index, the shard's own.
  So a sample of another shard is never accepted.
- New shards are written first, then a copy of the old index, then the new index, atomically. So a reader sees the old
  state or the new one. The next repair uses the shards that an interrupted one wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import xxhash

from mdsx.base.arguments import check_count
from mdsx.base.progress import Progress
from mdsx.checks.damage.catalog import Catalog, Place, Schemas, original, read_catalog
from mdsx.checks.damage.examine import Examined, examine, examine_alone, in_order
from mdsx.checks.damage.report import Repair
from mdsx.errors import ChangedError, CorruptError, MissingError, UnsupportedError, UsageError
from mdsx.format import Schema, ShardEntry, build_index, compress, filenames, header_row_key, is_name, parse_index
from mdsx.shards import stored_sum
from mdsx.storage import Storage, StorageOptions, discard, file_of, get_or_none, open_storage

_SHOWN = 20  # problems of a shard, kinds of columns


def repair(
    url: str | os.PathLike[str],
    *,
    drop_damaged: bool = False,
    dry_run: bool = False,
    num_threads: int = 4,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> Repair:
    """Repair the dataset at `url`, and report what was found and done. An undamaged dataset is not changed.

        done = mdsx.repair("s3://bucket/corpus", drop_damaged=True)

    All shards are read and checked. A missing or damaged index is rebuilt from them. A damaged shard is replaced with a
    new one that has its undamaged samples. No shard is changed or removed.

    Args:
        url: A dataset.
        drop_damaged: Whether damaged samples may be dropped. Without it, nothing is written if samples would be lost,
            or data that only a damaged index contained.
        dry_run: Only report what would be done.
        num_threads: How many shards to check at once; each is held in memory.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` after each shard.

    Raises:
        UsageError: The dataset is unfinished or of another format, or its shards do not belong together.
        MissingError: There is no dataset.
        CorruptError: No sample is undamaged.
    """
    check_count("num_threads", num_threads)
    storage = open_storage(url, storage_options, write=True)
    survey = _survey(storage, read_catalog(storage), num_threads, watch)
    plan = _plan(storage, survey)
    if not plan.needed or dry_run or (plan.drops and not drop_damaged):
        return plan
    return _write(storage, survey, plan, num_threads)


@dataclass(slots=True)
class _Survey:
    """The state of the shards. Entries of undamaged shards are kept only if the index lacks them."""

    catalog: Catalog
    schemas: Schemas
    alone: dict[int, ShardEntry] = field(default_factory=dict)
    """Entries of undamaged shards that no index names."""
    damaged: dict[int, Examined] = field(default_factory=dict)
    """The damaged shards."""
    samples: int = 0
    """How many samples are undamaged."""

    def entries(self, replaced: dict[int, ShardEntry]) -> list[ShardEntry]:
        """Return the shards of the new index, in order, with damaged ones `replaced`."""
        found = (
            replaced.get(number) if number in self.damaged else self.alone.get(number, place.entry)
            for number, place in enumerate(self.catalog.places)
        )
        return [entry for entry in found if entry is not None]

    @property
    def schema(self) -> Schema:
        return next(iter(self.schemas))[0]


def _survey(storage: Storage, catalog: Catalog, num_threads: int, watch: Callable[[Progress], object]) -> _Survey:
    """Read and check every shard."""
    places, survey, size = catalog.places, _Survey(catalog, {**catalog.schemas}), 0
    of_size = sum(_size(place) for place in places)
    firsts: list[int | None] = [0]
    for place in places:
        first = firsts[-1]
        firsts.append(None if first is None or place.entry is None else first + place.entry.samples)
    first = 0 if len(places) else None
    for number, examined in enumerate(
        in_order(lambda number: _examine(storage, places[number], firsts[number]), range(len(places)), num_threads)
    ):
        report, layout = examined.report, examined.layout
        if report.problems:
            report = replace(report, problems=report.problems[:_SHOWN], first=first)
            survey.damaged[number] = replace(examined, report=report)
        elif places[number].entry is None and examined.entry is not None:
            survey.alone[number] = examined.entry
        if layout is not None:
            survey.schemas.setdefault((layout.schema, layout.rows_offset), examined.name)
        first = None if first is None or layout is None else first + layout.samples
        survey.samples, size = survey.samples + report.kept, size + _size(places[number])
        watch(Progress(survey.samples, size, of_size, number + 1, len(places)))
    _check(storage.url, survey)
    return survey


def _examine(storage: Storage, place: Place, first: int | None, *, keep: bool = False) -> Examined:
    """Examine the shard that an index names. Without one, examine its first undamaged file, or the least damaged."""
    if place.source is not None:
        return examine(storage, place.source, place.shard, place.name, first=first, keep=keep)
    best: Examined | None = None
    for stored in place.files:
        examined = examine_alone(storage, stored, keep=keep)
        if not examined.report.problems:
            return examined
        if best is None or examined.report.kept > best.report.kept:
            best = examined
    missing = MissingError("the shard is not there", file=file_of(storage, place.name))
    return best or Examined.of(storage, place.name, [missing])


def _check(url: str, survey: _Survey) -> None:
    """Raise UsageError if the shards do not belong together, CorruptError if no sample is undamaged."""
    if len(survey.schemas) > 1:
        kinds = list(survey.schemas.items())[:_SHOWN]
        found = "; ".join(f"{name}: {schema.json.decode()[:200]}" for (schema, _), name in kinds)
        hint = "move away the shards that do not belong to the dataset"
        raise UsageError("the shards have different columns", file=url, found=found, hint=hint)
    for schema, rows_offset in survey.schemas:
        if rows_offset != schema.rows_offset:
            message = "the shards were written by a later minor version, with a larger header"
            raise UnsupportedError(
                message, file=url, place="offset of the rows", found=rows_offset, hint="upgrade mdsx"
            )
    if survey.damaged and not survey.samples:
        problem = next(iter(survey.damaged.values())).report.problems[0]
        raise CorruptError(f"no sample of the dataset is undamaged: {problem}", file=url, hint="write it again")


def _plan(storage: Storage, survey: _Survey) -> Repair:
    """Report what would be done."""
    catalog = survey.catalog
    damaged = [examined.report for examined in survey.damaged.values()]
    proven = _original(survey) is not None
    if isinstance(catalog.error, UnsupportedError) and not proven:
        raise catalog.error
    dropped = sum(not report.kept for report in damaged)
    return Repair(
        url=storage.url,
        index=catalog.state,
        index_error=catalog.error,
        proven=proven,
        samples=survey.samples,
        shards=len(catalog.places) - dropped,
        damaged=damaged,
        was=None if catalog.parsed is None else catalog.parsed.fingerprint,
    )


def _original(survey: _Survey) -> bytes | None:
    """Return the index from before the damage, if the shards prove it."""
    catalog = survey.catalog
    if catalog.state != "damaged" or catalog.data is None or survey.damaged:
        return None
    return original(catalog.data, survey.schema, catalog.compression, survey.entries({}), catalog.metadata)


def _write(storage: Storage, survey: _Survey, plan: Repair, num_threads: int) -> Repair:
    """Write the repair, and report what was done."""
    catalog, replaced = survey.catalog, dict[int, ShardEntry]()
    numbers = [number for number, examined in survey.damaged.items() if examined.report.kept]
    for number, entry in zip(
        numbers, in_order(lambda number: _replace(storage, survey, number), numbers, num_threads), strict=True
    ):
        replaced[number] = entry
    data = _original(survey)
    if data is None:
        data = _built(storage, survey, survey.entries(replaced))
    old_index = _put_index(storage, catalog.data, data)
    damaged = []
    for number, examined in survey.damaged.items():
        new = replaced.get(number)
        damaged.append(replace(examined.report, replacement=None if new is None else file_of(storage, new.name)))
    made = parse_index(data).fingerprint
    return replace(plan, damaged=damaged, written=True, old_index=old_index, fingerprint=made)


def _built(storage: Storage, survey: _Survey, entries: list[ShardEntry]) -> bytes:
    """Return the index of the shards `entries`, with sums of lengths for the same columns as before."""
    catalog, sums = survey.catalog, dict[str, int]()
    metadata = catalog.metadata[0] if catalog.metadata else None
    data = build_index(survey.schema, catalog.compression, entries, metadata)
    for column in catalog.lengths:
        found = stored_sum(storage, parse_index(data), column, range(len(entries)))
        if found is not None:
            sums[column] = found
    return build_index(survey.schema, catalog.compression, entries, metadata, sums) if sums else data


def _replace(storage: Storage, survey: _Survey, number: int) -> ShardEntry:
    """Read a damaged shard again, and write its undamaged samples to a new file."""
    examined = survey.damaged[number]
    again = _examine(storage, survey.catalog.places[number], examined.report.first, keep=True)
    if (again.name, again.report.lost) != (examined.name, examined.report.lost) or again.rebuilt is None:
        message, hint = "the shard changed while it was read", "run the repair again"
        raise ChangedError(message, file=file_of(storage, examined.name), hint=hint)
    raw = again.rebuilt
    stored = raw if survey.catalog.compression is None else memoryview(compress(raw))
    name = _put_beside(storage, examined.name, stored)
    hashes = xxhash.xxh3_128_hexdigest(stored), xxhash.xxh3_128_hexdigest(raw)
    return ShardEntry(name, examined.report.kept, header_row_key(raw), len(stored), hashes[0], len(raw), hashes[1])


def _put_beside(storage: Storage, name: str, stored: memoryview) -> str:
    """Store a new shard next to `name`, under a name that is free or has the same bytes already. Return this name."""
    number = 1
    while True:
        new = filenames.repaired(name, number)
        if not is_name(new):
            raise UsageError("the name is too long to add `repaired.` to it", file=file_of(storage, name))
        there = next((entry for entry in storage.list(new) if entry.key == new), None)
        if there is None:
            discard(storage, new, own=new.__eq__)
            storage.put(new, stored)
            return new
        if there.size == len(stored):
            found = xxhash.xxh3_128()
            storage.download(new, found.update, size=there.size)
            if found.digest() == xxhash.xxh3_128_digest(stored):
                return new
        number += 1


def _put_index(storage: Storage, old: bytes | None, new: bytes) -> str | None:
    """Replace the `old` index, and keep a copy of it. Return the name of the copy."""
    there = get_or_none(storage, filenames.INDEX)
    if (None if there is None else there.data) != old:
        message, hint = "the index was replaced while the shards were read", "run the repair again"
        raise ChangedError(message, file=file_of(storage, filenames.INDEX), hint=hint)
    discard(storage, filenames.INDEX)
    if there is None:
        storage.create(filenames.INDEX, new)
        return None
    # the copy's name has a hash of its content, so that it overwrites no other copy
    copy = filenames.replaced_index(xxhash.xxh3_64_hexdigest(there.data))
    discard(storage, copy)
    storage.put(copy, there.data)
    storage.replace(filenames.INDEX, new, etag=there.etag)
    return file_of(storage, copy)


def _size(place: Place) -> int:
    return place.entry.size if place.entry is not None else sum(file.size for file in place.files[:1])
