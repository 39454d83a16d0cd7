"""Convert WebDataset tars to a dataset: the entry point of the converter.

The sources are found, the columns determined and the plan stored before the first sample is written. A rerun of the
same conversion continues it, or reports that it is finished and what it skipped. A conversion to an output that holds
another, unfinished one is refused, unless that has no shard yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Unpack

from mdsx.convert.columns import check_declared, find_columns
from mdsx.convert.parts import Access, convert_parts, is_finished
from mdsx.convert.record import Plan, decode_plan, encode_plan, keep_skips, kept_skips, parts_for, total
from mdsx.convert.sources import find_sources
from mdsx.convert.tar_blocks import printable
from mdsx.convert.webdataset import KEY, MemberNames, Names
from mdsx.errors import MdsxError, MissingError, UsageError, shown
from mdsx.format import filenames
from mdsx.progress import Progress
from mdsx.shards import read_index, refuse_foreign
from mdsx.sizes import parse_size
from mdsx.storage import Storage, StorageOptions, open_storage
from mdsx.warn import warn
from mdsx.writer import Options, merge


@dataclass(frozen=True, slots=True)
class Conversion:
    """How `convert_tars` ended.

    Attributes:
        url: Where the dataset is.
        columns: Column name -> type.
        samples: How many samples it has.
        skipped: How many errors were skipped.
        already: Whether an earlier call finished it.
    """

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
    storage_options: StorageOptions | None = None,
    source_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
    **member_names: Unpack[MemberNames],
) -> Conversion:
    """Convert WebDataset tars to a dataset at `url`, in the order given.

        mdsx.convert_tars("shards-{0000..0099}.tar", "s3://bucket/pictures", on_error="skip", processes=8)

    After a kill, the same call continues the conversion. With several processes, each writes parts, which are merged at
    the end.

    Args:
        sources: Paths, globs or URLs of tars, plain, gzip or zstd; `{0000..0099}` names several.
        url: Where to write the dataset.
        columns: Column name -> type, instead of what is inferred from the first samples. Names are lower-case
            extensions, or those that `rename` gives.
        nan: "null" reads NaN and Infinity in JSON as null; "error" raises an error.
        on_error: "skip" skips invalid samples and the damaged places of a tar, and reports each to `watch`.
        shard_size: As in `mdsx.Writer`.
        compression: As in `mdsx.Writer`.
        processes: How many processes convert.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.
        source_options: The same for the tars.
        watch: Called with an `mdsx.Progress` now and then, and for each skipped sample.
        member_names: How the names of members are read; see `mdsx.MemberNames`.

    Returns:
        How the conversion ended.

    Raises:
        MissingError: A tar is missing, or has no samples.
        CorruptError: A tar is damaged. The error names tar, member and offset.
        SampleError: A sample does not fit its columns. The error names tar, member and offset.
        UsageError: An argument is invalid, or `url` holds something else.
    """
    sources = [sources] if isinstance(sources, str) else sources
    if processes < 1:
        raise UsageError("processes must be at least 1", found=processes)
    for option, value, choices in (("nan", nan, ("error", "null")), ("on_error", on_error, ("raise", "skip"))):
        if value not in choices:
            raise UsageError(f"{option} is unknown", found=shown(value), expected=" or ".join(choices))
    names, declared = Names.parse(**member_names), check_declared(columns or {})
    names.check_declared(declared)
    size = parse_size(shard_size, name="shard_size")
    Options.parse({KEY: "str"}, size, compression)  # raise the writer's errors now, before anything is written
    access = Access(storage_options, source_options)
    storage = _open_output(url, storage_options)
    found = find_sources(sources, source_options)
    known, warnings = find_columns(found, declared, names, source_options, skip=on_error == "skip")
    for warning in warnings:
        warn(warning)
    parts = parts_for(len(found), processes)
    plan = Plan(storage.url, tuple(found), known, size, compression, names, nan, on_error, parts)
    if is_finished(plan.out, storage_options):
        return _finished_before(storage, plan, watch)
    plan = _continued(storage, plan)
    reporter = WatchReporter(plan, watch)
    reporter.advance(0, 0)
    storage.delete(filenames.CONVERT_SKIPPED)  # from an earlier dataset that was removed
    storage.put(filenames.CONVERT_PLAN, encode_plan(plan))
    tally = total(convert_parts(plan, processes, reporter, access))
    keep_skips(storage, tally)
    if plan.parts > 1:
        merge(plan.out, storage_options=storage_options)
    _remove_plan(storage)
    return Conversion(storage.url, plan.columns, tally.samples, tally.skipped)


def _open_output(url: str | os.PathLike[str], storage_options: StorageOptions | None) -> Storage:
    storage = open_storage(url, storage_options, write=True)
    path = storage.path(filenames.INDEX)
    if storage.url.encode(errors="ignore").decode() != storage.url:
        raise UsageError("the output's name is not UTF-8", file=printable(storage.url))
    no_folder = path is not None and path.parent.exists() and not path.parent.is_dir()
    if storage.url.endswith((".tar", ".tgz", ".tar.gz", ".tar.zst")) or no_folder:
        raise UsageError("the output would be a tar or another file", file=storage.url, hint="name the output last")
    refuse_foreign(storage, "there is a dataset of another format already", hint="give another output")
    return storage


def _finished_before(storage: Storage, plan: Plan, watch: Callable[[Progress], object]) -> Conversion:
    index = read_index(storage)
    converted = index.metadata.get("converted")
    if not isinstance(converted, dict) or converted.get("digest") != plan.digest:
        hint = "give another output"
        raise UsageError("already holds a dataset, and not one of this conversion", file=storage.url, hint=hint)
    tally = kept_skips(storage)
    keep_skips(storage, tally)
    _remove_plan(storage)
    WatchReporter(plan, watch).finished_before(index.samples, [skip.error() for skip in tally.skips])
    return Conversion(storage.url, plan.columns, index.samples, tally.skipped, already=True)


def _continued(storage: Storage, plan: Plan) -> Plan:
    """Return `plan` with the number of parts that an earlier run began with."""
    try:
        begun = decode_plan(storage.get(filenames.CONVERT_PLAN).data, file=f"{storage.url}/{filenames.CONVERT_PLAN}")
    except MissingError:
        return plan
    difference = begun.difference(plan)
    if difference is None and begun.on_error == "skip" and plan.on_error != "skip":
        difference = "without --on-error skip"
    if difference is None:
        return replace(plan, parts=begun.parts)
    written = (filenames.SHARDS, filenames.PARTS)
    if any(filenames.is_shard(entry.key) for prefix in written for entry in storage.list(prefix)):
        raise UsageError(
            f"holds an unfinished conversion; this would be another: {difference}",
            file=storage.url,
            hint="finish that one with its own command, remove what is there, or give another output",
        )
    prefixes = (filenames.WRITER_FOLDER, filenames.PARTS, filenames.CONVERT_FOLDER)
    for entry in [entry for prefix in prefixes for entry in storage.list(prefix)]:
        if filenames.work_folder(entry.key):
            storage.delete(entry.key)
    return plan


def _remove_plan(storage: Storage) -> None:
    """Remove files needed only until the dataset is finished."""
    for entry in list(storage.list(filenames.CONVERT_FOLDER)):
        if entry.key != filenames.CONVERT_SKIPPED:
            storage.delete(entry.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionProgress(Progress):
    """The progress of converting `tars` tars to a dataset at `url`, in `parts` parts, with these `columns`."""

    url: str
    columns: Mapping[str, str]
    tars: int
    parts: int


class WatchReporter:
    """Adds up the reports, and passes the sums to `watch`."""

    def __init__(self, plan: Plan, watch: Callable[[Progress], object]) -> None:
        self._plan, self._watch = plan, watch
        self._size = self._samples = 0

    def advance(self, size: int, samples: int) -> None:
        self._size += size
        self._samples += samples
        self._report()

    def skip(self, error: MdsxError) -> None:
        self._report(error)

    def finished_before(self, samples: int, problems: list[MdsxError]) -> None:
        """Report that there is nothing to do."""
        self._size, self._samples = self._plan.source_bytes, samples
        self._report(*problems)

    def _report(self, *problems: MdsxError) -> None:
        plan = self._plan
        self._watch(
            ConversionProgress(
                self._samples,
                self._size,
                plan.source_bytes,
                problems=problems,
                url=plan.out,
                columns=plan.columns,
                tars=len(plan.sources),
                parts=plan.parts,
            )
        )
