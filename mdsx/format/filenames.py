"""The names of a dataset's files. Only this module makes and parses them.

Names are keys, relative to the dataset's folder, with `/` between components. A number has at least five digits.

| file | content |
|---|---|
| `index.json` | the index, written last |
| `shard.00000.mdsx`, `shard.00000.mdsx.zst` | shards, uncompressed or compressed |
| `part-00000/` | the dataset of one of several writers |
| `run-0123456789abcdef/` | all files of a distributed write, or of a writer that overwrites: the next two lines |
| `run-<run>/part-00000-0123456789abcdef/`, `part-00000/` | one attempt at a task; a part of a writer that overwrites |
| `run-<run>/_run/alive`, `overwrites`, `dead`, `replaced`, `clock` | the record of a run: see `RunSign` |
| `part-00000-0123456789abcdef/` | an attempt at a task, as earlier versions wrote it |
| `repaired.shard.00000.mdsx`, `repaired-2.` ... | the undamaged samples of a damaged shard |
| `index.before-repair-<hash>.json` | an index that a repair replaced |
| `index-<fingerprint>.json` | a snapshot: the index from before a part was appended |
| `_mdsx/writer.json`, `_mdsx/journal.00000.json` | a writer's record, and its journals |
| `_mdsx/alive` | the sign of life of an attempt at a task |
| `_convert/plan.json`, `part.00000.json`, `skipped.json` | a conversion's plan, progress, and skipped samples |
| `_lengths/<column>.u32` | the lengths of all samples by one column |
| `_lengths/<column>=height.u32`, `=width.u32` | the heights or widths of all images of one column |
| `_selections/<name>-<fingerprint>.json` | a named selection of samples of the dataset with this fingerprint |
| `_mdsx-tars.json`, `_mdsx-parquet.json`, `_mdsx-tokens.json` | an index of files of another format |
| `_mdsx-tars/<hash>-<hash>.mdsx` | beside an index of tars: the locations of one tar's samples |
| `_mdsx-tars/<hash>.json`, `passes.json` | the record of an indexed tar, until the index exists; then of all tars |
| `_mdsx-tokens/<hash>-00000-<hash>.table` | beside an index of token files: where documents begin |
| `.<name>.<token>.mdsx-tmp` | on a local disk, a file that is being written |

The index lists the shards' names as runs: `["shard.", ".mdsx", 0, 3]` are three names. No name leads outside the
dataset's folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import xxhash

INDEX = "index.json"
SHARDS = "shard."
"""The prefix of shards' names; likewise `PARTS`, `RUNS`, `REPAIRS`, `SNAPSHOTS`, `ALL_INDEXES` and `JOURNALS`."""
PARTS = "part-"
RUNS = "run-"
REPAIRS = "repaired"
SNAPSHOTS = "index-"
ALL_INDEXES = "index"
WRITER_FOLDER = "_mdsx/"
WRITER_RECORD = WRITER_FOLDER + "writer.json"
JOURNALS = WRITER_FOLDER + "journal."
CONVERT_FOLDER = "_convert/"
CONVERT_PLAN = CONVERT_FOLDER + "plan.json"
CONVERT_SKIPPED = CONVERT_FOLDER + "skipped.json"
"""The samples that a conversion skipped. The file stays with the finished dataset."""

ALIVE = WRITER_FOLDER + "alive"
"""The sign of life in an attempt's folder, which is removed when the attempt has ended."""
RunSign = Literal["alive", "overwrites", "dead", "replaced", "clock"]
"""The objects in the record of a run. `alive`: the run has not ended; the object's time is the driver's last sign of
life. `overwrites`: the run is a writer with `overwrite=True`, not an engine's. `dead`: a clean has marked the run as
dead. `replaced`: the index that it replaces. `clock`: an object from which a clean reads the storage's time."""

LENGTHS_FOLDER = "_lengths/"
SELECTIONS_FOLDER = "_selections/"
POINTERS_FOLDER = "_mdsx-tars/"
POINTED = POINTERS_FOLDER + "passes.json"
"""The results of the last pass over the tars."""

TABLES_FOLDER = "_mdsx-tokens/"
"""The tables of documents beside an index of token files."""

MAX_NAME_SIZE = 512

NameRun = tuple[str, str, int, int]
"""Prefix, suffix, first number, number of names."""

