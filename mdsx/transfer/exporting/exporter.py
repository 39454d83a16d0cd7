"""Export a dataset to files of another kind: the entry point.

One process makes each file in memory and stores it when it is complete. A rerun makes the missing files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from mdsx.base.arguments import check_choice, check_count
from mdsx.base.cached import cached_property
from mdsx.base.process import Engine, Report, Workers
from mdsx.base.progress import Progress, Totals
from mdsx.base.sizes import parse_size
from mdsx.datasets import Dataset, excerpt_of
from mdsx.errors import CorruptError, MdsxError, UsageError, shown
from mdsx.foreign.tars import Names
from mdsx.shards import Cast, ColumnChoice, View, scan, stored_columns
from mdsx.storage import Storage, StorageOptions, answered, believe, open_storage
from mdsx.transfer.exporting.json_lines import JsonLines, Nan
from mdsx.transfer.exporting.kinds import ExportKind
from mdsx.transfer.exporting.parquet_files import Parquets, arrow_schema_of
from mdsx.transfer.exporting.record import ExportRecord, begin, cut, finish, make_record, withdraw
from mdsx.transfer.exporting.replacing import Replacing
from mdsx.transfer.exporting.tar_files import Tars

_RUN = 2**14  # samples read at once; fewer if they are large
_KINDS = ("tar", "parquet", "jsonl")
_FILES = re.compile(r".*\.(tar|parquet|jsonl)(\.\w+)?")


@dataclass(frozen=True, slots=True)
class Export:
    """How `export` ended.

    Attributes:
        url: The folder of the files.
        files: Name -> number of samples, in order.
        columns: Name in the files -> the column's type in the dataset.
        forms: Name in the files -> how values are written, in a few words; for Parquet, their Arrow type.
        samples: How many samples the files have.
        already: Whether an earlier call had finished it.
    """

    url: str
    files: Mapping[str, int]
    columns: Mapping[str, str]
    forms: Mapping[str, str]
    samples: int
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportProgress(Progress):
    """The progress of an export to `files` files at `url`; `columns` and `forms` as in `mdsx.Export`."""

    url: str
    files: int
    columns: Mapping[str, str]
    forms: Mapping[str, str]


def export(
    kind: Literal["tar", "parquet", "jsonl"],
    dataset: str | os.PathLike[str] | Dataset,
    url: str | os.PathLike[str],
    *,
    columns: ColumnChoice | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    num_workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    storage_options: StorageOptions | None = None,
    source_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
    file_size: int | str = "256MiB",
    file_samples: int | None = None,
    compression: str | None = None,
    key_until: Literal["first-dot", "last-dot"] | None = None,
    nan: Nan | None = None,
    row_group_size: int | str | None = None,
) -> Export:
    """Export a dataset to WebDataset tars, Parquet files or JSON lines in the folder `url`, in the dataset's order.

        mdsx.export("parquet", "s3://bucket/corpus", "s3://bucket/corpus-parquet", num_workers=8)
        mdsx.export("tar", mdsx.Dataset("pictures").select(0, 1000), "some", rename={"jpg": "image"})

    docs/converting.md says how each column type is written. After a kill, the same call continues the export. The files
    have the same bytes for any number of processes.

    Args:
        kind: "tar", "parquet" or "jsonl".
        dataset: The URL of a dataset that mdsx reads, or an `mdsx.Dataset`, to export only some samples, or to give a
            cache or an index elsewhere.
        url: A path or URL of a folder that does not exist, or is empty.
        columns: Export only these columns: their names, or a mapping from new names to names in the dataset.
        rename: New name -> name, for some of the columns.
        drop: Columns to leave out.
        num_workers: How many processes export: 1 by default; with `engine`, as many as the cluster has CPUs.
        engine: "ray" exports on a Ray cluster (docs/engines.md), and needs the extra ray of mdsx.
        overwrite: Whether to replace the export at `url`. It stays until all new files, which get other numbers, are
            complete. Nothing is written if the folder contains anything else. After a kill, the export starts again.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        source_options: Options for the storage of the dataset, if it is a URL.
        watch: Called with an `mdsx.Progress` now and then.
        file_size: About how many bytes of the dataset to put into a file, before compression. A file has whole shards,
            or equal parts of a larger shard. A process holds a file in memory (docs/converting.md).
        file_samples: How many samples to put into a file, instead of `file_size`.
        compression: parquet: "zstd" (the default), "snappy", "gzip", "brotli", "lz4" or "none". jsonl: "gzip", "zstd"
            or "none" (the default). A level may follow: "zstd:9".
        key_until: tar: where readers end the key in a name: "first-dot" (the default, as in WebDataset) or "last-dot",
            for keys that contain dots.
        nan: jsonl: how to write NaN and infinities: "error" (the default) or "null".
        row_group_size: parquet: the most bytes of a row group in Arrow's memory: 64 MiB by default.

    Returns:
        The result of the export.

    Raises:
        MissingError: There is no finished dataset.
        CorruptError: A sample is damaged. The error names its shard and sample.
        SampleError: The files cannot hold a value. The error names sample and column, and the way out.
        UsageError: An argument is invalid, the files cannot hold a column, or `url` holds something else.
        TransportError: Storage failed.
    """
    if kind not in _KINDS:
        raise UsageError("there is no such kind of export", found=shown(kind), expected=" or ".join(_KINDS))
    workers = Workers.of(num_workers, engine)
    if not isinstance(dataset, Dataset):
        dataset = Dataset(dataset, storage_options=source_options)
    elif source_options is not None:
        raise UsageError("source_options apply only to a URL, not to a Dataset", hint="give them to mdsx.Dataset")
    storage = _open_out(url, storage_options)
    chosen = _choice(dataset, columns, rename or {}, drop)
    whole, dataset = dataset, dataset.select_columns(chosen)
    sources = dict.fromkeys(each.column if isinstance(each, Cast) else each for each in chosen.values())
    identity = excerpt_of(whole.select_columns([*sources])).identity
    dataset = dataset.select_columns(stored_columns(excerpt_of(dataset).schema))
    by, cuts = _cuts(dataset, file_size, file_samples)
    own = {"compression": compression, "key_until": key_until, "nan": nan, "row_group_size": row_group_size}
    made = _kind(kind, dataset, {name: value for name, value in own.items() if value is not None})
    read = {name: f"{each.column} as {each.type}" if isinstance(each, Cast) else each for name, each in chosen.items()}
    wanted = make_record(kind, identity, read, {**made.options, **by}, cuts, made.suffix)
    replacing = Replacing.begin(storage, wanted) if overwrite else None
    record, there = (replacing.record, set[str]()) if replacing else begin(storage, wanted)
    export = _Exporter(dataset, made, storage, tuple(record.files), tuple(cuts), answered())
    missing = [number for number, name in enumerate(record.files) if name not in there]
    reporter = _Reporter(export, watch)
    for number in sorted(set(range(len(record.files))).difference(missing)):
        reporter.reach(number, cuts[number + 1])
    reporter.report()
    try:
        paths = [storage.url, dataset.url]
        workers.map(export, missing, reporter, name="mdsx-export", paths=paths)
    except MdsxError:
        if replacing is None:
            withdraw(storage, record)
        else:
            replacing.withdraw()
        raise
    if record.finished and not missing:
        return reporter.result(record, already=True)
    if replacing is None:
        finish(storage, record)
    else:
        replacing.finish()
    return reporter.result(record)


def _open_out(url: str | os.PathLike[str], options: StorageOptions | None) -> Storage:
    storage = open_storage(url, options, write=True)
    path = storage.path("file")
    no_folder = path is not None and os.path.exists(path.parent) and not path.parent.is_dir()
    if no_folder or _FILES.fullmatch(storage.url.rpartition("/")[2]):
        raise UsageError("the output must be a folder", file=storage.url, hint="give the name of a folder")
    return storage


def _choice(
    dataset: Dataset, columns: ColumnChoice | None, rename: Mapping[str, str], drop: Sequence[str]
) -> dict[str, str | Cast]:
    """Return the columns to export: name in the files -> name in the dataset. Raise UsageError."""
    for value in (columns, drop):
        if isinstance(value, str):
            raise UsageError("columns and drop must be lists of names", found=shown(value))
    asked = list(dataset.columns) if columns is None else columns
    chosen = dict(asked) if isinstance(asked, Mapping) else {name: name for name in asked}
    for name in (*drop, *rename.values()):
        if name not in chosen:
            there = ", ".join(chosen)
            raise UsageError("there is no such column", place=f"column {str(name)[:80]!r}", expected=there)
    renamed = {old: new for new, old in rename.items()}
    kept = [(renamed.get(name, name), stored) for name, stored in chosen.items() if name not in drop]
    found = dict(kept)
    if len(found) < len(kept) or len(renamed) < len(rename):
        raise UsageError("a column is renamed twice, or to the name of another column", found=shown(dict(rename)))
    if not found:
        raise UsageError("no column is left to export", file=dataset.url)
    return found


def _cuts(dataset: Dataset, file_size: int | str, file_samples: int | None) -> tuple[dict[str, str], list[int]]:
    """Return the option that determines the samples of each file, and the number of each file's first sample."""
    size, samples = parse_size(file_size, name="file_size"), len(dataset)
    if file_samples is None:
        view = View([excerpt_of(dataset)])
        means = view.mean_sizes[: len(view.counts)]
        return {"file_size": str(size)}, cut(view.counts, np.ceil(view.counts * means).astype(np.int64), size)
    check_count("file_samples", file_samples)
    return {"file_samples": str(file_samples)}, [*range(0, max(samples, 1), file_samples), samples]


