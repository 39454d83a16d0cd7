"""The index of a dataset, from storage, in any stored format."""

from __future__ import annotations

from contextlib import suppress

from mdsx.errors import FormatError, MissingError
from mdsx.format import MdsxFormat, StoredFormat, StoredIndex, filenames
from mdsx.storage import Storage

OURS = MdsxFormat()
FORMATS: tuple[StoredFormat, ...] = (OURS,)
"""The formats that can be read. An index that none of them recognizes is parsed as one of ours, which refuses it."""

INDEX_TRIES = 2  # an index that is damaged in transfer is fetched again, once


def read_index(storage: Storage) -> StoredIndex:
    """Return the index of the dataset in `storage`. Raise MissingError if there is none, CorruptError."""
    for _ in range(INDEX_TRIES - 1):
        with suppress(FormatError):
            return _read_index(storage)
    return _read_index(storage)


def _read_index(storage: Storage) -> StoredIndex:
    for key in dict.fromkeys(form.index_key for form in FORMATS):
        try:
            data = storage.get(key).data
        except MissingError as error:
            if "NoSuchBucket" in error.message:
                raise
            missing = error
            continue
        form = next((form for form in FORMATS if form.index_key == key and form.recognizes(data)), OURS)
        return form.parse_index(data, file=f"{storage.url.rstrip('/')}/{key}")
    hint = "check the URL; a dataset that is still being written, or whose writer died, has no index yet"
    for key in dict.fromkeys(form.index_key for form in FORMATS):
        if storage.url.endswith(f"/{key}"):
            hint = f"give the dataset's URL, without /{key}: {storage.url.removesuffix(f'/{key}')}"
    message = f"no dataset is here: it has no {filenames.INDEX}"
    raise MissingError(message, file=storage.url, hint=hint) from missing
