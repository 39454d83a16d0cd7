"""Each thread counts for the loader that it works for, wherever its calls are made."""

from __future__ import annotations

import os
import threading

from mdsx.base.process import REQUESTS, Counter, Counters, Share, count, in_flight, work_for
from mdsx.base.process.counters import counting


def test_calls_on_shared_threads_count_for_the_caller() -> None:
    first, second = Counters(), Counters()

    def work(counters: Counters) -> None:
        work_for(counters)
        share = Share(REQUESTS)
        for future in [share.submit(count, Counter.RETRIES) for _ in range(50)]:
            future.result()
        list(share.map(lambda number: count(Counter.DOWNLOADED, number), range(20)))

    threads = [threading.Thread(target=work, args=(counters,)) for counters in (first, second, first)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (first.totals[Counter.RETRIES], second.totals[Counter.RETRIES]) == (100, 50)
    assert (first.totals[Counter.DOWNLOADED], second.totals[Counter.DOWNLOADED]) == (380, 190)


def test_a_thread_that_works_for_no_loader_counts_nothing() -> None:
    counters = Counters()
    work_for(counters)
    try:
        call = counting(lambda: count(Counter.HITS, 3))
    finally:
        work_for(None)
    count(Counter.HITS)
    call()
    count(Counter.HITS)
    assert counters.totals[Counter.HITS] == 3


def test_many_threads_lose_no_count() -> None:
    counters = Counters()

    def work() -> None:
        work_for(counters)
        for _ in range(2000):
            with in_flight():
                count(Counter.DOWNLOADED, 2)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counters.totals[Counter.DOWNLOADED], counters.totals[Counter.IN_FLIGHT]) == (32_000, 0)


def test_a_forked_child_counts_although_a_thread_held_the_lock() -> None:
    from mdsx.base.process import counters as module

    counters, held, done = Counters(), threading.Event(), threading.Event()

    def hold() -> None:
        with module._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        child = os.fork()
        if not child:
            counters.add(Counter.HITS, 1)
            os._exit(counters.totals[Counter.HITS])
    finally:
        done.set()
        thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert counters.totals[Counter.HITS] == 0