# --- kinds


_LEVELS = {"zstd": (1, 22), "gzip": (1, 9), "brotli": (0, 11), "lz4": None, "snappy": None, "none": None}


def _kind(kind: str, dataset: Dataset, options: dict[str, object]) -> ExportKind:
    """Return the kind of files with its options. Raise UsageError."""
    schema, url = excerpt_of(dataset).schema, dataset.url
    if kind == "tar":
        _check_options(kind, options, "key_until")
        tars = Tars(schema, Names.parse(key_until=str(options.get("key_until", "first-dot"))), url, len(dataset))
        tars.check()
        return tars
    if kind == "jsonl":
        _check_options(kind, options, "nan", "compression")
        nan: Any = options.get("nan", "error")
        check_choice("nan", nan, "error", "null")
        name, level = _compression(options.get("compression", "none"), ("none", "gzip", "zstd"))
        return JsonLines(schema, nan, (name, level or {"gzip": 6, "zstd": 3}.get(name, 0)), url)
    _check_options(kind, options, "compression", "row_group_size")
    found = _compression(options.get("compression", "zstd"), tuple(_LEVELS))
    size = parse_size(options.get("row_group_size", "64MiB"), name="row_group_size")  # type: ignore[arg-type]
    return Parquets(schema, arrow_schema_of(dataset), found, size, url)


