"""The import graph: a package imports only from lower layers, and keeps heavy libraries to itself.

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
ROW = re.compile(r"\| *(-?\d*) *\| `mdsx/(\w+)(?:\.py|/)` \|")


def layers() -> dict[str, int]:
    """Return the layer of each package, from ARCHITECTURE.md; a row without a number continues the one above."""
    found: dict[str, int] = {}
    layer = ""
    for number, name in ROW.findall(ARCHITECTURE.read_text(encoding="utf-8")):
        layer = number or layer
        found["mdsx" if name == "__init__" else name] = int(layer)
    return found


LAYER = layers()
_PURE_HELPERS = ("arrays", "braces", "cached", "chunks", "decompress", "pieces")
PURE = ("format", "order", "foreign", *(f"base.{name}" for name in _PURE_HELPERS))
"""What does no I/O, and has no clock, randomness or processes."""

IMPURE_MODULES = {
    "asyncio", "boto3", "botocore", "fcntl", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib",
    "random", "secrets", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "torch", "urllib",
}  # fmt: skip
OWNERS = {
    "azure": ("storage",),
    "pytest": ("testing",),
    "boto3": ("storage",),
    "botocore": ("storage",),
    "PIL": ("decoding", "foreign.mds"),
    "cykooz_resizer": ("decoding",),
    "datasets": ("transfer",),
    "fcntl": ("base.system",),
    "resource": ("base.system",),
    "google": ("storage", "transfer"),
    "huggingface_hub": ("transfer",),
    "polars": ("foreign.polars",),
    "pyarrow": ("foreign.arrow", "foreign.parquet"),
    "pyspark": ("engines",),
    "ray": ("engines", "base.process"),
    "simplejpeg": ("decoding",),
    "soundfile": ("decoding",),
    "soxr": ("decoding",),
    "starlette": ("view",),
    "greenlet": ("simulate",),
    "tokenizers": ("transfer", "view"),
    "uvicorn": ("view",),
    "torch": ("torch", "quickstart"),
    "typer": ("cli",),
    "rich": ("cli",),
}
"""Libraries that only some packages may use."""

FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for path in FILES}


def module_of(path: Path) -> str:
    """Return the name of a module without "mdsx."; the public page is "mdsx"."""
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    return "mdsx" if name == "__init__" else name


def package_of(path: Path) -> str:
    """Return what is at the top of the package for this file: a folder, or the file itself."""
    return module_of(path).split(".")[0]


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any((module + ".").startswith(package + ".") for package in packages)


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every name that a file imports, anywhere in it, with the line: `from a import b` is "a.b"."""
    package = [*("mdsx", *path.relative_to(PACKAGE).parts[:-1])]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno


def imported_package(name: str) -> str | None:
    """Return the package of an imported module or name; None outside of mdsx."""
    first, *rest = name.split(".")
    if first != "mdsx":
        return None
    if not rest or rest[0] in mdsx.__all__ or rest[0] not in LAYER:
        return "mdsx"
    return rest[0]


def test_every_file_is_in_the_table() -> None:
    assert {package_of(path) for path in FILES} == set(LAYER)


def test_a_package_imports_only_from_lower_layers() -> None:
    """The public page imports only the errors; it looks up its lazy names by text."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {package_of(path)} imports {name}"
        for path in FILES
        for name, line in imports_of(path)
        if (found := imported_package(name)) is not None
        and found != package_of(path)
        and LAYER[found] >= LAYER[package_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other, maybe by others. `imports`: those of each module."""
    reached = {module: set(direct) for module, direct in imports.items()}
    for through in reached:
        for found in reached.values():
            if through in found:
                found |= reached[through]
    groups = {frozenset(other for other in found if module in reached[other]) for module, found in reached.items()}
    return [set(group) for group in groups if len(group) > 1]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for annotations count too: who reads one module of a circle must read all."""

    def module(name: str) -> str:
        return name if name in MODULES else name.rpartition(".")[0]

    names = {path: "mdsx." + module_of(path) for path in FILES if module_of(path) != "mdsx"}
    imports = {
        name: {module(found) for found, _ in imports_of(path)} & set(names.values()) - {name}
        for path, name in names.items()
    }
    assert not circles(imports)


def test_pure_packages_do_no_io() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in FILES
        if is_in(module_of(path), PURE)
        for name, line in imports_of(path)
        if name.split(".")[0] in IMPURE_MODULES and name != "io.BytesIO"  # bytes in memory
    ]
    assert not wrong, "\n".join(wrong)


def test_heavy_libraries_have_one_owner() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in FILES
        for name, line in imports_of(path)
        if not is_in(module_of(path), OWNERS.get(name.split(".")[0], (module_of(path),)))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_package_needs_neither_tools_nor_tests() -> None:
    imported = {name.split(".")[0] for path in FILES for name, _ in imports_of(path)}
    assert not imported & {"tools", "tests", "hypothesis", "matplotlib"}


ABOUT_THE_WHOLE = {
    "consumer", "examples", "exports", "fuzz", "guides", "layers", "mistakes", "public_page", "readme", "security",
    "tools", "walks", "workflows",
}  # fmt: skip
"""Tests that belong to no single package."""


def test_tests_mirror_the_package() -> None:
    """Each package has tests of its own, in a folder or a file of its name, and so has each package inside it."""
    tests = PACKAGE.parent / "tests"
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    found = {path.parts[0].removeprefix("test_").removesuffix(".py") for path in files}
    tops = {package_of(path) for path in FILES} - {"mdsx", "__main__"}  # the public page, and a line that calls `cli`
    assert found == tops | ABOUT_THE_WHOLE
    packages = {path.relative_to(PACKAGE).parent for path in FILES if path.name == "__init__.py"} - {Path()}
    holders = {package.parent for package in packages} & {Path(name) for name in ("checks", "foreign", "transfer")}
    missing = packages - holders - {path.parent for path in files}
    assert not missing, "\n".join(f"make tests/{package}/ with at least one test_*.py" for package in sorted(missing))