_PLAIN, _ZSTD, _TEMPORARY, _LENGTHS = ".mdsx", ".mdsx.zst", ".mdsx-tmp", ".u32"
_MAX_COLUMN = 200  # characters of a column's name in a file's name, which may have 255
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]|^\.")
_COMPONENT = "[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(f"{_COMPONENT}(?:/{_COMPONENT})*")
_NUMBER = re.compile("[0-9]{5,}")
_FINGERPRINT = re.compile("[0-9a-f]{32}")
_SNAPSHOT = re.compile(r"index-([0-9a-f]{32})\.json")
_RUN = re.compile(r"run-([0-9a-f]{16})/.*", re.DOTALL)
_PART = re.compile(r"((?:run-[0-9a-f]{16}/)?part-([0-9]{5,})(?:-[0-9a-f]{16})?)/(.*)", re.DOTALL)
_SHARD = re.compile(r"(?:(repaired)(?:-([0-9]+))?\.)?shard\.([0-9]{5,})\.mdsx(\.zst)?")
_RUN_SIGN = re.compile(rf"run-([0-9a-f]{{16}})/_run/({'|'.join(get_args(RunSign))})")
_REPLACED_INDEX = re.compile(r"index\.before-repair-[0-9a-f]+\.json")
_OF_DATASET = re.compile(
    r"index\.json|_mdsx/(writer\.json|journal\.[0-9]{5,}\.json|alive)"
    r"|_lengths/[A-Za-z0-9_=-][A-Za-z0-9._=-]*\.u32|_convert/part\.[0-9]{5,}\.json"
)
_OF_WHOLE = re.compile(
    r"_convert/(plan|skipped)\.json|_mdsx-(tars|parquet|tokens)\.json"
    r"|_mdsx-tars/(passes\.json|[0-9a-f]{16}\.json|[0-9a-f]{16}-[0-9a-f]{16}\.mdsx)"
)
_TABLE = re.compile(r"_mdsx-tokens/[0-9a-f]{16}-[0-9]{5,}-[0-9a-f]{16}\.table")
_SELECTION = re.compile(r"_selections/([A-Za-z0-9][A-Za-z0-9._-]{0,99})-([0-9a-f]{32})\.json")
_REPAIRED = re.compile(r"(?:repaired(?:-[0-9]+)?\.)?(.*)")


class ShardKey(NamedTuple):
    """The fields of a shard's key. `folder`: its part's folder, "" for a dataset without parts. `repair`: 0 for a
    writer's shard, otherwise the number of the repair that replaced it."""

    folder: str
    repair: int
    number: int
    compressed: bool
    canonical: bool
    """Whether its numbers are in the form that this module writes."""


# --- shards


def shard(number: int, *, compressed: bool) -> str:
    return join_name(SHARDS, shard_suffix(compressed=compressed), number)


def shard_suffix(*, compressed: bool) -> str:
    return _ZSTD if compressed else _PLAIN


def is_shard(key: str) -> bool:
    """Return whether a key has the suffix of a shard."""
    return key.endswith((_PLAIN, _ZSTD))


def is_compressed(key: str) -> bool:
    """Return whether a shard is compressed, by its key."""
    return key.endswith(_ZSTD)


def parse_shard(key: str) -> ShardKey | None:
    """Return the fields of a shard's key, in a part or not, repaired or not; None for any other key."""
    part = _PART.fullmatch(key)
    folder, inner = (part[1], part[3]) if part else ("", key)
    match = _SHARD.fullmatch(inner)
    if match is None:
        return None
    repaired, repair, number, zstd = match.groups()
    canonical = (not folder or part_number(key) is not None) and number == f"{int(number):05d}"
    return ShardKey(folder, int(repair or 1) if repaired else 0, int(number), zstd is not None, canonical)


def shard_number(key: str) -> int | None:
    """Return the number of a shard that a writer wrote to the dataset's own folder; None for any other key."""
    found = parse_shard(key)
    return None if found is None or (found.folder, found.repair, found.canonical) != ("", 0, True) else found.number


def pointers(tar: str, hash: str) -> str:
    """Return the key of the pointer shard of the tar with key `tar`. `hash`: its XXH3-128 in hexadecimal.

    The key does not depend on other tars, so that adding a tar does not change the other pointer shards.
    """
    return f"{POINTERS_FOLDER}{xxhash.xxh3_64_hexdigest(tar.encode())}-{hash[:16]}{_PLAIN}"


def pointed(tar: str) -> str:
    """Return the key of the record of the tar with key `tar`, which is needed until an index lists the tar."""
    return f"{POINTERS_FOLDER}{xxhash.xxh3_64_hexdigest(tar.encode())}.json"


def token_table(file: str, number: int, hash: str) -> str:
    """Return the key of an object with tables of documents: number `number` of the token file with key `file`. `hash`:
    its XXH3-128 in hexadecimal, so that a new index never replaces tables that a running job reads."""
    return f"{TABLES_FOLDER}{xxhash.xxh3_64_hexdigest(file.encode())}-{number:05d}-{hash[:16]}.table"


def is_token_table(key: str) -> bool:
    """Return whether `token_table` may return this key."""
    return _TABLE.fullmatch(key) is not None


