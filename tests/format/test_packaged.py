"""Types of packages: what is registered, what is stored, and what can be done without the package."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mdsx
from mdsx.format import Schema, length_rule, parse_type
from mdsx.format.packaged import codec, is_available
from mdsx.torch import StreamingDataLoader, StreamingDataset
from tests.testing.packages import install

GHOST = {"id": "int64", "one": "ghost.Thing", "maybe": "ghost.Thing?", "many": "ghost.Thing[*]?"}
"""Nothing registers it."""
ROWS = [
    {"id": 0, "one": b"a\0", "maybe": None, "many": [b"", b"bc"]},
    {"id": 1, "one": b"", "maybe": b"x" * 300, "many": None},
    {"id": 2, "one": b"\xff", "maybe": b"", "many": []},
]


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    def __hash__(self) -> int:
        return self.x


def encode(value: Any) -> bytes:
    return b"%d" % value.x


def decode(data: bytes) -> Point:
    return Point(int(data))


@pytest.fixture(autouse=True)
def _registered() -> None:
    mdsx.register("geo.Point", encode=encode, decode=decode)


def write(folder: Path, columns: dict[str, str], samples: list[dict[str, Any]]) -> Path:
    with mdsx.Writer(folder, columns) as out:
        for sample in samples:
            out.write(sample)
    return folder


@pytest.fixture
def ghosts(tmp_path: Path) -> Path:
    """A dataset of a type that is not here: Arrow's data have its values as they are stored."""
    with mdsx.Writer(tmp_path / "ghosts", GHOST) as out:
        out.write_batch(pa.Table.from_pylist(ROWS))
    return tmp_path / "ghosts"


# --- with the package


