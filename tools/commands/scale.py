"""Print the numbers of a large run: computed for a petabyte; measured, those of its index, and how the cost grows."""

from dataclasses import fields
from typing import Any

from tools.scale.job import Job

RUN = "tools.scale.run:run"
FAILS = "something could not be measured"


def arguments(add: Any) -> None:
    add("subject", nargs="?", choices=["plan", "index", "growth"], help="default: all")
    add("--docs", action="store_true", help="write the tables into docs/scale.md")
    for field in fields(Job):
        option, text = f"--{field.name.replace('_', '-')}", f"of the plan (default {field.default})"
        add(option, type=type(field.default), default=field.default, help=text)
