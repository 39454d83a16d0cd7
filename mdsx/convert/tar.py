"""WebDataset tars -> one dataset: the converter's door.

Sources are found, columns known and the plan written down before the first sample is. A rerun of the same conversion
continues it, or says that it is finished, and what it skipped; another one onto an unfinished output is refused,
unless there is no shard yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Unpack

from mdsx.convert.columns import check_declared
from mdsx.convert.look import look_at
from mdsx.convert.names import KEY, MemberNames, Names
from mdsx.convert.part import Ledger, is_finished
from mdsx.convert.plan import Plan, decode_plan, encode_plan, parts_for
from mdsx.convert.processes import convert_parts
from mdsx.convert.skips import Tally, decode_tallies, encode_tallies, total
from mdsx.convert.sources import find_sources
from mdsx.convert.tape import printable
from mdsx.convert.watcher import Watcher
from mdsx.errors import MissingError, UsageError, shown
from mdsx.format import filenames
from mdsx.progress import Progress
from mdsx.shards import read_index
from mdsx.sizes import parse_size
from mdsx.storage import Storage, open_storage
from mdsx.writer import merge
from mdsx.writer.folder import Options


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a conversion ended. `skipped` counts what was left out; `already` means that it was finished before."""

    url: str
    columns: Mapping[str, str]
    samples: int
    skipped: int
    already: bool = False


def convert_tars(
    sources: str | Sequence[str],
    url: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    nan: Literal["error", "null"] = "error",
    on_error: Literal["raise", "skip"] = "raise",
    shard_size: int | str = "64MiB",
    compression: str | None = None,
    processes: int = 1,
    connect_timeout: float | None = None,
    watch: Callable[[Progress], object] | None = None,
    **member_names: Unpack[MemberNames],
) -> Conversion:
    """Convert the tars that `sources` name (paths, URLs, braces, globs), in that order, to a dataset at `out`.

    The names of members are read with `key_until` "first-dot" or "last-dot": the key ends there. `rename` maps a column
    to the extensions that become it (`{"image": ["jpg", "png"]}`, or `"jpg;png"`); `drop` names extensions or files to
    leave out. `columns` (name -> type) overrides what is inferred from the first samples; names are lower-case
    extensions, or those that `rename` gives. `nan="null"` reads NaN and Infinity in JSON as null.

    `on_error="skip"` leaves out samples that are not sound, and what a damaged tar lost, and tells the `watcher` of
    each; a later call that finds the dataset finished does so again. With `processes` above 1 and several tars, the
    dataset is written in parts and merged. `connect_timeout`: as for `mdsx.Dataset`.

    Raises MissingError, CorruptError or SampleError that name tar, member and offset; no index is written then. Warns
    where the names seem to be meant otherwise: of a single sample, or of more than 50 inferred columns.
    """
    watcher = watch if isinstance(watch, Watcher) else Watcher(watch)
    sources = [sources] if isinstance(sources, str) else sources
    if processes < 1:
        raise UsageError("processes must be at least 1", found=processes)
    for option, value, choices in (("nan", nan, ("error", "null")), ("on_error", on_error, ("raise", "skip"))):
        if value not in choices:
            raise UsageError(f"{option} is unknown", found=shown(value), expected=" or ".join(choices))
    names, declared = Names.parse(**member_names), check_declared(columns or {})
    names.check_declared(declared)
    size = parse_size(shard_size, name="shard_size")
    Options.parse({KEY: "str"}, size, compression)  # refuses what the writer would, but before anything is written
    storage = _open_output(url, connect_timeout)
    found = find_sources(sources, connect_timeout=connect_timeout)
    look = look_at(found, declared, names, skip=on_error == "skip")
    for warning in look.warnings:
        watcher.warned(warning)
    parts = parts_for(len(found), processes)
    plan = Plan(storage.url, tuple(found), look.columns, size, compression, names, nan, on_error, parts)
    if is_finished(plan.out, connect_timeout):
        return _finished_before(storage, plan, watcher)
    plan = _continued(storage, plan)
    watcher.planned(plan)
    storage.delete(filenames.CONVERT_SKIPPED)  # of an output whose dataset was removed
    storage.put(filenames.CONVERT_PLAN, encode_plan(plan))
    tally = total(convert_parts(plan, processes, watcher))
    _keep_skips(storage, tally)
    if plan.parts > 1:
        merge(plan.out)
    _forget(storage)
    return Conversion(storage.url, plan.columns, tally.samples, tally.skipped)


