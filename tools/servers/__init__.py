"""Local servers of the clouds, for tests and tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.servers.az import AzureServer
from tools.servers.gs import GoogleServer
from tools.servers.process import Server
from tools.servers.s3 import S3Server

SERVERS: dict[str, tuple[Callable[[Path], Server], str]] = {
    "s3": (S3Server, "S3 (rclone)"),
    "gs": (GoogleServer, "Cloud Storage (fake-gcs-server)"),
    "az": (AzureServer, "Azure Blob Storage (Azurite)"),
}
"""A scheme -> its server, and the name of that."""
