"""Writes the test vectors of this folder, the manifest and the README: `python -m tests.vectors.generate`.

mdsx writes the good shards from known samples; `reference`, which shares no code with mdsx, reads the values of the
manifest back. Run it only to add files: existing ones never change.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import zstandard

from tests.format import reference
from tests.vectors import (
    bad_frames,
    bad_indexes,
    bad_shards,
    buckets,
    changes,
    concat,
    datasets,
    disagree,
    either,
    good,
    group_epochs,
    lengths,
    mixtures,
    more,
    phases,
    plans,
    runs,
    selections,
    states,
    strata,
)
from tests.vectors.vector import Bad, Either, Good

HERE = Path(__file__).parent

_README = """# Test vectors

Files to test a reader or a writer of mdsx datasets with, in any language. `manifest.json` gives the expected result of
each. `python -m tests.vectors.generate` writes all of them, and the tests compare them byte for byte.

`manifest.json` has the objects `good`, `bad` and `either`, from file name to the keys below, and `disagree`, from
folder to `about` and `says`:

- `about`: what the file is, or the rule that it breaks;
- `raw_size`, of compressed shards: the size of the uncompressed shard, which a reader knows from the index;
- `samples`, of good shards and of some in `either/`: the values, in JSON. Bytes are `{"hex": ...}`; arrays
  `{"shape": [...], "items": [...]}` with the items in C order; maps (of json and msgpack)
  `{"map": [[key, value], ...]}`, in order; timestamps `{"timestamp": [seconds, nanoseconds]}`; floats that JSON lacks
  `{"float": "nan"}`, `"inf"` or `"-inf"`; bfloat16 and float16 the same number as a double; values of unknown types
  are bytes;
- `kind`, of bad files: `corrupt` or `unsupported`;
- `found_by`, of bad shards: `opening`, or `full check` if opening in constant time does not find the fault;
- `says`: words in mdsx's error.

A reader reads each file of `either/`, with these values, or refuses it, because its language or its parser cannot hold
what the file has.

Each bad file breaks one rule. Everything else in it is right, including checksums, unless they are the rule. In each
dataset of `disagree/`, the index and the shard are right, but the index describes another shard. The files of
`good/zstd/` depend on the version of libzstd that wrote them (`libzstd` in the manifest); any version reads them.

An implementation MUST pass all vectors of its class (format-spec.md, 1). It SHOULD also check, over random inputs, that
every sample is at exactly one position of an epoch, that a lane has the same samples in every epoch, that ranks divide
a batch without loss or repetition, and that positions computed one by one equal those computed together.

"""


Vector = Good | Bad | Either


def vectors() -> list[Vector]:
    refused = [*bad_shards.vectors(), *bad_frames.vectors(), *bad_indexes.vectors()]
    return [*good.vectors(), *datasets.vectors(), *refused, *either.vectors()]


def manifest(made: Sequence[Vector]) -> str:
    entries: dict[str, dict[str, object]] = {"good": {}, "bad": {}, "either": {}}
    for vector in made:
        entry: dict[str, object] = {"about": vector.about} if vector.about else {}
        if vector.raw_size is not None:
            entry["raw_size"] = vector.raw_size
        if isinstance(vector, Bad):
            entry |= {"kind": "unsupported" if vector.file.startswith("unsupported/") else "corrupt"}
            entry |= {"found_by": "full check" if vector.full else "opening"} if vector.file.endswith(".mdsx") else {}
            entry |= {"says": vector.says}
        elif vector.file.endswith(".mdsx") and (isinstance(vector, Good) or vector.shown):
            entry["samples"] = reference.read_shard(vector.data)
        entries[type(vector).__name__.lower()][vector.file] = entry
    entries["disagree"] = {made.name: {"about": made.about, "says": made.says} for made in disagree.datasets()}
    parts = [f'"libzstd": "{libzstd()}"']
    for key, files in entries.items():
        lines = [f"{json.dumps(file)}: {json.dumps(entry, ensure_ascii=False)}" for file, entry in files.items()]
        parts.append(f'"{key}": {{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"  # a line per file, for people and for diffs


def libzstd() -> str:
    return ".".join(map(str, zstandard.ZSTD_VERSION))


def readme(made: Sequence[Vector]) -> str:
    tables = []
    titles = {"good": "must be read", "bad": "is corrupt", "unsupported": "is of a later version"}
    titles["either"] = "may be read or refused"
    for folder, title in titles.items():
        rows = [
            f"| `{v.file.removeprefix(folder + '/')}` | {v.about} |" for v in made if v.file.startswith(folder + "/")
        ]
        rows = [row for row in rows if not row.endswith("|  |")]
        tables.append(f"## {folder}/: {title}\n\n| file | what it is |\n|---|---|\n" + "\n".join(rows) + "\n")
    rows = [f"| `{made.name}/` | {made.about} |" for made in disagree.datasets()]
    title = "## disagree/: index and shard do not belong together"
    tables.append(f"{title}\n\n| folder | what differs |\n|---|---|\n" + "\n".join(rows) + "\n")
    return _README + "\n".join([(HERE / "lists.md").read_text(encoding="utf-8"), *tables])


def main() -> None:
    made = vectors()
    for folder in ("good", "bad", "unsupported", "either"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    for vector in made:
        path = HERE / vector.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(vector.data)
    for dataset in disagree.datasets():
        for name, data in dataset.files.items():
            path = HERE / "disagree" / dataset.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    (HERE / "manifest.json").write_text(manifest(made), encoding="utf-8")
    (HERE / "README.md").write_text(readme(made), encoding="utf-8")
    (HERE / "phases-v1.json").write_text(phases.text(), encoding="utf-8")
    (HERE / "runs-v1.json").write_text(runs.text(), encoding="utf-8")
    (HERE / "datasets-v1.json").write_text(datasets.text(), encoding="utf-8")
    (HERE / "lengths-v1.json").write_text(lengths.text(), encoding="utf-8")
    (HERE / "windows-v1.json").write_text(lengths.windows_text(), encoding="utf-8")
    (HERE / "selections-v1.json").write_text(selections.text(), encoding="utf-8")
    (HERE / "more-v1.json").write_text(more.text(), encoding="utf-8")
    (HERE / "states-v1.json").write_text(states.text(), encoding="utf-8")
    (HERE / "strata-v1.json").write_text(strata.text(), encoding="utf-8")
    (HERE / "mixtures-v1.json").write_text(mixtures.text(), encoding="utf-8")
    (HERE / "changes-v1.json").write_text(changes.text(), encoding="utf-8")
    (HERE / "group-epochs-v1.json").write_text(group_epochs.text(), encoding="utf-8")
    (HERE / "concat-v1.json").write_text(concat.text(), encoding="utf-8")
    (HERE / "buckets-v1.json").write_text(buckets.text(), encoding="utf-8")
    (HERE / "plans-v1.json").write_text(plans.text(), encoding="utf-8")
    print(f"wrote {len(made)} files of {sum(len(vector.data) for vector in made)} bytes")


if __name__ == "__main__":
    main()
