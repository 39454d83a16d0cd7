"""The import graph: a room imports only from rooms on lower floors, and keeps heavy libraries to itself.

The tests read the sources, so an import inside a function counts like one at the top.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mdsx

PACKAGE = Path(mdsx.__file__).parent
ARCHITECTURE = PACKAGE.parent / "ARCHITECTURE.md"
ROW = re.compile(r"\| *(\d*) *\| `mdsx/(\w+)(?:\.py|/)` \|")


def floors() -> dict[str, int]:
    """Return the floor of each room, from ARCHITECTURE.md; a row without a number continues the one above."""
    found: dict[str, int] = {}
    floor = ""
    for number, name in ROW.findall(ARCHITECTURE.read_text(encoding="utf-8")):
        floor = number or floor
        found["mdsx" if name == "__init__" else name] = int(floor)
    return found


FLOOR = floors()
PURE = {"arrow", "braces", "cached", "chunks", "decompress", "format", "mds", "order", "parquet", "tars"}
"""Rooms without I/O, clock, randomness or processes."""

IMPURE_MODULES = {
    "asyncio", "boto3", "botocore", "fcntl", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib",
    "random", "secrets", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "torch", "urllib",
}  # fmt: skip
OWNERS = {
    "azure": {"storage"},
    "boto3": {"storage"},
    "botocore": {"storage"},
    "datasets": {"converting"},
    "google": {"storage"},
    "huggingface_hub": {"converting"},
    "pyarrow": {"arrow", "parquet"},
    "pyspark": {"engines"},
    "ray": {"engines", "process"},
    "starlette": {"viewing"},
    "greenlet": {"simulating"},
    "tokenizers": {"viewing"},
    "uvicorn": {"viewing"},
    "torch": {"torch"},
    "typer": {"cli"},
    "rich": {"cli"},
}
"""Libraries that only some rooms may use."""


def room_of(path: Path) -> str:
    """Return the room of a file of the package: its folder, or its own name. The public page is `mdsx`."""
    relative = path.relative_to(PACKAGE)
    name = relative.parts[0].removesuffix(".py")
    return "mdsx" if name == "__init__" else name


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every module that a file imports, anywhere in it, with the line."""
    package = [*("mdsx", *path.relative_to(PACKAGE).parts[:-1])]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # `from mdsx import storage` imports a room, `from mdsx import Writer` a name
                yield f"{module}.{alias.name}", node.lineno


def imported_room(name: str) -> str | None:
    """Return the room of an imported module or name; None outside the package."""
    first, *rest = name.split(".")
    if first != "mdsx":
        return None
    if not rest or rest[0] in mdsx.__all__ or rest[0] not in FLOOR:
        return "mdsx"
    return rest[0]


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_file_is_in_a_room() -> None:
    assert {room_of(path) for path in FILES} == set(FLOOR)


def test_a_room_imports_only_from_lower_floors() -> None:
    """The public page imports only the errors; it looks up its lazy names by text."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {room_of(path)} imports {name}"
        for path in FILES
        for name, line in imports_of(path)
        if (room := imported_room(name)) is not None and room != room_of(path) and FLOOR[room] >= FLOOR[room_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_rooms_do_no_io() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in FILES
        if room_of(path) in PURE
        for name, line in imports_of(path)
        if name.split(".")[0] in IMPURE_MODULES and name != "io.BytesIO"  # bytes in memory
    ]
    assert not wrong, "\n".join(wrong)


def test_heavy_libraries_have_one_owner() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in FILES
        for name, line in imports_of(path)
        if room_of(path) not in OWNERS.get(name.split(".")[0], {room_of(path)})
    ]
    assert not wrong, "\n".join(wrong)


def test_the_package_needs_neither_tools_nor_tests() -> None:
    imported = {name.split(".")[0] for path in FILES for name, _ in imports_of(path)}
    assert not imported & {"tools", "tests", "pytest", "hypothesis", "matplotlib"}


ABOUT_THE_WHOLE = {
    "consumer", "examples", "exports", "fuzz", "guides", "public_page", "readme", "rooms", "sdist", "security",
    "tools",
}  # fmt: skip
"""Tests that belong to no single room."""


def test_tests_mirror_the_package() -> None:
    """Each room has tests of its own, in a folder or a file of its name, and so has each package inside a room."""
    tests = PACKAGE.parent / "tests"
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    found = {path.parts[0].removeprefix("test_").removesuffix(".py") for path in files}
    rooms = {room_of(path) for path in FILES} - {"mdsx", "__main__"}  # the public page, and a line that calls `cli`
    assert found == rooms | ABOUT_THE_WHOLE
    packages = {path.relative_to(PACKAGE).parent for path in FILES if path.name == "__init__.py"} - {Path()}
    assert packages <= {path.parent for path in files}
