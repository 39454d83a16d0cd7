"""Several datasets read as one: by proportion, or each sample exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.base.cached import cached_property
from mdsx.datasets.dataset import Dataset, batched_excerpt_of, dataset_of, excerpt_of, with_excerpt
from mdsx.datasets.exclusions import Excludes, Held, checked_numbers, hash_of, left_out
from mdsx.datasets.length_sums import sum_of_lengths
from mdsx.datasets.listed import Listed, fingerprint_of, unique_names
from mdsx.datasets.mixture_json import described
from mdsx.errors import UsageError, shown
from mdsx.order import LeftOut, Phases, Weight, bounds_of, check_whole_runs, exact_weight
from mdsx.shards import ColumnChoice, DatasetSlice, Decode, DTypes, Fill, Shards, View
from mdsx.storage import StorageOptions, sealed
from mdsx.storage.cache import Cache, CacheLike


@dataclass(frozen=True)
class Component:
    """One dataset of a mixture, and how much of it an epoch reads.

        mdsx.Mixture([mdsx.Component("s3://bucket/a", repeat=2), mdsx.Component("s3://bucket/b", samples=1000)])

    Give at most one of `proportion`, `repeat` and `samples`.

    Args:
        dataset: A URL, an `mdsx.Dataset`, or another `mdsx.Mixture`.
        proportion: Its share of all samples, relative to the proportions of the other components.
        repeat: How often an epoch reads it; may be a fraction.
        samples: How many of its samples an epoch reads.
        columns: The columns to read: their names, or a mapping from names in the mixture to names in this dataset or to
            `mdsx.Cast(name, type)`. Cast columns of numbers whose type differs between components.
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
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # of excluded samples
    total: int | None = None  # the sum of the lengths, if proportions count lengths

    @cached_property
    def listed(self) -> Listed:
        samples = int(self.excerpt.subset.counts.sum())
        return Listed(self.name, self.excerpt.fingerprint, samples, self.total)