@pytest.mark.parametrize("distribution", ["geo-shapes", "Geo_Shapes", "geo.-shapes"])
def test_a_package_may_spell_its_name_in_any_way(
    distribution: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"GEO--Shapes.{distribution}".replace("geo.-", "x")
    module = "class Kind:\n    encode = bytes\n    decode = bytes\n"
    install(tmp_path, distribution, {"mdsx.types": {name: "shapes:Kind"}}, shapes=module)
    monkeypatch.syspath_prepend(tmp_path)
    found = codec(name)
    assert found is not None
    assert (found.name, found.encode(b"x"), found.decode(b"y")) == (name, b"x", b"y")


def test_a_package_has_types_of_its_own_name_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "class Kind:\n    encode = bytes\n    decode = bytes\n"
    install(tmp_path, "Geo_shapes", {"mdsx.types": {"geoshapes.One": "shapes:Kind"}}, shapes=module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(mdsx.UsageError, match=r"begins with another package's name .*expected geo-shapes\."):
        codec("geoshapes.One")


def test_a_package_has_functions_to_encode_and_to_decode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "half", {"mdsx.types": {"half.One": "half:Kind"}}, half="class Kind:\n    encode = bytes\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(mdsx.UsageError, match=r"'half\.One' of the package half has no functions") as caught:
        codec("half.One")
    assert caught.value.hint == "upgrade or uninstall half"
    assert not is_available("half.One")


def test_values_are_those_of_the_package(tmp_path: Path) -> None:
    columns = {"p": "geo.Point", "maybe": "geo.Point?", "many": "geo.Point[*]"}
    samples = [{"p": Point(n), "maybe": None if n % 2 else Point(-n), "many": [Point(n)] * n} for n in range(5)]
    url = write(tmp_path / "data", columns, samples)
    data = mdsx.Dataset(url)
    assert [*data] == samples
    assert data[3] == samples[3]
    assert data.take([4, 1])["many"] == [samples[4]["many"], samples[1]["many"]]
    assert dict(data.columns) == columns
    (batch,) = StreamingDataLoader(StreamingDataset(url, shuffle=False), batch_size=5)
    assert batch["p"] == [Point(n) for n in range(5)]
    assert batch["maybe"] == [sample["maybe"] for sample in samples]
    transformed = mdsx.Loader(url, batch_size=5, shuffle=False, transform=lambda sample: sample["p"].x)
    assert [batch.tolist() for batch in transformed] == [[0, 1, 2, 3, 4]]


@pytest.mark.slow_if("context == 'forkserver'")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_worker_processes_know_what_was_registered(tmp_path: Path, context: Any) -> None:
    url = write(tmp_path / "data", {"p": "geo.Point"}, [{"p": Point(n)} for n in range(8)])
    dataset = StreamingDataset(url, shuffle=False)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)
    assert [point for batch in loader for point in batch["p"]] == [Point(n) for n in range(8)]


def points(number: int) -> Any:
    yield {"p": Point(number)}


def test_processes_that_build_know_what_was_registered(tmp_path: Path) -> None:
    mdsx.build(points, range(4), tmp_path / "data", columns={"p": "geo.Point"}, num_workers=2)
    assert sorted(sample["p"].x for sample in mdsx.Dataset(tmp_path / "data")) == [0, 1, 2, 3]


def test_what_was_registered_last_is_used(tmp_path: Path) -> None:
    url = write(tmp_path / "data", {"p": "geo.Point"}, [{"p": Point(1)}])
    mdsx.register("geo.Point", encode=encode, decode=len)
    assert mdsx.Dataset(url)[0]["p"] == 1


def test_an_unpickled_type_registers_itself_where_it_is_not_here() -> None:
    from mdsx.format import packaged

    mdsx.register("fresh.Point", encode=encode, decode=decode)
    pickled = pickle.dumps(Schema.from_columns({"a": "fresh.Point", "b": "fresh.Point[*]?"}))
    del packaged._registered["fresh.Point"]
    schema = pickle.loads(pickled)
    assert all(column.type.known for column in schema.columns)
    assert [str(column.type) for column in schema.columns] == ["fresh.Point", "fresh.Point[*]?"]


def test_an_error_of_the_encoder_names_the_column_and_keeps_the_writer(tmp_path: Path) -> None:
    mdsx.register("geo.Bad", encode=lambda value: value, decode=bytes)
    with mdsx.Writer(tmp_path / "data", {"p": "geo.Point?", "bad": "geo.Bad?"}) as out:
        with pytest.raises(mdsx.SampleError, match=r"'p'.*encoder of geo.Point takes.*str.*AttributeError"):
            out.write({"p": "text", "bad": None})
        with pytest.raises(mdsx.SampleError, match=r"'p'.*AttributeError"):
            out.write_batch({"p": [Point(1), 5], "bad": [None, None]})
        with pytest.raises(mdsx.SampleError, match=r"'bad'.*bytes from the encoder of geo.Bad"):
            out.write({"p": None, "bad": "text"})
        out.write({"p": Point(1), "bad": b"x"})
    assert len(mdsx.Dataset(tmp_path / "data")) == 1


def test_an_error_of_the_decoder_names_the_sample(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"p": "geo.Point"}) as out:
        out.write_batch({"p": pa.array([b"1", b"no number"], pa.binary())})
    data = mdsx.Dataset(tmp_path / "data")
    assert data[0]["p"] == Point(1)
    reads: list[Callable[[], object]] = [lambda: data[1], lambda: data.take([0, 1])]
    for read in reads:
        with pytest.raises(mdsx.CorruptError, match=r"sample 1\b.*column 'p'.*decoder of geo.Point failed: ValueError"):
            read()
    assert mdsx.verify(tmp_path / "data").ok  # the bytes are those that were written


# --- names


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Frame", "a dot"), ("geo:", "a dot"), (".Point", "a dot"), ("geo.", "a dot"),
        ("geo.Point[*]", "a dot"), ("9geo.Point", "a dot"), ("mds.pil", "mdsx's own"), ("mdsx.x", "mdsx's own"),
        ("mdsx.x.y", "mdsx's own"), ("geo:a:b", "a dot"),
        (5, "a dot"), ("str", "a dot"),
    ],
)  # fmt: skip
def test_other_names_cannot_be_registered(name: Any, says: str) -> None:
    with pytest.raises(mdsx.UsageError, match=says):
        mdsx.register(name, encode=encode, decode=decode)