def _open_output(url: str | os.PathLike[str], connect_timeout: float | None) -> Storage:
    storage = open_storage(url, connect_timeout=connect_timeout)
    path = storage.path(filenames.INDEX)
    if storage.url.encode(errors="ignore").decode() != storage.url:
        raise UsageError("the output's name is not UTF-8", file=printable(storage.url))
    no_folder = path is not None and path.parent.exists() and not path.parent.is_dir()
    if storage.url.endswith((".tar", ".tgz", ".tar.gz", ".tar.zst")) or no_folder:
        raise UsageError("the output would be a tar or another file", file=storage.url, hint="it is named last")
    return storage


def _finished_before(storage: Storage, plan: Plan, watcher: Watcher) -> Conversion:
    index = read_index(storage)
    converted = index.metadata.get("converted")
    if not isinstance(converted, dict) or converted.get("digest") != plan.digest:
        hint = "give another output"
        raise UsageError("holds a dataset already, and not one of this conversion", file=storage.url, hint=hint)
    tally = _kept_skips(storage)
    _keep_skips(storage, tally)
    _forget(storage)
    for skip in tally.skips:
        watcher.skipped(skip.error())
    return Conversion(storage.url, plan.columns, index.samples, tally.skipped, already=True)


def _keep_skips(storage: Storage, tally: Tally) -> None:
    if tally.skipped:
        storage.put(filenames.CONVERT_SKIPPED, encode_tallies([tally]))


def _kept_skips(storage: Storage) -> Tally:
    """What a conversion that wrote its index skipped, also where it was killed just after that."""
    kept = {entry.key for entry in storage.list(filenames.CONVERT_FOLDER)}
    if filenames.CONVERT_SKIPPED in kept:
        return total(
            decode_tallies(
                storage.get(filenames.CONVERT_SKIPPED).data, file=f"{storage.url}/{filenames.CONVERT_SKIPPED}"
            )
        )
    if filenames.CONVERT_PLAN not in kept:
        return Tally()
    begun = decode_plan(storage.get(filenames.CONVERT_PLAN).data, file=f"{storage.url}/{filenames.CONVERT_PLAN}")
    return total(Ledger(begun.out, part).total(len(begun.sources)) for part in range(begun.parts))


def _continued(storage: Storage, plan: Plan) -> Plan:
    """`plan`, in the parts in which an earlier run began it."""
    try:
        begun = decode_plan(storage.get(filenames.CONVERT_PLAN).data, file=f"{storage.url}/{filenames.CONVERT_PLAN}")
    except MissingError:
        return plan
    difference = begun.difference(plan)
    if difference is None and begun.on_error == "skip" and plan.on_error != "skip":
        difference = "without --on-error skip"
    if difference is None:
        return replace(plan, parts=begun.parts)
    if any(
        filenames.is_shard(entry.key)
        for prefix in (filenames.SHARDS, filenames.PARTS)
        for entry in storage.list(prefix)
    ):
        raise UsageError(
            f"holds an unfinished conversion; this would be another: {difference}",
            file=storage.url,
            hint="finish that one by its own command, remove what is there, or give another output",
        )
    prefixes = (filenames.WRITER_FOLDER, filenames.PARTS, filenames.CONVERT_FOLDER)
    for entry in [entry for prefix in prefixes for entry in storage.list(prefix)]:
        if filenames.work_folder(entry.key):
            storage.delete(entry.key)
    return plan


def _forget(storage: Storage) -> None:
    """Remove what is of use only until the dataset is finished."""
    for entry in list(storage.list(filenames.CONVERT_FOLDER)):
        if entry.key != filenames.CONVERT_SKIPPED:
            storage.delete(entry.key)
