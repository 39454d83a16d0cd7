"""docs/from-mosaicml.md: it lists every argument, agrees with the errors, and its programs run."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

import mdsx
from mdsx.base import mosaicml
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests import fork_server
from tests.guides.from_mosaicml import PAGE, code, run_before
from tools.environment import PeerEnvironment
from tools.processes import Call, stream
from tools.servers.s3 import S3Server

TABLES: dict[str, tuple[Callable[..., Any], Mapping[str, str]]] = {
    "StreamingDataset": (StreamingDataset, mosaicml.STREAMING_DATASET),
    "StreamingDataLoader": (StreamingDataLoader, mosaicml.STREAMING_DATA_LOADER),
    "MDSWriter": (mdsx.Writer, mosaicml.WRITER),
}


class Before(NamedTuple):
    """mosaicml-streaming's run: where, the dataset's URL, its batches; the arguments of its classes, its encodings."""

    directory: Path
    url: str
    batches: list[list[int]]
    tables: dict[str, list[str]]


@pytest.fixture(scope="session")
def before(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Before:
    PeerEnvironment("mosaicml").install()
    directory, url = tmp_path_factory.mktemp("before"), s3.make_bucket("from-mosaicml")
    arguments = {"loader": "mosaicml", "function": f"{run_before.__module__}:run_before"}
    program = Call("tools.peers:drive", {**arguments, "directory": str(directory), "url": url}, "mosaicml")
    *_, found = stream(program, scratch=tmp_path_factory.mktemp("scratch"), limit=200)
    return Before(directory, url, **found)


@pytest.mark.slow
def test_the_page_lists_every_argument_and_encoding(before: Before) -> None:
    tables = dict(before.tables)
    encodings = set(tables.pop("Column types"))
    assert tables.keys() == {*TABLES, "Stream"}
    assert {table: list(PAGE.rows(table)) for table in tables} == tables
    assert len(encodings) > 20
    assert not encodings - PAGE.rows("Column types").keys()


@pytest.mark.slow
def test_the_programs_before_and_after_read_the_same(before: Before) -> None:
    check_epochs(before.batches)
    found = fork_server.call(run_after, before.directory, before.url, timeout=200)
    check_epochs(found["after"])
    assert found["resumed"] == found["after"][31 + 10 :]
    assert found["rewritten"] == 1000
    assert found["mixed"] == [32] * (2000 // 32)
    assert found["epochs"] == (2, 1, (1000 - 10 * 32) // 32)


def check_epochs(batches: list[list[int]]) -> None:
    """Check two epochs of 31 batches of 32, without a sample that comes twice in one."""
    assert [len(batch) for batch in batches] == [32] * 62
    for epoch in (batches[:31], batches[31:]):
        assert len({number for batch in epoch for number in batch} & set(range(1000))) == 31 * 32


def run_after(directory: Path, url: str) -> dict[str, Any]:
    """Run the page's programs with mdsx on what mosaicml-streaming wrote."""
    os.chdir(directory)
    batches: list[list[int]] = []
    session: dict[str, Any] = {"train": lambda tokens, sources: batches.append(tokens[:, 0].tolist())}
    found: dict[str, Any] = {}
    for run in ("after", "resumed"):
        exec(code("After", url), session)
        found[run], batches[:] = list(batches), []
    exec(code("Convert the data", url), session)
    pairs = zip(mdsx.Dataset(f"{url}/mds"), mdsx.Dataset(f"{url}/rewritten"), strict=True)
    found["rewritten"] = sum({**old, "tokens": 0} == {**new, "tokens": 0} for old, new in pairs)
    exec(code("Stream", url), session)
    found["mixed"] = [len(batch["page"]) for batch in session["loader"]]
    exec(code("Switch in the middle of a run", url), session)
    loader = session["loader"]
    with pytest.raises(mdsx.StateError):
        loader.load_state_dict(session["old"])
    found["epochs"] = (session["old"]["epoch"] + 1, loader.epoch, loader.remaining)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_the_page_says_what_the_errors_say(table: str) -> None:
    call, names = TABLES[table]
    ours = set(inspect.signature(call).parameters)
    for name, (ours_instead, *_) in PAGE.rows(table).items():
        if name in ours:
            assert ours_instead.partition(";")[0] == "the same"
        elif name in names:
            assert ours_instead.replace("`", "") == names[name].format(call=call.__name__)
    assert not PAGE.rows(table).keys() - ours - names.keys()


def test_the_transform_decodes_images() -> None:
    session: dict[str, Any] = {}
    exec(code("Differences in behaviour", ""), session)
    picture = io.BytesIO()
    Image.new("L", (3, 2)).save(picture, "JPEG")
    decoded = session["decode"]({"image": picture.getvalue(), "label": 1})
    assert (decoded["image"].mode, decoded["image"].size, decoded["label"]) == ("RGB", (3, 2), 1)
