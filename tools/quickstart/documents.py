"""Real documents: the sources of the running Python's standard library, packed into WebDataset tars."""

from __future__ import annotations

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
            if _FOREIGN & set(path.relative_to(root).parts):
                continue
            text = path.read_bytes()
            if _is_utf8(text):
                count += 1
                yield path.relative_to(root).as_posix(), text
            if name != "stdlib" and count >= _ENOUGH:
                return
        if count >= _ENOUGH:
            return


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False  # a few of the library's own tests
    return True


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
