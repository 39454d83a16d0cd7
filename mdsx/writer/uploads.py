"""Upload closed shards in the background.

At most `_THREADS` shards are in flight, of at most `_MOST_BYTES` (or a single larger shard); `put` waits for room. So a
writer's memory holds these shards and the one that it is building. After a failure, no more uploads start, and the next
call raises the error. A journal is written when the last of its shards is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

from mdsx.base.pieces import Pieces
from mdsx.format import MAX_SHARDS, ShardEntry, check_shard_count, compress, header_row_key
from mdsx.storage import Storage
from mdsx.writer.journal import JOURNALED, Journal
from mdsx.writer.options import WriterOptions

_THREADS = 4
_MOST_BYTES = 2**29


class Uploads:
    """Stores the shards that are `put`, numbered from len(durable) on. Calls `reuse` with shards whose memory it no
    longer needs."""

    def __init__(
        self,
        storage: Storage,
        journal: Journal,
        options: WriterOptions,
        durable: list[ShardEntry],
        reuse: Callable[[Pieces], object],
    ) -> None:
        self._storage = storage
        self._journal = journal
        self._options = options
        self._reuse = reuse
        self._entries: list[ShardEntry | None] = [*durable]  # None: in flight
        self._in_flight = 0
        self._bytes = 0
        self._changed = Condition()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="mdsx-writer")
        self.error: BaseException | None = None

    def put(self, raw: Pieces, samples: int) -> None:
        """Store the next shard in the background. Raise the error of an earlier one."""
        size = len(raw)
        with self._changed:
            self._changed.wait_for(lambda: self.error or not self._in_flight or self._has_room(size))
            if self.error:
                raise self.error
            number = len(self._entries)
            self._entries.append(None)
            self._in_flight += 1
            self._bytes += size
        self._pool.submit(self._run, number, raw, samples)

    def check_room(self) -> None:
        """Raise UsageError if the dataset already has as many shards as a dataset may have."""
        count = len(self._entries) + 1
        if count > MAX_SHARDS:
            check_shard_count(count, sum(entry.raw_size for entry in self.drain()))

    def take_back(self) -> None:
        """Let the next `put` replace the last shard, which is durable."""
        self._entries.pop()
        self._journal.drop(len(self._entries) // JOURNALED)

    def drain(self) -> list[ShardEntry]:
        """Wait until all shards are durable, and return their entries. Raise the first error."""
        with self._changed:
            self._changed.wait_for(lambda: self.error or not self._in_flight)
            if self.error:
                raise self.error
            return [entry for entry in self._entries if entry is not None]

    def close(self) -> None:
        """Wait until the shards in flight are stored, and end the threads."""
        self._pool.shutdown(wait=True)

    def _has_room(self, size: int) -> bool:
        return self._in_flight < _THREADS and self._bytes + size <= _MOST_BYTES

    def _run(self, number: int, raw: Pieces, samples: int) -> None:
        try:
            self._store(number, raw, samples)
        except BaseException as error:
            with self._changed:
                self.error = self.error or error
        finally:
            with self._changed:
                self._in_flight -= 1
                self._bytes -= len(raw)
                self._changed.notify_all()

    def _store(self, number: int, raw: Pieces, samples: int) -> None:
        level, key = self._options.level, self._options.shard_key(number)
        stored = raw if level is None else Pieces(compress(raw, level))
        raw_hash = raw.digest().hex()
        stored_hash = raw_hash if level is None else stored.digest().hex()
        self._journal.check_owner()  # a job that only seemed dead must not overwrite the shards of its successor
        self._storage.put(key, *stored)
        first = number // JOURNALED * JOURNALED
        with self._changed:
            self._entries[number] = ShardEntry(
                key, samples, header_row_key(next(iter(raw))), len(stored), stored_hash, len(raw), raw_hash
            )
            journaled = [entry for entry in self._entries[first : first + JOURNALED] if entry is not None]
        self._reuse(raw)
        if len(journaled) == JOURNALED:
            self._journal.write(number // JOURNALED, journaled)
