"""Several datasets read as one: by proportion, or each sample exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from typing import Any

import xxhash

from mdsx.datasets.dataset import Dataset, batched_excerpt_of, excerpt_of, with_excerpt
from mdsx.errors import UsageError, shown
from mdsx.format import BOOL
from mdsx.order import Phases, Weight, bounds_of, check_whole_runs, exact_weight
from mdsx.shards import ColumnChoice, DatasetSlice, DTypes, Fill, Shards, View
from mdsx.storage import StorageOptions, sealed
from mdsx.storage.cache import Cache, CacheLike


@dataclass(frozen=True)
class Component:
    """One dataset of a mixture, and how much of it an epoch has.

        mdsx.Mixture([mdsx.Component("s3://bucket/a", repeat=2), mdsx.Component("s3://bucket/b", samples=1000)])

    Give at most one of `proportion`, `repeat` and `samples`.

    Args:
        dataset: A URL, an `mdsx.Dataset`, or another `mdsx.Mixture`.
        proportion: Its share of all samples, relative to the proportions of the other components.
        repeat: How often it is read in an epoch; may be a fraction.
        samples: How many of its samples an epoch has.
        columns: The columns to read: their names, or a mapping from names in the mixture to names in this dataset, or
            to `mdsx.Cast(name, type)`: components whose numbers have other types need one type in the mixture.
        storage_options: As in `mdsx.Dataset`, if the dataset is a URL; by default, those of the mixture.
    """

    dataset: str | os.PathLike[str] | Dataset | Mixture
    proportion: Weight | None = None
    _: KW_ONLY
    repeat: Weight | None = None
    samples: int | None = None
    columns: ColumnChoice | None = None
    storage_options: StorageOptions | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", sealed(self.storage_options))


@dataclass(frozen=True)
class _Member:
    """A component after nested mixtures are flattened."""

    name: str
    excerpt: DatasetSlice
    amount: Fraction  # samples in an epoch, or a share


class Mixture:
    """Several datasets, to be streamed as one by `mdsx.torch.StreamingDataset`.

        mixture = mdsx.Mixture({"wiki": ("s3://bucket/wiki", 0.7), "web": ("s3://bucket/web", 0.3)})
        data = StreamingDataset(mixture, seed=7)

    Every batch has each component's share as exactly as its size allows, on any number of ranks and workers. Each
    component is read in a shuffled order of its own, epoch after epoch.

    Without proportions, `repeat`, `samples` or a schedule, an epoch is every sample of every dataset exactly once,
    shuffled together. With `repeat` or `samples`, an epoch has that many samples of each component, give or take a few
    at its ends, because each component continues in the next epoch.

    Args:
        components: A list, or a mapping from names, of datasets. Each is a URL, an `mdsx.Dataset` or an `mdsx.Mixture`,
            alone or as a pair (dataset, proportion), or an `mdsx.Component`. A mixture as a component counts as its
            components, with its weight multiplied by theirs.
        columns: The columns to read of all components. They must agree in name and type.
        dtypes, fill: As in `mdsx.Dataset`, of all components: so that they agree.
        component_column: The name of one more column, int64: the number of the component that a sample is from.
        epoch_samples: The samples of an epoch. The default is the sum of what `repeat` and `samples` give, or else of
            the datasets' sizes, rounded down to whole runs if there is `run`.
        run: The number of successive positions that draw the same component, over all ranks; a multiple of the lanes
            (8, or those of `mdsx.Shuffle`). With `run = batch_size * world size`, all samples of a global batch are of
            one component. Components then have their shares over many runs, not in every batch.
        schedule: Proportions by position: a mapping from positions, which count the samples since the run began over
            all ranks and epochs, to what `reweight` takes. It has position 0, and each entry holds up to the next one.
            Then the components are datasets without proportions of their own.
        cache: An `mdsx.Cache`, or its directory, for the components that are given as URLs, and for datasets that were
            opened without one.
        storage_options: As in `mdsx.Dataset`, for the components that are given as URLs.

    Raises:
        UsageError: The columns differ (the error shows both), or an argument is invalid.
    """

    def __init__(
        self,
        components: Sequence[Any] | Mapping[str, Any],
        *,
        columns: ColumnChoice | None = None,
        dtypes: DTypes | None = None,
        fill: Fill | None = None,
        component_column: str | None = None,
        epoch_samples: int | None = None,
        run: int | None = None,
        schedule: Mapping[int, Sequence[Weight] | Mapping[str, Weight]] | None = None,
        cache: CacheLike = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        named = components.items() if isinstance(components, Mapping) else enumerate(components)
        given = [(str(name), _component(value)) for name, value in named]
        if not given:
            raise UsageError("a mixture needs a component")
        if schedule is not None:
            _check_scheduled(given)
        self.component_column = component_column
        opened = [_open(component, columns, cache, storage_options) for _, component in given]
        amounts = _amounts(
            given, [_size(component, inner) for (_, component), inner in zip(given, opened, strict=True)]
        )
        members = []
        for (name, _), inner, amount in zip(given, opened, amounts, strict=True):
            whole = sum(member.amount for member in inner)
            for member in inner:
                full = f"{name}/{member.name}" if member.name else name
                members.append(replace(member, name=full, amount=amount * member.amount / whole if whole else amount))
        self._members = _agreed([replace(member, excerpt=member.excerpt.change(dtypes, fill)) for member in members])
        self.weighted = schedule is not None or not all(_once(component) for _, component in given)
        self._sizes = [int(member.excerpt.subset.counts.sum()) for member in members]
        absolute = all(component.proportion is None for _, component in given)
        self.epoch_samples = round(sum(amounts)) if absolute else sum(self._sizes)
        self.run = None if run is None else _count(run, "run", 1)
        if self.run is not None:
            if not self.weighted:
                hint = "give each component a proportion or repeat=1"
                raise UsageError("run= requires proportions", found=f"run={run}, no proportions", hint=hint)
            self.epoch_samples -= self.epoch_samples % self.run
        if epoch_samples is not None:
            self.epoch_samples = _count(epoch_samples, "epoch_samples", 1)
        if self.run is not None:
            check_whole_runs(self.epoch_samples, self.run)
        self.phases: Phases = ()
        if schedule is not None:
            self.phases = self._scheduled(schedule)
        elif self.weighted:
            self.phases = ((0, self._checked([member.amount for member in members])),)

    def __repr__(self) -> str:
        excerpts = ", ".join(f"{member.name}: {member.excerpt.shards.storage.url}" for member in self._members)
        return f"Mixture({excerpts}; epoch_samples={self.epoch_samples})"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the components' names, in order: "0", "1", ... in a list; nested ones are `outer/inner`."""
        return tuple(member.name for member in self._members)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of samples of each component."""
        return tuple(self._sizes)

    @property
    def components(self) -> tuple[tuple[str, str], ...]:
        """Return the name and the fingerprint of each component."""
        return tuple((member.name, member.excerpt.fingerprint) for member in self._members)

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns' names and types."""
        return _types(self._members[0])

    @property
    def proportions(self) -> tuple[float, ...]:
        """Return the share of each component at the start of a run."""
        weights = self.phases[0][1] if self.phases else self._sizes
        amounts = [Fraction(weight) for weight in weights]
        total = sum(amounts)
        return tuple(float(amount / total) for amount in amounts) if total else ()

    @property
    def fingerprint(self) -> str:
        """Return a hash of the components' content, in their order, and of a schedule with more than one entry."""
        lines = ["mixture", *(member.excerpt.fingerprint for member in self._members)]
        if len(self.phases) > 1:
            for start, weights in self.phases:
                lines.append(f"{start}:" + ",".join(f"{bound:016x}" for bound in bounds_of(weights, self._sizes)))
        return xxhash.xxh3_128_hexdigest("\n".join(lines).encode())

    def _weights(
        self,
        proportions: Sequence[Weight] | Mapping[str, Weight],
        place: str | None = None,
        now: Sequence[Weight] | None = None,
    ) -> tuple[Weight, ...]:
        """Return proportions in the order of the components; `now`: those that a mapping need not have.

        Raise UsageError, with `place`, if one is missing, unknown or invalid.
        """
        if not self.weighted:
            raise UsageError("a mixture without proportions has no weights to change", hint="give each a proportion")
        if isinstance(proportions, Mapping):
            known = {} if now is None else dict(zip(self.names, now, strict=True))
            if unknown := [name for name in proportions if name not in self.names]:
                there = ", ".join(self.names)
                raise UsageError("there is no such component", place=place, found=shown(unknown[0]), expected=there)
            if not proportions or {*known, *proportions} != set(self.names):
                raise UsageError(
                    "proportions need a number for each component",
                    place=place,
                    found=dict(proportions),
                    expected=", ".join(self.names),
                )
            proportions = [proportions.get(name, known.get(name, 0)) for name in self.names]
        return self._checked(proportions)

    def _with_cache(self, cache: Cache) -> Mixture:
        other = copy(self)
        other._members = tuple(replace(member, excerpt=member.excerpt.with_cache(cache)) for member in self._members)
        return other

    def _view(self, columns: ColumnChoice | None, dtypes: DTypes | None, fill: Fill | None) -> View:
        excerpts = []
        for member in self._members:
            member.excerpt.check_caches()
            excerpt = member.excerpt if columns is None else member.excerpt.choose(columns)
            excerpts.append(excerpt.change(dtypes, fill))
        return View(excerpts, self.component_column)

    def _scheduled(self, schedule: Mapping[int, Sequence[Weight] | Mapping[str, Weight]]) -> Phases:
        if not isinstance(schedule, Mapping):
            raise UsageError(
                "a schedule is a mapping from positions to proportions",
                found=shown(schedule),
                hint="write schedule={0: {...}, 10_000_000: {...}}",
            )
        for position in schedule:
            _count(position, "a position of the schedule", 0)
        if 0 not in schedule:
            raise UsageError(
                "a schedule needs the proportions at position 0", found=f"positions {shown(sorted(schedule))}"
            )
        return tuple(
            (position, self._weights(schedule[position], f"schedule[{position}]")) for position in sorted(schedule)
        )

    def _checked(self, proportions: Sequence[Weight]) -> tuple[Weight, ...]:
        if len(proportions) != len(self._members):
            raise UsageError(
                "proportions need a number for each component", found=len(proportions), expected=", ".join(self.names)
            )
        exact = [
            exact_weight(weight, f"the proportion of {member.name}")
            for weight, member in zip(proportions, self._members, strict=True)
        ]
        if not sum(exact):
            raise UsageError("a component needs a proportion above 0")
        for member, size, weight in zip(self._members, self._sizes, exact, strict=True):
            if weight and not size:
                raise UsageError(
                    f"component {member.name} has no samples but a proportion", file=member.excerpt.shards.storage.url
                )
        return tuple(proportions)


