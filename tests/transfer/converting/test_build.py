"""`mdsx.build` makes a dataset with a function: in the order of the inputs, and the same after any kill and with any
number of processes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsx
from mdsx import Conversion, Dataset, Progress, SampleError, UsageError
from tests.conftest import Often
from tests.writer.jobs import DieAt, killed, start_job

COLUMNS = {"n": "int64", "text": "str"}


def one(number: int) -> dict[str, Any]:
    return {"n": number, "text": f"number {number}"}


def several(number: int) -> Iterator[dict[str, Any]]:
    """Makes 0 to 2 samples."""
    for copy in range(number % 3):
        yield {"n": number, "text": f"copy {copy}"}


def failing(number: int) -> dict[str, Any]:
    if number == 7:
        raise ValueError("seven")
    return one(number)


def built(folder: Path, function: Any = one, sources: Any = range(40), **options: Any) -> Conversion:
    return mdsx.build(function, sources, folder, COLUMNS, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_function_returns_a_sample_or_several_or_a_generator(tmp_path: Path) -> None:
    made = built(tmp_path / "one")
    assert (made.samples, made.columns, made.already) == (40, COLUMNS, False)
    assert [sample["n"] for sample in Dataset(tmp_path / "one")] == list(range(40))
    built(tmp_path / "generator", several)
    built(tmp_path / "list", lambda number: list(several(number)))
    expected = [dict(sample) for number in range(40) for sample in several(number)]
    assert list(Dataset(tmp_path / "generator")) == list(Dataset(tmp_path / "list")) == expected


def test_any_number_of_processes_gives_the_same_bytes(tmp_path: Path) -> None:
    for processes in (1, 2):
        built(tmp_path / str(processes), several, num_workers=processes, parts=4)
    found = files(tmp_path / "1")
    assert found == files(tmp_path / "2")
    assert "part-00003/index.json" in found


def test_inputs_may_be_anything_that_can_be_iterated(tmp_path: Path) -> None:
    for number, inputs in enumerate(([3, 1], (3, 1), iter([3, 1]), np.array([3, 1]), {3: "a", 1: "b"})):
        built(tmp_path / str(number), sources=inputs)
        assert [sample["n"] for sample in Dataset(tmp_path / str(number))] == [3, 1]
    with pytest.raises(UsageError, match="no source"):
        built(tmp_path / "none", sources=[])
    no_list: Any
    for no_list in ("file.txt", 5, None):
        with pytest.raises(UsageError, match="sources must be a list"):
            built(tmp_path / "none", sources=no_list)


def test_inputs_may_be_anything_that_can_be_pickled(tmp_path: Path) -> None:
    inputs = [2**70, "not UTF-8: \udcff", (1, None), {"a": Path("b")}, np.float32(0.5)]
    for already in (False, True):
        assert built(tmp_path / "out", lambda given: one(len(str(given))), inputs).already == already
    with pytest.raises(UsageError, match=r"source 1: the source cannot be pickled"):
        built(tmp_path / "none", sources=[1, lambda: 1])


def test_an_exception_names_the_input_and_keeps_its_traceback(tmp_path: Path) -> None:
    for processes in (1, 2):
        with pytest.raises(SampleError, match=r"^source 7 \(7\): the function raised ValueError: seven") as raised:
            built(tmp_path / str(processes), failing, num_workers=processes)
        assert any("in failing" in note for note in raised.value.__notes__)
        assert not (tmp_path / str(processes) / "index.json").exists()


def test_a_sample_that_does_not_fit_names_input_and_column(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"source 3 \(3\), sample 1, column 'n': does not fit int64 .*'x'"):
        built(tmp_path / "out", lambda number: [one(number), {"n": "x" if number == 3 else 1, "text": ""}])


@pytest.mark.parametrize(("result", "problem"), [(None, "NoneType"), ("text", "str"), ([1], "int"), (5, "int")])
def test_what_is_no_sample_is_refused(tmp_path: Path, result: Any, problem: str) -> None:
    with pytest.raises(SampleError, match=rf"source 0 \(0\): the function \w+ an? ?{problem}|{problem}"):
        built(tmp_path / "out", lambda number: result)


def test_skipping_leaves_out_what_fails_and_counts_it(tmp_path: Path) -> None:
    seen: list[Progress] = []
    made = built(tmp_path / "out", failing, on_error="skip", watch=seen.append)
    assert (made.samples, made.skipped) == (39, 1)
    assert [str(error) for progress in seen for error in progress.problems] == [
        "source 7 (7): the function raised ValueError: seven"
    ]
    assert (seen[-1].size, seen[-1].of_size, seen[-1].samples) == (40, 40, 39)
    assert 7 not in [sample["n"] for sample in Dataset(tmp_path / "out")]
    again = built(tmp_path / "out", failing, on_error="skip")
    assert (again.already, again.samples, again.skipped) == (True, 39, 1)


def test_an_error_that_quotes_a_lone_surrogate_is_kept_with_an_escape(tmp_path: Path) -> None:
    """As the names of files have them that are not UTF-8."""

    def quoting(number: int) -> dict[str, Any]:
        if number == 7:
            raise ValueError("cannot parse \udcff")
        return one(number)

    seen: list[Progress] = []
    for already in (False, True):
        made = built(tmp_path / "out", quoting, [7, 8], on_error="skip", watch=seen.append)
        assert (made.samples, made.skipped, made.already) == (1, 1, already)
    (kept,) = seen[-1].problems
    assert str(kept) == r"source 0 (7): the function raised ValueError: cannot parse \udcff"


def test_the_call_continues_without_calling_the_function_for_finished_inputs(tmp_path: Path) -> None:
    calls: list[int] = []

    def noted(number: int) -> dict[str, Any]:
        calls.append(number)
        if number == 30 and calls.count(30) == 1:
            raise OSError("unplugged")
        return one(number)

    with pytest.raises(SampleError, match="unplugged"):
        built(tmp_path / "out", noted, parts=4)
    assert built(tmp_path / "out", noted, parts=4).samples == 40
    assert calls == [*range(31), *range(30, 40)]


KILLED = """
import os, sys
from tests.transfer.converting.test_build import built, one

