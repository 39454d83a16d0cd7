"""What a run reads of a dataset or a mixture, and in which order."""

from __future__ import annotations

from mdsx.dataset import Dataset
from mdsx.errors import UsageError
from mdsx.mixture import Mixture
from mdsx.order import Course, DatasetCourse, MixtureCourse, MixtureOrder, Order, Shuffle
from mdsx.shards import ColumnChoice, View


def view_of(dataset: Dataset | Mixture, columns: ColumnChoice | None = None) -> View:
    """Return what a run reads of `dataset`."""
    if isinstance(dataset, Mixture):
        return dataset.view(columns)
    return View([dataset.batched if columns is None else dataset.batched.choose(columns)])


def course_of(
    dataset: Dataset | Mixture,
    view: View,
    seed: int,
    shuffle: bool | Shuffle,
    epoch_samples: int | None,
) -> Course:
    """Return the course of a run that reads `view` of `dataset`. Raise UsageError for invalid arguments."""
    chosen = shuffle if isinstance(shuffle, Shuffle) else Shuffle()
    lanes, shuffle_block = chosen.lanes, chosen.shuffle_block
    if epoch_samples is None and isinstance(dataset, Mixture):
        epoch_samples = dataset.epoch_samples
    if not isinstance(dataset, Mixture) or not dataset.phases:
        order = Order(view.counts, seed=seed, shuffle=bool(shuffle), lanes=lanes, shuffle_block=shuffle_block)
        return DatasetCourse(order, epoch_samples)
    if not shuffle:
        raise UsageError(
            "a mixture with proportions is shuffled", hint="for shuffle=False, give its components without proportions"
        )
    counts = [excerpt.subset.counts for excerpt in view.excerpts]
    (_, weights), *later = dataset.phases
    order_of_all = MixtureOrder(
        counts, weights, seed=seed, lanes=lanes, shuffle_block=shuffle_block, phases=later, run=dataset.run
    )
    return MixtureCourse(order_of_all, view.firsts, epoch_samples)
