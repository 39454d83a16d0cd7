"""`mdsx convert`, `index`, `export` and `mdsx.build` on a Ray cluster: the same bytes, whatever dies meanwhile."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mdsx
from tests.engines.cluster.conftest import SECONDS, Cluster, ended
from tests.engines.cluster.functions import Input, samples
from tests.foreign.tars.tars import write_tar

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

COLUMNS = {"x": "int64", "text": "str"}
BUILD = """
import json, sys
import mdsx
from tests.engines.cluster.functions import Input, samples

inputs = [Input(*each) for each in json.load(open(sys.argv[1]))]
skipped = []
made = mdsx.build(samples, inputs, sys.argv[2], {"x": "int64", "text": "str"}, engine="ray", parts=8, on_error="skip",
                  shard_size="16KB", watch=lambda progress: skipped.extend(map(str, progress.problems)))
print(json.dumps([made.samples, made.skipped, sorted(skipped)]))
"""


def files(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def wait_until(done: Callable[[], bool], program: subprocess.Popen[str]) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


class Build:
    """A build of 40 inputs in 8 parts: on the cluster, and in this process."""

    def __init__(self, folder: Path, **misbehaving: dict[str, Any]) -> None:
        self.calls, self.out, self.right = folder / "calls", folder / "out", folder / "right"
        self.calls.mkdir()
        inputs = [Input(number, str(self.calls)) for number in range(40)]
        for number, how in misbehaving.items():
            inputs[int(number[1:])] = Input(int(number[1:]), str(self.calls), **how)
        (folder / "inputs.json").write_text(json.dumps(inputs))
        self.arguments = ("-c", BUILD, str(folder / "inputs.json"), str(self.out))
        self._inputs = inputs

    def assert_right(self, printed: str, *, reported: int = 4) -> None:
        """Assert that the dataset is that of one process, and that `reported` skips were reported, each once."""
        (self.calls / "continue").touch()
        for call in range(9):
            for given in self._inputs:
                (self.calls / f"{given.number}.{call}").touch()  # now none of them dies
        skipped: list[str] = []
        mdsx.build(
            samples,
            self._inputs,
            self.right,
            COLUMNS,
            parts=8,
            on_error="skip",
            shard_size="16KB",
            watch=lambda progress: skipped.extend(map(str, progress.problems)),
        )
        *counts, found = json.loads(printed.splitlines()[-1])  # Ray prints the deaths of workers before it
        assert counts == [1996, 4]
        assert len(found) == len(set(found)) == reported
        assert set(found) <= set(skipped)
        assert files(self.out) == files(self.right)


SAME = """
import json, sys
import mdsx

