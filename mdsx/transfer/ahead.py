"""Read a file in chunks, which threads fetch ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice


def read_ahead(
    fetch: Callable[[int, int], bytes], size: int, stop: int, *, first: int = 0, ahead: int = 1
) -> Generator[bytes, None, None]:
    """Yield bytes `first` to `stop` in chunks of `size`. `fetch(start, stop)` returns bytes of the file.

    While the caller has a chunk, the next `ahead` ones are fetched, all at the same time.
    """
    starts = iter(range(first, stop, size))
    with ThreadPoolExecutor(ahead, thread_name_prefix="mdsx-source") as threads:

        def submitted(count: int) -> list[Future[bytes]]:
            return [threads.submit(fetch, start, min(start + size, stop)) for start in islice(starts, count)]

        coming = deque(submitted(ahead))
        while coming:
            chunk = coming.popleft().result()
            coming += submitted(1)
            yield chunk
