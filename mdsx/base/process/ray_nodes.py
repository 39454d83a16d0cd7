"""The nodes of a Ray cluster: join a cluster, and check that each node can run the tasks of this process."""

from __future__ import annotations

import logging
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import zstandard

from mdsx.errors import TransportError, UsageError

_ANSWER = 120.0  # seconds to wait for a node, which may have to start its first process


def import_ray() -> Any:
    """Return Ray. Raise UsageError if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise UsageError("Ray is not installed", hint="pip install 'mdsx[ray]'") from error
    return ray


@contextmanager
def joined(ray: Any) -> Iterator[None]:
    """Use the cluster that this process has joined already. Otherwise join the one that `ray.init()` finds or starts,
    and leave it at the end. Raise TransportError."""
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(logging_level=logging.WARNING, log_to_driver=False)  # what workers print is in Ray's logs
    except (ConnectionError, RuntimeError, ValueError) as error:
        hint = "is it running? RAY_ADDRESS must be its address; without RAY_ADDRESS and a local cluster, Ray starts one"
        raise TransportError(f"cannot join the Ray cluster: {error}", hint=hint) from error
    try:
        yield
    finally:
        ray.shutdown()


def on_node(ray: Any, node: str) -> Any:
    """Return the strategy that schedules only on the node with this ID."""
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def cause(failed: Any) -> str:
    """Return the error that made a Ray task fail, in one line."""
    error = failed.cause
    return " ".join(f"{type(error).__name__}: {error}".split())


class _Facts(NamedTuple):
    """A node's host, its versions, and the first of the paths that it lacks."""

    host: str
    versions: str
    missing: str | None


def _facts(paths: Sequence[str]) -> _Facts:
    versions = f"mdsx {sys.modules['mdsx'].__version__}, libzstd {'.'.join(map(str, zstandard.ZSTD_VERSION))}"
    return _Facts(platform.node(), versions, next((path for path in paths if not os.path.exists(path)), None))


def check_nodes(ray: Any, paths: Iterable[str]) -> None:
    """Check that each node that runs tasks has the versions of this process, and those of `paths` that exist here.

    Raise UsageError.
    """
    with ExitStack() as marks:
        wanted: dict[str, str] = {}  # path to look for -> path to name in the error
        for path in filter(os.path.exists, paths):
            wanted[path] = path
            if os.path.isdir(path):  # another node may have another folder of that name, but without this new file
                with suppress(OSError):
                    mark = tempfile.NamedTemporaryFile(prefix=".shared-", dir=path)  # noqa: SIM115
                    wanted[marks.enter_context(mark).name] = path
        here, probe = _facts(()), ray.remote(num_cpus=0)(_facts)
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        places = [on_node(ray, node["NodeID"]) for node in nodes]
        answers = [probe.options(scheduling_strategy=place).remote([*wanted]) for place in places]
        for host, answer in zip((node["NodeManagerHostname"] for node in nodes), answers, strict=True):
            try:
                there = _Facts(*ray.get(answer, timeout=_ANSWER))
            except ray.exceptions.RayTaskError as error:
                hint = "install the same mdsx on all nodes, with the extras that the call needs"
                raise UsageError(f"the node {host} cannot run mdsx: {cause(error)}", hint=hint) from error
            except (ray.exceptions.RayError, TimeoutError):  # the node is lost or busy: others may run its tasks
                continue
            if there.versions != here.versions:
                message, hint = f"the node {host} has different versions", "install the same ones on all nodes"
                raise UsageError(message, found=there.versions, expected=here.versions, hint=hint)
            if there.missing:
                message = f"the node {host} lacks this path, which exists on {here.host}"
                hint = "give URLs such as s3://, or paths on a file system that all nodes of the cluster share"
                raise UsageError(message, file=wanted[there.missing], hint=hint)
