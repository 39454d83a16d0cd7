"""Convert WebDataset tars to a dataset, and export it as tars again: members and bytes come back.

    pip install mdsx
    python convert_tar.py folder

The same on the command line: `mdsx convert tar 'folder/shards-{0000..0002}.tar' folder/pictures --num-workers 2`, then
`mdsx export tar folder/pictures folder/again`. To read tars where they are, see index_tars.py.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import mdsx

TARS, SAMPLES = 3, 40

Members = list[tuple[str, bytes]]


def members_of(paths: list[Path]) -> Members:
    """Return the names and bytes of the members of tars."""
    found: Members = []
    for path in paths:
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                found.append((member.name, file.read()))
    return found


def write_tars(folder: Path) -> None:
    """Write samples of a picture, a class and a caption, as WebDataset packs them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(TARS):
        with tarfile.open(folder / f"shards-{number:04}.tar", "w") as tar:
            for sample in range(number * SAMPLES, (number + 1) * SAMPLES):
                picture = b"\xff\xd8\xff" + bytes(1000 + sample)
                texts = {"cls": str(sample % 10), "txt": f"picture {sample}"}
                members = {"jpg": picture, **{name: text.encode() for name, text in texts.items()}}
                for extension, data in members.items():
                    member = tarfile.TarInfo(f"{sample:06}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def main(folder: Path) -> None:
    write_tars(folder)
    tars = f"{folder}/shards-{{0000..{TARS - 1:04}}}.tar"
    conversion = mdsx.convert("tar", tars, folder / "pictures")
    print(conversion.samples, "samples:", dict(conversion.columns))
    loader = mdsx.Loader(folder / "pictures", 20, cache=folder / "cache")
    keys = sorted(key for batch in loader for key in batch["__key__"])
    print("one epoch has every sample once:", keys == [f"{number:06}" for number in range(TARS * SAMPLES)])
    mdsx.export("tar", folder / "pictures", folder / "again")
    before = members_of(sorted(folder.glob("shards-*.tar")))
    print("the same members come back:", sorted(before) == sorted(members_of(sorted((folder / "again").glob("*.tar")))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