def add_phase(phases: Phases, position: int, weights: tuple[Weight, ...]) -> Phases:
    """Return `phases` with one that starts at `position`, up to the next one of them."""
    before = [phase for phase in phases if phase[0] < position]
    return (*before, (position, weights), *(phase for phase in phases if phase[0] > position))


def _component(given: Any) -> Component:
    if isinstance(given, Component):
        chosen = [given.proportion, given.repeat, given.samples]
        if sum(value is not None for value in chosen) > 1:
            raise UsageError("a component has a proportion, or repeat, or samples, or none of them", found=shown(given))
        if given.storage_options is not None and isinstance(given.dataset, Dataset | Mixture):
            hint = "give storage_options= to the mdsx.Dataset"
            raise UsageError("a component that is open already has its storage options", found=shown(given), hint=hint)
        return given
    if isinstance(given, str | os.PathLike | Dataset | Mixture):
        return Component(given)
    if isinstance(given, Sequence) and len(given) == 2 and isinstance(given[0], str | os.PathLike | Dataset | Mixture):
        return Component(given[0], given[1])
    raise UsageError(
        "a component of a mixture is a URL, a Dataset or a Mixture, alone, with its proportion, or as mdsx.Component",
        found=shown(given),
    )


def _check_scheduled(given: Sequence[tuple[str, Component]]) -> None:
    """Raise UsageError if components have weights that a schedule does not know."""
    for name, component in given:
        if isinstance(component.dataset, Mixture):
            raise UsageError(
                f"component {name} of a mixture with a schedule is a mixture",
                hint="make one mixture of all the datasets, and give the schedule the proportion of each",
            )
        if (component.proportion, component.repeat, component.samples) != (None, None, None):
            raise UsageError(
                f"component {name} has a weight of its own, but the schedule has the weights",
                found=shown(component),
                hint="give its proportion in the schedule, at position 0",
            )


