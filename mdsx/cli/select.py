"""`mdsx select`: store which samples a condition chooses."""

from __future__ import annotations

from typing import Annotated

import typer

from mdsx.cli.command import command
from mdsx.cli.options import DatasetUrl, IndexOption, Json, StorageOption, storage_options
from mdsx.cli.output import Bar, print_json, say


@command("mdsx select s3://bucket/corpus --where 'label = 3 and length(tokens) > 64' --name hard")
def select(
    url: DatasetUrl,
    where: Annotated[str, typer.Option(metavar="CONDITION", help="Compares numbers, bools and lengths of columns.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="The selection's name: letters, digits, . _ and -")],
    index: IndexOption = None,
    storage_option: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Store which samples a condition chooses, next to the index. Then each process of a job opens the selection at
    once: mdsx.Dataset(url, selection="hard").

    A condition compares columns of numbers and bools that have a fixed size, and length(column), with =, !=, <, <=, >,
    >=, between, in (...) and is null. Combine conditions with and, or and not. Only rows are read, so 10^8 samples take
    seconds. docs/mixtures.md has the rules. `mdsx append` extends the selections of a dataset.
    """
    from mdsx.writer import write_selection

    with Bar("selecting") as bar:
        options = storage_options(storage_option)
        found = write_selection(url, name, where, index=index, storage_options=options, watch=bar.reach_samples)
    if as_json:
        fields = {"file": found.file, "name": found.name, "where": found.where}
        print_json({**fields, "samples": found.samples, "selected": found.selected})
        return
    share = f" ({found.selected / found.samples:.2%})" if found.samples else ""
    say(f"{found.file}: {found.selected:,} of {found.samples:,} samples{share}")