def _check_options(kind: str, options: Mapping[str, object], *known: str) -> None:
    for name in options:
        if name not in known:
            raise UsageError(f"exporting {kind} has no such option", found=name, expected=", ".join(known))


def _compression(text: object, known: Sequence[str]) -> tuple[str, int | None]:
    """Return the name and the level, or None, of a compression. Raise UsageError."""
    name, colon, level = str(text).partition(":")
    levels = _LEVELS.get(name)
    short = len(level) <= 2 and level.isdecimal()
    right = not colon or (levels is not None and short and levels[0] <= int(level) <= levels[1])
    if name not in known or not right:
        raise UsageError("there is no such compression", found=shown(text), expected=", ".join(known))
    return name, int(level) if colon else None


# --- files


@dataclass(frozen=True)
class _Exporter:
    """Makes the files of an export, in any process."""

    dataset: Dataset
    kind: ExportKind
    storage: Storage
    names: tuple[str, ...]
    cuts: tuple[int, ...]
    known: tuple[str, ...]

    def __call__(self, task: int, report: Report) -> None:
        """Make file number `task`. `report` gets this number, and the number of samples done so far."""
        believe(self.known)
        start, stop = self.cuts[task : task + 2]
        whole = (start, stop) == (0, len(self.dataset))
        view = View([excerpt_of(self.dataset if whole else self.dataset.select(start, stop))])
        file, done = self.kind.file(), start
        try:
            for run in scan(view, most=_RUN, join=self.kind.joined, check=True):
                file.add(run.columns if self.kind.joined else view.present(run.columns), done)
                done += len(run.samples)
                report(task, done)
        except CorruptError as error:
            self._raise_named(error, done, stop)
        self.storage.put(self.names[task], file.finish())

    def _raise_named(self, error: CorruptError, first: int, stop: int) -> NoReturn:
        """Read samples from `first` on one by one, and raise the error of the first damaged one, which names it."""
        for number in range(first, stop):
            self.dataset[number]
        raise error


class _Reporter:
    """Adds up what was exported, and passes the sums to `watch`."""

    def __init__(self, export: _Exporter, watch: Callable[[Progress], object]) -> None:
        self._export, self._watch = export, watch
        self._totals = Totals(2)

    def __call__(self, file: int, stop: int) -> None:
        self.reach(file, stop)
        self.report()

    def reach(self, file: int, stop: int) -> None:
        """Note that a file has all samples before number `stop`."""
        start = self._export.cuts[file]
        self._totals.reach(file, stop - start, self._size_to(stop) - self._size_to(start))

    def report(self) -> None:
        export, (samples, size) = self._export, self._totals.sums
        self._watch(
            ExportProgress(
                samples,
                size,
                self._size_to(len(export.dataset)),
                url=export.storage.url,
                files=len(export.names),
                columns=export.dataset.columns,
                forms=export.kind.forms(),
            )
        )

    def result(self, record: ExportRecord, *, already: bool = False) -> Export:
        export = self._export
        columns = export.dataset.columns
        samples = len(export.dataset)
        return Export(export.storage.url, record.files, columns, export.kind.forms(), samples, already)

    def _size_to(self, sample: int) -> int:
        """Return the stored bytes of all samples before this one."""
        return int(np.interp(sample, *self._sizes))

    @cached_property
    def _sizes(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The number of samples, and of their bytes, before each shard and after the last."""
        excerpt = excerpt_of(self._export.dataset)
        index, counts = excerpt.shards.index, excerpt.subset.counts
        sizes = index.sizes * (counts / np.maximum(index.counts, 1))
        return np.cumsum([0, *counts]), np.cumsum([0.0, *sizes])
