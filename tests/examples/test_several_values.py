"""Samples of several values: text with images in it, and pairs of answers. They stay together, through any kill."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runs import Programs, Start, killed

SAMPLES = 1003
NAMES = ["vision_language", "preference_pairs"]


def written(name: str, url: str) -> None:
    example: Any = importlib.import_module(name)
    example.write(url)


def images_of_an_epoch(url: str) -> tuple[list[int], int, list[list[int]], list[list[int]]]:
    """Return ids of packed samples, the most values of a row, and the tokens and patches of images in each row."""
    example: Any = importlib.import_module("vision_language")
    numbers, longest, tokens, patches = list[int](), 0, list[list[int]](), list[list[int]]()
    for batch in example.batches(url, rank=0, world_size=1):
        numbers += [number for row in batch["id"] for number in row]
        longest = max(longest, int((batch["segment_ids"] > 0).sum(1).max()))
        images = (batch["tokens"] == example.IMAGE) & (batch["segment_ids"] > 0)
        for row, segments in enumerate(batch["patches"]):
            tokens.append(
                [int((images[row] & (batch["segment_ids"][row] == place + 1)).sum()) for place in range(len(segments))]
            )
            patches.append([len(each) for each in segments])
    return numbers, longest, tokens, patches


def test_images_are_in_the_row_of_their_text(programs: Programs, tmp_path: Path) -> None:
    """Samples are packed by a stored cost, which a transform makes true."""
    programs.call(written, "vision_language", str(tmp_path / "data"))
    numbers, longest, tokens, patches = programs.call(images_of_an_epoch, str(tmp_path / "data"))
    assert sorted(numbers) == list(range(SAMPLES))
    assert tokens == patches
    assert 60 <= longest <= 64


def pairs_of_an_epoch(url: str) -> tuple[list[int], bool]:
    """Return ids, and whether each pair begins with one prompt and its answers are of their kinds."""
    example: Any = importlib.import_module("preference_pairs")
    numbers, together = list[int](), True
    for batch in example.batches(url, rank=0, world_size=1):
        numbers += batch["id"].tolist()
        chosen, rejected, prompt = batch["chosen"], batch["rejected"], example.PROMPT
        together &= bool((chosen[:, :prompt] == rejected[:, :prompt]).all())
        for tokens, step in ((chosen, 1), (rejected, -1)):
            together &= bool(((tokens[:, prompt] - tokens[:, prompt - 1] - step) % example.TOKENS == 0).all())
    return numbers, together


def test_both_answers_of_a_pair_are_in_one_batch(programs: Programs, tmp_path: Path) -> None:
    programs.call(written, "preference_pairs", str(tmp_path / "data"))
    numbers, together = programs.call(pairs_of_an_epoch, str(tmp_path / "data"))
    assert sorted(numbers) == list(range(SAMPLES))
    assert together


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_training_resumes_on_other_ranks_exactly_once(programs: Programs, tmp_path: Path, name: str) -> None:
    url = str(tmp_path / "data")
    programs.call(written, name, url)
    trained = programs.run(f"{name}.py", url, tmp_path / "run", [Start(2, killed_in=18), Start(3)])
    *first, last = trained.statuses
    assert all(map(killed, first))
    assert set(last) == {0}, trained.printed
    assert trained.epochs == [Counter(range(SAMPLES))] * 2
    losses = programs.call(losses_of, tmp_path / "run")
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])  # it learns


def losses_of(run: Path) -> list[float]:
    data: Any = importlib.import_module("data")
    return [float.fromhex(next(iter(step.losses))) for step in data.steps(run).values()]