def deadly(number):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    return one(number)

deadly.__qualname__ = "one"
built(sys.argv[1], deadly, parts=2, shard_size="500B")
"""


def test_a_killed_build_continues_to_the_same_bytes(tmp_path: Path) -> None:
    built(tmp_path / "undisturbed", parts=2, shard_size="500B")
    for number in ("9", "33"):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out"), number], check=False)
        assert killed.returncode == -9
    assert built(tmp_path / "out", parts=2, shard_size="500B").samples == 40
    assert files(tmp_path / "out") == files(tmp_path / "undisturbed")


def test_another_build_to_the_same_place_is_refused(tmp_path: Path) -> None:
    built(tmp_path / "out")
    for options in ({"sources": range(41)}, {"function": several}, {"shard_size": "1MB"}):
        with pytest.raises(UsageError, match="already holds a dataset"):
            built(tmp_path / "out", **options)


def test_a_function_that_cannot_be_sent_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be sent to other processes.*top level of a module"):
        built(tmp_path / "out", lambda number: one(number), num_workers=2)
    assert not os.path.exists(tmp_path / "out")


def test_a_function_that_others_cannot_import_is_refused(tmp_path: Path) -> None:
    program = (
        "import mdsx\ndef one(n): return {'n': n}\nmdsx.build(one, range(9), 'out', {'n': 'int64'}, num_workers=2)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "cannot import names from a notebook, an interactive session or -c" in done.stderr
    assert not (tmp_path / "out").exists()


def test_more_processes_than_parts_are_pointed_out(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="only 2 of 3 processes can work.*give parts=3"):
        built(tmp_path / "out", num_workers=3, parts=2)


# --- overwrite


def folders(folder: Path) -> set[str]:
    """Return the folders of the parts that the index names."""
    index = json.loads((folder / "index.json").read_text())
    return {name.partition("/")[0] for name, *_ in index["shards"]["files"]}


def numbers(folder: Path) -> list[int]:
    return [int(sample["n"]) for sample in Dataset(folder)]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_build_replaces_a_dataset(tmp_path: Path, parts: int) -> None:
    folder = tmp_path / "built"
    built(folder, parts=2)
    for _ in range(2):  # also one of the same inputs
        made = built(folder, failing, range(5, 20), parts=parts, on_error="skip", overwrite=True)
        assert (made.samples, made.skipped, made.already) == (14, 1, False)
        assert numbers(folder) == [number for number in range(5, 20) if number != 7]
        folders = {path.name for path in folder.iterdir()}
        assert folders == {"_convert", "index.json", *(path.name for path in folder.glob("run-*"))}
        assert [path.name for path in (folder / "_convert").iterdir()] == ["skipped.json"]
        assert len(list(folder.glob("run-*/part-*"))) == parts
    assert Dataset(folder).fingerprint
    with pytest.raises(UsageError, match="overwrite=True"):
        built(folder)


def test_a_build_that_fails_leaves_the_old_dataset(tmp_path: Path) -> None:
    built(tmp_path / "built")
    before = files(tmp_path / "built")
    with pytest.raises(SampleError, match="seven"):
        built(tmp_path / "built", failing, overwrite=True)
    assert files(tmp_path / "built") == before
    (tmp_path / "built" / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"notes.txt"):
        built(tmp_path / "built", overwrite=True)


def test_a_build_that_is_killed_leaves_the_old_dataset_or_the_new_one(tmp_path: Path, often: Often) -> None:
    rng = random.Random(27)
    for number in range(often(4, 60)):
        folder = tmp_path / str(number)
        built(folder, parts=2)
        work = partial(built, folder, sources=range(100, 150), parts=3, overwrite=True)
        killed(start_job(work, hook=DieAt(rng.randrange(400))))
        assert numbers(folder) in (list(range(40)), list(range(100, 150)))
        built(folder, sources=range(7), overwrite=True)
        assert numbers(folder) == list(range(7))
        assert {name.partition("/")[0] for name in files(folder)} == {"index.json", *folders(folder)}


def ending_badly(number: int) -> Iterator[dict[str, Any]]:
    """Makes three samples, but fails after two of the seventh input. It reuses the dict."""
    sample: dict[str, Any] = {}
    for copy in range(3):
        if number == 7 and copy == 2:
            raise ValueError("seven")
        sample |= {"n": number, "text": memoryview(b"copy") if copy < 0 else f"copy {copy}"}
        yield sample


@pytest.mark.parametrize("held", [1, 2**26])
def test_skipping_an_input_leaves_out_all_its_samples(
    tmp_path: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdsx.transfer.converting.building._HELD", held)  # so little that samples go to a file
    problems: list[str] = []
    made = built(
        tmp_path / "out",
        ending_badly,
        on_error="skip",
        watch=lambda progress: problems.extend(map(str, progress.problems)),
    )
    assert (made.samples, made.skipped) == (39 * 3, 1)
    assert [sample["n"] for sample in Dataset(tmp_path / "out")] == [n for n in range(40) if n != 7 for _ in range(3)]
    assert [sample["text"] for sample in Dataset(tmp_path / "out")] == [f"copy {n}" for n in range(3)] * 39
    (problem,) = problems
    assert "source 7 (7), sample 1: the function raised ValueError: seven" in problem


class OfTwo(mdsx.MdsxError):
    """An error of a user that pickle cannot copy."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def raising_its_own(number: int) -> dict[str, Any]:
    if number == 7:
        raise OfTwo("se", "ven")
    return one(number)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_class_of_the_user_names_the_input(tmp_path: Path, processes: int) -> None:
    with pytest.raises(SampleError, match=r"source 7 \(7\).*OfTwo: seven"):
        built(tmp_path / "raise", raising_its_own, num_workers=processes, parts=2)
    assert built(tmp_path / "skip", raising_its_own, num_workers=processes, parts=2, on_error="skip").skipped == 1


