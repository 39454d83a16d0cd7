"""The tables of docs/trainers.md: what each framework reads of 1,003 samples on several ranks, or refuses to read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests import fork_server
from tests.examples.frameworks import Outcome, run_all
from tools.environment import PeerEnvironment

pytestmark = pytest.mark.slow

N = 1003
SINGLE, DIVIDED, NUMBER = "single samples are read", "divides samples", "read in its order, not by number"
FILLED, GATHERED = "would fill up the last step", "Trainer gathers the tensors of all ranks"
Expected = dict[str, tuple[int, int] | str]  # (samples, different ones), or a part of the error's text

TRAININGS: Expected = {  # on 2 ranks
    "StreamingDataLoader": (N, N),
    "DataLoader(StreamingDataset(url), 16)": SINGLE,
    "DataLoader(StreamingDataset(url, batch_size=16), batch_size=None)": (N, N),
    "Subset": NUMBER,
    "random_split": NUMBER,
    "ConcatDataset": "ConcatDataset does not support IterableDataset",
    "ChainDataset": SINGLE,
    "ChainDataset, batch_size=16": (N, N),
    "Dataset, DistributedSampler": (N + 1, N),
    "Dataset, DistributedSampler, drop_last": (N - 1, N - 1),
    "Accelerate: StreamingDataLoader": (N, N),
    "Accelerate: single samples": DIVIDED,
    "Accelerate: single samples, not dispatched": DIVIDED,
    "Accelerate: batch_size=16": DIVIDED,
    "Accelerate: batch_size=16, not dispatched": "TypeError",  # Accelerate's
    "Accelerate: rank=0, world_size=1": (N + 1, N),
    "Accelerate: rank=0, world_size=1, drop_last": (992, 992),
    "Accelerate: rank=0, world_size=1, not dispatched": FILLED,
    "Accelerate: rank=0, world_size=1, not dispatched, drop_last": (992, 992),
    "Accelerate: Dataset": (1024, N),
    "Accelerate: Dataset, even_batches=False": (N, N),
    "Lightning: StreamingDataLoader": (N, N),
    "Lightning: single samples": SINGLE,
    "Lightning: batch_size=16": (N, N),
    "Lightning: Dataset": (N + 1, N),
    "Trainer: StreamingDataLoader": (N, N),
    "Trainer: single samples": DIVIDED,
    "Trainer: batch_size=16": DIVIDED,
    "Trainer: rank=0, world_size=1": (N + 1, N),
    "Trainer: rank=0, world_size=1, epoch_samples=1002": (N - 1, N - 1),
    "Trainer: Dataset": (1024, N),
}
VALIDATIONS: Expected = {
    "Lightning: StreamingDataLoader": (N, N),
    "Lightning: single samples": SINGLE,
    "Lightning: Dataset": (N + 1, N),  # on 2 ranks
}
EVALUATIONS: Expected = {  # each rank has the samples of all
    "all_gather and mask": (N, N),
    "all_gather_object": (N, N),
    "torchmetrics": (N, N),
    "Accelerate: gather and mask": (N, N),
    "Accelerate: gather_for_metrics of objects": (N, N),
    "Accelerate: Dataset, gather_for_metrics": (N, N),
    "Accelerate: single samples, gather_for_metrics": DIVIDED,
    "Accelerate: rank=0, world_size=1, gather_for_metrics": (N, N),
    "Accelerate: rank=0, world_size=1, not dispatched, gather_for_metrics": FILLED,
    "Lightning: StreamingDataLoader, all_gather and mask": (N, N),
    "Trainer: Dataset": (N, N),
    "Trainer: single samples": DIVIDED,
    "Trainer: rank=0, world_size=1": (N, N),
    "Trainer: StreamingDataLoader": GATHERED,
    "Trainer: StreamingDataLoader and mask": (N, N),
}


@pytest.fixture(scope="module")
def packages() -> str:
    environment = PeerEnvironment("frameworks")
    environment.install()
    return str(environment.packages)


def seen(outcomes: list[Outcome], *, gathered: bool = False) -> tuple[int, int] | str:
    """Return how many samples were seen, and how many different ones; or the first error."""
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if errors:
        return errors[0]
    lists = [outcome.numbers for outcome in outcomes]
    counts = Counter(lists[0] if gathered else [number for numbers in lists for number in numbers])
    if gathered:
        assert all(Counter(numbers) == counts for numbers in lists)
    return counts.total(), len(counts)


def check(found: dict[str, list[Outcome]], expected: Expected, *, gathered: bool = False) -> None:
    assert set(found) == set(expected)
    wrong = {}
    for name, outcomes in found.items():
        what, wanted = seen(outcomes, gathered=gathered), expected[name]
        if what != wanted and not (isinstance(what, str) and isinstance(wanted, str) and wanted in what):
            wrong[name] = what
    assert not wrong


def test_trainings_see_what_the_page_says(data: str, tmp_path: Path, packages: str) -> None:
    check(fork_server.call(run_all, "WAYS", data, tmp_path, 2, packages, timeout=280), TRAININGS)


def test_validations_see_what_the_page_says(data: str, tmp_path: Path, packages: str) -> None:
    check(fork_server.call(run_all, "VALIDATIONS", data, tmp_path, 2, packages, timeout=280), VALIDATIONS)


@pytest.mark.parametrize("ranks", [2, 3])
def test_evaluations_have_each_sample_once(data: str, tmp_path: Path, packages: str, ranks: int) -> None:
    found = fork_server.call(run_all, "EVALUATIONS", data, tmp_path, ranks, packages, timeout=280)
    check(found, EVALUATIONS, gathered=True)
