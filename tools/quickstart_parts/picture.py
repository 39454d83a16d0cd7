"""The picture of a training that was killed and resumed: its loss, and the order in which it read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.quickstart_parts.compare import Batch
from tools.quickstart_parts.run import Report

_COLOURS = ("tab:blue", "tab:orange")


def draw(
    path: Path,
    *,
    titles: Sequence[str],
    reports: Sequence[Sequence[Report]],
    resumed_at: int,
    batches: Sequence[Batch],
    places: Mapping[str, int],
) -> None:
    """Write the picture to `path`. `reports` and `titles` are by run; `places` tells where in the dataset a key is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (loss, order) = pyplot.subplots(2, 1, figsize=(9, 9), sharex=True, layout="constrained")
    for title, colour, run in zip(titles, _COLOURS, reports, strict=True):
        loss.plot([step.stop for step in run], [step.loss for step in run], color=colour, label=title)
    loss.axvline(resumed_at, color="grey", linestyle=":", label="checkpoint resumed from")
    loss.set(title="Loss", ylabel="bits per byte")
    loss.legend()
    for number, colour in enumerate(_COLOURS):
        points = [
            (batch.start + offset, places[key])
            for batch in batches
            if batch.run == number
            for offset, key in enumerate(batch.keys)
        ]
        order.scatter(*zip(*points, strict=True), s=2, color=colour)
    order.axvline(resumed_at, color="grey", linestyle=":")
    order.set(title="Order", xlabel="position in the epoch", ylabel="sample in the dataset")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
