"""A package exports what others use, and nothing bypasses its exports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import mdsx

ROOT = Path(mdsx.__file__).parent.parent
PACKAGES = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "mdsx").rglob("__init__.py")}


def imports(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the module, the name and the line of every `from mdsx... import ...` in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mdsx":
            for alias in node.names:
                yield str(node.module), alias.name, node.lineno


def package_of(module: str) -> str:
    """Return the innermost package that a module is in; a package is in itself."""
    while module not in PACKAGES:
        module = module.rpartition(".")[0]
    return module


def holds_only_others(package: str) -> bool:
    """Whether a package has no code and exports nothing: its modules are imported one by one."""
    source = (ROOT / Path(*package.split(".")) / "__init__.py").read_text(encoding="utf-8")
    return all(isinstance(node, ast.Expr) for node in ast.parse(source).body)


def exports(package: str) -> set[str]:
    """Return the names in a package's `__all__`, read from its source."""
    tree = ast.parse((ROOT / Path(*package.split(".")) / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


EXCEPTIONS = {
    "tests/fuzz/": "feeds each parser by itself",
    "tests/stream/test_more_vectors.py": "follows vectors of functions of many packages",
    "tests/stream/test_run_vectors.py": "follows vectors of functions of many packages",
    "mdsx.base.work.parcels": "a parcel of tensors without a process",
    "mdsx.checks.doctor.dataset": "one of the doctor's checks alone: others need a storage",
    "mdsx.checks.doctor.endpoint": "one of the doctor's checks alone, with any answer of a server",
    "mdsx.checks.doctor.machine": "a machine with less shared memory",
    "mdsx.cli.app": "runs commands in the test's process: a process for each takes half a second",
    "mdsx.format.protocol": "its source is the text of a page",
    "mdsx.format.stored_bytes": "readers of shards for columns that no dataset has",
    "mdsx.order.needs": "which objects a forked worker makes",
    "mdsx.shards.formats": "formats that no package has installed",
    "mdsx.shards.gather": "columns of samples that no dataset has",
    "mdsx.shards.needs": "announcements without a run",
    "mdsx.shards.shards": "a disk that is far away",
    "mdsx.simulate.stored": "what a simulation reads of one index",
    "mdsx.storage.base": "what a storage of the tests is made of",
    "mdsx.storage.cache.announced": "announcements without a run",
    "mdsx.storage.cache.eviction": "the cache's policy under a clock of the tests",
    "mdsx.storage.local": "fails, stops or counts calls of the local disk",
    "mdsx.storage.remote.az": "uploads in small blocks, and the death of a writer between requests",
    "mdsx.storage.remote.gs": "uploads in small blocks, and the death of a writer between requests",
    "mdsx.storage.remote.http": "the death of a writer between requests",
    "mdsx.storage.remote.s3": "uploads in small parts, and the death of a writer between requests",
    "mdsx.storage.retry": "short pauses between tries",
    "mdsx.storage.throttle": "short pauses between tries",
    "mdsx.stream.group_state": "the fields of a state, for the specification",
    "mdsx.transfer.converting.line_files": "units of a few bytes, for other sources of lines",
    "mdsx.transfer.converting.record": "what a kill leaves, if each unit is recorded",
    "mdsx.transfer.converting.source": "what it shows of its options",
    "mdsx.view.values": "how a value of each type is shown",
}
"""Tests that import around a package's exports: which, or what, and why."""


def problem(path: Path, module: str, name: str) -> str | None:
    """Return what is wrong with an import, or None. The tests of a package count as part of it."""
    importer = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if importer.startswith("tests."):
        importer = "mdsx." + importer.removeprefix("tests.")
    package = package_of(module)
    if package == "mdsx.testing" and path.is_relative_to(ROOT / "tests"):  # tests use what others are made of
        return None
    if package == "mdsx" or (package_of(importer) + ".").startswith(package + "."):
        return None
    if holds_only_others(package):
        return None
    if module != package:
        return f"bypasses the exports of {package}"
    if f"{module}.{name}" not in PACKAGES and name not in exports(package):
        return f"{package} does not export {name}"
    return None


def test_a_bypass_is_found() -> None:
    path = ROOT / "mdsx" / "datasets" / "dataset.py"
    assert problem(path, "mdsx.shards.gather", "Columns")
    assert problem(path, "mdsx.shards", "Nothing")
    assert not problem(path, "mdsx.shards", "Columns")
    assert not problem(ROOT / "mdsx" / "shards" / "view.py", "mdsx.shards.gather", "Columns")
    assert problem(ROOT / "tests" / "datasets" / "test_dataset.py", "mdsx.shards.gather", "Columns")
    assert not problem(ROOT / "tests" / "shards" / "test_gather.py", "mdsx.shards.gather", "Columns")


def exception(path: Path, module: str, name: str) -> str | None:
    """Return the key of the exception that allows an import in a test, or None."""
    relative = path.relative_to(ROOT).as_posix()
    keys = [key for key in EXCEPTIONS if relative.startswith(key) or key in (module, f"{module}.{name}")]
    return keys[0] if keys and relative.startswith(("tests/", "mdsx/testing/")) else None


def test_nothing_bypasses_a_packages_exports() -> None:
    wrong, used = list[str](), set[str]()
    for path in sorted([*(ROOT / "mdsx").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        for module, name, line in imports(path):
            if (found := problem(path, module, name)) is None:
                continue
            if key := exception(path, module, name):
                used.add(key)
            else:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: from {module} import {name}: {found}")
    assert not wrong, "\n".join(wrong)
    assert used == set(EXCEPTIONS)


def test_every_export_is_there() -> None:
    for package in sorted(PACKAGES - {"mdsx"}):
        assert exports(package) <= set(dir(import_module(package))), package
