"""`mdsx quickstart`: see mdsx work on this machine, in seconds."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.base.sizes import format_size
from mdsx.cli.command import command
from mdsx.cli.output import Json, print_json, say

if TYPE_CHECKING:
    from mdsx.quickstart import Account, Life, Step

_WIDTH = 80
_KILL_AT = 37  # a step that is not just after a checkpoint
_NEXT = """
What next?
  keep the dataset and look at it   mdsx quickstart --keep documents; mdsx view documents
  read the training's source        {program}
  write and train on your own data  {docs}"""


@command("mdsx quickstart")
def quickstart(
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Write the dataset there, and keep it.")] = None,
    as_json: Json = False,
) -> None:
    """Make a small dataset, train on it, kill the training, resume it, and count: was each sample read exactly once?

    It needs no network, no bucket and no GPU. With PyTorch it trains with mdsx.torch.StreamingDataLoader, without it
    with mdsx.Loader. It writes only to a temporary directory, which it removes, and to DIR.

    Exit status: 0 if each sample was read exactly once, else 1.
    """
    from mdsx.quickstart import Life, account_of, write_documents

    def show(text: str) -> None:
        if not as_json:
            say(text)

    with tempfile.TemporaryDirectory(prefix="mdsx-") as directory:
        folder = Path(directory)
        url = str(folder / "documents") if keep is None else keep
        show("1. Write a dataset: mdsx.Writer packs samples into shards, and writes the index last.")
        samples, size = write_documents(url)
        show(f"   {samples:,} source files of Python's library, {format_size(size)}")
        first = Life(url, folder, batch_size=16, workers=0)
        kind = "StreamingDataLoader, with PyTorch" if first.torch else "mdsx.Loader, without PyTorch"
        show(f"2. Train on it ({kind}), and kill the process. It saves loader.state_dict() every 5 steps.")
        killed = _train(first, show, kill_at=_KILL_AT)
        show("3. Resume, with another batch size and 2 workers: the rest of the epoch follows, each sample once.")
        resumed = _train(Life(url, folder, batch_size=24, workers=2), show)
        found = account_of(samples, killed, resumed)
    exact = not found.lost and not found.repeated
    if as_json:
        losses = {"first_loss": killed[0].loss, "last_loss": resumed[-1].loss}
        print_json({"samples": samples, "lost": found.lost, "repeated": found.repeated, "exact": exact, **losses})
        raise typer.Exit(not exact)
    say("4. Which life of the training read which sample? The order is shuffled, and a function of the seed alone.")
    _draw(found)
    say(f"   read {samples - found.lost:,} of {samples:,} samples, lost {found.lost}, repeated {found.repeated}")
    say("Every sample was read exactly once." if exact else "A PROMISE WAS BROKEN.")
    spec = importlib.util.find_spec("mdsx.quickstart.program")
    say(_NEXT.format(program=spec.origin if spec else "mdsx/quickstart/program.py", docs=_documentation()))
    raise typer.Exit(not exact)


def _train(life: Life, show: Callable[[str], None], *, kill_at: int | None = None) -> list[Step]:
    """Return the steps of a life. It is killed after step `kill_at`."""
    steps: list[Step] = []
    with closing(life.steps()) as running:
        for step in running:
            steps.append(step)
            if step.step % 10 == 0:
                show(f"   step {step.step:3}   {step.loss:.2f} bits per byte")
            if step.step == kill_at:
                break  # which kills it
    end = f"killed after step {kill_at}" if kill_at else f"the end of the epoch, after step {steps[-1].step}"
    show(f"   {end}: {steps[-1].loss:.2f} bits per byte")
    return steps


def _draw(found: Account) -> None:
    """Draw a mark for each sample, in the order of the dataset."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    styles = {(): ("-", "bold red"), (1,): ("1", "blue"), (2,): ("2", "green")}
    for start in range(0, len(found.lives), _WIDTH):
        row = [styles.get(lives, ("X", "bold red")) for lives in found.lives[start : start + _WIDTH]]
        console.print(Text.assemble("   ", *row))


def _documentation() -> str:
    """Return where the documentation is, as the installed package says."""
    from importlib.metadata import metadata

    urls = dict(each.split(", ", 1) for each in metadata("mdsx").get_all("Project-URL") or [])
    return str(urls.get("Documentation", "the README"))
