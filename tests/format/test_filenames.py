"""File names of datasets and of caches are each defined in one module. No other module spells them out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

import mdsx
from mdsx.format import filenames

PACKAGE = Path(mdsx.__file__).parent
HOMES = {PACKAGE / "format" / "filenames.py", PACKAGE / "storage" / "cache" / "filenames.py"}
NAMES = re.compile(
    r"\bindex\.json|\bpart[-.]|\.part\b|_mdsx/|_convert/|\bshard\.|\.mdsx|\.zst\b|mdsx-tmp|journal\.|writer\.json"
    r"|plan\.json|skipped\.json|\brepaired[-.]|before-repair|_lengths/|\.u32\b|tally\.|^lock$|^limits$"
)
NOT_OURS = {PACKAGE / "transfer" / "converting", PACKAGE / "transfer" / "exporting", PACKAGE / "foreign" / "tars"}
"""Tars, and files of other tools, have names of their own, such as `.tar.zst`."""


def test_the_key_of_a_table_names_its_token_file_by_a_hash() -> None:
    key = filenames.token_table("a/b.bin", 7, "0123456789abcdef" * 2)
    assert key == f"_mdsx-tokens/{xxhash.xxh3_64_hexdigest(b'a/b.bin')}-00007-0123456789abcdef.table"
    assert filenames.is_token_table(key)
    assert not filenames.is_token_table(f"{key}x")
    assert not filenames.is_token_table(f"x{key}")


def test_a_shard_is_known_by_its_suffix() -> None:
    assert [filenames.is_shard(key) for key in ("a.mdsx", "a.mdsx.zst", "a.zst", "mdsx", "a.mdsx.x")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert [filenames.is_compressed(key) for key in ("a.mdsx", "a.mdsx.zst", "a.zst")] == [False, True, False]


RUN, ATTEMPT = "0123456789abcdef", "fedcba9876543210"
SHARDS: dict[str, tuple[str, int, int, bool, bool]] = {
    "shard.00007.mdsx": ("", 0, 7, False, True),
    "shard.123456.mdsx.zst": ("", 0, 123456, True, True),
    "repaired.shard.00007.mdsx": ("", 1, 7, False, True),
    "repaired-12.shard.00007.mdsx.zst": ("", 12, 7, True, True),
    "part-00003/shard.00007.mdsx": ("part-00003", 0, 7, False, True),
    f"part-00003-{RUN}/repaired.shard.00007.mdsx": (f"part-00003-{RUN}", 1, 7, False, True),
    f"run-{RUN}/part-00003/shard.00007.mdsx": (f"run-{RUN}/part-00003", 0, 7, False, True),
    "shard.000007.mdsx": ("", 0, 7, False, False),  # mdsx writes no such number
    "part-000003/shard.00007.mdsx": ("part-000003", 0, 7, False, False),
}
NO_SHARDS = ["shard.7.mdsx", "shard.00007", "shard.00007.mdsx.gz", "a/shard.00007.mdsx", "part-3/shard.00007.mdsx", ""]


@pytest.mark.parametrize("key", SHARDS)
def test_a_shards_key_has_a_folder_a_repair_a_number_and_a_suffix(key: str) -> None:
    assert filenames.parse_shard(key) == SHARDS[key]


def test_other_keys_are_no_shards() -> None:
    assert [filenames.parse_shard(key) for key in NO_SHARDS] == [None] * len(NO_SHARDS)


def test_a_writers_own_shards_have_numbers() -> None:
    assert (filenames.shard(7, compressed=False), filenames.shard(7, compressed=True)) == (
        "shard.00007.mdsx",
        "shard.00007.mdsx.zst",
    )
    found = {key: filenames.shard_number(key) for key in (*SHARDS, *NO_SHARDS)}
    assert {key: number for key, number in found.items() if number is not None} == {
        "shard.00007.mdsx": 7,
        "shard.123456.mdsx.zst": 123456,
    }


def test_the_keys_of_a_tars_files_name_the_tar_by_a_hash() -> None:
    name = xxhash.xxh3_64_hexdigest("a/é.tar".encode())
    assert filenames.pointers("a/é.tar", RUN * 2) == f"_mdsx-tars/{name}-{RUN}.mdsx"
    assert filenames.pointed("a/é.tar") == f"_mdsx-tars/{name}.json"


def test_a_part_may_belong_to_a_run_and_to_an_attempt() -> None:
    assert filenames.part(3) == "part-00003"
    assert filenames.run_part(RUN, 3) == f"run-{RUN}/part-00003"
    assert filenames.run_part(RUN, 3, ATTEMPT) == f"run-{RUN}/part-00003-{ATTEMPT}"
    assert filenames.run_of(f"run-{RUN}/part-00003/a\n/b") == RUN
    assert [filenames.run_of(key) for key in (f"run-{RUN}", f"x/run-{RUN}/a", "run-1/a")] == [None] * 3


PARTS = {
    "part-00003/a/b": (3, "part-00003", "a/b"),
    f"part-123456-{ATTEMPT}/": (123456, f"part-123456-{ATTEMPT}", ""),
    f"run-{RUN}/part-00003-{ATTEMPT}/a\n": (3, f"run-{RUN}/part-00003-{ATTEMPT}", "a\n"),
}
NO_PARTS = ["a", "part-00003", "part-3/a", "part-000003/a", "x/part-00003/a", f"run-{RUN}/a", "part-00003-1/a"]


def test_a_key_in_a_part_has_its_number_its_folder_and_the_key_within_it() -> None:
    for key, (number, folder, inner) in PARTS.items():
        assert filenames.part_number(key) == number
        assert filenames.split_part(key) == (folder, inner)
    for key in NO_PARTS:
        assert filenames.part_number(key) is None
        assert filenames.split_part(key) == ("", key)


def test_the_end_of_a_path_may_name_a_part() -> None:
    of_run = (f"run-{RUN}", f"part-00003-{ATTEMPT}")
    assert filenames.names_of_part(["data", *of_run]) == of_run
    assert filenames.names_of_part(["more", "data", "part-00003"]) == ("part-00003",)
    assert filenames.names_of_part(["part-00003"]) == ("part-00003",)
    for path in ([], ["data"], ["part-00003", "data"], [f"run-{RUN}"]):
        assert filenames.names_of_part(path) == ()


def test_the_attempts_at_a_part_have_folders_of_their_own() -> None:
    folders = [f"part-00003-{RUN}", f"part-00003-{ATTEMPT}", "part-00004"]
    keys = [f"{folder}/{name}" for folder in folders for name in ("a", "b")]
    assert filenames.folders_of_parts(["index.json", *keys]) == {3: folders[:2], 4: folders[2:]}


def test_the_record_of_a_run_has_signs() -> None:
    assert filenames.run_sign(RUN, "dead") == f"run-{RUN}/_run/dead"
    assert filenames.parse_run_sign(f"run-{RUN}/_run/dead") == (RUN, "dead")
    for key in (f"run-{RUN}/_run/other", f"run-{RUN}/dead", f"x/run-{RUN}/_run/dead"):
        assert filenames.parse_run_sign(key) is None


OF_DATASET = [
    "index.json",
    f"index-{RUN * 2}.json",
    "index.before-repair-0123abc.json",
    *("_mdsx/writer.json", "_mdsx/journal.00000.json", "_mdsx/alive"),
    *("_lengths/text.u32", "_lengths/=2Ea=height.u32", "_convert/part.00000.json"),
    f"_selections/easy-{RUN * 2}.json",
]
OF_WHOLE = [
    *("_convert/plan.json", "_convert/skipped.json"),
    *("_mdsx-tars.json", "_mdsx-parquet.json", "_mdsx-tokens.json"),
    *("_mdsx-tars/passes.json", f"_mdsx-tars/{RUN}.json", f"_mdsx-tars/{RUN}-{ATTEMPT}.mdsx"),
    f"_mdsx-tokens/{RUN}-00000-{ATTEMPT}.table",
    f"run-{RUN}/_run/alive",
]
OF_NOBODY = [
    *("", "a", "index.json.bak", "shard.000007.mdsx", "part-000003/shard.00007.mdsx", "part-00003", "part-00003/a"),
    *("_mdsx/other", "_lengths/.u32", "_convert/part.0.json", "_selections/easy.json", "_mdsx-tars/0.json"),
]


def test_mdsx_knows_the_keys_that_it_makes() -> None:
    shards = [key for key, found in SHARDS.items() if found[-1]]
    in_parts = [f"{folder}/{key}" for folder in ("part-00003", f"run-{RUN}/part-00003") for key in OF_DATASET]
    ours = [*shards, *OF_DATASET, *in_parts, *OF_WHOLE]
    assert [key for key in ours if not filenames.is_of_dataset(key)] == []
    assert [key for key in (*OF_NOBODY, *(f"x/{key}" for key in ours)) if filenames.is_of_dataset(key)] == []
    assert [key for key in OF_WHOLE if filenames.is_of_dataset(f"part-00003/{key}")] == []


def test_an_index_has_lengths_and_selections_beside_it() -> None:
    beside = [key for key in (*OF_DATASET, *OF_WHOLE) if filenames.is_beside_index(key)]
    assert beside == ["index.json", "_lengths/text.u32", "_lengths/=2Ea=height.u32", f"_selections/easy-{RUN * 2}.json"]


def test_writers_and_conversions_have_folders_to_work_in() -> None:
    found = {key: filenames.work_folder(key) for key in ("_mdsx/alive", "part-00003/_convert/x", "x/_mdsx/a", "_mdsx")}
    assert list(found.values()) == ["_mdsx/", "_convert/", None, None]


def test_a_repaired_shard_has_a_name_of_its_own_in_the_same_folder() -> None:
    assert filenames.repaired("shard.00007.mdsx", 1) == "repaired.shard.00007.mdsx"
    assert filenames.repaired("a/b/shard.00007.mdsx", 2) == "a/b/repaired-2.shard.00007.mdsx"
    for key in ("a/repaired.x.mdsx", "a/repaired-2.x.mdsx"):
        assert filenames.repaired(key, 3) == "a/repaired-3.x.mdsx"
    assert filenames.repaired("repaired-x.mdsx", 1) == "repaired.repaired-x.mdsx"


def test_a_kept_index_is_a_snapshot_or_one_that_a_repair_replaced() -> None:
    fingerprint = RUN * 2
    assert filenames.snapshot(fingerprint) == f"index-{fingerprint}.json"
    assert filenames.snapshot_fingerprint(f"index-{fingerprint}.json") == fingerprint
    assert filenames.replaced_index("0a") == "index.before-repair-0a.json"
    kept = [f"index-{fingerprint}.json", "index.before-repair-0a.json"]
    assert [key for key in (*kept, "index.json", "index-0a.json") if filenames.is_kept_index(key)] == kept
    assert filenames.snapshot_fingerprint(kept[1]) is None
    with pytest.raises(ValueError, match=r"^0A$"):
        filenames.snapshot("0A")


def test_journals_and_the_records_of_conversions_have_numbers() -> None:
    assert filenames.journal(7) == "_mdsx/journal.00007.json"
    assert filenames.convert_record(7) == "_convert/part.00007.json"


def test_the_sides_of_images_have_files_beside_the_lengths() -> None:
    assert filenames.lengths("photo") == "_lengths/photo.u32"
    assert filenames.lengths("photo", "height") == "_lengths/photo=height.u32"
    assert filenames.lengths("x" * 200) == f"_lengths/{'x' * 200}.u32"


def test_a_selection_has_a_name_and_the_fingerprint_of_its_dataset() -> None:
    for name in ("easy", "0", "A.b_c-d", "x" * 100):
        key = filenames.selection(name, RUN * 2)
        assert key == f"_selections/{name}-{RUN * 2}.json"
        assert filenames.selection_of(key) == (name, RUN * 2)
    for name in ("", ".a", "a/b", "é", "x" * 101):
        with pytest.raises(ValueError, match=f"^{re.escape(name)}$"):
            filenames.selection(name, RUN * 2)


def test_a_temporary_file_names_the_beginning_of_its_target() -> None:
    name = filenames.temporary("x" * 101, "token")
    assert name == f".{'x' * 100}.token.mdsx-tmp"
    assert filenames.target_of(name) == "x" * 100
    assert filenames.target_of(filenames.lock("a.b.json")) == "a.b.json"
    assert filenames.lock("a") == ".a.lock.mdsx-tmp"
    assert [key for key in (name, name[1:], f"{name}x", "a") if filenames.is_temporary(key)] == [name]


def test_a_run_ends_before_a_name_that_is_too_long() -> None:
    longest = "x" * (512 - len("99998"))
    assert filenames.runs_of([f"{longest}99998", f"{longest}99999"]) == [(longest, "", 99998, 2)]
    with pytest.raises(ValueError, match=r"^x+100000$"):
        filenames.runs_of([f"{longest}99999", f"{longest}100000"])


def test_runs_of_names_in_folders_are_joined_where_their_numbers_continue() -> None:
    parts = [
        ("a", [("s.", ".x", 0, 2), ("s.", ".y", 2, 1)]),
        ("a", [("s.", ".y", 3, 2), ("s.", ".y", 6, 1)]),
        ("", [("a/s.", ".y", 7, 1), ("b/s.", ".y", 8, 1)]),
    ]
    expected = [("a/s.", ".x", 0, 2), ("a/s.", ".y", 2, 3), ("a/s.", ".y", 6, 2), ("b/s.", ".y", 8, 1)]
    assert filenames.join_runs(parts) == expected
    longest = "x" * (512 - len("00000.y"))
    assert filenames.join_runs([("", [(longest, ".y", 99999, 1)])]) == [(longest, ".y", 99999, 1)]
    with pytest.raises(ValueError, match=r"^x+100000\.y$"):
        filenames.join_runs([("", [(longest, ".y", 99999, 2)])])


def literals(source: str) -> Iterator[tuple[str, int]]:
    """Yield the strings of a module that may be file names: no docstrings, no names that it exports, no spaces."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not ast.unparse(node).startswith("__all__ = ")]
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.Constant):
                    yield str(part.value), node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value, node.lineno


def named(source: str, *, tars: bool = False) -> list[tuple[str, int]]:
    found = ((text, line) for text, line in literals(source) if NAMES.search(text))
    return [(text, line) for text, line in found if not (tars and re.search(r"^\.?(tar\.)?(gz|zst|tgz)$", text))]


@pytest.mark.parametrize(
    "source",
    ['key = "index.json"', 'f"part-{number:05d}"', 'f"{url}/index.json: it is missing"', 'key.endswith(".mdsx")'],
)
def test_a_literal_file_name_is_found(source: str) -> None:
    assert named(source)


def test_file_names_are_written_in_one_module() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in HOMES and path.parent != PACKAGE / "testing"  # tests, which know the files
        for text, line in named(path.read_text(encoding="utf-8"), tars=path.parent in NOT_OURS)
    ]
    assert not wrong, "\n".join(wrong)
