"""What the ranks of a run must agree on, or they lose and repeat samples: one hash, compared where that costs nothing.

Rules:
- Nothing here waits for another rank. If torch.distributed is initialised, the ranks share a store: the first rank to
  arrive writes its facts there, and each later rank compares them with its own.
- Only loaders made with the same arguments are compared, the nth of each rank, when they begin, and when they begin
  after a state was loaded. Facts differ if the dataset was replaced, or parts were appended, while the job started.
  Positions differ if the ranks loaded different states.
- Versions are compared first: different versions of mdsx may compare different facts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

import xxhash

from mdsx.errors import UsageError, shown
from mdsx.loader.reading import Reading
from mdsx.order import MAX_SAMPLES, Tick
from mdsx.stream import Steps

_FOUND = (
    "fingerprint",
    "lanes",
    "shuffle_block",
    "epoch_samples",
    "positions",
    "lengths",
    "phases",
    "begin",
    "ranks_per_node",
    "decode",
)
"""Facts that depend on data and state; all others are arguments."""
_HINTS = {
    "fingerprint": "the dataset was replaced, or parts were appended, while the job started: start it again, and open "
    "one state on all ranks, with mdsx.Dataset(url, snapshot=...)",
    "begin": "load the same state on all ranks",
    "ranks_per_node": "give all ranks the same ranks_per_node=",
    "decode": "give all ranks the same decode=",
    "positions": "the index was replaced while the job started: start it again, or give batching= a window",
}
_begun = Counter[str]()  # how many loaders this process made with the same arguments


class Store(Protocol):
    """A `torch.distributed.Store`."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


def agreed(reading: Reading, steps: Steps) -> dict[str, Any]:
    """Return the facts that decide which samples come in which step, as JSON. They must be equal on all ranks."""
    order = reading.identity.state(0, 0, reached=Tick(MAX_SAMPLES))
    spec = reading.spec
    sizes = {"batch_size": spec.rows}
    if spec.global_batch_size is not None:
        sizes = {"global_batch_size": spec.global_batch_size, "micro_batch": spec.micro_batch}
    cut = {**sizes, "world_size": steps.world_size, "drop_last": spec.drop_last}
    if "balance" in reading.batcher.fields:
        cut["ranks_per_node"] = steps.node
    given = {name: value for name, value in order.items() if name not in ("epoch", "position")}
    plan = reading.plan
    phases = [[phase.at, phase.fields] for phase in plan.phases] if plan.changes else []
    planned = {"plan": phases, "skip": plan.skip} if phases else {}
    return {**given, **reading.batcher.fields, **cut, **planned}


def asked(reading: Reading) -> object:
    """Return a run's arguments, as JSON: equal on ranks with equal arguments."""
    view, spec = reading.view, reading.spec
    return [
        [[[shards.storage.url for shards in excerpt.datasets], excerpt.subset.name] for excerpt in view.excerpts],
        [column.name for column in view.schema.columns],
        [str(spec.shuffle), str(spec.epoch_samples), str(spec.batching.window)],
    ]


def decoders(reading: Reading) -> list[list[str]]:
    """Return a run's decoders, as JSON; for decoders without a `repr` of their own, the class."""
    return [
        [name, *(repr(one) if type(one).__repr__ is not object.__repr__ else type(one).__qualname__ for one in each)]
        for name, each in sorted(reading.view.decodes.items())
    ]


def digest(found: Mapping[str, Any]) -> str:
    """Return a hash of JSON values, 16 digits. Ranks that agree have the same hash."""
    hashed: str = xxhash.xxh3_64_hexdigest(_text(found).encode())
    return hashed


def compare(
    store: Store, source: object, agreed: Mapping[str, Any], *, loads: int, begin: object, decode: object = ()
) -> None:
    """Raise UsageError if another rank's nth loader with the same arguments and `source` has other facts than `agreed`,
    begins elsewhere than at `begin` after the same number of `loads`, or has other decoders than `decode`."""
    given = {name: value for name, value in agreed.items() if name not in _FOUND}
    text = _text({name: value for name, value in agreed.items() if name in _FOUND} | {"begin": begin, "decode": decode})
    name = digest({"source": source, "loads": loads, **given})
    try:
        other = json.loads(store.compare_set(f"mdsx/{name}/{_begun[name] + 1}", "", text))
    except RuntimeError:  # not every store can do this
        return
    here = json.loads(text)
    for place in _FOUND:
        if here.get(place) != other.get(place):
            samples = "the ranks do not agree on the samples: they would lose and repeat some"
            raise UsageError(
                "the ranks decode differently" if place == "decode" else samples,
                place=place,
                found=shown(here.get(place)),
                expected=f"{shown(other.get(place))}, as the first rank found",
                hint=_HINTS.get(place, "give all ranks the same data"),
            )
    _begun[name] += 1  # only now: a rank that tries again is compared again


def compare_versions(store: Store) -> None:
    """Raise UsageError if the first rank runs another version of mdsx, which may compare other facts."""
    version: str = sys.modules["mdsx"].__version__
    try:
        first = store.compare_set("mdsx/version", "", version).decode()
    except RuntimeError:  # not every store can do this
        return
    if first != version:
        raise UsageError(
            "the ranks run different versions of mdsx, which cannot check that they read the same order",
            found=version,
            expected=f"{first}, as the first rank has",
            hint=f"install the same version on all ranks, for example with `pip install mdsx=={first}`",
        )


def compare_change(store: Store, asked: object) -> None:
    """Raise UsageError if another process's nth change of a run differs from this one."""
    text = _text({"asked": asked})
    try:
        other = store.compare_set(f"mdsx/change/{_begun['change'] + 1}", "", text).decode()
    except RuntimeError:  # not every store can do this
        return
    if other != text:
        raise UsageError(
            "the ranks ask for different changes of the run: they would lose and repeat samples",
            found=text,
            expected=f"{other}, as the first rank asked",
            hint="call loader.change() on every rank at the same position, with the same phase",
        )
    _begun["change"] += 1


def _text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True, default=int)  # NumPy's integers
