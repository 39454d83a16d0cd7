"""Convert existing data to a dataset: the entry point of all converters.

Before the first sample is written, the source lists its units, the columns are determined, and the plan is stored. A
rerun of the same conversion continues it, or reports that it is finished and what it skipped. If the output contains
another, unfinished conversion, the conversion is refused, unless that one has no shard yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from typing import Any, Literal

from mdsx.base.arguments import check_choice
from mdsx.base.process import Engine, Workers
from mdsx.base.progress import Progress
from mdsx.base.sizes import parse_size
from mdsx.base.warn import warn
from mdsx.errors import ChangedError, MissingError, UsageError, restated, shown
from mdsx.foreign.tars import printable
from mdsx.format import Schema, filenames
from mdsx.shards import read_index, refuse_foreign
from mdsx.storage import Storage, StorageOptions, answered, discard, open_storage, remove, remove_ours, sealed
from mdsx.transfer.converting.pipeline import PartWork, is_finished, metadata_of
from mdsx.transfer.converting.plan import ConversionPlan, encode_plan
from mdsx.transfer.converting.progress import WatchReporter
from mdsx.transfer.converting.record import Tally, keep_skips, kept_skips, stored_plan, total
from mdsx.transfer.converting.source import Request, SampleSource
from mdsx.writer import Writer, WriterOptions, join_parts
from mdsx.writer.runs import Overwriting

CONVERTERS = {
    "hf": "hugging_face",
    "jsonl": "json_lines",
    "mds": "mds_files",
    "megatron": "megatron",
    "parquet": "parquet_files",
    "tar": "tar_files",
    "tfrecord": "tfrecords",
}
"""Kind of sources -> the module with its function `open_source`, imported on first use."""

_MORE = {"dataset": "stored_datasets", "text": "text_files"}
"""Kinds of sources for calls other than `convert`."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How `convert` ended.

    Attributes:
        url: The dataset's URL.
        columns: Column name -> type.
        samples: How many samples it has.
        skipped: How many samples were left out. A damaged stretch of unknown length counts as one.
        already: Whether an earlier call had finished it.
    """

    url: str
    columns: Mapping[str, str]
    samples: int
    skipped: int
    already: bool = False


def convert(
    kind: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    url: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    rename: Mapping[str, str | Sequence[str]] | None = None,
    drop: str | Sequence[str] = (),
    on_error: Literal["raise", "skip"] = "raise",
    shard_size: int | str = "64MiB",
    compression: str | None = None,
    num_workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    storage_options: StorageOptions | None = None,
    source_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
    key_until: Literal["first-dot", "last-dot"] | None = None,
    nan: Literal["error", "null"] | None = None,
    per: Literal["document", "sequence"] | None = None,
    name: str | None = None,
    split: str | None = None,
    revision: str | None = None,
    streaming: bool = False,
    embed: bool = False,
    outside: bool = False,
) -> Conversion:
    """Convert existing data to a dataset at `url`, in the order given.

        mdsx.convert("tar", "shards-{0000..0099}.tar", "s3://bucket/pictures", on_error="skip", num_workers=8)

    After a kill, the same call continues the conversion. A large dataset is written in parts, which are merged at the
    end. Its bytes are the same for any number of processes.

    Args:
        kind: "hf", "jsonl", "mds", "megatron", "parquet", "tar" or "tfrecord"; see docs/converting.md.
        sources: Paths, globs or URLs; `{0000..0099}` names several.
        url: Where to write the dataset.
        columns: Column name -> type, instead of types inferred from the first samples.
        rename: New name -> old name of a column. For tars: column -> the extensions that become it, as a sequence or
            separated by semicolons.
        drop: Columns to leave out. For tars: extensions, or file names such as "README".
        on_error: "skip" skips invalid samples and damaged stretches, and reports each to `watch`.
        shard_size: As in `mdsx.Writer`.
        compression: As in `mdsx.Writer`.
        num_workers: How many processes convert: 1 by default; with `engine`, as many as the cluster has CPUs.
        engine: "ray" converts on a Ray cluster (docs/engines.md), and needs the extra ray of mdsx.
        overwrite: Whether to replace a finished dataset at `url`, as in `mdsx.Writer`. After a kill, the conversion
            then starts again.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        source_options: Options for the storage of the sources.
        watch: Called with an `mdsx.Progress` now and then, and for each skipped sample.
        key_until: tar: where the key ends in a member's name: "first-dot" (the default, as in WebDataset) or
            "last-dot", for keys that contain dots.
        nan: tar, jsonl: "null" reads NaN and Infinity in JSON as null; "error", the default, raises an error.
        per: megatron: what a sample is: "document" (the default) or "sequence".
        name: hf: the dataset's configuration.
        split: hf: the split to convert; optional if there is only one.
        revision: hf: a branch, tag or commit on the Hub.
        streaming: hf: whether to read the dataset from the Hub without downloading it first.
        embed: hf: whether to read files that rows name by path or URL. Do so only if you trust the dataset: it can name
            any file that you can read.
        outside: hf: whether to read data files outside the dataset's folder or repository that its README or state.json
            names, by URL or path. Do so only if you trust the dataset.

    Returns:
        The result of the conversion.

    Raises:
        MissingError: A source is missing, or has no samples.
        CorruptError: A source is damaged. The error names the file and the place.
        SampleError: A sample does not fit its columns. The error names the file and the place.
        UsageError: An argument is invalid, or `url` holds something else.
    """
    check_choice("on_error", on_error, "raise", "skip")
    if columns:
        Schema.from_columns(columns)
    workers = Workers.of(num_workers, engine)
    own: dict[str, Any] = {
        "key_until": key_until,
        "nan": nan,
        "per": per,
        "name": name,
        "split": split,
        "revision": revision,
    }
    own |= {"streaming": streaming or None, "embed": embed or None, "outside": outside or None}
    if kind not in CONVERTERS:
        raise UsageError("there is no such kind of source", found=shown(kind), expected=", ".join(CONVERTERS))
    storage = open_output(url, storage_options)
    request = Request(
        [os.fspath(source) for source in ([sources] if isinstance(sources, str | os.PathLike) else sources)],
        dict(columns or {}),
        dict(rename or {}),
        drop.split(";") if isinstance(drop, str) else list(drop),
        on_error == "skip",
        source_options,
        out=storage.url,
    )
    return convert_source(
        open_source(kind, request, own),
        storage,
        on_error=on_error,
        shard_size=shard_size,
        compression=compression,
        workers=workers,
        storage_options=storage_options,
        watch=watch,
        overwrite=overwrite,
    )


def open_source(kind: str, request: Request, own: Mapping[str, Any]) -> SampleSource:
    """Return the source of a request. `own`: options that only some kinds have; None if not given.

    Raise UsageError for an option that this kind does not have, and the errors of the source.
    """
    module = import_module(f"mdsx.transfer.converting.{(CONVERTERS | _MORE)[kind]}")
    opener: Callable[..., SampleSource] = module.open_source
    options = {option: value for option, value in own.items() if value is not None}
    known = [option for option, each in signature(opener).parameters.items() if each.kind is each.KEYWORD_ONLY]
    if unknown := sorted(options.keys() - set(known)):
        expected = ", ".join(known) or "none"
        raise UsageError(f"converting {kind} has no such option", found=unknown[0], expected=expected)
    return opener(request, **options)


def convert_source(
    source: SampleSource,
    storage: Storage,
    *,
    on_error: Literal["raise", "skip"],
    shard_size: int | str,
    compression: str | None,
    workers: Workers,
    storage_options: StorageOptions | None,
    watch: Callable[[Progress], object],
    parts: int | None = None,
    overwrite: bool = False,
) -> Conversion:
    """Convert `source` to the dataset in `storage`, in `parts` parts; see `convert`."""
    size = parse_size(shard_size, name="shard_size")
    WriterOptions.parse(
        {"x": "str"}, size, compression
    )  # raise the writer's errors now, before anything is read or written
    columns, warnings = source.columns()
    for warning in warnings:
        warn(warning)
    try:
        Schema.from_columns(columns)
    except UsageError as error:
        hint = error.hint or "--rename gives it another name; --drop leaves it out"
        raise restated(error, file=source.files[0].url, hint=hint) from None
    plan = ConversionPlan.of(
        source, storage.url, columns, shard_size=size, compression=compression, on_error=on_error, parts=parts
    )
    if is_finished(plan.out, storage_options):
        if overwrite:
            return _overwrite(source, storage, plan, workers, storage_options, watch)
        return _finished_before(storage, plan, storage_options, WatchReporter(plan, watch, len(source.amounts)))
    plan = _continued(storage, plan)
    reporter = WatchReporter(plan, watch, len(source.amounts))
    reporter.report()
    discard(storage, filenames.CONVERT_FOLDER)
    remove(storage, filenames.CONVERT_SKIPPED)  # left from an earlier dataset that was removed
    storage.put(filenames.CONVERT_PLAN, encode_plan(plan))
    tally = total(_convert_parts(source, plan, workers, storage_options, reporter))
    keep_skips(storage, tally)
    if plan.parts > 1:
        join_parts(storage, plan.parts, None, overwrite=False)
    _remove_plan(storage)
    return Conversion(storage.url, plan.columns, tally.samples, tally.skipped)


def _convert_parts(
    source: SampleSource,
    plan: ConversionPlan,
    workers: Workers,
    options: StorageOptions | None,
    reporter: WatchReporter,
) -> list[Tally]:
    """Convert all parts. Return the tally of each."""
    codecs = Schema.from_columns(plan.columns).codecs
    work = PartWork(plan, source, sealed(options), answered(), codecs)
    paths = [plan.out, *(file.url for file in plan.files[:1])]
    return workers.map(work, range(plan.parts), reporter, name="mdsx-convert", paths=paths)


def _overwrite(
    source: SampleSource,
    storage: Storage,
    plan: ConversionPlan,
    workers: Workers,
    options: StorageOptions | None,
    watch: Callable[[Progress], object],
) -> Conversion:
    """Replace the dataset in `storage`. After a kill, this starts again."""
    run = Overwriting.begin(
        plan.out,
        plan.columns,
        shard_size=plan.shard_size,
        compression=plan.compression,
        metadata=metadata_of(plan, source),
        storage_options=options,
    )
    if run is None:
        raise ChangedError("the dataset to overwrite was removed meanwhile", file=storage.url, hint="try again")
    try:
        plan = replace(plan, run=run.run)
        reporter = WatchReporter(plan, watch, len(source.amounts))
        reporter.report()
        tallies = _convert_parts(source, plan, workers, options, reporter)
        for part in range(plan.parts):
            remove(storage, filenames.within(filenames.run_part(run.run, part), filenames.convert_record(part)))
        run.commit(run.done(part, tally.samples) for part, tally in enumerate(tallies))
    finally:
        run.abort()  # unless it is complete
    tally = total(tallies)
    keep_skips(storage, tally)
    return Conversion(storage.url, plan.columns, tally.samples, tally.skipped)


def open_output(url: str | os.PathLike[str], storage_options: StorageOptions | None) -> Storage:
    """Return the storage at `url` for a new dataset. Raise UsageError if something else is there."""
    storage = open_storage(url, storage_options, write=True)
    path = storage.path(filenames.INDEX)
    if storage.url.encode(errors="ignore").decode() != storage.url:
        raise UsageError("the output's name is not UTF-8", file=printable(storage.url))
    no_folder = path is not None and os.path.exists(path.parent) and not path.parent.is_dir()
    if storage.url.endswith((".tar", ".tgz", ".tar.gz", ".tar.zst")) or no_folder:
        hint = "give the output's URL last, after the sources"
        raise UsageError("the output has the name of a file, such as a tar", file=storage.url, hint=hint)
    refuse_foreign(storage, "there is a dataset of another format already", hint="give another output")
    return storage


def _finished_before(
    storage: Storage, plan: ConversionPlan, options: StorageOptions | None, reporter: WatchReporter
) -> Conversion:
    index = read_index(storage)
    converted = index.metadata.get("converted")
    if not isinstance(converted, dict) or converted.get("digest") != plan.digest:
        hint = "give another output, or replace it: overwrite=True (--overwrite)"
        raise UsageError("already holds a dataset that this conversion did not write", file=storage.url, hint=hint)
    size, compression = plan.shard_size, plan.compression
    Writer(plan.out, plan.columns, shard_size=size, compression=compression, resume=True, storage_options=options)
    tally = kept_skips(storage)  # the writer has removed the leftovers of a killed one
    keep_skips(storage, tally)
    _remove_plan(storage)
    reporter.finished_before(index.samples, [skip.error() for skip in tally.skips])
    return Conversion(storage.url, plan.columns, index.samples, tally.skipped, already=True)


def _continued(storage: Storage, plan: ConversionPlan) -> ConversionPlan:
    """Return `plan` with the number of parts of an earlier run that it continues.

    Raise UsageError if another conversion, or a writer, has begun a dataset there: its samples would be taken for ours.
    """
    try:
        begun = stored_plan(storage)
    except MissingError:
        _refuse_others(storage, several=plan.parts > 1)
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
            hint="finish that one with its own command, remove it, or give another output",
        )
    prefixes = (filenames.WRITER_FOLDER, filenames.PARTS, filenames.CONVERT_FOLDER)
    found = [entry for prefix in prefixes for entry in storage.list(prefix)]
    remove_ours(storage, [entry for entry in found if filenames.work_folder(entry.key)])
    return plan


def _refuse_others(storage: Storage, *, several: bool) -> None:
    """`several`: whether the conversion writes parts."""
    for prefix in (filenames.SHARDS, filenames.WRITER_FOLDER, *([filenames.PARTS] if several else [])):
        for key in (entry.key for entry in storage.list(prefix)):
            if filenames.is_shard(key) or filenames.work_folder(key):
                message = "holds a dataset, or parts of one, that another program has begun"
                hint = "finish it with that program, remove it, or give another output"
                raise UsageError(message, file=storage.url, found=key, hint=hint)


def _remove_plan(storage: Storage) -> None:
    """Remove files needed only until the dataset is finished, and leftovers of attempts that died with their nodes."""
    discard(storage, filenames.CONVERT_FOLDER, filenames.PARTS)
    remove_ours(storage, list(storage.list(filenames.CONVERT_FOLDER)), but=[filenames.CONVERT_SKIPPED])