folder, engine = sys.argv[1], sys.argv[2] or None
steps = []
watch = lambda progress: steps.append((progress.size, progress.samples))
mdsx.convert("tar", folder + "/{0..3}.tar", f"{folder}/tar", shard_size="8KB", engine=engine, watch=watch)
assert steps == sorted(steps) and steps[-1][1] == 400, steps
mdsx.convert("jsonl", folder + "/{0..3}.jsonl", f"{folder}/jsonl", shard_size="8KB", compression="zstd", engine=engine)
mdsx.export("jsonl", f"{folder}/jsonl", f"{folder}/lines", file_size="8KB", engine=engine)
mdsx.index_tars(folder + "/{0..3}.tar", index=f"{folder}/tars", engine=engine, watch=watch)
assert steps[-1][1] == 400, steps
mdsx.index_parquet(f"{folder}/table", index=f"{folder}/footers", engine=engine, watch=watch)
assert steps[-1][1] == 40, steps
"""


def test_the_bytes_are_those_of_one_process(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(4):
        members = [(f"{number}-{place}.txt", f"text {place}".encode()) for place in range(100)]
        write_tar(tmp_path / f"{number}.tar", members)
        lines = [json.dumps({"x": number * 100 + place, "text": "x" * place}) for place in range(100)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
        (tmp_path / "table").mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": list(range(10))}), tmp_path / "table" / f"{number}.parquet", row_group_size=3)
    found = []
    for engine in ("", "ray"):
        assert cluster.run("-c", SAME, str(tmp_path), engine) == (0, "", "")
        made = [tmp_path / name for name in ("tar", "jsonl", "lines", "tars", "footers")]
        found.append([files(folder) for folder in made])
        for folder in made:
            folder.rename(f"{folder}-{engine or 'one'}")
    assert found[0] == found[1]
    assert len(found[0][0]) > 4  # shards


def test_an_error_in_a_source_names_the_file(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(8):
        lines = [json.dumps({"x": place}) for place in range(1000)]
        lines[900] = '{"x": ' if number == 5 else lines[900]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out"
    convert = ("-m", "mdsx", "convert", "jsonl", f"{tmp_path}/*.jsonl", str(out), "--shard-size", "4KB")
    status, _, errors = cluster.run(*convert, "--engine", "ray")
    assert status == 1
    assert f"mdsx: error: {tmp_path}/5.jsonl: line 901" in errors
    assert not (out / "index.json").exists()


def test_a_worker_that_is_killed_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    build = Build(tmp_path, _3={"dies": 1}, _20={"dies": 2}, _39={"dies": 1})
    status, out, _ = cluster.run(*build.arguments)
    assert status == 0
    build.assert_right(out)


def test_a_worker_that_dies_again_and_again_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    build = Build(tmp_path, _20={"dies": 6})
    status, _, errors = cluster.run(*build.arguments)
    assert (status, "the workers of a task died 6 times" in errors) == (1, True)
    status, out, _ = cluster.run(*build.arguments)
    assert status == 0
    assert len(list(build.calls.glob("20.*"))) == 7
    assert json.loads(out.splitlines()[-1])[:2] == [1996, 4]


def test_a_lost_node_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    build = Build(tmp_path, **{f"_{number}": {"waits": True} for number in range(0, 40, 5)})
    cluster.say("add")
    program = cluster.start(*build.arguments)
    wait_until(lambda: len(list(build.calls.glob("*5.0")) + list(build.calls.glob("*0.0"))) == 4, program)
    cluster.say("lose")  # two of the four tasks at work
    (build.calls / "continue").touch()
    status, out, _ = ended(program)
    assert status == 0
    build.assert_right(out)


def test_the_same_call_continues_after_the_driver_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    build = Build(tmp_path, _30={"waits": True})
    program = cluster.start(*build.arguments)
    wait_until(lambda: len(list(build.out.glob("part-*/index.json"))) == 7, program)  # all parts but that of input 30
    program.kill()
    program.communicate()
    (build.calls / "continue").touch()
    status, out, errors = cluster.run(*build.arguments)
    assert status == 0, errors
    build.assert_right(out, reported=1)  # the inputs of the others were finished, and are not read again


def test_ctrl_c_ends_all_tasks_and_the_same_command_continues(cluster: Cluster, tmp_path: Path) -> None:
    lines = [json.dumps({"x": place, "text": "x" * 100}) for place in range(100_000)]
    for number in range(8):
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out"
    convert = ("-m", "mdsx", "convert", "jsonl", f"{tmp_path}/*.jsonl", str(out), "--shard-size", "1MB")
    program = cluster.start(*convert, "--engine", "ray")
    wait_until(lambda: any(out.rglob("shard.*")), program)
    program.send_signal(signal.SIGINT)
    status, _, errors = ended(program)
    assert (status, "interrupted; the same command continues from here" in errors) == (130, True)
    assert not (out / "index.json").exists()
    left = files(out)
    status, printed, _ = cluster.run(*convert, "--engine", "ray")
    assert (status, "800,000 samples" in printed) == (0, True)
    stays = (".mdsx", "/index.json")  # shards, and the indexes of parts that were finished
    assert left.items() - files(out).items() == {each for each in left.items() if not each[0].endswith(stays)}
    mdsx.convert("jsonl", f"{tmp_path}/*.jsonl", tmp_path / "right", shard_size="1MB")
    assert files(out) == files(tmp_path / "right")
