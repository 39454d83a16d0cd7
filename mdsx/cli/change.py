"""`mdsx change`: continue a run with other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdsx.cli.command import command
from mdsx.cli.options import Json, StorageOption, storage_options
from mdsx.cli.output import print_json, say
from mdsx.errors import UsageError

if TYPE_CHECKING:
    from mdsx.datasets import Mixture


@command("mdsx change state.json --mixture new.json --out state2.json")
def change(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A JSON file with what state_dict() returned.")],
    out: Annotated[Path, typer.Option(metavar="STATE2", help="Where the new state goes. It must not exist.")],
    mixture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The new mixture, as mdsx.Mixture.from_json reads it.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A component, and a JSON file with the numbers to leave out."),
    ] = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Convert a run's state, so that the run continues with other data or without some samples (see docs/mixtures.md).

    The new mixture may add, remove or replace components and change proportions. Components that stay continue where
    they were. Run this once. Then start the training with the new mixture, and load the new state on every rank.

    If the state is inside a PyTorch checkpoint, write it to a JSON file first, with json.dump.
    """
    from mdsx.base.descriptions import read_description
    from mdsx.datasets import Mixture
    from mdsx.loader import changed

    found = read_description(state)
    new: Mixture | None = None
    if mixture is not None:
        new = Mixture.from_json(mixture, storage_options=storage_options(storage_option))
    done = changed(found, new, _excluded(exclude) if exclude else None)
    try:
        with out.open("x", encoding="utf-8") as file:
            json.dump(done.state, file)
    except FileExistsError:
        raise UsageError("the file exists", file=str(out), hint="give --out another name") from None
    except OSError as error:
        raise UsageError("the file cannot be written", file=str(out), found=str(error)) from None
    if as_json:
        print_json({"out": str(out), "changed": done.state.get("changed"), "notes": list(done.notes)})
        return
    say(f"wrote {out}: {_summary(done.state)}")
    for note in done.notes:
        say(note)


def _excluded(given: list[str]) -> dict[str, Any]:
    from mdsx.base.descriptions import read_description

    found = dict[str, Any]()
    for each in given:
        name, equals, file = each.partition("=")
        if not equals or not name or not file:
            raise UsageError(
                "--exclude takes a component and a file", found=each, expected="--exclude web=numbers.json"
            )
        found[name] = read_description(Path(file))
    return found


def _summary(state: dict[str, Any]) -> str:
    start, weights = state["phases"][-1]
    total = sum(map(_number, weights))
    shares = [
        f"{name} {_number(weight) / total:.4%}" for (name, *_), weight in zip(state["components"], weights, strict=True)
    ]
    return f"from tick {start:,} on {', '.join(shares)}"


def _number(weight: Any) -> float:
    from fractions import Fraction

    return float(Fraction(weight))
