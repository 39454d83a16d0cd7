"""Append a part to a finished dataset: its index then lists the part's shards too, where they are.

Rules:
- Nothing is moved, copied or changed, except that the index is replaced.
- The index from before stays as `index-<fingerprint>.json`, a *snapshot*. It is durable before the index is replaced,
  and so are the selections of the dataset with the part.
- The index is replaced only if it is still the one that was read. Otherwise everything is done again with the new one.
- Parts have ascending numbers. So the order of the shards follows from their names, for a merge and for a repair.
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
    """What `append` has done.

    Attributes:
        url: The dataset.
        part: The folder of the part, below `url`.
        first: The number of the part's first sample in the dataset.
        samples: The samples of the part.
        fingerprint: The dataset's, with the part.
        snapshot: The dataset's before that; None if the part had been appended already.
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
    """Append a part to the finished dataset at `url`: what a `Writer`, or a conversion, has written to a folder below.

        with mdsx.Writer("s3://bucket/corpus/part-00007", columns) as out:
            ...
        mdsx.append("s3://bucket/corpus", "part-00007")

    The samples of the dataset keep their numbers, and those of the part follow. No shard is copied or changed. The
    index from before stays as a snapshot: `mdsx.Dataset(url, snapshot=...)` reads it, and a run whose state was saved
    before continues with it. Running jobs are not disturbed. Lengths (`_lengths/`) and selections are extended: their
    conditions choose among the new samples.

    If the part had been appended already, nothing changes. After a kill, call it again.

    Args:
        url: A finished dataset of mdsx's own format, written at once, merged from parts, or appended to before.
        part: The name of the part's folder, `part-NNNNN`, with a higher number than all parts of the dataset. It may
            also be the URL of that folder.
        storage_options: What the storage of `url` needs to know besides the URL, as in `mdsx.Dataset`.

    Raises:
        MissingError: There is no dataset, or the part is missing, unfinished, or lacks a shard.
        UsageError: The part does not fit the dataset, a writer is at work, or the dataset is of another format.
        ChangedError: Others replaced the index again and again.
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
            hint = "the part was written again or repaired since: write what is new as another part"
            raise UsageError(message, file=f"{storage.url}/{name}", hint=hint)
        discard(storage, filenames.INDEX)
        extend_lengths(storage, before, name, added)  # if a kill prevented it
        first = int(before.counts[: held[0]].sum())
        return Appended(storage.url, name, first, added.samples, before.fingerprint, None)
    check_alike(f"{storage.url}/{name}", added, before, ignore_metadata=True)
    _check_number(storage, name, before)
    if not len(added.counts):
        hint = "there is nothing to append: remove the part, or write samples to it"
        raise UsageError("the part has no samples", file=f"{storage.url}/{name}", hint=hint)
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
    """Return the name of the part's folder, which may be given as a URL. Raise UsageError for any other folder."""
    given = os.fspath(part)
    name = given.rstrip("/")
    if filenames.part_number(f"{name}/") is None:
        name = open_storage(part, options).url.removeprefix(f"{storage.url.rstrip('/')}/")
    if "/" in name or filenames.part_number(f"{name}/") is None:
        hint = "write the part to such a folder below the dataset: the names in an index are relative to it"
        expected = f"{filenames.part(0)}, {filenames.part(1)}, ..., or the URL of such a folder in {storage.url}"
        raise UsageError("this is not a part of the dataset", found=shown(given), expected=expected, hint=hint)
    return name


def _check_no_writer(storage: Storage, folder: str) -> None:
    if any(storage.list(filenames.within(folder, filenames.WRITER_FOLDER))):
        hint = "if it has died, finish it with resume=True"
        raise UsageError("a writer is or was at work", file=file_of(storage, folder).rstrip("/"), hint=hint)


def _check_number(storage: Storage, name: str, index: Index) -> None:
    """Raise UsageError unless the part's number is above those of all parts of the dataset."""
    found = (filenames.part_number(prefix) for prefix, *_ in index.files)
    last = max((number for number in found if number is not None), default=-1)
    if int(name.removeprefix(filenames.PARTS)) <= last:
        raise UsageError(
            "parts are appended in the order of their numbers, and the dataset has a later one",
            file=f"{storage.url}/{name}",
            found=filenames.part(last),
            expected=f"{filenames.part(last + 1)} or a higher number",
            hint="give the folder such a name",
        )
