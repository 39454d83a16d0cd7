"""Count the groups left in a state's window, from its order and the samples' lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mdsx.datasets import Mixture, view_of
from mdsx.errors import StateError, shown
from mdsx.loader.spec import course_of
from mdsx.order import Grouping, MixtureCourse, Position, Shuffle
from mdsx.shards import Lengths, View, lengths_of, name_of_stored
from mdsx.stream import AddedLengths, Origin, Planner, number_of, origin_of, phases_of


def groups_left(state: Mapping[str, Any], mixture: Mixture) -> int | None:
    """Return the number of groups left; None if the state does not name the column of lengths. `mixture`: as in the
    state's run. Raise the errors of reading, and StateError."""
    groups, view = state["groups"], view_of(mixture)
    columns = _columns(groups.get("lengths"), view)
    if columns is None:
        return None
    lanes, block = number_of(state, "lanes"), number_of(state, "shuffle_block")
    seed, epoch = int(state["seed"]), number_of(groups if "epoch" in groups else state, "epoch")
    course = course_of(mixture, view, seed, Shuffle(lanes, block), number_of(state, "epoch_samples"))
    if not isinstance(course, MixtureCourse):
        return None
    start = epoch * course.epoch_samples + number_of(state, "position")
    course = course.with_phases(phases_of(state, len(mixture.sizes), course.epoch_samples * (epoch + 1)))
    fields = {name: groups.get(name) for name in ("kind", "capacity", "positions", "oversize", "max_samples")}
    if fields["kind"] not in ("pack", "max_tokens", "concat"):
        raise StateError("the state has groups of another kind", place="groups.kind", found=shown(fields["kind"]))
    rule = Grouping(fields["kind"], fields["capacity"], fields["positions"], fields["oversize"], fields["max_samples"])
    lengths: Lengths = lengths_of(view, columns)
    if "added" in groups["lengths"]:
        lengths = AddedLengths(lengths, number_of(groups["lengths"], "added", "groups.lengths."))
    position, number = origin_of(groups)
    planner = Planner(
        view,
        course,
        lengths,
        rule,
        seed=seed,
        shuffle=True,
        origin=Origin(epoch, Position(position), number),
    )
    window, taken = number_of(groups, "window", "groups."), number_of(groups, "taken", "groups.")
    windows = planner.windows(epoch)
    if not windows.first <= window < windows.end or windows[window][0] != start:
        return None
    left, _ = planner.block(epoch, window, taken)
    return len(left)


def _columns(lengths: Any, view: View) -> str | tuple[str, ...] | None:
    """Return the columns of lengths that a state's groups were made by."""
    if not isinstance(lengths, Mapping):
        return None
    if "longest" in lengths:
        names = [_columns(each, view) for each in lengths["longest"]]
        found = tuple(name for name in names if isinstance(name, str))
        return found if len(found) == len(names) else None
    each = lengths.get("each", [lengths])
    for excerpt, own in zip(view.components, each, strict=False):
        if excerpt is not None and isinstance(own, Mapping) and isinstance(own.get("column"), str):
            return name_of_stored(excerpt, own["column"])
    return None
