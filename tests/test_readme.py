"""The README's snippets work, in the order in which they stand: Python in one session, `mdsx` in a shell of its own."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mdsx
import mdsx.torch
from tools.s3_server import S3Server

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block, and the line before its first."""

    language: str
    code: str
    line: int


def blocks() -> Iterator[Block]:
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        yield Block(match[1], match[2], README[: match.start(2)].count("\n"))


def write_tars(directory: Path) -> None:
    """`shards-{0000..0003}.tar`, as WebDataset writes them."""
    for number in range(4):
        with tarfile.open(directory / f"shards-{number:04}.tar", "w") as tar:
            for sample in range(5):
                for extension, data in (("cls", str(sample).encode()), ("json", json.dumps({"n": number}).encode())):
                    member = tarfile.TarInfo(f"{number}-{sample}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def write_mixed_tars(directory: Path) -> None:
    """`mixed-{0000..0001}.tar`: pictures of two kinds, JSON with NaN, and a file that is no sample's."""
    for number in range(2):
        with tarfile.open(directory / f"mixed-{number:04}.tar", "w") as tar:
            members = [("README", b"read me")]
            for sample in range(4):
                picture = ("jpg", b"\xff\xd8\xff") if sample % 2 else ("png", b"\x89PNG\r\n\x1a\n")
                members += [(f"{number}-{sample}.{picture[0]}", picture[1]), (f"{number}-{sample}.json", b"[NaN]")]
            for name, data in members:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def test_every_snippet_works(tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tars(tmp_path)
    write_mixed_tars(tmp_path)
    s3.make_bucket("bucket")
    session: dict[str, Any] = {"__name__": "readme"}
    commands = 0
    for block in blocks():
        if block.language == "python":
            exec(compile("\n" * block.line + block.code, "README.md", "exec"), session)
        for line in block.code.splitlines() if block.language == "sh" else ():
            if line.startswith("mdsx "):
                subprocess.run([sys.executable, "-m", *shlex.split(line)], check=True, stdin=subprocess.DEVNULL)
                commands += 1
    assert commands == 6
    assert session["remaining"] == (5000 // 32 - 10) * 32
    assert len(mdsx.Dataset("s3://bucket/corpus")) == 1000
    assert [int(sample["tokens"][0]) for sample in mdsx.Dataset("s3://bucket/big")[::100]] == [0, 1, 2]
    assert len(mdsx.Dataset("s3://bucket/pictures")) == 20
    assert [sample["json"] for sample in mdsx.Dataset("mixed")] == [[None]] * 8


def test_the_public_names_are_explained() -> None:
    names = {*mdsx.__all__, *mdsx.torch.__all__}
    assert not {name for name in names if name not in README} - {"MdsxError"}


def test_links_lead_somewhere() -> None:
    headings = {
        re.sub(r"[^\w -]", "", title).replace(" ", "-").lower() for title in re.findall(r"^#+ (.*)", README, re.M)
    }
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    wrong = [
        link
        for link in links
        if not (link[1:] in headings if link.startswith("#") else "://" in link or (ROOT / link).exists())
    ]
    assert not wrong
