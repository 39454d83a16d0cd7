"""Watches a dataset while it is written: no reader may ever see anything unfinished or wrong."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Protocol, Self

import boto3
from botocore.exceptions import ClientError


class Place(Protocol):
    """A dataset's place as other processes see it."""

    def names(self) -> Mapping[str, Hashable]:
        """Return the existing names, each with a value that changes with its content."""

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes; None if it does not exist."""


class Disk:
    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> Mapping[str, Hashable]:
        found: dict[str, Hashable] = {}
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder, name)
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                found[str(path.relative_to(self._root))] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None


class Bucket:
    """A bucket, seen by a client of its own."""

    def __init__(self, url: str) -> None:
        self._client: Any = boto3.client("s3")
        self._bucket = url.removeprefix("s3://")

    def names(self) -> Mapping[str, Hashable]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        return {
            item["Key"]: (item["ETag"], item["Size"], item["LastModified"])
            for page in pages
            for item in page.get("Contents", ())
        }

    def read(self, name: str) -> bytes | None:
        try:
            data: bytes = self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        except ClientError:
            return None
        return data

    def unfinished(self, *, empty: bool = True) -> list[str]:
        """Return the keys of unfinished multipart uploads; without `empty`, only of those with parts."""
        try:
            found = self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", ())
        except self._client.exceptions.NoSuchUpload:  # so rclone says that there are none
            return []
        return [upload["Key"] for upload in found if empty or self._parts(upload)]

    def _parts(self, upload: dict[str, Any]) -> list[Any]:
        asked = {"Bucket": self._bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
        parts: list[Any] = self._client.list_parts(**asked).get("Parts", [])
        return parts


class Watch:
    """`with Watch(place, expected):` fails at its end if it ever saw a shard or an index that is not as expected, or
    an index while a shard was missing."""

    def __init__(self, place: Place, expected: Mapping[str, bytes | None], pause: float = 0.004) -> None:
        self.looks = 0
        self._pause = pause  # seconds between two looks
        self._place = place
        self._expected = {name: data for name, data in expected.items() if data is not None}
        self._indexes: list[str] = []
        self._known: dict[str, Hashable] = {}
        self._stop = Event()
        self._wrong: list[str] = []
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert self.looks
        assert not self._wrong

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause):
                self._look()
            for _ in range(2):
                self._look()
        except BaseException as error:
            self._wrong.append(f"the watch failed: {error!r}")

    def _look(self) -> None:
        there = self._place.names()
        for index in self._indexes:  # seen before this look
            folder = index.removesuffix("index.json")
            shards = {name for name in self._expected if name.startswith(folder) and "/shard." in f"/{name}"}
            if missing := shards - there.keys():
                self._wrong.append(f"{index} was there, but not {sorted(missing)}")
        self._indexes = [name for name in there if name.endswith("index.json")]
        for name, tag in there.items():
            if self._known.get(name) != tag and self._is_for_readers(name):
                data = self._place.read(name)
                if data is not None and data != self._expected.get(name):
                    self._wrong.append(f"{name} was there with {len(data)} other bytes")
                self._known[name] = tag
        self.looks += 1

    def _is_for_readers(self, name: str) -> bool:
        return "_mdsx" not in name.split("/") and not os.path.basename(name).startswith(".")