def test_a_colon_may_stand_for_the_dot(tmp_path: Path) -> None:
    mdsx.register("colon:Point", encode=encode, decode=decode)
    url = write(tmp_path / "data", {"p": "colon:Point", "more": "colon:Point[*]?"}, [{"p": Point(1), "more": None}])
    data = mdsx.Dataset(url)
    assert data[0] == {"p": Point(1), "more": None}
    assert dict(data.columns) == {"p": "colon.Point", "more": "colon.Point[*]?"}


def test_encode_and_decode_are_functions() -> None:
    with pytest.raises(mdsx.UsageError, match="decode must be a function"):
        mdsx.register("geo.Point", encode=encode, decode=None)  # type: ignore[arg-type]
    with pytest.raises(mdsx.UsageError, match="encode must be a function"):
        mdsx.register("geo.Point", encode=None, decode=decode)  # type: ignore[arg-type]


def test_a_type_of_a_package_is_variable_size_and_of_version_1_0() -> None:
    for text in ("geo.Point", "ghost.Thing", "ghost.Thing[*]?"):
        schema = Schema.from_columns({"a": text})
        assert (schema.variable, schema.minor) == ((0,), 0)
        assert length_rule(parse_type(text)) is None


def test_other_dimensions_than_a_star_are_opaque(tmp_path: Path) -> None:
    """Whether the package is here or not: earlier versions took such columns so."""
    for text in ("geo.Point[3]", "geo.Point[*,3]?", "ghost.Thing[*,*]"):
        assert not parse_type(text).known
        with pytest.raises(mdsx.UsageError, match="unknown column type"):
            mdsx.Writer(tmp_path / "data", {"a": text})


# --- without the package


def test_without_the_package_its_column_cannot_be_read_but_the_others(ghosts: Path) -> None:
    data = mdsx.Dataset(ghosts)
    assert dict(data.columns) == GHOST
    says = r"column 'one' has type 'ghost.Thing' of the package 'ghost', which .*install 'ghost'.*mdsx.register"
    loader = mdsx.Loader(ghosts, batch_size=1)
    for read in (lambda: data[0], lambda: data[0:2], lambda: data.take([1]), lambda: next(iter(loader))):
        with pytest.raises(mdsx.UnsupportedError, match=says):
            read()
    assert data.select_columns(["id"]).take([2, 0])["id"].tolist() == [2, 0]
    (batch,) = mdsx.Loader(ghosts, batch_size=3, shuffle=False, columns=["id"])
    assert batch["id"].tolist() == [0, 1, 2]


def test_the_stored_bytes_are_read_without_the_package(ghosts: Path) -> None:
    names = {"one": "bytes", "maybe": "bytes", "many": "bytes[*]"}
    as_bytes = {name: mdsx.Cast(name, kind) for name, kind in names.items()}
    data = mdsx.Dataset(ghosts, columns=as_bytes)
    assert dict(data.columns) == {"one": "bytes", "maybe": "bytes?", "many": "bytes[*]?"}
    assert [*data] == [{name: row[name] for name in as_bytes} for row in ROWS]
    assert mdsx.Dataset(ghosts).take([0, 1, 2], as_arrow=True).to_pylist() == ROWS
    with pytest.raises(mdsx.UsageError):
        mdsx.Dataset(ghosts, columns={"many": mdsx.Cast("many", "bytes")})


def test_values_cannot_be_written_without_the_package(tmp_path: Path) -> None:
    with mdsx.Writer(tmp_path / "data", {"one": "ghost.Thing"}) as out:
        for value in (b"bytes", "text"):
            with pytest.raises(mdsx.SampleError, match=r"'one'.*ghost.Thing is not.*install 'ghost'"):
                out.write({"one": value})


