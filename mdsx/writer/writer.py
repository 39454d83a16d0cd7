"""The writer of a dataset: it turns samples into shards, and writes the index at the end.

`write` encodes and stages a sample. Many staged samples at a time are added to the current shard (`format/encode.py`),
which is uploaded when it is full (`writer/uploads.py`).

Rules:
- Samples that are written one by one are staged until there are enough to add them to a shard at once.
- Shards end only where the format says, so the bytes depend only on samples, columns and options.
- The index is written last, when every shard is durable, and only if no exception leaves the `with`.
- After a resume, the last durable shard is provisional, because an uninterrupted job may have made it longer. If the
  first new sample fits into it, it is read back and replaced. The replacement is durable before any later shard is
  written, so a short shard never precedes others.
- If storing samples is interrupted, the writer becomes unusable, because it does not know what was stored.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from mdsx.base.mosaicml import WRITER, explain
from mdsx.base.process import Owner
from mdsx.errors import ChangedError, SampleError, UsageError
from mdsx.foreign.arrow import ArrowData, encode_batch
from mdsx.format import (
    MAX_LENGTH,
    Encoded,
    Encoder,
    Index,
    ShardBuilder,
    ShardEntry,
    ShardView,
    build_index,
    filenames,
    length_rule,
    parse_index,
    raw_size,
)
from mdsx.shards import write_length_file
from mdsx.storage import StorageOptions, file_of, open_storage, put_over
from mdsx.writer.journal import Journal
from mdsx.writer.options import WriterOptions, checked_lengths
from mdsx.writer.resume import begin, load_shard, stored_shards
from mdsx.writer.runs import Overwriting
from mdsx.writer.uploads import Uploads

_STAGED_BYTES = 2**20
_STAGED_SAMPLES = 1024


class _Absent:
    """A method of other libraries' writers. (A `__getattr__` would slow down each access to an attribute.)"""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        hint = "leaving `with mdsx.Writer(...) as out:` writes the index"
        raise AttributeError(f"'Writer' object has no attribute {self._name!r}: {hint}")


