"""The writer on a real S3 server: the same objects as local files, even after kills."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from functools import partial
from pathlib import Path

import boto3
import pytest

from mdsx.storage import open_storage
from mdsx.writer import Writer
from tests.conftest import Often
from tests.writer.jobs import COLUMNS, PART_SIZE, Clock, contents, instants, kill_at, killed, life, sample, start, write
from tests.writer.watch import Bucket, Watch
from tools.servers.s3 import S3Server

COUNT = 300
KILLED_COUNT = 100  # some ten shards, each uploaded in parts


def objects(url: str) -> dict[str, bytes | None]:
    storage = open_storage(url)
    return {entry.key: storage.get(entry.key).data for entry in storage.list()}


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_objects_equal_local_files(s3_url: str, tmp_path: Path, compression: str | None) -> None:
    write(f"{s3_url}/deep/down", COUNT, compression=compression)
    write(tmp_path, COUNT, compression=compression)
    assert objects(f"{s3_url}/deep/down") == contents(tmp_path)


@pytest.mark.slow
def test_a_resume_after_a_random_kill_is_exact(s3: S3Server, tmp_path: Path, often: Often) -> None:
    """During any request, with multipart uploads, while an observer watches from outside."""
    rng, deaths, runs = random.Random(1), Counter[str](), itertools.count()
    environment = {**s3.env(), PART_SIZE: "400"}
    write(tmp_path / "undisturbed", KILLED_COUNT)
    expected = contents(tmp_path / "undisturbed")
    whole = life(partial(write, s3.make_bucket("whole"), KILLED_COUNT), tmp_path / "clock", environment)
    while deaths.total() < often(4, long=50):
        url = s3.make_bucket(f"killed-{next(runs)}")
        bucket = Bucket(url)
        with Watch(bucket, expected, pause=0.03) as watch:
            for tick in instants(rng, whole, last=8):
                clock = Clock(tmp_path / "clock")
                process = start(url, KILLED_COUNT, hook=clock, environment=environment, batch=rng.choice((0, 30)))
                if kill_at(process, clock, tick, rng.uniform(0, 0.005)):
                    deaths["in an upload" if bucket.unfinished() else "elsewhere"] += 1
            assert not killed(start(url, KILLED_COUNT, environment=environment))
        assert watch.looks > 2
        assert objects(url) == expected
        assert not bucket.unfinished()
    print(f"killed {dict(deaths)}")


def test_unfinished_uploads_of_a_dead_writer_are_aborted(s3_url: str) -> None:
    client, bucket = boto3.client("s3"), s3_url.removeprefix("s3://")
    with pytest.raises(ZeroDivisionError), Writer(f"{s3_url}/part-00000", COLUMNS):
        raise ZeroDivisionError
    for key in ("part-00000/shard.00000.mdsx", "part-00001/shard.00000.mdsx"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    with Writer(f"{s3_url}/part-00000", COLUMNS, resume=True) as out:
        out.write(sample(0))
    left = client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())
    assert [upload["Key"] for upload in left] == ["part-00001/shard.00000.mdsx"]  # another writer's
