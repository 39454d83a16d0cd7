"""Where and of what the figures are: machine, versions, commit, date."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder, version
from pathlib import Path

from tools.peers.environments import PeerEnvironment

_ROOT = Path(__file__).resolve().parent.parent.parent
_OURS = ("mdsx", "numpy", "torch", "xxhash", "pillow")
_PEERS = {
    "mosaicml": ("mosaicml-streaming",),
    "litdata": ("litdata",),
    "webdataset": ("webdataset",),
    "grain": ("grain", "array-record"),
    "huggingface": ("datasets", "pyarrow"),
}


def machine() -> dict[str, str]:
    """Processor, cores, memory, kernel; and how busy the machine is already, which spoils figures."""
    return {
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int((_line('/proc/meminfo', 'MemTotal') or '0').split()[0]) / 2**20:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def versions(environments: Iterable[str | None]) -> dict[str, str]:
    """Of the packages that matter in these environments."""
    found = {name: version(name) for name in _OURS}
    for environment in environments:
        for name in _PEERS.get(environment or "", ()):
            found[name] = _version_in(PeerEnvironment(str(environment)), name)
    return found


def commit() -> str:
    """The checkout's, with a + where files differ from it; empty outside of git."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def today() -> str:
    """The date, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _version_in(environment: PeerEnvironment, package: str) -> str:
    packages = environment.directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    context = DistributionFinder.Context(name=package, path=[str(packages)])
    found: Distribution | None = next(iter(MetadataPathFinder.find_distributions(context)), None)
    return found.version if found else "not installed"


def _line(file: str, key: str) -> str:
    for line in Path(file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
