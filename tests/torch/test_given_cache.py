"""Where the cache of a dataset is said: when it is opened, for a mixture, or for the run. What is given counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A compressed dataset, which is read through the cache."""
    path: Path = tmp_path_factory.mktemp("given") / "d"
    with mdsx.Writer(path, {"id": "int64"}, compression="zstd") as out:
        out.write_batch({"id": np.arange(100)})
    return str(path)


@pytest.fixture(autouse=True)
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MDSX_CACHE", str(tmp_path / "default"))
    return tmp_path / "default"


def cached(directory: Path) -> bool:
    return any(directory.rglob("*.mdsx"))


def uses(loader: Iterable[Any], directory: Path) -> bool:
    """Whether the loader reads through the cache in `directory`. It may have read an epoch before a shard is there."""
    return any(list(loader) and cached(directory) for _ in range(1000))


SOURCES: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda dataset: dataset,
    "split": lambda dataset: dataset.split(0.5, 0.5)[0],
    "zip": lambda dataset: mdsx.zip(dataset, dataset.select_columns({"more": "id"})),
    "mixture": lambda dataset: mdsx.Mixture([(dataset, 1.0)]),
    "nested": lambda dataset: mdsx.Mixture([(mdsx.Mixture([dataset]), 1.0)]),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_given_cache_wins_over_the_default(url: str, tmp_path: Path, default: Path, source: str) -> None:
    data = StreamingDataset(SOURCES[source](mdsx.Dataset(url)), cache=mdsx.Cache(tmp_path / "given", limit="1GB"))
    assert uses(StreamingDataLoader(data, 10), tmp_path / "given")
    assert not cached(default)


@pytest.mark.parametrize("source", SOURCES)
def test_equal_caches_agree(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    opened = mdsx.Dataset(url, cache=mdsx.Cache("given", limit="1GB"))
    same = mdsx.Cache(tmp_path / "given", limit=10**9)
    assert uses(mdsx.Loader(SOURCES[source](opened), 10, cache=same), tmp_path / "given")
    assert list(mdsx.Loader(SOURCES[source](opened), 10))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("other", [{"limit": "2GB"}, {"verify": "size"}, {"directory": "elsewhere"}], ids=str)
def test_two_different_caches_raise(url: str, tmp_path: Path, source: str, other: dict[str, Any]) -> None:
    opened = mdsx.Dataset(url, cache=mdsx.Cache(tmp_path / "given", limit="1GB"))
    second = mdsx.Cache(**{"directory": tmp_path / "given", "limit": "1GB", **other})
    with pytest.raises(
        mdsx.UsageError, match=r"two different caches are given for one dataset.*in one place"
    ) as caught:
        StreamingDataset(SOURCES[source](opened), cache=second)
    assert caught.value.file == url


def test_a_mixtures_cache_is_for_datasets_without_one(url: str, tmp_path: Path, default: Path) -> None:
    own = mdsx.Dataset(url, cache=tmp_path / "own")
    for component in (mdsx.Dataset(url), own, url):
        loader = mdsx.Loader(mdsx.Mixture([(component, 1.0)], cache=tmp_path / "given"), 10)
        assert uses(loader, tmp_path / ("own" if component is own else "given"))
    assert not cached(default)
    mixture = mdsx.Mixture([(url, 1.0)], cache=tmp_path / "given")
    with pytest.raises(mdsx.UsageError, match="two different caches"):
        StreamingDataset(mixture, cache=tmp_path / "other")


def test_a_cache_that_is_too_small_raises_wherever_it_is_given(url: str, tmp_path: Path) -> None:
    for source in SOURCES.values():
        with pytest.raises(mdsx.UsageError, match="the largest shard"):
            StreamingDataset(source(mdsx.Dataset(url)), cache=mdsx.Cache(tmp_path / "given", limit=100))
