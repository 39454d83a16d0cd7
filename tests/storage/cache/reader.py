"""A process that reads shards through a cache, as a job does; run by the tests beside others.

reader.py DIRECTORY LIMIT JOB SHARDS ROUNDS SEED: prints "ok" and how often there was no room.
"""

from __future__ import annotations

import sys
import time

import xxhash

from mdsx.storage.cache import Cache, CacheKey, Verdict
from mdsx.storage.cache.files import Write

SIZE = 64 * 1024


def content(job: str, number: int) -> bytes:
    """The bytes of a shard: no two are alike."""
    return (f"{job} {number} ".encode() * SIZE)[:SIZE]


def main() -> None:
    directory, limit, job, shards, rounds, seed = sys.argv[1:]
    cache = Cache(directory, limit)
    keys = [
        CacheKey(job.ljust(32, "0"), xxhash.xxh3_128_hexdigest(content(job, number)), SIZE)
        for number in range(int(shards))
    ]
    around = 0
    held = None  # one lease is held while the next shard is fetched, as a reader of several lanes does
    for step in range(int(rounds)):
        for place in range(len(keys)):
            number = (place * 7 + step * 3 + int(seed) * 5) % len(keys)

            def fill(write: Write, number: int = number) -> None:
                data = content(job, number)
                for start in range(0, SIZE, 8192):
                    write(data[start : start + 8192])
                    time.sleep(0.0002)  # a network

            mapped = cache.fetch(keys[number], fill)
            if isinstance(mapped, Verdict):
                around += 1  # the stream reads by range then
                continue
            assert mapped[:] == content(job, number), "wrong bytes"
            held = mapped
    del held
    print("ok", around)


if __name__ == "__main__":
    main()
