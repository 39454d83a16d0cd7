"""Check that a storage can be listed, read and written with these credentials, and measure its speed."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from mdsx.base.sizes import format_size
from mdsx.checks.doctor.endpoint import check_region, reach
from mdsx.checks.doctor.finding import Finding, ok, problem, refusal, warning
from mdsx.errors import ForbiddenError, MdsxError, MissingError
from mdsx.shards import index_keys
from mdsx.storage import MissingBucketError, Storage, remove
from mdsx.storage.remote import RemoteStorage, WebStorage

_PERMISSIONS = "check the credentials and their permissions, and the URL"
_TRIES = 5
_FAR = 0.2  # seconds of latency
_AT_ONCE = 8  # downloads, as in a run
_SECONDS = 1.5  # of downloading
_MOST = 128 * 2**20  # bytes to download
_SLOW = 10e6  # bytes a second
_PROBE = b"mdsx doctor\n"


@dataclass
class Reached:
    """What the checks found out about a storage: whether it may be read, an object in it, and the latency."""

    readable: bool = False
    key: str | None = None
    latency: float = 0.0  # seconds


def check_storage(storage: Storage, reached: Reached, *, write: bool) -> Iterator[Finding]:
    """Yield the findings, and set the fields of `reached`, which other checks use."""
    headers = None
    if isinstance(storage, RemoteStorage):
        try:
            yield ok("credentials", storage.identity())
        except MdsxError as error:
            yield refusal("credentials", error, advice=_PERMISSIONS)
        findings, headers = reach(storage)
        yield from findings
        if headers is None:
            return
    listing, reading = _listed(storage, reached), _read(storage, reached)
    reached.readable = reading.state == "ok"
    works = reached.readable and bool(reached.key)
    if isinstance(storage, RemoteStorage) and headers is not None:
        yield from check_region(storage, headers, works=works)
    if works and listing.state == "problem":
        advice = "allow listing for `mdsx verify`, `merge` and resumed writers; training does not need it"
        listing = warning("list", listing.found, advice)
    yield listing
    yield reading
    if write:
        yield _written(storage)
    if works and reached.key:
        yield _latency(storage, reached.key, reached)


def _listed(storage: Storage, reached: Reached) -> Finding:
    try:
        first = next(iter(storage.list()), None)
    except MdsxError as error:
        if isinstance(storage, WebStorage):
            return ok("list", error.message)
        return refusal("list", error, advice=_PERMISSIONS)
    if first is None:
        return ok("list", f"nothing is below {storage.url}")
    reached.key = first.key
    return ok("list", f"the first object is {first.key}")


def _read(storage: Storage, reached: Reached) -> Finding:
    keys = [*index_keys(), *([reached.key] if reached.key else [])]
    for key in keys:
        try:
            piece = storage.get(key, stop=64)
        except MissingBucketError as error:
            return refusal("read", error, advice="check the URL")
        except MissingError:
            continue
        except ForbiddenError as error:
            return refusal("read", error, advice=_PERMISSIONS)
        except MdsxError as error:
            return refusal("read", error, advice="check the endpoint and the network, and try again")
        reached.key = key
        return ok("read", f"read {len(piece.data)} of the {piece.total:,} bytes of {key}")
    reached.key = None
    return ok("read", "there is no object to read yet")


def _written(storage: Storage) -> Finding:
    """Write, read and remove an object with a unique name."""
    key, same, failed = f"mdsx-doctor-{secrets.token_hex(8)}", False, None
    try:
        storage.put(key, _PROBE)
    except MdsxError as error:
        return refusal("write", error, advice=_PERMISSIONS)
    try:
        same = storage.get(key).data == _PROBE
    except MdsxError as error:
        failed = refusal("write", error, advice=_PERMISSIONS)
    try:
        remove(storage, key, own=key.__eq__)
    except MdsxError as error:
        found = f"an object was written, but cannot be removed: {refusal('write', error).found}"
        return problem("write", found, f"allow deletion, and remove {key}")
    if failed is None and not same:
        found = f"{key} was read back with different bytes"
        return problem("write", found, "use another server or proxy: this one changes what it stores")
    return failed or ok("write", "wrote, read back and removed an object")


def _latency(storage: Storage, key: str, reached: Reached) -> Finding:
    times = []
    for _ in range(_TRIES):
        started = time.monotonic()
        try:
            storage.get(key, stop=1)
        except MdsxError as error:
            return refusal("latency", error, advice="check the network, and try again")
        times.append(time.monotonic() - started)
    reached.latency = seconds = statistics.median(times)
    found = f"{1000 * seconds:.3g} ms for a byte (the median of {_TRIES} requests)"
    if seconds <= _FAR:
        return ok("latency", found, seconds=seconds)
    advice = "train in the region of the bucket; elsewhere, fill the cache first: `mdsx cache warm URL`"
    return warning("latency", found, advice, seconds=seconds)


class _Enough(Exception):
    """Ends a download."""


def check_throughput(storage: Storage, shards: Sequence[tuple[str, int]], need: float | None) -> Finding:
    """Download `shards` (name, bytes), 8 at a time, for a second or two after the first byte. `need`: bytes a second
    that a run on this machine takes, if known."""
    arrived: list[float] = []  # when
    received = [0] * _AT_ONCE

    def download(worker: int) -> None:
        def sink(data: bytes) -> None:
            received[worker] += len(data)
            now = time.monotonic()
            arrived.append(now)
            if now - arrived[0] > _SECONDS or sum(received) > _MOST:
                raise _Enough

        for turn in range(max(1, len(shards) // _AT_ONCE)):
            name, size = shards[(turn * _AT_ONCE + worker) % len(shards)]
            storage.download(name, sink, size=size)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        failures = [future.exception() for future in [threads.submit(download, each) for each in range(_AT_ONCE)]]
    seconds = max(arrived[-1] - arrived[0], 1e-6) if arrived else 1e-6
    for failure in failures:
        if isinstance(failure, MdsxError):
            return refusal("throughput", failure, advice="check the network, and try again")
        if failure is not None and not isinstance(failure, _Enough):
            raise failure
    rate = sum(received) / seconds
    amount = f"{format_size(sum(received))} in {seconds:.2g} s, {_AT_ONCE} downloads at a time"
    found = f"{format_size(int(rate))}/s ({amount})"
    figures = {"bytes_per_second": rate, "needed_bytes_per_second": need}
    if need is not None:
        found += f"; the run needs {format_size(int(need))}/s"
        if rate >= need:
            return ok("throughput", found, **figures)
        advice = (
            "the GPUs would wait in the first epoch: use a faster link or machines near the bucket, fill the cache "
            "first (`mdsx cache warm URL`), or store smaller samples"
        )
        return problem("throughput", found, advice, **figures)
    if rate >= _SLOW or (sum(received) < 1e6 and seconds < 0.9 * _SECONDS):  # so little data shows nothing
        return ok("throughput", found, **figures)
    advice = "use a faster link or a machine near the bucket, or fill the cache first: `mdsx cache warm URL`"
    return warning("throughput", f"{found}, less than {format_size(int(_SLOW))}/s", advice, **figures)


def list_all(storage: Storage, most: int) -> dict[str, int] | None:
    """Return the sizes of the first `most` objects, by key; None if they cannot be listed."""
    found: dict[str, int] = {}
    with suppress(MdsxError):
        for entry in storage.list():
            found[entry.key] = entry.size
            if len(found) == most:
                break
        return found
    return None
