"""`mdsx quickstart`: see mdsx work on this machine, in seconds."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mdsx.base.sizes import format_size
from mdsx.cli.command import command
from mdsx.cli.options import Json, check_page, write_page
from mdsx.cli.output import print_json, say

if TYPE_CHECKING:
    from mdsx.quickstart import Account, Life, Step

_WIDTH = 80
_KILL_AT = 37  # a step that is not just after a checkpoint
_NEXT = """
What next?
  a page with the loss and the order   mdsx quickstart --html quickstart.html
  the dataset, to look at              mdsx quickstart --keep documents; mdsx info documents
  the training's source                {program}
  your own data, your own training     {docs}"""


@command("mdsx quickstart --html quickstart.html")
def quickstart(
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Write the dataset there, and keep it.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with the loss and the order of the samples.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a small dataset, train on it, kill the training, resume it, and count: was each sample read exactly once?

    It needs no network, bucket or GPU. It trains with mdsx.torch.StreamingDataLoader if PyTorch is installed, otherwise
    with mdsx.Loader. It writes only to a temporary directory, which it removes, and to DIR and FILE.

    Exit status: 0 if each sample was read exactly once, else 1.
    """
    from mdsx.quickstart import Life, account_of, page, write_documents

    if html is not None:
        check_page(html)
    started = time.monotonic()
    seconds = dict[str, float]()

    def passed(name: str) -> None:
        seconds.setdefault(name, round(time.monotonic() - started, 1))

    def show(text: str) -> None:
        if not as_json:
            say(text)

    with tempfile.TemporaryDirectory(prefix="mdsx-") as directory:
        folder = Path(directory)
        url = str(folder / "documents") if keep is None else keep
        show("1. Write a dataset: mdsx.Writer packs samples into shards, and writes the index last.")
        samples, size = write_documents(url)
        passed("written")
        show(f"   {samples:,} source files of Python's library, {format_size(size)}")
        first = Life(url, folder, batch_size=16, workers=0)
        kind = "StreamingDataLoader, with PyTorch" if first.torch else "mdsx.Loader, without PyTorch"
        show(f"2. Train on it ({kind}), and kill the process. It saves loader.state_dict() every 5 steps.")
        killed = _train(first, show, lambda: passed("first_step"), kill_at=_KILL_AT)
        show("3. Resume, with another batch size and 2 workers: the rest of the epoch follows, each sample once.")
        resumed = _train(Life(url, folder, batch_size=24, workers=2), show, lambda: passed("resumed"))
        found = account_of(samples, killed, resumed)
    passed("all")
    if html is not None:
        write_page(html, page(found, killed, resumed))
    if as_json:
        losses = {"first_loss": killed[0].loss, "last_loss": resumed[-1].loss}
        counts = {"samples": samples, "lost": found.lost, "repeated": found.repeated, "exact": found.exact}
        print_json({**counts, **losses, "seconds": seconds})
        raise typer.Exit(not found.exact)
    say("4. Which life of the training read which sample? The order is shuffled, and a function of the seed alone.")
    _draw(found)
    say(f"   read {samples - found.lost:,} of {samples:,} samples, lost {found.lost}, repeated {found.repeated}")
    say(f"   after {seconds['first_step']} s the first step, after {seconds['all']} s the last one")
    if html is not None:
        say(f"   the picture: {html}")
    say("Every sample was read exactly once." if found.exact else "A PROMISE WAS BROKEN.")
    spec = importlib.util.find_spec("mdsx.quickstart.program")
    say(_NEXT.format(program=spec.origin if spec else "mdsx/quickstart/program.py", docs=_documentation()))
    raise typer.Exit(not found.exact)


def _train(
    life: Life, show: Callable[[str], None], begun: Callable[[], None], *, kill_at: int | None = None
) -> list[Step]:
    """Return the steps of a training process, which is killed after step `kill_at`. Call `begun` at the first step."""
    steps: list[Step] = []
    with closing(life.steps()) as running:
        for step in running:
            if not steps:
                begun()
            if not steps or step.step % 10 == 0:
                show(f"   step {step.step:3}   {step.loss:.2f} bits per byte")
            steps.append(step)
            if step.step == kill_at:
                break  # closing the iterator kills the process
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