def _once(component: Component) -> bool:
    """Whether an epoch has each of its samples once."""
    if isinstance(component.dataset, Mixture) and component.dataset.weighted:
        return False
    return component.proportion is None and component.repeat is None and component.samples is None


def _open(
    component: Component,
    columns: ColumnChoice | None,
    cache: CacheLike,
    storage_options: StorageOptions | None,
) -> list[_Member]:
    """Return the datasets of a component with their amounts."""
    source = component.dataset
    if isinstance(source, Mixture):
        if source.component_column is not None:
            raise UsageError(
                "a mixture within another one has no component_column",
                found=source.component_column,
                hint="give component_column to the outer one, which numbers the components of both",
            )
        if len(source.phases) > 1 or source.run is not None:
            raise UsageError(
                "a mixture within another one has neither a schedule nor run",
                found=f"run={source.run}" if source.run is not None else f"{len(source.phases)} phases",
                hint="give them to one mixture of all the datasets"
                if len(source.phases) > 1
                else "give run= to the outer one",
            )
        members = list(source._members)
    else:
        excerpt = (
            batched_excerpt_of(source)
            if isinstance(source, Dataset)
            else DatasetSlice.whole(
                Shards(source, cache=Cache.of(cache), storage_options=component.storage_options or storage_options)
            )
        )
        excerpt = excerpt.with_cache(Cache.of(cache), by_default=True)
        members = [_Member("", excerpt, Fraction(int(excerpt.subset.counts.sum())))]
    for chosen in (component.columns, columns):
        if chosen is not None:
            members = [replace(member, excerpt=member.excerpt.choose(chosen)) for member in members]
    return members


