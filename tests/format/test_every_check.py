"""Every check of the reader is necessary: without it, a bad file is read, or another check refuses it."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from mdsx.errors import FormatError
from mdsx.format import check, decode, frames, index_parser, parse_index, rows, schema, shard, types
from mdsx.format.decode import SampleDecoder
from mdsx.format.frames import FrameReader
from mdsx.format.schema import Schema
from mdsx.format.shard import ShardView, parse_header
from mdsx.shards import present
from mdsx.shards.gather import gather
from tests.vectors import generate

HERE = Path(generate.__file__).parent
MANIFEST = json.loads((HERE / "manifest.json").read_text(encoding="utf-8"))
FILES: dict[str, Any] = MANIFEST["bad"] | MANIFEST["either"] | MANIFEST["good"]
MODULES = {
    check: (".mdsx",),
    decode: (".mdsx",),
    frames: (".zst",),
    index_parser: (".json",),
    rows: (".mdsx",),
    schema: (".mdsx", ".json"),
    shard: (".mdsx", ".json"),
    types: (".mdsx", ".json"),
}
"""The modules that read, and the suffixes of their files."""


def read_index(data: bytes) -> None:
    parse_index(data)


def read_streamed(data: bytes, raw_size: int, stored: int = 0) -> None:
    """The index claims `stored` additional bytes."""
    reader = FrameReader(raw_size, len(data) + stored, None)
    list(reader.feed(data))
    reader.finish()


def read_frames(data: bytes, raw_size: int) -> None:
    """Each frame by itself, as random access does."""
    size = frames.seek_table_size(raw_size)
    offsets = frames.parse_seek_table(data[-size:], raw_size=raw_size, size=len(data))
    for number, (start, stop) in enumerate(pairwise(offsets.tolist())):
        expected = min(frames.FRAME_SIZE, raw_size - number * frames.FRAME_SIZE)
        frames.decompress_frame(data[start:stop], expected_size=expected, place=f"frame {number}")


def read_unindexed(data: bytes, raw_size: int) -> None:
    """Read it without an index, which would give its length."""
    frames.claimed_raw_size(data)
    frames.first_bytes(data)


def read_whole(data: bytes, **index: Any) -> None:
    """`index` has the index's values for the shard."""
    for error in check.check_shard(data, **index):
        raise error


def read_head(data: bytes) -> None:
    """Read the beginning of a shard, without any row."""
    parse_header(data[: 64 + int.from_bytes(data[36:40], "little")], size=len(data))


def read_samples(data: bytes) -> None:
    """Each sample by itself."""
    view = ShardView.parse(data)
    decoder = SampleDecoder(view.schema, {column.name: number for number, column in enumerate(view.schema.columns)})
    for sample in range(view.samples):
        decoder.decode(view, sample, verify=True)


def read_batch(data: bytes) -> None:
    """All samples together."""
    view = ShardView.parse(data)
    numbers = np.arange(view.samples)
    sources = [(view.select(numbers, verify=True), tuple(range(len(view.schema.columns))))]
    (columns,) = gather(view.schema, sources, numbers, [view.samples])
    present(view.schema, columns)


def ways(file: str) -> Sequence[Callable[[], None]]:
    """Return all ways to read a file."""
    data = (HERE / file).read_bytes()
    if file.endswith(".json"):
        return [partial(read_index, data)]
    if file.endswith(".zst"):
        size = FILES[file]["raw_size"]
        sizes = [partial(read_streamed, data, raw, stored) for raw, stored in ((size, 1), (size, -1), (2**60, 2**40))]
        return sizes + [partial(read, data, size) for read in (read_streamed, read_frames, read_unindexed)]
    as_another = [partial(read_whole, data, schema=OTHER), partial(read_whole, data, row_key=1)]
    return as_another + [partial(read, data) for read in (read_whole, read_head, read_samples, read_batch)]


FUTURE = annotations.compiler_flag
OTHER = Schema.from_columns({"other": "int8"})
WAYS = {file: ways(file) for file in sorted(FILES, key=lambda file: (HERE / file).stat().st_size)}


def outcome(file: str) -> list[str]:
    """Return the error of each way of reading a bad file; none if it accepts the file."""
    return [refusal(read) for read in WAYS[file]]


def refusal(read: Callable[[], None]) -> str:
    try:
        read()
    except FormatError as error:
        return str(error)
    except Exception as error:  # the removed check protects later code
        return repr(error)
    return ""


def is_check(node: ast.stmt) -> bool:
    """Return whether it is `expect(...)`, or raises an error about the file (not about an argument)."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return isinstance(node.value.func, ast.Name) and node.value.func.id == "expect"
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    return not any(word in ast.unparse(node.exc) for word in ("UsageError", "AssertionError", "IndexError"))


def functions(tree: ast.Module) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield (node.name,), node
        elif isinstance(node, ast.ClassDef):
            yield from ((((node.name, each.name)), each) for each in node.body if isinstance(each, ast.FunctionDef))


def checks(module: ModuleType) -> Iterator[tuple[str, tuple[str, ...], CodeType]]:
    """Yield each check of a module: its text, the function that makes it, and that function's code without it."""
    for top in ast.parse(inspect.getsource(module)).body:
        tree = ast.Module([top], [])
        for path, function in functions(tree):
            for found in [node for node in ast.walk(function) if isinstance(node, ast.stmt) and is_check(node)]:
                code: Any = compiled_without(found, tree, module.__file__ or "")
                for name in path:
                    code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)
                yield f"{module.__name__}.{'.'.join(path)}: {ast.unparse(found)}", path, code


def compiled_without(statement: ast.stmt, tree: ast.Module, file: str) -> CodeType:
    body, place = next(
        (body, body.index(statement))
        for parent in ast.walk(tree)
        for body in (getattr(parent, field, None) for field in ("body", "orelse", "finalbody"))
        if isinstance(body, list) and statement in body
    )
    body[place] = ast.copy_location(ast.Pass(), statement)
    try:
        code: CodeType = compile(tree, file, "exec", FUTURE)
        return code
    finally:
        body[place] = statement


def function_at(module: ModuleType, path: tuple[str, ...]) -> FunctionType:
    found: Any = module
    for name in path:
        found = inspect.getattr_static(found, name)
    for attribute in ("__func__", "func", "fget", "__wrapped__"):
        found = getattr(found, attribute, found)
    assert isinstance(found, FunctionType)
    return found


CHECKS = {
    text: (function_at(module, path), code, [file for file in WAYS if file.endswith(suffixes)])
    for module, suffixes in MODULES.items()
    for text, path, code in checks(module)
}

TESTED_ELSEWHERE = {
    "'too many shards'": "its file has 350 MB: tests/format/test_index.py",
    "'the rows are damaged'": "rows read without their heaps: tests/shards/test_lengths.py",
    "'the shard is not the one that the index names'": "it takes an index: tests/format/test_one_rule.py",
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str]]:
    found = {file: outcome(file) for file in FILES}
    assert all(any(found[file]) for file in MANIFEST["bad"])
    return found


@pytest.mark.parametrize("removed", [text for text in CHECKS if not any(part in text for part in TESTED_ELSEWHERE)])
def test_each_check_refuses_a_bad_file(removed: str, outcomes: dict[str, list[str]]) -> None:
    function, code, files = CHECKS[removed]
    before = function.__code__
    function.__code__ = code
    try:
        assert any(outcome(file) != outcomes[file] for file in files)
    finally:
        function.__code__ = before