class Writer:
    """Writes a dataset: shards of samples, and a JSON index.

        with mdsx.Writer("s3://bucket/corpus", {"tokens": "uint16[2048]", "source": "str"}) as out:
            out.write({"tokens": ids, "source": "wiki"})
            out.write_batch({"tokens": ids_2d, "source": names})

    Shards are uploaded in the background. If an upload fails, the next call, or leaving the `with`, raises its error.
    The index is written last, and only if no exception leaves the `with`. Otherwise, complete shards stay for a resume.

        with mdsx.Writer(url, columns, resume=True) as out:
            for sample in itertools.islice(source, out.samples, None):
                out.write(sample)

    Only one thread of one process may use a writer.

    Args:
        url: Where to write: a path, `file://...` or `s3://bucket/prefix`. Without `resume` or `overwrite`, it must have
            neither an index nor shards.
        columns: Column name -> type, such as "uint16[2048]", "str" or "json?". See docs/writing.md.
        shard_size: The largest size of an uncompressed shard, in bytes or as text such as "64MiB". A larger sample gets
            a shard of its own.
        compression: None, "zstd", or "zstd:LEVEL" with a level of 1 to 22.
        metadata: A JSON object to store in the index. After resumes, that of the last writer is stored.
        resume: Whether to continue a dataset that a writer with the same arguments began. `samples` is then the number
            of samples that are already stored, which the caller must skip.
        overwrite: Whether to replace a finished dataset. Readers see the old one until the new one is complete. If this
            writer fails or is killed, the old one stays. Nothing is written if the folder has files that do not belong
            to the dataset. See docs/writing.md.
        lengths: Columns by which jobs will pack samples, such as ["tokens"]. The lengths of all samples are also stored
            in a separate file, which is faster to read than the rows of all shards. The index gets their sum, which
            determines the default window of `mdsx.Pack`. `mdsx.write_lengths` adds the file to a finished dataset.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.

    Raises:
        UsageError: An argument is invalid, or `url` has a dataset already.
        SampleError: A sample does not fit its columns (from `write` and `write_batch`).
        TransportError: Storage failed.
    """

    @explain("Writer", WRITER)
    def __init__(
        self,
        url: str | os.PathLike[str],
        columns: Mapping[str, str],
        *,
        shard_size: int | str = "64MiB",
        compression: str | None = None,
        metadata: dict[str, Any] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        lengths: Sequence[str] = (),
        storage_options: StorageOptions | None = None,
    ) -> None:
        self._options = WriterOptions.parse(columns, shard_size, compression)
        self._lengths = checked_lengths(self._options.schema, lengths, os.fspath(url))
        build_index(self._options.schema, None, [], metadata)  # raise an error for invalid metadata now, not at the end
        self._metadata = copy.deepcopy(metadata)
        if overwrite and resume:
            hint = "overwrite=True starts over; resume=True continues a dataset that was begun without overwrite=True"
            raise UsageError("resume and overwrite exclude each other", hint=hint)
        self._overwriting: Overwriting | None = None
        if overwrite:
            self._overwriting = Overwriting.begin(
                os.fspath(url),
                columns,
                shard_size=shard_size,
                compression=compression,
                metadata=self._metadata,
                storage_options=storage_options,
            )
        try:
            if self._overwriting is None:
                self._storage = open_storage(url, storage_options, write=True)
            else:
                self._storage = self._overwriting.begin_part(0)
            self._journal = Journal(self._storage, self._options)
            found = begin(self._storage, self._journal, self._options, resume=resume)
        except BaseException:
            if self._overwriting is not None:
                self._overwriting.abort()
            raise
        self._finished = isinstance(found, Index)
        durable = [] if isinstance(found, Index) else found
        self._samples = found.samples if isinstance(found, Index) else sum(entry.samples for entry in durable)
        self._provisional = durable[-1] if durable else None
        self._encoder, schema = Encoder(self._options.schema), self._options.schema
        rules = {schema.columns[number].name: length_rule(schema.columns[number].type) for number in schema.fixed}
        self._counted = {  # the columns whose numbers are lengths, with their places in `Encoded.fixed`
            name: place for place, name in enumerate(rules) if name in self._lengths and rules[name] == "number"
        }
        self._builder = ShardBuilder(self._options.schema, self._options.shard_size)
        self._uploads = Uploads(self._storage, self._journal, self._options, durable, self._builder.reuse)
        self._staged: list[bytes] = []  # values; one list for each sample would double the garbage collector's work
        self._staged_bytes = 0
        self._most_staged = _STAGED_SAMPLES * len(self._options.schema.columns)
        self._most_bytes = min(_STAGED_BYTES, self._options.shard_size)
        self._replacing = False
        self._entered = self._left = False
        self._ready = False  # whether samples may be written
        self._owner = Owner()

    @property
    def samples(self) -> int:
        """Return the number of samples so far, including those that a resume found stored."""
        return self._samples

    def write(self, sample: Mapping[str, object]) -> None:
        """Write one sample: column name -> value.

        Raises:
            SampleError: A value does not fit its column, or a column is missing. The sample is not written; writing may
                continue.
        """
        if not self._ready or self._uploads.error or not self._owner.here:
            self._refuse()
        values, size = self._encoder.sample(sample)
        for name in self._counted:
            if not 0 <= (count := int(sample[name])) <= MAX_LENGTH:  # type: ignore[call-overload]  # the encoder took it
                raise _not_a_length(f"column {name!r}", count)
        self._staged += values
        self._staged_bytes += size
        self._samples += 1
        if self._staged_bytes >= self._most_bytes or len(self._staged) >= self._most_staged:
            self._flush()

    def write_batch(self, columns: Mapping[str, object] | ArrowData) -> None:
        """Write many samples: column name -> array or tensor [n, ...], Arrow array, or a sequence of n values.

        Instead of a mapping, `columns` may be an Arrow table or record batch, or any other object with one of Arrow's C
        interfaces, such as a Polars or pandas DataFrame, or a DuckDB relation. See docs/writing.md. The shards are the
        same as those of a `write` for each sample.

        Raises:
            SampleError: A value does not fit its column. No sample of the batch is written; writing may continue.
        """
        if not self._ready or self._uploads.error or not self._owner.here:
            self._refuse()
        parts = encode_batch(self._encoder, columns)
        for name, number in self._counted.items():
            first = 0
            for encoded in parts:
                counts = encoded.fixed[number]
                for wrong in np.flatnonzero((counts < 0) | (counts > MAX_LENGTH))[:1].tolist():
                    place = f"sample {first + wrong} of the batch, column {name!r}"
                    raise _not_a_length(place, int(counts[wrong]))
                first += encoded.samples
        self._flush()
        for encoded in parts:
            self._store(encoded)
            self._samples += encoded.samples

    def __enter__(self) -> Self:
        if self._entered:
            raise UsageError("a writer can be used only once", file=self._storage.url, hint="create another one")
        self._entered = True
        self._ready = not self._finished
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._owner.here:
            return
        try:
            if self._finished:
                return
            if kind is None:
                self._finish()
            elif self._ready and self._overwriting is None:
                with suppress(Exception):  # do not hide the exception that leaves the `with`
                    self._flush()
        finally:
            self._ready, self._left = False, True
            self._uploads.close()
            if self._overwriting is not None:
                self._overwriting.abort()  # unless it is complete

    if not TYPE_CHECKING:  # type checkers say that there is no such method
        close, finish = _Absent(), _Absent()

    def _refuse(self) -> NoReturn:
        if not self._entered or self._left:
            message = "the writer is closed" if self._left else "the writer is not open"
            raise UsageError(message, file=self._storage.url, hint="write within `with mdsx.Writer(...) as out:`")
        if not self._owner.here:
            hint = "use it in the process that created it; or write a part in each process, and merge the parts"
            raise UsageError("the writer belongs to another process", file=self._storage.url, hint=hint)
        if self._uploads.error:
            raise self._uploads.error
        if self._finished:
            hint = "write more samples as a part, and add it with `mdsx append`"
            raise UsageError("the dataset is finished", file=self._storage.url, hint=hint)
        message = "the writer is unusable: an earlier call was interrupted while it stored samples"
        raise UsageError(message, file=self._storage.url, hint="leave the `with` with an exception, and resume")

    def _flush(self) -> None:
        """Add the staged samples to shards."""
        self._ready = False
        if self._staged:
            encoded = self._encoder.gather(self._staged)
            self._staged, self._staged_bytes = [], 0
            self._store(encoded)
        self._ready = True

    def _store(self, encoded: Encoded) -> None:
        self._ready = False
        if self._provisional and encoded.samples:
            self._reopen(self._provisional, int(encoded.stops[0]))
            self._provisional = None
        taken = 0
        while taken < encoded.samples:
            self._uploads.check_room()
            if (taken := self._builder.add(encoded, taken)) < encoded.samples:
                self._close_shard()
        self._ready = True

    def _close_shard(self) -> None:
        samples = self._builder.samples
        self._uploads.put(self._builder.pieces(), samples)
        if self._replacing:
            self._uploads.drain()
            self._replacing = False

    def _reopen(self, last: ShardEntry, next_heap_size: int) -> None:
        """Continue with the last durable shard, if a sample of `next_heap_size` heap bytes fits into it."""
        schema = self._options.schema
        heap_size = last.raw_size - raw_size(schema, last.samples, 0)
        if raw_size(schema, last.samples + 1, heap_size + next_heap_size) > self._options.shard_size:
            return
        file = file_of(self._storage, last.name)
        self._builder.restore(ShardView.parse(load_shard(self._storage, last), file=file, schema=schema))
        self._uploads.take_back()
        self._replacing = True

    def _finish(self) -> None:
        if not self._ready or self._uploads.error:
            self._refuse()
        self._flush()
        self._ready = False
        if self._builder.samples:
            self._close_shard()
        entries = self._uploads.drain()
        self._journal.check_owner()
        self._check_stored(entries)
        data = build_index(self._options.schema, self._options.compression, entries, self._metadata)
        if self._lengths:
            index = parse_index(data)
            sums = {  # computed from the stored shards: a resumed writer has not seen the earlier ones
                column: write_length_file(self._storage, index, column, target=self._storage).sum
                for column in self._lengths
            }
            data = build_index(self._options.schema, self._options.compression, entries, self._metadata, sums)
            self._journal.check_owner()  # reading all rows may have taken long
            self._check_stored(entries)
        hint = "another program has written a dataset here meanwhile: remove one, or write to another URL"
        put_over(self._storage, filenames.INDEX, data, etag=None, hint=hint, or_same=True)
        self._journal.remove()
        if self._overwriting is not None:
            self._overwriting.commit([self._overwriting.done(0, self._samples)])

    def _check_stored(self, entries: list[ShardEntry]) -> None:
        """Raise ChangedError unless every shard still exists with its size: another writer may have changed them."""
        sizes = {entry.key: entry.size for _, entry in stored_shards(self._storage)}
        for entry in entries:
            if sizes.get(entry.name) != entry.size:
                raise ChangedError(
                    "a shard was removed or replaced while the dataset was written",
                    file=file_of(self._storage, entry.name),
                    expected=f"{entry.size} bytes",
                    found=sizes.get(entry.name),
                    hint="is another writer active here? stop it, and resume",
                )


def _not_a_length(place: str, found: int) -> SampleError:
    """Return the error for a number that cannot be a length. Otherwise the end of the `with` would raise."""
    expected, hint = f"0 to {MAX_LENGTH}", "write another number, or leave the column out of lengths="
    return SampleError("a length is out of range", place=place, found=found, expected=expected, hint=hint)
