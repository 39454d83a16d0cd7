"""The index of a dataset, from storage, in any stored format."""

from __future__ import annotations

from mdsx.errors import FormatError, MissingError
from mdsx.format import MdsxFormat, StoredFormat, StoredIndex, filenames
from mdsx.shards.download import retried
from mdsx.storage import Storage, file_of

OURS = MdsxFormat()
FORMATS: tuple[StoredFormat, ...] = (OURS,)
"""The formats that can be read. An index that none of them recognizes is parsed as one of ours, which refuses it."""


def read_index(storage: Storage) -> StoredIndex:
    """Return the index of the dataset in `storage`. Raise MissingError if there is none, CorruptError."""
    return retried(lambda: _read_index(storage), FormatError)


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
        return form.parse_index(data, file=file_of(storage, key))
    hint = "check the URL; a dataset that is still being written, or whose writer died, has no index yet"
    for key in dict.fromkeys(form.index_key for form in FORMATS):
        if storage.url.endswith(f"/{key}"):
            hint = f"give the dataset's URL, without /{key}: {storage.url.removesuffix(f'/{key}')}"
    message = f"no dataset is here: it has no {filenames.INDEX}"
    raise MissingError(message, file=storage.url, hint=hint) from missing
