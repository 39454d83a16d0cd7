"""What kind of file system a path is on."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NETWORK = re.compile(r"nfs\d?|cifs|smb\d?|smbfs|afs|9p|ceph|lustre|gpfs|beegfs|wekafs|glusterfs|pvfs2|fuse\..+")

_ESCAPED = re.compile(r"\\(\d{3})")


def network_file_system(path: str | os.PathLike[str]) -> bool:
    """Whether `path`, which need not exist yet, is (or, for FUSE, may be) on a network file system. Linux only."""
    return _NETWORK.fullmatch(_kind(Path(os.path.realpath(path)))) is not None


def _kind(path: Path) -> str:
    best, kind = -1, ""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields.split(" ")[4])
        if (path == Path(mount) or Path(mount) in path.parents) and len(mount) >= best:
            best, kind = len(mount), rest.split(" ")[0]
    return kind
