"""WebDataset tars -> one dataset: the converter's door.

Sources are found, columns known and the plan written down before the first sample is. A rerun of the same conversion
continues it, or says that it is finished; another one onto an unfinished output is refused, unless there is no shard
yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from mdsx.convert.archive import read_members
from mdsx.convert.columns import KEY, check_declared, infer_columns
from mdsx.convert.part import is_finished
from mdsx.convert.plan import FOLDER, PLAN_KEY, Plan, decode_plan, encode_plan, parts_for
from mdsx.convert.processes import convert_parts
from mdsx.convert.samples import TarSample, group_samples
from mdsx.convert.sources import Source, find_sources, read_chunks
from mdsx.convert.tape import printable
from mdsx.convert.watcher import Watcher
from mdsx.errors import MissingError, UsageError
from mdsx.shards import read_index
from mdsx.sizes import parse_size
from mdsx.storage import Storage, open_storage
from mdsx.writer import merge
from mdsx.writer.options import Options

_LOOKED_AT = 64  # samples; fewer where they are large
_LOOKED_AT_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a conversion ended. `skipped` counts what was left out; `already` means that it was finished before."""

    url: str
    columns: Mapping[str, str]
    samples: int
    skipped: int
    already: bool = False


def convert_tars(
    sources: Sequence[str],
    out: str | os.PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    shard_size: int | str = "64MiB",
    compression: str | None = None,
    processes: int = 1,
    skip_bad: bool = False,
    watcher: Watcher | None = None,
) -> Conversion:
    """Convert the tars that `sources` name (paths, URLs, braces, globs), in that order, to a dataset at `out`.

    `columns` (name -> type) overrides what is inferred from the first samples; names are lower-case extensions. With
    `processes` above 1 and several tars, the dataset is written in parts and merged. `skip_bad` leaves out samples that
    are not sound, and what a damaged tar lost, and tells the `watcher` of each.

    Raises MissingError, CorruptError or SampleError that name tar, member and offset; no index is written then.
    """
    watcher = watcher or Watcher()
    if processes < 1:
        raise UsageError("processes must be at least 1", found=processes)
    declared = check_declared(columns or {})
    size = parse_size(shard_size, name="shard_size")
    Options.parse({KEY: "str"}, size, compression)  # refuses what the writer would, but before anything is written
    storage = _open_output(out)
    found = find_sources(sources)
    inferred = _infer(found, declared, skip_bad)
    plan = Plan(storage.url, tuple(found), inferred, size, compression, skip_bad, parts_for(len(found), processes))
    if is_finished(plan.out):
        return _finished_before(storage, plan)
    plan = _continued(storage, plan)
    watcher.planned(plan)
    storage.put(PLAN_KEY, encode_plan(plan))
    tallies = convert_parts(plan, processes, watcher)
    if plan.parts > 1:
        merge(plan.out)
    _forget(storage)
    samples, skipped = sum(tally.samples for tally in tallies), sum(tally.skipped for tally in tallies)
    return Conversion(storage.url, plan.columns, samples, skipped)


def _open_output(out: str | os.PathLike[str]) -> Storage:
    storage = open_storage(out)
    path = storage.path("index.json")
    if storage.url.encode(errors="ignore").decode() != storage.url:
        raise UsageError("the output's name is not UTF-8", file=printable(storage.url))
    no_folder = path is not None and path.parent.exists() and not path.parent.is_dir()
    if storage.url.endswith((".tar", ".tgz", ".tar.gz", ".tar.zst")) or no_folder:
        raise UsageError("the output would be a tar or another file", file=storage.url, hint="it is named last")
    return storage


def _infer(sources: Sequence[Source], declared: Mapping[str, str], skip_bad: bool) -> dict[str, str]:
    """The columns, after a look at the first samples of the first tar that has any."""
    left_out, first = 0, ""
    for source in sources:
        samples, size = [], 0
        with closing(read_chunks(source, lambda count: None)) as chunks:
            for item in group_samples(read_members(chunks, file=source.url), file=source.url):
                if isinstance(item, TarSample):
                    samples.append(item)
                    size += sum(len(member.data) for member in item.members.values())
                elif not skip_bad:
                    raise item
                else:
                    left_out, first = left_out + 1, first or str(item)
                if len(samples) == _LOOKED_AT or size > _LOOKED_AT_BYTES:
                    break
        if samples:
            return infer_columns(samples, declared, file=source.url)
    found = f"{left_out:,} that are not sound, the first: {first}" if left_out else None
    raise UsageError("there is no sample in the tars", file=sources[0].url, found=found)


def _finished_before(storage: Storage, plan: Plan) -> Conversion:
    index = read_index(storage)
    converted = index.metadata.get("converted")
    if not isinstance(converted, dict) or converted.get("digest") != plan.digest:
        hint = "give another output"
        raise UsageError("holds a dataset already, and not one of this conversion", file=storage.url, hint=hint)
    _forget(storage)
    return Conversion(storage.url, plan.columns, index.samples, 0, already=True)


def _continued(storage: Storage, plan: Plan) -> Plan:
    """`plan`, in the parts in which an earlier run began it."""
    try:
        begun = decode_plan(storage.get(PLAN_KEY).data, file=f"{storage.url}/{PLAN_KEY}")
    except MissingError:
        return plan
    difference = begun.difference(plan)
    if difference is None and begun.skip_bad and not plan.skip_bad:
        difference = "without --skip-bad"
    if difference is None:
        return replace(plan, parts=begun.parts)
    if any(_is_shard(entry.key) for prefix in ("shard.", "part-") for entry in storage.list(prefix)):
        raise UsageError(
            f"holds an unfinished conversion; this would be another: {difference}",
            file=storage.url,
            hint="finish that one by its own command, remove what is there, or give another output",
        )
    for entry in [entry for prefix in ("_mdsx/", "part-", FOLDER) for entry in storage.list(prefix)]:
        if "_mdsx/" in entry.key or entry.key.startswith(FOLDER):
            storage.delete(entry.key)
    return plan


def _is_shard(key: str) -> bool:
    return key.endswith((".mdsx", ".mdsx.zst"))


def _forget(storage: Storage) -> None:
    """Remove what is of use only until the dataset is finished."""
    for entry in list(storage.list(FOLDER)):
        storage.delete(entry.key)