def test_datasets_are_checked_merged_and_repaired_without_the_package(ghosts: Path, tmp_path: Path) -> None:
    assert mdsx.verify(ghosts).ok
    for part in range(2):
        with mdsx.Writer(tmp_path / "merged" / f"part-{part:05}", GHOST) as out:
            out.write_batch(pa.Table.from_pylist(ROWS))
    mdsx.merge(tmp_path / "merged")
    with mdsx.Writer(tmp_path / "merged" / "part-00002", GHOST) as out:
        out.write_batch(pa.Table.from_pylist(ROWS))
    mdsx.append(tmp_path / "merged", tmp_path / "merged" / "part-00002")
    assert mdsx.Dataset(tmp_path / "merged").take(range(9), as_arrow=True).to_pylist() == ROWS * 3
    (shard,) = ghosts.glob("*.mdsx")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert not mdsx.verify(ghosts).ok
    mdsx.repair(ghosts, drop_damaged=True)
    assert mdsx.verify(ghosts).ok
    assert mdsx.Dataset(ghosts).take([0, 1], as_arrow=True).to_pylist() == ROWS[:2]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tar"])
def test_exports_come_back_without_the_package(ghosts: Path, tmp_path: Path, kind: Any) -> None:
    columns = {name: text for name, text in GHOST.items() if name != "many" or kind != "tar"}
    mdsx.export(kind, ghosts, tmp_path / "files", columns=list(columns))
    mdsx.convert(kind, f"{tmp_path}/files/*.{kind}", tmp_path / "back", columns=columns)
    again = mdsx.Dataset(tmp_path / "back", columns=list(columns))
    assert dict(again.columns) == columns
    assert again.take([0, 1, 2], as_arrow=True).to_pylist() == [{name: row[name] for name in columns} for row in ROWS]


def test_tars_are_read_in_place(tmp_path: Path) -> None:
    url = write(tmp_path / "data", {"id": "int64", "p": "geo.Point"}, [{"id": n, "p": Point(n)} for n in range(3)])
    mdsx.export("tar", url, tmp_path / "tars")
    mdsx.index_tars(tmp_path / "tars", columns={"id": "int64", "p": "geo.Point"})
    assert [sample["p"] for sample in mdsx.Dataset(tmp_path / "tars")] == [Point(n) for n in range(3)]


def test_a_batch_of_arrow_data_has_stored_bytes(tmp_path: Path) -> None:
    """Also where the package is here: they are not encoded again."""
    with mdsx.Writer(tmp_path / "data", {"p": "geo.Point[*]"}) as out:
        out.write_batch({"p": pa.array([[b"1", b"2"], []], pa.list_(pa.binary()))})
    assert [*mdsx.Dataset(tmp_path / "data")] == [{"p": [Point(1), Point(2)]}, {"p": []}]
    assert mdsx.Dataset(tmp_path / "data").take([0], as_arrow=True)["p"].to_pylist() == [[b"1", b"2"]]


def test_a_split_by_a_type_of_a_package_is_refused(ghosts: Path) -> None:
    with pytest.raises(mdsx.UsageError, match="split only by"):
        mdsx.Dataset(ghosts).split(0.5, 0.5, seed=0, by="one")


def test_a_mixture_has_the_type_once(ghosts: Path, tmp_path: Path) -> None:
    write(tmp_path / "a", {"p": "geo.Point"}, [{"p": Point(1)}])
    write(tmp_path / "b", {"p": "geo.Point"}, [{"p": Point(2)}])
    loader = mdsx.Loader(mdsx.Mixture([mdsx.Dataset(tmp_path / "a"), mdsx.Dataset(tmp_path / "b")]), batch_size=2)
    assert sorted(point.x for batch in loader for point in batch["p"]) == [1, 2]
