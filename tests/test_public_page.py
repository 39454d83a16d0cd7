"""The public page: its names, their documentation, and the small cost of `import mdsx`."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mdsx
import mdsx.torch


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after `code`."""
    program = f"{code}\nimport sys\nprint('\\n'.join({{name.split('.')[0] for name in sys.modules}}))"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None"
"""Code that hides an installed PyTorch."""


@pytest.mark.parametrize("page", [mdsx, mdsx.torch])
def test_the_list_of_names_is_sorted(page: object) -> None:
    names = page.__all__  # type: ignore[attr-defined]
    assert list(names) == sorted(set(names))


@pytest.mark.parametrize("name", [*mdsx.__all__, "zip"])
def test_each_public_name_is_documented(name: str) -> None:
    thing = getattr(mdsx, name)
    assert inspect.getdoc(thing)
    assert name in dir(mdsx)


def test_a_star_import_leaves_pythons_names() -> None:
    names: dict[str, object] = {}
    exec("from mdsx import *", names)
    assert "Dataset" in names
    assert not names.keys() & vars(builtins).keys() - {"__builtins__", "__doc__", "__name__"}


def test_what_loaders_take_and_return_has_a_name_beside_them() -> None:
    assert mdsx.Stats is mdsx.torch.Stats


@pytest.mark.parametrize("name", mdsx.torch.__all__)
def test_each_public_name_for_training_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(mdsx.torch, name))


@pytest.mark.parametrize("name", ["Dataset", "Order", "Writer"])
def test_each_public_method_is_documented(name: str) -> None:
    methods = [method for method in vars(getattr(mdsx, name)).items() if not method[0].startswith("_")]
    undocumented = [key for key, value in methods if callable(value) and not inspect.getdoc(value)]
    assert not undocumented


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Wrtier'"):
        mdsx.Wrtier  # type: ignore[attr-defined]  # noqa: B018


def test_import_loads_nothing_heavy() -> None:
    loaded = modules_after("import mdsx")
    assert "mdsx" in loaded
    assert not loaded & {
        "boto3", "botocore", "ctypes", "msgpack", "msgspec", "multiprocessing", "numpy", "rich", "torch", "typer",
        "xxhash", "zstandard",
    }  # fmt: skip


def test_writing_and_reading_load_neither_torch_nor_the_command_line() -> None:
    loaded = modules_after(f"import mdsx; {'; '.join(f'mdsx.{name}' for name in mdsx.__all__)}")
    assert not loaded & {"boto3", "botocore", "rich", "torch", "typer"}


def test_all_but_the_training_reader_works_without_torch() -> None:
    code = f"{WITHOUT_TORCH}; import mdsx; {'; '.join(f'mdsx.{name}' for name in mdsx.__all__)}; import mdsx.cli"
    assert "mdsx" in modules_after(code)


def test_the_training_reader_says_what_to_install() -> None:
    program = f"{WITHOUT_TORCH}; import mdsx.torch"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode
    assert "pip install 'mdsx[torch]'" in result.stderr


def test_the_package_logs_as_mdsx_and_adds_no_handler() -> None:
    package = Path(mdsx.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    loggers = {name for text in sources for name in re.findall(r"getLogger\(([^)]*)\)(?!\.addFilter)", text)}
    assert loggers == {'"mdsx"'}
    assert not any(
        re.search(r"addHandler|basicConfig|\blogging\.(debug|info|warning|error)\(", text) for text in sources
    )


def test_import_mdsx_alone_reaches_the_training_reader() -> None:
    subprocess.run([sys.executable, "-c", "import mdsx; mdsx.torch.collate"], check=True)


def test_every_error_has_a_row_in_the_docs() -> None:
    page = (Path(__file__).parent.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([A-Za-z]+Error)`", rows))
    assert {name for name in mdsx.__all__ if name.endswith("Error")} - {"MdsxError", "FormatError"} == named
