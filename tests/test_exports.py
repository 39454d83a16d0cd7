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


def exports(package: str) -> set[str]:
    """Return the names in a package's `__all__`, read from its source."""
    tree = ast.parse((ROOT / Path(*package.split(".")) / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return set(ast.literal_eval(node.value))
    return set()


def problem(path: Path, module: str, name: str) -> str | None:
    """Return what is wrong with an import, or None."""
    importer = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    package = package_of(module)
    if package == "mdsx" or (package_of(importer) + ".").startswith(package + "."):
        return None
    if module != package:
        return f"bypasses the exports of {package}"
    if f"{module}.{name}" not in PACKAGES and name not in exports(package):
        return f"{package} does not export {name}"
    return None


def test_a_bypass_is_found() -> None:
    path = ROOT / "mdsx" / "dataset.py"
    assert problem(path, "mdsx.shards.gather", "Columns")
    assert problem(path, "mdsx.shards", "Nothing")
    assert not problem(path, "mdsx.shards", "Columns")
    assert not problem(ROOT / "mdsx" / "shards" / "view.py", "mdsx.shards.gather", "Columns")


def test_nothing_bypasses_a_packages_exports() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: from {module} import {name}: {found}"
        for path in sorted((ROOT / "mdsx").rglob("*.py"))
        for module, name, line in imports(path)
        if (found := problem(path, module, name)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_every_export_is_there() -> None:
    for package in sorted(PACKAGES - {"mdsx"}):
        assert exports(package) <= set(dir(import_module(package))), package
