"""Local servers of the clouds, for tests and tools."""

from __future__ import annotations

from tools.servers.az import AzureServer
from tools.servers.gs import GoogleServer
from tools.servers.s3 import S3Server

SERVERS: dict[str, tuple[type[S3Server | GoogleServer | AzureServer], str]] = {
    "s3": (S3Server, "S3 (rclone)"),
    "gs": (GoogleServer, "Cloud Storage (fake-gcs-server)"),
    "az": (AzureServer, "Azure Blob Storage (Azurite)"),
}
"""What a scheme's server is, and its name. It has `make_bucket`, and `env` for clients."""
