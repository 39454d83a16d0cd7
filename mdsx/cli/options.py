"""Options and arguments that several commands have, and how they are read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from mdsx.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report what would be removed.")]

# --- datasets and storage

DatasetUrl = Annotated[str, typer.Argument(metavar="URL", help="A finished dataset: a path or a URL (docs/clouds.md).")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="An option of the URL's storage (docs/clouds.md); can be repeated."),
]
SourceOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="The same for the storage that is read.")
]
IndexOption = Annotated[
    str | None, typer.Option(metavar="URL", help="The folder with the index, if it is not next to the files.")
]
SnapshotOption = Annotated[
    str | None,
    typer.Option(metavar="FINGERPRINT", help="Read a snapshot from before parts were appended; see `mdsx info`."),
]


def storage_options(given: list[str] | None) -> dict[str, str] | None:
    """Return the values of `--storage-option`. Raise BadParameter for one without "=", without showing it."""
    options = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter("expected KEY=VALUE")
        options[name] = value
    return options or None


# --- conversions


class KeyUntil(StrEnum):
    FIRST_DOT = "first-dot"
    LAST_DOT = "last-dot"


class Nan(StrEnum):
    ERROR = "error"
    NULL = "null"


class Per(StrEnum):
    DOCUMENT = "document"
    SEQUENCE = "sequence"


Sources = Annotated[
    list[str], typer.Argument(metavar="SRC", help="Paths, globs, URLs such as s3://; braces {0000..0099}.")
]
Out = Annotated[str, typer.Argument(metavar="OUT", help="Where to write the dataset: a path or a URL.")]
ShardSize = Annotated[str, typer.Option(help="The largest size of an uncompressed shard.")]
Compression = Annotated[str | None, typer.Option(help="zstd or zstd:LEVEL. Default: none.")]
EngineOption = Annotated[
    Literal["ray"] | None,
    typer.Option(help="Run on a Ray cluster (docs/engines.md): the one at RAY_ADDRESS, or this machine's."),
]

# --- runs

WorldSize = Annotated[int, typer.Option(min=1, metavar="N", help="Ranks (GPUs) of the whole run.")]
RanksPerNode = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Ranks on each machine. Default: all ranks on one machine.")
]
Seed = Annotated[int, typer.Option(help="seed of the order.")]
Lanes = Annotated[int | None, typer.Option(min=1, help="lanes of mdsx.Shuffle.")]
ShuffleBlock = Annotated[int | None, typer.Option(min=1, help="shuffle_block of mdsx.Shuffle.")]


def nodes_of(world_size: int, ranks_per_node: int | None, *, name: str = "--world-size") -> tuple[int, int]:
    """Return the number of machines, and of ranks on each. Raise UsageError if the ranks do not divide evenly."""
    ranks = ranks_per_node or world_size
    if world_size % ranks:
        hint = f"give {name} a multiple of --ranks-per-node"
        raise UsageError("all machines must have equally many ranks", found=f"{world_size} and {ranks}", hint=hint)
    return world_size // ranks, ranks


# --- pages


def check_page(path: Path) -> None:
    """Raise UsageError before long work if the page of `--html` cannot be written."""
    if path.is_dir():
        raise UsageError("--html names a folder", file=str(path), hint="give the name of a file, such as page.html")
    if not path.absolute().parent.is_dir():
        raise UsageError("--html is in a folder that does not exist", file=str(path), hint="create the folder first")


def write_page(path: Path, text: str) -> None:
    """Write the page of `--html`. Raise UsageError if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the page cannot be written: {error.strerror}", file=str(path)) from error