class Mixture:
    """Several datasets, to be streamed as one by `mdsx.torch.StreamingDataset`.

        mixture = mdsx.Mixture({"wiki": ("s3://bucket/wiki", 0.7), "web": ("s3://bucket/web", 0.3)})
        data = StreamingDataset(mixture, seed=7)

    Each 256 successive samples have each component's share, within two samples or so. In smaller batches, and in those
    that are no multiple of 256, components vary nearly as if drawn at random. The samples of a batch are the same on
    any number of ranks and workers. Each component is read in its own shuffled order, epoch after epoch.

    Without proportions, `repeat`, `samples` or a schedule, an epoch reads every sample of every dataset exactly once,
    shuffled together. With `repeat` or `samples`, an epoch reads that many samples of each component. The number may be
    off by a few, because each component continues in the next epoch.

    Args:
        components: A list of datasets, or a mapping from names to datasets. Each is a URL, an `mdsx.Dataset` or an
            `mdsx.Mixture`, alone or as a pair (dataset, proportion), or an `mdsx.Component`. A nested mixture counts as
            its components, with its weight multiplied by theirs.
        columns: The columns to read of all components. They must agree in name and type.
        dtypes: As in `mdsx.Dataset`, for all components.
        fill: Likewise.
        component_column: Add an int64 column with this name: the number of the component that a sample comes from.
        epoch_samples: The samples of an epoch. The default is the sum that `repeat` and `samples` give, or otherwise
            the sum of the datasets' sizes, rounded down to whole runs if `run` is given.
        run: The number of successive positions that draw from the same component, over all ranks. It must be a multiple
            of the lanes, which by default divide it. With `run = batch_size * world size`, each global batch comes
            from one component. Components then have their shares over many runs, not in every batch.
        schedule: Proportions by position: a mapping from positions to what `reweight` takes. Positions count the
            samples since the run began, over all ranks and epochs. Position 0 is required, and each entry applies up to
            the next one. The components are then datasets without proportions of their own.
        proportions_of: The column of lengths, such as "tokens", that the proportions count: they are then shares of
            tokens. A component's share of samples is its proportion divided by its mean length, exactly. The sum of its
            lengths comes from the index, the file of lengths, or the rows.
        exclude: Samples that are never read, such as withdrawn documents: a mapping from a component's name to sample
            numbers in that dataset or selection. Every rank needs the same numbers in the same order. To exclude
            samples in the middle of a run, use `mdsx.change`. Epochs stay as long; batches of samples have fewer.
        cache: An `mdsx.Cache`, or its directory, for components that are URLs, and for datasets that were opened
            without a cache.
        storage_options: As in `mdsx.Dataset`, for components that are URLs.

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
        proportions_of: str | None = None,
        exclude: Excludes | None = None,
        cache: CacheLike = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        named = components.items() if isinstance(components, Mapping) else enumerate(components)
        given = [(str(name), _component(value)) for name, value in named]
        if not given:
            raise UsageError("a mixture needs at least one component")
        if schedule is not None:
            _check_scheduled(given)
        for argument, column in {"component_column": component_column, "proportions_of": proportions_of}.items():
            if not isinstance(column, str | None):
                raise UsageError(f"{argument} must be the name of a column", found=shown(column))
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
        self._removed: Mapping[int, Listed] = {}
        self._given: Mixture | None = None  # as the user gave it
        self.places: tuple[int | None, ...] = tuple(range(len(members)))
        """For each component, its number in the mixture that the user gave; None if it was removed."""
        self.changed: int | None = None
        """The tick from which the last change of components applies, if the run changed them."""
        self.lengths_column = proportions_of
        self._sums: dict[tuple[str, str, str], int] = {}  # by fingerprint, component and column
        self._sizes = [int(member.excerpt.subset.counts.sum()) for member in members]
        if proportions_of is not None:
            _check_of_lengths(given, scheduled=schedule is not None)
        if exclude is not None:
            self._members = _without(self._members, exclude)
        self.held: tuple[Held, ...] = tuple(
            Held(number, 0, len(member.numbers), hash_of(member.numbers))
            for number, member in enumerate(self._members)
            if len(member.numbers)
        )
        """The excluded samples of each component, and from which tick on."""
        if self.held and not self.weighted:
            hint = "give each component a proportion or repeat=1; or select the others, by mdsx.Dataset.select"
            raise UsageError("exclude= requires a mixture with proportions", hint=hint)
        absolute = all(component.proportion is None for _, component in given)
        self.epoch_samples = round(sum(amounts)) if absolute else sum(self._sizes)
        self.run = None if run is None else _count(run, "run", 1)
        if self.run is not None:
            if not self.weighted:
                hint = "give each component a proportion or repeat=1"
                raise UsageError("run= requires proportions", found=f"run={run}, no proportions", hint=hint)
            self.epoch_samples -= self.epoch_samples % self.run
        self.epoch_samples_given = epoch_samples is not None
        if epoch_samples is not None:
            self.epoch_samples = _count(epoch_samples, "epoch_samples", 1)
        if self.run is not None:
            check_whole_runs(self.epoch_samples, self.run)
        self.phases: Phases = ()
        if schedule is not None:
            self.phases = self._scheduled(schedule)
        elif self.weighted:
            self.phases = ((0, self._by_samples(self._checked([member.amount for member in members]))),)
        if proportions_of is not None:
            self._members = tuple(
                replace(member, total=self._sums.get((member.excerpt.fingerprint, member.name, proportions_of)))
                for member in self._members
            )

    @classmethod
    def from_json(
        cls,
        source: str | os.PathLike[str] | Mapping[str, Any],
        *,
        cache: CacheLike = None,
        storage_options: StorageOptions | None = None,
    ) -> Mixture:
        """Return the mixture that a JSON file, or its content, describes: what `mdsx change --mixture` reads.

            {"components": {"web": {"url": "s3://bucket/web", "proportion": 0.7},
                            "code": {"url": "s3://bucket/code", "proportion": "3/10", "snapshot": "1f0c..."}},
             "proportions_of": "tokens", "exclude": {"web": [17, 4]}}

        A component has the keys `url`, `proportion` (a number, or text such as "1/3"), `repeat` or `samples`,
        `columns`, `snapshot`, `selection`, and `start` and `stop` to read only some samples. All other keys are
        arguments of Mixture; positions of a schedule are text. In `exclude`, numbers may be in a JSON file of their
        own, whose name, relative to this file, is given instead.

        Raises:
            UsageError: The file cannot be read, or the description is invalid.
        """
        components, options = described(source, Component, cache, storage_options)
        return cls(components, **options, cache=cache, storage_options=storage_options)

    def __repr__(self) -> str:
        excerpts = ", ".join(f"{member.name}: {member.excerpt.shards.storage.url}" for member in self._members)
        return f"Mixture({excerpts}; epoch_samples={self.epoch_samples})"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the components' names, in order: "0", "1", ... for a list; `outer/inner` for nested mixtures."""
        numbers = range(len(self._sizes))
        return unique_names(self.components, [number in self._removed for number in numbers])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of samples of each component."""
        return tuple(self._sizes)

    @property
    def components(self) -> tuple[Listed, ...]:
        """Return the components by number. In a run whose components were changed, this includes removed ones."""
        members = iter(self._members)
        return tuple(self._removed.get(number) or next(members).listed for number in range(len(self._sizes)))

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
        fingerprints = [component.fingerprint for component in self.components]
        if len(self.phases) <= 1 or self.changed is not None:
            return fingerprint_of(fingerprints)
        lines = ["mixture", *fingerprints]
        for start, weights in self.phases:
            lines.append(f"{start}:" + ",".join(f"{bound:016x}" for bound in bounds_of(weights, self._sizes)))
        return xxhash.xxh3_128_hexdigest("\n".join(lines).encode())

    def _weights(
        self,
        proportions: Sequence[Weight] | Mapping[str, Weight],
        place: str | None = None,
        now: Sequence[Weight] | None = None,
        column: str | None = None,
    ) -> tuple[Weight, ...]:
        """Return a weight for each component. Components that a mapping omits keep their weight in `now`. `column`: the
        lengths that the proportions count, if not the mixture's own.

        Raise UsageError, with `place`, if one is missing, unknown or invalid.
        """
        column = self.lengths_column if column is None else column
        if isinstance(proportions, Mapping):
            known: dict[str, Weight] = {name: 0 for name, removed in self._by_name if removed}
            if now is not None:
                known |= zip(self.names, self._of_lengths(now, column), strict=True)
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
        return self._by_samples(self._checked(proportions), column)

    @property
    def _by_name(self) -> list[tuple[str, bool]]:
        """The name of each component, and whether it was removed."""
        return [(name, number in self._removed) for number, name in enumerate(self.names)]

    def _by_samples(self, weights: Sequence[Weight], column: str | None = None) -> tuple[Weight, ...]:
        """Return shares of the values of a column as shares of samples, exactly."""
        column = self.lengths_column if column is None else column
        if column is None:
            return tuple(weights)
        found = list[Weight]()
        for number, weight in enumerate(weights):
            total = self._sum(number, column) if weight else 1
            if not total:
                raise UsageError(
                    f"component {self.names[number]} has a proportion, but its lengths by column {column!r} are all 0",
                    found="a sum of lengths of 0",
                    hint="give it the proportion 0, or leave it out",
                )
            found.append(Fraction(weight) * self._sizes[number] / total)
        return tuple(found)

    def _of_lengths(self, weights: Sequence[Weight], column: str | None = None) -> tuple[Weight, ...]:
        """Return shares of samples as shares of the values of a column. This is the inverse of `_by_samples`."""
        column = self.lengths_column if column is None else column
        if column is None:
            return tuple(weights)
        return tuple(
            Fraction(weight) * self._sum(number, column) / self._sizes[number] if weight else weight
            for number, weight in enumerate(weights)
        )

    def _sum(self, number: int, column: str) -> int:
        """Return the sum of the lengths of a component by a column."""
        member = self._at(number)
        if member is None:
            listed = self._removed[number]
            raise UsageError(f"component {listed.name} was removed, so the sum of its lengths is unknown")
        place = member.excerpt.fingerprint, member.name, column
        if place not in self._sums:
            self._sums[place] = sum_of_lengths(member.excerpt, column)
        return self._sums[place]

    def _at(self, number: int) -> _Member | None:
        """Return a component; None if it was removed."""
        if number in self._removed:
            return None
        return self._members[number - sum(removed < number for removed in self._removed)]

    def _view(
        self, columns: ColumnChoice | None, dtypes: DTypes | None, fill: Fill | None, decode: Decode | None
    ) -> View:
        excerpts = list[DatasetSlice | None]()
        for number in range(len(self._sizes)):
            member = self._at(number)
            if member is None:
                excerpts.append(None)
                continue
            member.excerpt.check_caches()
            excerpt = member.excerpt if columns is None else member.excerpt.choose(columns)
            excerpts.append(excerpt.change(dtypes, fill, decode))
        return View(excerpts, self.component_column)

    def _scheduled(self, schedule: Mapping[int, Sequence[Weight] | Mapping[str, Weight]]) -> Phases:
        if not isinstance(schedule, Mapping):
            raise UsageError(
                "schedule must be a mapping from positions to proportions",
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
        if len(proportions) != len(self._sizes):
            raise UsageError(
                "proportions need a number for each component", found=len(proportions), expected=", ".join(self.names)
            )
        names = self.names
        exact = [
            exact_weight(weight, f"the proportion of {name}") for weight, name in zip(proportions, names, strict=True)
        ]
        if not any(exact):
            raise UsageError("at least one component needs a proportion above 0")
        for number, (size, weight) in enumerate(zip(self._sizes, exact, strict=True)):
            member = self._at(number)
            if weight and member is None:
                hint = "add the component to the mixture again, and load the state that mdsx.change makes with it"
                raise UsageError(f"component {names[number]} was removed but has a proportion", hint=hint)
            if weight and member is not None and not size:
                raise UsageError(
                    f"component {member.name} has a proportion but no samples", file=member.excerpt.shards.storage.url
                )
        return tuple(proportions)


def spread(weights: Sequence[Weight], places: Sequence[int | None]) -> tuple[Weight, ...]:
    """Return a weight for each component of a run: the weight at its place, or 0."""
    return tuple(0 if place is None else weights[place] for place in places)


def datasets_of(mixture: Mixture) -> list[Dataset]:
    """Return the datasets of a mixture that reads each sample once, in order. Raise UsageError for other mixtures."""
    if mixture.weighted:
        hint = "give the datasets, or a mixture without proportions, repeat and samples"
        raise UsageError("expected a mixture that reads each sample once", found=shown(mixture), hint=hint)
    return [with_excerpt(dataset_of(member.excerpt.shards), member.excerpt) for member in mixture._members]


def _component(given: Any) -> Component:
    if isinstance(given, Component):
        chosen = [given.proportion, given.repeat, given.samples]
        if sum(value is not None for value in chosen) > 1:
            raise UsageError("a component takes at most one of proportion, repeat and samples", found=shown(given))
        if given.storage_options is not None and isinstance(given.dataset, Dataset | Mixture):
            hint = "give storage_options= to the mdsx.Dataset"
            raise UsageError("storage_options apply only to a component that is a URL", found=shown(given), hint=hint)
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
    """Raise UsageError if components have weights of their own beside a schedule."""
    for name, component in given:
        if isinstance(component.dataset, Mixture):
            raise UsageError(
                f"a mixture with a schedule cannot contain another mixture, as component {name} does",
                hint="make one mixture of all the datasets, and give the schedule the proportion of each",
            )
        if (component.proportion, component.repeat, component.samples) != (None, None, None):
            raise UsageError(
                f"component {name} has a weight of its own besides the schedule",
                found=shown(component),
                hint="give its proportion in the schedule, at position 0",
            )


def _check_of_lengths(given: Sequence[tuple[str, Component]], *, scheduled: bool) -> None:
    """Raise UsageError if components have no proportions that could count lengths."""
    for name, component in given:
        if isinstance(component.dataset, Mixture):
            hint = "make one mixture of all the datasets"
            raise UsageError(f"proportions_of= does not support a nested mixture: component {name}", hint=hint)
        if component.proportion is None and not scheduled:
            raise UsageError(
                "proportions_of= needs a proportion for each component",
                found=f"component {name}: {shown(component)}",
                hint="give each component a proportion; repeat and samples count samples",
            )


def _without(members: Sequence[_Member], exclude: Excludes) -> tuple[_Member, ...]:
    """Return the members with their excluded samples. Raise UsageError."""
    if not isinstance(exclude, Mapping):
        hint = 'write exclude={"web": [17, 4]}'
        raise UsageError("exclude must be a mapping from components to numbers", found=shown(exclude), hint=hint)
    names = [member.name for member in members]
    if unknown := [name for name in exclude if name not in names]:
        raise UsageError(
            "there is no such component", place="exclude", found=shown(unknown[0]), expected=", ".join(names)
        )
    found = []
    for member in members:
        if member.name in exclude:  # besides those that an inner mixture excludes
            given = checked_numbers(exclude[member.name], member.name, member.listed.samples)
            both = np.concatenate((member.numbers, given[~np.isin(given, member.numbers)]))
            found.append(replace(member, numbers=both))
        else:
            found.append(member)
    return tuple(found)


def _once(component: Component) -> bool:
    """Return whether an epoch reads each of its samples once."""
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
                "a nested mixture cannot have a component_column",
                found=source.component_column,
                hint="give component_column to the outer mixture, which numbers the components of both",
            )
        if len(source.phases) > 1 or source.run is not None:
            raise UsageError(
                "a nested mixture cannot have a schedule or run",
                found=f"run={source.run}" if source.run is not None else f"{len(source.phases)} phases",
                hint="give them to one mixture of all the datasets"
                if len(source.phases) > 1
                else "give run= to the outer mixture",
            )
        members = list(source._members)
        if source.phases:  # the weights in force: of a schedule, or of proportions_of
            weights = source.phases[0][1]
            members = [replace(member, amount=Fraction(each)) for member, each in zip(members, weights, strict=True)]
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
            "either all components have a proportion, or none",
            found=f"none for {', '.join(without)}",
            hint="give each component a proportion; repeat and samples are for mixtures without proportions",
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
    return {column.name: str(column.type) for column in member.excerpt.schema.columns}


def _count(value: object, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**62:
        raise UsageError(f"{name} must be an integer of at least {least}", found=shown(value))
    return value


# --- for the other packages of mdsx


def weights_of(
    mixture: Mixture,
    proportions: Sequence[Weight] | Mapping[str, Weight],
    now: Sequence[Weight] | None = None,
    proportions_of: str | None = None,
    *,
    planned: bool = False,
) -> tuple[Weight, ...]:
    """Return a weight for each component. Components that a mapping omits keep their weight in `now`. `proportions_of`:
    the column of lengths that the proportions count; `planned`: whether a plan has the proportions.

    Raise UsageError for proportions that do not fit the mixture.
    """
    if not mixture.weighted and not planned:
        raise UsageError("a mixture without proportions has no weights to change", hint="give each a proportion")
    return mixture._weights(proportions, now=now, column=proportions_of)


def proportions_in(
    mixture: Mixture, weights: Sequence[Weight], proportions_of: str | None = None
) -> tuple[Weight, ...]:
    """Return the proportions that result in these weights, which are shares of samples. `proportions_of`: as above."""
    return mixture._of_lengths(weights, proportions_of)


def as_given(mixture: Mixture) -> Mixture:
    """Return the mixture as the user gave it, whatever run it is in."""
    return mixture._given or mixture


def in_run(
    mixture: Mixture,
    listed: Sequence[Listed],
    places: Sequence[int | None],
    *,
    changed: int,
    epoch_samples: int,
) -> Mixture:
    """Return the mixture with a run's components, by their numbers there. Each place is a component's number in the
    mixture, or None if it was removed."""
    other = copy(mixture)
    there = [place for place in places if place is not None]
    other._members = tuple(mixture._members[place] for place in there)
    other._removed = {
        number: each for number, (each, place) in enumerate(zip(listed, places, strict=True)) if place is None
    }
    other._sizes = [
        (each.samples or 0) if place is None else mixture._sizes[place]
        for each, place in zip(listed, places, strict=True)
    ]
    other.phases = tuple((start, spread(weights, places)) for start, weights in mixture.phases)
    other._given, other.places = mixture, tuple(places)
    other.changed = changed
    if not mixture.epoch_samples_given:
        other.epoch_samples = epoch_samples
    return other


def holding(mixture: Mixture, held: tuple[Held, ...]) -> Mixture:
    """Return the mixture with the exclusions `held`, from their ticks on."""
    other = copy(mixture)
    other.held, other._given = held, as_given(mixture)
    return other


def numbers_left_out(mixture: Mixture, number: int) -> NDArray[np.int64] | None:
    """Return the numbers of a component's excluded samples; None if the component was removed."""
    member = mixture._at(number)
    return None if member is None else member.numbers


