"""Join parts that were written separately, `part-00000/`, `part-00001/`, ..., into one dataset.

Each part has its own index. The root index lists the shards of all parts, by their keys in the parts' folders and in
the order of the parts' numbers. No shard is copied or changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mdsx.errors import MissingError, UsageError
from mdsx.format import Index, check_shard_count, filenames, join_indexes, parse_index
from mdsx.shards import OURS, format_of, refuse_foreign
from mdsx.storage import Storage, StorageOptions, discard, file_of, get_or_none, open_storage, put_over
from mdsx.writer.lengths import join_lengths
from mdsx.writer.resume import stored_shards

_THREADS = 16
_FOREIGN = "only datasets of mdsx's own format can be merged or appended to"


def merge(
    url: str | os.PathLike[str],
    *,
    parts: int | None = None,
    metadata: dict[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: StorageOptions | None = None,
) -> None:
    """Write the index of the dataset at `url` over its parts: the folders part-00000, part-00001, and so on.

        mdsx.merge("s3://bucket/big", parts=3)

    No shard is copied or changed. Lengths that all parts have (`Writer(..., lengths=[...])`) are joined.

    Args:
        url: The folder of the parts.
        parts: The expected number of parts. Without it, missing parts at the end go unnoticed.
        metadata: The metadata of the merged dataset. By default that of the parts, which must agree.
        overwrite: Whether to replace an existing index.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.

    Raises:
        MissingError: A part is missing or unfinished; the error names it.
        UsageError: An index exists already, a part differs from the first one, or there are too many shards.
        ChangedError: Another program stored an index meanwhile.
    """
    storage = open_storage(url, storage_options, write=True)
    if any(storage.list(filenames.CONVERT_PLAN)):
        hint = "run the conversion's command again: it continues, and merges the parts itself"
        raise UsageError("a conversion to this folder is unfinished", file=storage.url, hint=hint)
    join_parts(storage, parts, metadata, overwrite=overwrite)


def join_parts(storage: Storage, parts: int | None, metadata: dict[str, Any] | None, *, overwrite: bool) -> None:
    """Do what `merge` does, for a conversion too."""
    there = get_or_none(storage, filenames.INDEX, stop=1)
    if not overwrite and there is not None:
        hint = "pass overwrite=True or --overwrite to replace it"
        raise UsageError("an index exists already", file=file_of(storage, filenames.INDEX), hint=hint)
    refuse_foreign(storage, _FOREIGN, hint="merge where no other dataset is")
    if any(storage.list(filenames.WRITER_FOLDER)):
        hint = "finish or remove that dataset: parts must be in folders of their own"
        raise UsageError("an unfinished dataset is beside the parts", file=storage.url, hint=hint)
    if stored_shards(storage):
        hint = "keep their index, and add the parts with `mdsx append`"
        raise UsageError("the merged index would lose the shards beside the parts", file=storage.url, hint=hint)
    listed = [entry for prefix in (filenames.PARTS, filenames.RUNS) for entry in storage.list(prefix)]
    signs = [entry.key for entry in listed if filenames.parse_run_sign(entry.key)]
    sizes = {entry.key: entry.size for entry in listed if entry.key not in signs}
    names = _part_names(storage.url, sizes, parts)
    check_one_run(storage.url, names, signs)
    with ThreadPoolExecutor(_THREADS) as pool:
        indexes = list(pool.map(lambda name: read_part(storage, name), names))
    check_shard_count(sum(len(index.counts) for index in indexes), sum(int(index.raw_sizes.sum()) for index in indexes))
    for name, index in zip(names, indexes, strict=True):
        check_alike(file_of(storage, name), index, indexes[0], ignore_metadata=metadata is not None)
        check_shards(storage.url, name, index, sizes)
    first = indexes[0]
    metadata = first.metadata if metadata is None else metadata
    data = join_indexes(first.schema, first.compression, list(zip(names, indexes, strict=True)), metadata)
    join_lengths(storage, names, indexes, parse_index(data), sizes)
    discard(storage, filenames.INDEX)
    hint = "another program has stored an index here meanwhile: look at its dataset, and merge again if it is wrong"
    put_over(storage, filenames.INDEX, data, etag=None if there is None else there.etag, hint=hint)


def _part_names(url: str, keys: Iterable[str], count: int | None) -> list[str]:
    """Return the folders of parts 0 to K-1. Raise an error unless these, and no others, have files among `keys`."""
    keys = list(keys)
    for key in keys:
        if filenames.part_number(key) is None:
            name = key.partition("/")[0]
            message = "the name is similar to a part's, but not valid"
            raise UsageError(message, file=f"{url}/{name}", expected=f"{filenames.part(0)}, {filenames.part(1)}, ...")
    found = filenames.folders_of_parts(keys)
    check_one_attempt(url, found)
    count = max(found, default=0) + 1 if count is None else count
    for number in range(count):
        if number not in found:
            raise MissingError(
                "the part is missing", file=f"{url}/{filenames.part(number)}", hint="write it, then merge again"
            )
    for number in sorted(found):
        if number >= count:
            raise UsageError("too many parts", file=f"{url}/{filenames.part(number)}", expected=f"{count} parts")
    return [found[number][0] for number in range(count)]


def check_one_attempt(url: str, folders: Mapping[int, Sequence[str]]) -> None:
    """Raise UsageError if several attempts at a part left files: only the index says which one counts.

    `folders`: the folders of each part, as returned by `filenames.folders_of_parts`."""
    for attempts in folders.values():
        if len(attempts) > 1:
            raise UsageError(
                "there are several attempts at this part, and no index says which one counts",
                file=f"{url}/{attempts[0]}",
                found=", ".join(attempts[:8]),
                hint="run the job again; or move all but one of them away",
            )


def check_one_run(url: str, folders: Iterable[str], signs: Iterable[str], *, several: bool = False) -> None:
    """Raise UsageError if parts are of a run that has not ended, or has not removed what it replaced, or, unless
    `several` may be, of different runs: only the index says which parts count.

    `folders`: the parts' folders; `signs`: the keys of the runs' signs."""
    runs = dict[str, str]()  # with a part of each
    for folder in folders:
        if run := filenames.run_of(f"{folder}/"):
            runs.setdefault(run, folder)
    for run, sign in filter(None, map(filenames.parse_run_sign, signs)):
        if sign == "alive" and run in runs:
            hint = (
                f"wait until it ends; if it died with all its parts complete, remove {filenames.run_sign(run, 'alive')}"
            )
            raise UsageError("a run that has not ended wrote this part", file=f"{url}/{runs[run]}", hint=hint)
        if sign == "replaced" and run in runs:
            note = filenames.run_sign(run, "replaced")
            away = f"move all index-*.json, shards and parts outside of run-{run} away, and remove {note}"
            message = "files of the dataset that a run replaced may still be here"
            raise UsageError(message, file=url, hint=f"copy the index back; or {away}")
    if len(runs) > 1 and not several:
        raise UsageError(
            "there are parts of several runs, and no index says which ones count",
            file=url,
            found=", ".join([*runs.values()][:8]),
            hint="run the job again; or move the parts of all but one run away",
        )


def read_part(storage: Storage, name: str) -> Index:
    """Return the index of the part in the folder `name`. Raise MissingError if it is unfinished."""
    key = filenames.within(name, filenames.INDEX)
    file = file_of(storage, key)
    try:
        data = storage.get(key).data
        if (form := format_of(filenames.INDEX, data)) is not OURS:
            hint = "read such datasets in place, several as one with mdsx.Mixture"
            raise UsageError(_FOREIGN, file=file, found=form.name, expected=OURS.name, hint=hint)
        return parse_index(data, file=file)
    except MissingError:
        message = "the part is unfinished: it has no index"
        raise MissingError(message, file=file_of(storage, name), hint="finish writing it, then try again") from None


def check_shards(url: str, name: str, index: Index, sizes: Mapping[str, int]) -> None:
    """Raise MissingError if a shard of the part in the folder `name` is missing from `sizes`, the stored files by key,
    or has another size."""
    for key, size in zip(index.shard_names(name), index.sizes.tolist(), strict=True):
        if sizes.get(key) != size:
            raise MissingError(
                "a shard of the part is missing or has another size",
                file=f"{url}/{key}",
                found=sizes.get(key),
                expected=f"{size} bytes",
                hint=f"rewrite {name}",
            )


def check_alike(file: str, index: Index, first: Index, *, ignore_metadata: bool) -> None:
    """Raise UsageError unless the part with `index` fits a dataset whose first part has the index `first`."""
    expected: dict[str, object] = {"columns": first.schema.json.decode(), "compression": first.compression or "none"}
    found: dict[str, object] = {"columns": index.schema.json.decode(), "compression": index.compression or "none"}
    expected |= {"rows_offset": first.schema.rows_offset}  # the value of the root index
    found |= {"rows_offset": index.rows_offset}
    if not ignore_metadata:
        expected, found = expected | {"metadata": first.metadata}, found | {"metadata": index.metadata}
    for place in expected:
        if found[place] != expected[place]:
            hint = (
                "pass metadata= for the merged dataset (--metadata on the command line)"
                if place == "metadata"
                else "write the part with the options of the others"
            )
            message = "the part does not fit the others"
            raise UsageError(message, file=file, place=place, found=found[place], expected=expected[place], hint=hint)
