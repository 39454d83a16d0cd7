"""Commands and Python to copy: they have the settings, and no text of a dataset's name escapes its quotes."""

from __future__ import annotations

import ast
import shlex
from typing import Any

from mdsx.base.sizes import parse_size
from mdsx.simulate.arguments import command, python
from tests.simulate.examples import HOSTILE, example

SOME: dict[str, Any] = {"lanes": 64, "shuffle_block": 524_288, "cache": 4_979_166_667}


def test_a_command_has_all_that_differs_from_the_defaults() -> None:
    assert command(example().settings, **SOME) == (
        "mdsx simulate s3://bucket/corpus --world-size 4 --ranks-per-node 2 --link 1.25GB --latency 0.03 --step 0.3 "
        "--lanes 64 --shuffle-block 524288 --cache-limit 4.98GB --html plan.html"
    )


def test_made_up_data_is_made_up_again() -> None:
    found = command({**example().settings, "data": "made up", "seed": 3}, **SOME)
    assert "--samples 1000000 --sample-size 10kB --shard-size 66670000B" in found
    assert "--seed 3 " in found


def test_a_dataset_in_the_working_folder_is_named() -> None:
    settings = {**example().settings, "data": "corpus"}
    assert command(settings, **SOME).startswith("mdsx simulate corpus --world-size 4 ")
    assert "    'corpus',\n" in python(settings, **SOME)


def test_the_cache_has_room_for_all_its_bytes() -> None:
    for cache in (1, 999, 1000, 1001, 4_979_166_667, 999_999_999_999, 12_345_678_901_234):
        text = python(example().settings, lanes=1, shuffle_block=1, cache=cache)
        limit = parse_size(text.partition('limit="')[2].partition('"')[0])
        assert cache <= limit <= cache * 1.011


def test_a_hostile_name_stays_one_word_and_one_string() -> None:
    settings = {**example().settings, "data": HOSTILE}
    assert shlex.split(command(settings, **SOME))[2] == HOSTILE
    call = ast.parse(python(settings, **SOME)).body[-1]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    assert ast.literal_eval(call.value.args[0]) == HOSTILE