# --- parts, repairs, records


def part(number: int) -> str:
    return f"{PARTS}{number:05d}"


def run_folder(run: str) -> str:
    """Return the folder of all files of a run. `run`: 16 hexadecimal digits, unique to the run."""
    return f"{RUNS}{run}"


def record_folder(run: str) -> str:
    """Return the prefix of the objects in the record of a run."""
    return f"{run_folder(run)}/_run/"


def run_part(run: str, number: int, token: str = "") -> str:
    """Return the folder of part `number` of a run, or of one attempt at it. `token`: 16 hexadecimal digits, unique to
    the attempt."""
    return f"{run_folder(run)}/{part(number)}{token and '-'}{token}"


def run_of(key: str) -> str | None:
    """Return the run whose folder contains `key`; None if there is none."""
    match = _RUN.fullmatch(key)
    return None if match is None else match[1]


def part_number(key: str) -> int | None:
    """Return the number of the part, or of the attempted part, whose folder contains `key`; None if there is none."""
    match = _PART.fullmatch(key)
    return None if match is None or match[2] != f"{int(match[2]):05d}" else int(match[2])


def split_part(key: str) -> tuple[str, str]:
    """Return the folder of the part that contains `key` ("" if there is none), and the key within it."""
    match = _PART.fullmatch(key)
    return ("", key) if match is None or part_number(key) is None else (match[1], match[3])


def names_of_part(path: Sequence[str]) -> tuple[str, ...]:
    """Return the last names of a folder's path if they name a part: two names if it is a run's part."""
    for names in (path[-2:], path[-1:]):
        if split_part(f"{'/'.join(names)}/") == ("/".join(names), ""):
            return tuple(names)
    return ()


def folders_of_parts(keys: Iterable[str]) -> dict[int, list[str]]:
    """Return the folders with `keys` of each part: one, unless several attempts at the part left files."""
    found: dict[int, list[str]] = {}
    for folder in dict.fromkeys(split_part(key)[0] for key in keys):
        if (number := part_number(f"{folder}/")) is not None:
            found.setdefault(number, []).append(folder)
    return found


def run_sign(run: str, sign: RunSign) -> str:
    """Return the key of an object in the record of a run."""
    return f"{record_folder(run)}{sign}"


def parse_run_sign(key: str) -> tuple[str, str] | None:
    """Return the run and the sign of an object in a run's record; None for any other key."""
    match = _RUN_SIGN.fullmatch(key)
    return None if match is None else (match[1], match[2])


def within(folder: str, key: str) -> str:
    """Return the key of a file in a folder; "" is the dataset's own folder."""
    return f"{folder}/{key}" if folder else key


def is_of_dataset(key: str) -> bool:
    """Return whether mdsx makes this key, in a dataset's folder, or beside an index of tars, Parquet or token files.
    Nothing else is ever removed from such a folder."""
    inner, shard = split_part(key)[1], parse_shard(key)
    return (
        (shard is not None and shard.canonical)
        or is_kept_index(inner)
        or _OF_DATASET.fullmatch(inner) is not None
        or selection_of(inner) is not None
        or _OF_WHOLE.fullmatch(key) is not None
        or is_token_table(key)
        or parse_run_sign(key) is not None
    )


def is_beside_index(inner: str) -> bool:
    """Return whether a key, in the folder of a dataset or a part, is that of its index, lengths or a selection."""
    return inner == INDEX or inner.startswith((LENGTHS_FOLDER, SELECTIONS_FOLDER))


def work_folder(key: str) -> str | None:
    """Return the folder of a writer or a conversion, in the dataset or in a part, that contains `key`; None if none."""
    inner = split_part(key)[1]
    return next((folder for folder in (WRITER_FOLDER, CONVERT_FOLDER) if inner.startswith(folder)), None)


def repaired(key: str, attempt: int) -> str:
    """Return the key of the shard that replaces a damaged one. `attempt`: 1, or more if names are in use."""
    folder, slash, base = key.rpartition("/")
    match = _REPAIRED.fullmatch(base)
    return f"{folder}{slash}{REPAIRS}{'' if attempt == 1 else f'-{attempt}'}.{match[1] if match else base}"


def replaced_index(hash: str) -> str:
    """Return the key under which a repair keeps the index that it replaces, by the hash of its content."""
    return f"index.before-repair-{hash}.json"


def is_kept_index(key: str) -> bool:
    """Return whether a key is that of a snapshot, or of an index that a repair replaced."""
    return snapshot_fingerprint(key) is not None or _REPLACED_INDEX.fullmatch(key) is not None


