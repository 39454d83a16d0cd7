"""A process that reads shards through a cache, as a job does. The tests run several at once.

reader.py DIRECTORY LIMIT JOB SHARDS ROUNDS SEED: prints "ok" and how often the cache had no room.
"""

from __future__ import annotations

import sys

from mdsx.storage.cache import CacheDirectory, Verdict
from tests.storage.cache.reading import content, fetch


def main() -> None:
    directory, limit, job, shards, rounds, seed = sys.argv[1:]
    cache = CacheDirectory(directory, limit)
    around = 0
    held = None  # one lease is held while the next shard is fetched, as a reader of several lanes does
    for step in range(int(rounds)):
        for place in range(int(shards)):
            number = (place * 7 + step * 3 + int(seed) * 5) % int(shards)
            mapped = fetch(cache, job, number)
            if isinstance(mapped, Verdict):
                around += 1  # the stream reads by range then
                continue
            assert mapped[:] == content(job, number), "wrong bytes"
            held = mapped
    del held
    print("ok", around)


if __name__ == "__main__":
    main()
