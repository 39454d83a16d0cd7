"""The names that users of MosaicML and PyTorch look for: each raises an error with mdsx's own name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import mdsx
from mdsx.base import mosaicml
from mdsx.torch import StreamingDataLoader, StreamingDataset

CALLS: list[tuple[Callable[..., Any], tuple[object, ...], Mapping[str, str]]] = [
    (mdsx.Dataset, ("data",), mosaicml.DATASET),
    (mdsx.Writer, ("data", {"a": "int64"}), mosaicml.WRITER),
    (StreamingDataset, ("data",), mosaicml.STREAMING_DATASET),
    (StreamingDataLoader, (None, 1), mosaicml.STREAMING_DATA_LOADER),
    (mdsx.Loader, ("data", 1), mosaicml.LOADER),
]


@pytest.mark.parametrize(
    ("call", "given", "name"),
    [pytest.param(call, given, name, id=f"{call.__name__}-{name}") for call, given, names in CALLS for name in names],
)
def test_the_error_says_what_to_write_instead(call: Callable[..., Any], given: tuple[object, ...], name: str) -> None:
    with pytest.raises(mdsx.UsageError, match=f"{call.__name__} takes no {name}; .+"):
        call(*given, **{name: None})


@pytest.mark.parametrize(("call", "given", "names"), CALLS)
def test_no_argument_of_ours_is_refused(
    call: Callable[..., Any], given: tuple[object, ...], names: Mapping[str, str]
) -> None:
    assert not set(inspect.signature(call).parameters) & set(names)


def test_names_in_the_errors_exist() -> None:
    text = " ".join(hint for _, _, names in CALLS for hint in names.values())
    named = re.findall(r"mdsx\.(\w+)\(([^)]*)\)?", text)
    assert len(named) > 10
    for name, arguments in named:
        parameters = inspect.signature(getattr(mdsx, name)).parameters
        assert not set(re.findall(r"(\w+)=", arguments)) - set(parameters)


def test_another_unknown_name_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="no_such_thing"):
        mdsx.Dataset("data", no_such_thing=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no_such_thing"):
        StreamingDataset("data", no_such_thing=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("algorithm", ["py1e", "naive", 1, None])
def test_an_algorithm_as_shuffle_raises_with_advice(algorithm: Any, tmp_path: Any) -> None:
    with mdsx.Writer(tmp_path, {"a": "int64"}) as out:
        out.write({"a": 1})
    with pytest.raises(mdsx.UsageError, match=r"shuffle must be True, False or an mdsx\.Shuffle"):
        StreamingDataset(tmp_path, shuffle=algorithm)