def snapshot(fingerprint: str) -> str:
    """Return the key of the snapshot of the dataset's state with this fingerprint. Raise ValueError if it is
    invalid."""
    if _FINGERPRINT.fullmatch(fingerprint) is None:
        raise ValueError(fingerprint)
    return f"{SNAPSHOTS}{fingerprint}.json"


def snapshot_fingerprint(key: str) -> str | None:
    """Return the fingerprint of a snapshot, by its key; None for any other key."""
    match = _SNAPSHOT.fullmatch(key)
    return None if match is None else match[1]


def journal(number: int) -> str:
    return f"{JOURNALS}{number:05d}.json"


def convert_record(part: int) -> str:
    """Return the key of the record of a conversion's part: the results of its finished tars."""
    return f"{CONVERT_FOLDER}part.{part:05d}.json"


def lengths(column: str, side: str = "") -> str:
    """Return the key of the lengths by a column. It has the column's name, with `=XX` for each byte that is special in
    paths or URLs, and with a hash if it is long. `side`: "height" or "width" of its images."""
    name = _NOT_PLAIN.sub(lambda match: "".join(f"={byte:02X}" for byte in match[0].encode()), column)
    if len(name) > _MAX_COLUMN:
        name = f"{name[:_MAX_COLUMN]}={xxhash.xxh3_64_hexdigest(column.encode())}"
    return f"{LENGTHS_FOLDER}{name}{side and f'={side}'}{_LENGTHS}"


def selection(name: str, fingerprint: str) -> str:
    """Return the key of the selection `name` of the dataset with this fingerprint. Raise ValueError unless the name is
    up to 100 letters, digits, ".", "_" and "-", the first of them a letter or a digit."""
    key = f"{SELECTIONS_FOLDER}{name}-{fingerprint}.json"
    if selection_of(key) != (name, fingerprint):
        raise ValueError(name)
    return key


def selection_of(key: str) -> tuple[str, str] | None:
    """Return the name of a selection, and the fingerprint of its dataset, by its key; None for any other key."""
    match = _SELECTION.fullmatch(key)
    return None if match is None else (match[1], match[2])


# --- temporary files of a local disk


def temporary(name: str, token: str) -> str:
    """Return the name of the temporary file, in the same folder, to write the content of `name` to."""
    return f".{name[:100]}.{token}{_TEMPORARY}"


def lock(name: str) -> str:
    """Return the name of the temporary file that is locked while `name` is compared and replaced."""
    return temporary(name, "lock")


def target_of(temporary: str) -> str:
    """Return the first 100 characters of a temporary file's final name."""
    return temporary[1:].removesuffix(_TEMPORARY).rpartition(".")[0]


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMPORARY)


# --- names in an index


def join_name(prefix: str, suffix: str, number: int) -> str:
    return f"{prefix}{number:05d}{suffix}"


def split_name(name: str) -> tuple[str, str, int] | None:
    """Return prefix, suffix and number of a name, by its last number of at least five digits; None if there is none."""
    numbers = list(_NUMBER.finditer(name))
    if not numbers:
        return None
    number, end = int(numbers[-1][0]), numbers[-1].end()
    return name[: end - len(f"{number:05d}")], name[end:], number


def is_name(name: str) -> bool:
    """Return whether a shard may have this name in an index."""
    return len(name) <= MAX_NAME_SIZE and _NAME.fullmatch(name) is not None


def runs_of(names: Iterable[str]) -> list[NameRun]:
    """Return the fewest runs that represent `names`, in order. Raise ValueError for a name that a shard cannot have."""
    runs: list[NameRun] = []
    following = None  # the name that would continue the last run
    for name in names:
        if name == following and len(name) <= MAX_NAME_SIZE:
            prefix, suffix, first, count = runs[-1]
            runs[-1] = (prefix, suffix, first, count + 1)
        else:
            parts = split_name(name)
            if parts is None or not is_name(name) or parts[2] >= 2**63:
                raise ValueError(name)
            prefix, suffix, first, count = *parts, 0
            runs.append((prefix, suffix, first, 1))
        following = join_name(prefix, suffix, first + count + 1)
    return runs


def join_runs(parts: Iterable[tuple[str, Iterable[NameRun]]]) -> list[NameRun]:
    """Return the runs for the names in all `parts`, given as folders and the runs in each. Raise ValueError for a name
    that a shard cannot have."""
    runs: list[NameRun] = []
    for folder, some in parts:
        for prefix, suffix, first, count in some:
            prefix = within(folder, prefix)
            longest = join_name(prefix, suffix, first + count - 1)
            if not is_name(longest):
                raise ValueError(longest)
            if runs and runs[-1][:2] == (prefix, suffix) and sum(runs[-1][2:]) == first:
                runs[-1] = (prefix, suffix, runs[-1][2], runs[-1][3] + count)
            else:
                runs.append((prefix, suffix, first, count))
    return runs