def left_out_of(mixture: Mixture) -> dict[int, LeftOut]:
    """Return the excluded samples of each component, and from which tick on."""
    found = {}
    for number in {each.component for each in mixture.held}:
        if (member := mixture._at(number)) is not None:
            found[number] = left_out(mixture.held, number, member.numbers)
    return found


def with_cache(dataset: Dataset | Mixture, cache: Cache) -> Dataset | Mixture:
    """Return the same data, read through `cache`. Raise UsageError if a part of it was opened with another cache."""
    if isinstance(dataset, Mixture):
        other = copy(dataset)
        other._members = tuple(replace(member, excerpt=member.excerpt.with_cache(cache)) for member in dataset._members)
        return other
    before = excerpt_of(dataset)
    excerpt = before.with_cache(cache)
    excerpt.check_caches()
    return dataset if excerpt.datasets == before.datasets else with_excerpt(dataset, excerpt)


def view_of(
    dataset: Dataset | Mixture,
    columns: ColumnChoice | None = None,
    dtypes: DTypes | None = None,
    fill: Fill | None = None,
    decode: Decode | None = None,
) -> View:
    """Return the view of a dataset, or of all components of a mixture, that a run reads."""
    if isinstance(dataset, Mixture):
        return dataset._view(columns, dtypes, fill, decode)
    excerpt = batched_excerpt_of(dataset)
    return View([(excerpt if columns is None else excerpt.choose(columns)).change(dtypes, fill, decode)])
