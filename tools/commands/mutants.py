"""Change the code in small ways, mutants, and see whether the tests notice each of them."""

from typing import Any

RUN = "tools.mutants.run:run"
FAILS = "a mutant is neither killed nor explained"


def arguments(add: Any) -> None:
    from tools.mutants.parts import PARTS

    add("parts", nargs="*", metavar="PART", help=f"default: all; {', '.join(each.name for each in PARTS)}")
    add(
        "--scratch",
        metavar="DIR",
        help="where to keep the results: a later run tests changed functions, and survivors that nobody explained",
    )
    add("--docs", action="store_true", help="write the tables into docs/reliability.md")
    add("--processes", type=int, help="default: one for each core")
