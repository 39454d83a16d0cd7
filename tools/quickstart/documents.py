"""Real documents: the sources of the running Python's standard library, packed into WebDataset tars."""

from __future__ import annotations

import contextlib
import io
import json
import sysconfig
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_TARS = 8
_ENOUGH = 1_200
_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}


def pack(directory: Path, most: int | None = None) -> tuple[str, int, int]:
    """Write the documents to tars in `directory`; return (names with braces, documents, bytes)."""
    documents = list(islice(_documents(), most))
    size = 0
    for number in range(_TARS):
        with tarfile.open(directory / f"stdlib-{number:04}.tar", "w") as tar:
            for place, (path, text) in enumerate(documents[number::_TARS]):
                key = f"{number:02}-{place:05}"
                about = {"path": path, "bytes": len(text), "lines": text.count(b"\n")}
                _add(tar, f"{key}.txt", text)
                _add(tar, f"{key}.json", json.dumps(about).encode())
                size += len(text)
    return f"{directory}/stdlib-{{0000..{_TARS - 1:04}}}.tar", len(documents), size


def _documents() -> Iterator[tuple[str, bytes]]:
    """Yield (path, text) of each source file, sorted. If the library is incomplete, installed packages follow."""
    count = 0
    for name in ("stdlib", "purelib"):
        root = Path(sysconfig.get_path(name))
        for path in sorted(root.rglob("*.py")):
            if name == "purelib" and count >= _ENOUGH:
                return
            inside = path.relative_to(root)
            if not _FOREIGN & set(inside.parts):
                text = path.read_bytes()
                with contextlib.suppress(UnicodeDecodeError):  # a few of the library's own tests
                    text.decode()
                    count += 1
                    yield inside.as_posix(), text


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
