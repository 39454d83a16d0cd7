"""The picture of a training that was killed and resumed: its loss, and the order in which it read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.quickstart.run import Report

_COLOURS = ("tab:blue", "tab:orange")


def draw(
    path: Path,
    *,
    titles: Sequence[str],
    reports: Sequence[Sequence[Report]],
    resumed_at: int,
    points: Sequence[Sequence[tuple[int, int]]],
) -> None:
    """Write the picture to `path`. All but `resumed_at` are by run; `points` are (position, sample) of what it read."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (loss, order) = pyplot.subplots(2, 1, figsize=(9, 9), sharex=True, layout="constrained")
    for title, colour, run in zip(titles, _COLOURS, reports, strict=True):
        loss.plot([step.stop for step in run], [step.loss for step in run], color=colour, label=title)
    loss.axvline(resumed_at, color="grey", linestyle=":", label="checkpoint resumed from")
    loss.set(title="Loss", ylabel="bits per byte")
    loss.legend()
    for colour, read in zip(_COLOURS, points, strict=True):
        order.scatter(*zip(*read, strict=True), s=2, color=colour)
    order.axvline(resumed_at, color="grey", linestyle=":")
    order.set(title="Order", xlabel="position in the epoch", ylabel="sample in the dataset")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