def _size(component: Component, members: Sequence[_Member]) -> int:
    """Return the size of a component that is read once."""
    if isinstance(component.dataset, Mixture):
        return component.dataset.epoch_samples
    return sum(int(member.excerpt.subset.counts.sum()) for member in members)


def _amounts(given: Sequence[tuple[str, Component]], sizes: Sequence[int]) -> list[Fraction]:
    """Return each component's share, or samples in an epoch."""
    without = [name for name, component in given if component.proportion is None]
    if without and len(without) < len(given):
        raise UsageError(
            "some components have a proportion and some do not",
            found=f"none for {', '.join(without)}",
            hint="give each one a proportion; repeat and samples are for mixtures without proportions",
        )
    amounts = []
    for (name, component), size in zip(given, sizes, strict=True):
        if component.proportion is not None:
            amounts.append(exact_weight(component.proportion, f"the proportion of {name}"))
        elif component.samples is not None:
            amounts.append(Fraction(_count(component.samples, f"samples of {name}", 0)))
        else:
            repeat = 1 if component.repeat is None else component.repeat
            amounts.append(exact_weight(repeat, f"repeat of {name}") * size)
    return amounts


def _agreed(members: Sequence[_Member]) -> tuple[_Member, ...]:
    """Return the members with their columns in the first one's order. Raise UsageError if they differ."""
    first = members[0]
    expected, names = _types(first), [column.name for column in first.excerpt.schema.columns]
    for member in members:
        if _types(member) != expected:
            raise UsageError(
                f"the columns of components {first.name} and {member.name} differ",
                file=member.excerpt.shards.storage.url,
                found=_types(member),
                expected=expected,
                hint="choose and rename columns by mdsx.Component(url, columns={name in the mixture: name there}), and "
                "give numbers one type by dtypes={name: type}",
            )
    return tuple(replace(member, excerpt=member.excerpt.choose(names)) for member in members)


def _types(member: _Member) -> dict[str, str]:
    excerpt = member.excerpt
    return {
        **{column.name: str(column.type) for column in excerpt.schema.columns},
        **dict.fromkeys(excerpt.masks, BOOL.name),
    }


def _count(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**62:
        raise UsageError(f"{name} must be an integer of at least {least}", found=shown(value))
    return value


# --- for the other packages of mdsx


def weights_of(
    mixture: Mixture, proportions: Sequence[Weight] | Mapping[str, Weight], now: Sequence[Weight] | None = None
) -> tuple[Weight, ...]:
    """Return a weight for each component; `now`: those in force. Raise UsageError for proportions that do not fit the
    mixture."""
    return mixture._weights(proportions, now=now)


def with_cache(dataset: Dataset | Mixture, cache: Cache) -> Dataset | Mixture:
    """Return the same, read through `cache`. Raise UsageError if a part of it was opened with another one."""
    if isinstance(dataset, Mixture):
        return dataset._with_cache(cache)
    before = excerpt_of(dataset)
    excerpt = before.with_cache(cache)
    excerpt.check_caches()
    return dataset if excerpt.datasets == before.datasets else with_excerpt(dataset, excerpt)


def view_of(
    dataset: Dataset | Mixture,
    columns: ColumnChoice | None = None,
    dtypes: DTypes | None = None,
    fill: Fill | None = None,
) -> View:
    """Return what a run reads of a dataset, or of the components of a mixture, as one."""
    if isinstance(dataset, Mixture):
        return dataset._view(columns, dtypes, fill)
    excerpt = batched_excerpt_of(dataset)
    return View([(excerpt if columns is None else excerpt.choose(columns)).change(dtypes, fill)])
