"""Append a part to a finished dataset: the new index also lists the part's shards, which stay in their folder.

Rules:
- An append replaces the index. It moves, copies and changes no other file.
- The old index stays as `index-<fingerprint>.json`, a *snapshot*. The snapshot and the selections of the extended
  dataset are durable before the index is replaced.
- The index is replaced only if nobody has replaced it since it was read. Otherwise the append starts over with the new
  index.
- Parts are appended in ascending order of their numbers, so a merge or a repair finds the order of the shards by name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from mdsx.errors import ChangedError, MissingError, UsageError, shown
from mdsx.format import Index, filenames, join_indexes, parse_index
from mdsx.shards import OURS, format_of, refuse_foreign
from mdsx.storage import Storage, StorageOptions, discard, file_of, open_storage
from mdsx.writer.lengths import extend_lengths, sums_of_both
from mdsx.writer.merge import check_alike, check_shards, read_part
from mdsx.writer.selections import extend_selections

_TRIES = 8
_FOREIGN = "only datasets of mdsx's own format can be appended to"
_FOREIGN_HINT = "convert it with `mdsx convert`, or read several datasets as one with mdsx.Mixture"


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of `append`.

    Attributes:
        url: The dataset.
        part: The folder of the part, below `url`.
        first: The number of the part's first sample in the dataset.
        samples: The number of the part's samples.
        fingerprint: The fingerprint of the dataset with the part.
        snapshot: The fingerprint of the dataset without the part; None if the part had been appended already.
    """

    url: str
    part: str
    first: int
    samples: int
    fingerprint: str
    snapshot: str | None


def append(
    url: str | os.PathLike[str], part: str | os.PathLike[str], *, storage_options: StorageOptions | None = None
) -> Appended:
    """Append a part to the finished dataset at `url`. A `Writer` or a conversion has written it to a folder below.

        with mdsx.Writer("s3://bucket/corpus/part-00007", columns) as out:
            ...
        mdsx.append("s3://bucket/corpus", "part-00007")

    The dataset's samples keep their numbers; the part's samples follow. No shard is copied or changed. The old index
    stays as a snapshot: `mdsx.Dataset(url, snapshot=...)` opens it, and a run whose state was saved before the append
    resumes with it. Running jobs are not affected. Lengths (`_lengths/`) and selections are extended: the conditions of
    selections are evaluated for the new samples.

    If the part has been appended already, nothing changes. After a kill, call `append` again.

    Args:
        url: A finished dataset of mdsx's own format, from one writer, from a merge, or from an earlier append.
        part: The name of the part's folder, `part-NNNNN`, or the folder's URL. The number must be higher than those of
            all parts of the dataset.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.

    Raises:
        MissingError: The dataset does not exist, or the part is missing, unfinished, or lacks a shard.
        UsageError: The part does not fit the dataset, another writer is active, or the dataset has another format.
        ChangedError: Other appends repeatedly replaced the index.
    """
    storage = open_storage(url, storage_options, write=True)
    name = _part_name(storage, part, storage_options)
    for attempt in range(_TRIES):
        try:
            return _append(storage, name)
        except ChangedError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


def _append(storage: Storage, name: str) -> Appended:
    """Append the part once. Raise ChangedError if the index was replaced meanwhile."""
    refuse_foreign(storage, _FOREIGN, hint=_FOREIGN_HINT)
    file = file_of(storage, filenames.INDEX)
    try:
        read = storage.get(filenames.INDEX)
    except MissingError:
        hint = "write it to this URL, or write its parts and join them with `mdsx merge`; then append more"
        raise MissingError("there is no finished dataset to append to", file=storage.url, hint=hint) from None
    if (form := format_of(filenames.INDEX, read.data)) is not OURS:
        raise UsageError(_FOREIGN, file=file, found=form.name, expected=OURS.name, hint=_FOREIGN_HINT)
    before = parse_index(read.data, file=file)
    folders = ["", name]
    for folder in folders:
        _check_no_writer(storage, folder)
    added = read_part(storage, name)
    sizes = {entry.key: entry.size for entry in storage.list(f"{name}/")}
    check_shards(storage.url, name, added, sizes)
    held = [number for number, key in enumerate(before.shard_names()) if key.startswith(f"{name}/")]
    if held:
        entries = map(added.shard_entry, range(len(added.counts)))
        new = [entry._replace(name=filenames.within(name, entry.name)) for entry in entries]
        if [before.shard_entry(number) for number in held] != new:
            message = "the dataset has this part already, with other shards"
            hint = "the part was rewritten or repaired after it was appended: write the new samples as another part"
            raise UsageError(message, file=file_of(storage, name), hint=hint)
        discard(storage, filenames.INDEX)
        extend_lengths(storage, before, name, added)  # an earlier append may have been killed before it did so
        first = int(before.counts[: held[0]].sum())
        return Appended(storage.url, name, first, added.samples, before.fingerprint, None)
    check_alike(file_of(storage, name), added, before, ignore_metadata=True)
    _check_number(storage, name, before)
    if not len(added.counts):
        hint = "remove the part, or write samples to it"
        raise UsageError("the part has no samples", file=file_of(storage, name), hint=hint)
    parts = [("", before), (name, added)]
    data = join_indexes(before.schema, before.compression, parts, before.metadata)
    whole = parse_index(data)
    if (sums := sums_of_both(storage, before, added, whole)) != whole.lengths:
        data = join_indexes(before.schema, before.compression, parts, before.metadata, sums)
        whole = parse_index(data)
    discard(storage, filenames.SNAPSHOTS, filenames.INDEX)
    storage.put(filenames.snapshot(before.fingerprint), read.data)
    extend_selections(storage, before, whole)
    storage.replace(filenames.INDEX, data, etag=read.etag)
    extend_lengths(storage, whole, name, added)
    return Appended(storage.url, name, before.samples, added.samples, whole.fingerprint, before.fingerprint)


def _part_name(storage: Storage, part: str | os.PathLike[str], options: StorageOptions | None) -> str:
    """Return the name of the part's folder, which may be given as a URL. Raise UsageError if it is not a part's."""
    given = os.fspath(part)
    name = given.rstrip("/")
    if filenames.part_number(f"{name}/") is None:
        name = open_storage(part, options).url.removeprefix(f"{storage.url.rstrip('/')}/")
    if "/" in name or filenames.part_number(f"{name}/") is None:
        hint = "write the part to a folder below the dataset: the names in an index are relative to its folder"
        expected = f"{filenames.part(0)}, {filenames.part(1)}, ..., or the URL of such a folder in {storage.url}"
        raise UsageError("this is not a part of the dataset", found=shown(given), expected=expected, hint=hint)
    return name


def _check_no_writer(storage: Storage, folder: str) -> None:
    if any(storage.list(filenames.within(folder, filenames.WRITER_FOLDER))):
        hint = "wait until it has finished; if it has died, finish with resume=True"
        raise UsageError("a writer has not finished here", file=file_of(storage, folder).rstrip("/"), hint=hint)


def _check_number(storage: Storage, name: str, index: Index) -> None:
    """Raise UsageError unless the part's number is above those of all parts of the dataset."""
    found = (filenames.part_number(prefix) for prefix, *_ in index.files)
    last = max((number for number in found if number is not None), default=-1)
    if int(name.removeprefix(filenames.PARTS)) <= last:
        raise UsageError(
            "parts must be appended in the order of their numbers, and the dataset has a later one",
            file=file_of(storage, name),
            found=filenames.part(last),
            expected=f"{filenames.part(last + 1)} or a higher number",
            hint="rename the part's folder",
        )