def test_sets_among_the_inputs_are_the_same_in_the_next_process(tmp_path: Path) -> None:
    code = (
        "import mdsx, sys\n"
        "letters = lambda given: {'n': given[0], 'text': ''.join(sorted(given[1]))}\n"
        f"done = mdsx.build(letters, [(n, set('abcdefgh')) for n in range(9)], sys.argv[1], {COLUMNS})\n"
        "print(done.already)"
    )
    for seed, already in (("1", "False"), ("2", "True")):
        command = [sys.executable, "-c", code, str(tmp_path / "out")]
        found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed})
        assert found.stdout.strip() == already, found.stderr


def test_lengths_and_metadata_are_those_of_a_writer(tmp_path: Path) -> None:
    options: dict[str, Any] = {"metadata": {"made": "by hand"}, "lengths": ["text"]}
    for parts in (1, 4):
        folder = tmp_path / str(parts)
        built(folder, several, parts=parts, **options)
        index = json.loads((folder / "index.json").read_text())
        assert index["metadata"]["made"] == Dataset(folder).metadata["made"] == "by hand"
        assert index["lengths"] == {"text": sum(len(sample["text"]) for sample in Dataset(folder))}
        assert (folder / "_lengths" / "text.u32").exists()
    built(tmp_path / "4", several, overwrite=True, metadata={"made": "again"}, parts=4, lengths=["n"])
    index = json.loads((tmp_path / "4" / "index.json").read_text())
    assert index["metadata"]["made"] == "again"
    assert index["lengths"] == {"n": sum(sample["n"] for sample in Dataset(tmp_path / "4"))}


def test_another_run_of_a_build_has_the_same_lengths_and_metadata(tmp_path: Path) -> None:
    built(tmp_path, metadata={"a": 1}, lengths=["text"])
    assert built(tmp_path, metadata={"a": 1}, lengths=["text"]).already
    for options in ({}, {"metadata": {"a": 2}, "lengths": ["text"]}, {"metadata": {"a": 1}}):
        with pytest.raises(UsageError, match="that this conversion did not write"):
            built(tmp_path, **options)


def test_lengths_and_metadata_that_cannot_be_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="column 'tokens': there is no such column"):
        built(tmp_path, lengths=["tokens"])
    with pytest.raises(UsageError, match="metadata"):
        built(tmp_path, metadata={"a": object()})
    with pytest.raises(UsageError, match=r"metadata must be a dict \(found list\)"):
        built(tmp_path, metadata=[("a", 1)])
    with pytest.raises(UsageError, match="the key 'converted'"):
        built(tmp_path, metadata={"converted": 1})
    assert not list(tmp_path.iterdir())
