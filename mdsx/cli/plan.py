"""`mdsx plan` and `mdsx trace`: what a run with a plan will read, computed without reading samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsx.cli.command import command
from mdsx.cli.options import Json, Lanes, Seed, ShuffleBlock, StorageOption, WorldSize, storage_options
from mdsx.cli.output import print_json, say
from mdsx.errors import UsageError

if TYPE_CHECKING:
    from mdsx.loader import Loader

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="A JSON or TOML file, as mdsx.Plan.from_json reads it.")]
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A dataset's URL, or a JSON file as mdsx.Mixture.from_json reads it.")
]
EpochSamples = Annotated[int | None, typer.Option(min=1, metavar="N", help="epoch_samples of the run.")]
EpochSteps = Annotated[int | None, typer.Option(min=1, metavar="N", help="epoch_steps of the loader.")]


@command("mdsx plan plan.toml mixture.json --until 15T")
def plan(
    plan: Plan,
    data: Data,
    until: Annotated[str | None, typer.Option(metavar="TOKENS", help="Where the run ends, such as 15T.")] = None,
    epoch_samples: EpochSamples = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Show what a run with this plan would read: steps, and tokens, samples and epochs of each phase and component.

    The figures are estimates, from the indexes and the lengths in each phase's first window.

    Exit status: 0, or 1 if a component would be read more often than max_epochs allows.
    """
    from mdsx.stream import Tokens

    loader = _loader(plan, data, storage_option, epoch_samples=epoch_samples)
    found: Any = loader.plan(until=None if until is None else Tokens(until))
    if as_json:
        phases = [
            {**phase._asdict(), "sources": {name: source._asdict() for name, source in phase.sources.items()}}
            for phase in found.phases
        ]
        print_json({"phases": phases, "steps": found.steps, "exceeded": list(found.exceeded)})
    else:
        say(str(found))
    if found.exceeded:
        raise typer.Exit(1)


@command("mdsx trace plan.toml mixture.json --step 10000 --world-size 64 --seed 7")
def trace(
    plan: Plan,
    data: Data,
    step: Annotated[int | None, typer.Option(min=0, metavar="N", help="Show the samples of this step.")] = None,
    sample: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:N", help="Show when sample N of this component is read; for a dataset, just N."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Look for samples in this many steps.")] = 10_000,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Begin at this state, JSON of state_dict(). Default: the start.")
    ] = None,
    world_size: WorldSize = 1,
    seed: Seed = 0,
    lanes: Lanes = None,
    shuffle_block: ShuffleBlock = None,
    epoch_samples: EpochSamples = None,
    epoch_steps: EpochSteps = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Show which samples a step of a run reads, or at which steps a sample is read. Only the order and the lengths are
    used.

    Give the run's seed, lanes, shuffle block and epoch lengths. With a state from a nearby step, the steps before it
    need not be planned.
    """
    from mdsx.base.descriptions import read_description
    from mdsx.order import Shuffle

    if (step is None) == (not sample):
        raise UsageError("give --step or --sample")
    loader = _loader(
        plan,
        data,
        storage_option,
        seed=seed,
        shuffle=Shuffle(lanes, shuffle_block),
        epoch_samples=epoch_samples,
        epoch_steps=epoch_steps,
    )
    if state is not None:
        loader.load_state_dict(read_description(state))
    if step is not None:
        found = loader.trace(step, world_size=world_size)
    else:
        wanted = [_sample(each) for each in sample or ()]
        found = loader.trace_samples(wanted, steps, world_size=world_size)
    if as_json:
        for item in found:
            say(json.dumps(item._asdict()))
        return
    for item in found:
        row = "" if item.row is None else f", row {item.row}"
        values = "" if item.values is None else f", values {item.first:,} to {item.first + item.values:,}"
        name = f"{item.component} " if item.component else "sample "
        say(f"step {item.step:,}, rank {item.rank}{row}: {name}{item.sample:,}{values} of {item.file}")


def _loader(plan: Path, data: str, options: list[str] | None, **more: Any) -> Loader:
    """Return a run's loader, which reads no samples."""
    from mdsx.datasets import Dataset, Mixture
    from mdsx.loader import Loader
    from mdsx.stream import Plan

    given = storage_options(options)
    source: Dataset | Mixture
    if data.endswith(".json"):
        source = Mixture.from_json(data, storage_options=given)
    else:
        source = Dataset(data, storage_options=given)
    return Loader(source, plan=Plan.from_json(plan), rank=0, world_size=1, **more)


def _sample(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition(":")
    if not number.isdecimal():
        raise UsageError("--sample is invalid", found=text, expected="NAME:N, such as web:123")
    return name, int(number)
