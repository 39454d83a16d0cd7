"""Advice for a folder without an index, from the files that are there instead."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from mdsx.base.sizes import format_count
from mdsx.errors import MdsxError
from mdsx.format import StoredFormat, filenames
from mdsx.storage import Storage

_LOOKED = 1000  # names to look at
_CONVERTED = {  # like `StoredFormat.files`, for files that must be converted
    r"(?:jsonl|ndjson)(?:\.\w+)?": "convert them with `mdsx convert jsonl {url}/*.{ending} OUT`",
    r"tfrecords?(?:\.\w+)?": "convert them with `mdsx convert tfrecord {url}/*.{ending} OUT`",
}


def advice(storage: Storage, formats: Sequence[StoredFormat]) -> str:
    """Return advice for a folder without an index."""
    index_keys = {form.index_key for form in formats}
    url = storage.url.rstrip("/")
    folder, _, name = url.rpartition("/")
    if name in index_keys:
        return f"give the dataset's URL, without /{name}: {folder}"
    names = list(_names(storage))
    if filenames.CONVERT_PLAN in names:
        return "there is an unfinished conversion: run its command again, and it continues"
    for place in names:
        below, _, name = place.rpartition("/")
        if name in index_keys:
            if filenames.part_number(place) is not None:
                return f"there are parts of a dataset: join them with `mdsx merge {url}`"
            return f"give the URL of one dataset: {url}/{below}"
    known = _CONVERTED | {end: hint for form in formats for end, hint in form.files.items()}
    if storage.path("x") is not None and "$" in url:
        return "variables are not expanded in a path: give os.path.expandvars(path)"
    if any(name.startswith(filenames.WRITER_FOLDER) for name in names) and not any(map(filenames.is_shard, names)):
        return "there is an unfinished dataset: its writer writes the index at the end of `with`; or use resume=True"
    return _files(url, names, known) or "check the URL; a dataset that is still being written has no index yet"


def _files(url: str, names: list[str], known: Mapping[str, str]) -> str | None:
    """Return advice for the most frequent kind of files, or for the file that the URL names."""
    ends = re.compile("|".join(rf"(?:\.({suffix})$)" for suffix in known), re.IGNORECASE)
    if not names and ends.search(url):
        return f"give the URL of the folder: {posixpath.dirname(url)}"
    kinds: dict[tuple[int, str], list[str]] = {}
    for name in names:
        hidden = any(part.startswith((".", "_")) for part in name.split("/"))
        if not hidden and (found := ends.search(name)) and found.lastindex:
            kinds.setdefault((found.lastindex, found[found.lastindex]), []).append(name)
    if not kinds:
        return None
    (kind, ending), files = max(kinds.items(), key=lambda item: len(item[1]))
    below = posixpath.commonpath(list(map(posixpath.dirname, files)))
    folder, where = (f"{url}/{below}", f"below {below}/") if below else (url, "here")
    verb, more = "is" if len(files) == 1 else "are", " or more" * (len(names) == _LOOKED)
    hint = [*known.values()][kind - 1].format(url=folder, ending=ending)
    return f"there {verb} {format_count(len(files), f'*.{ending} file')}{more} {where}: {hint}"


def _names(storage: Storage) -> Iterator[str]:
    """Yield the names of the first files, relative to the URL; none if they cannot be listed."""
    local = storage.path("x")
    try:
        if local is None:
            yield from (entry.key for entry in islice(storage.list(), _LOOKED) if not entry.key.startswith("/"))
        else:
            found = ((folder, name) for folder, _, names in os.walk(local.parent) for name in sorted(names))
            yield from (os.path.relpath(os.path.join(*each), local.parent) for each in islice(found, _LOOKED))
    except MdsxError:
        return
