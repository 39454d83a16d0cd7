"""Datasets of Hugging Face become ours: the same rows, with images as they are, classes by name, and Arrow's types."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
from PIL import Image

import mdsx
from mdsx import CorruptError, MissingError, SampleError, UsageError
from mdsx.transfer.converting import hugging_face
from tools.servers.hub import Hub

FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "audio": datasets.Audio(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "labels": datasets.Sequence(datasets.ClassLabel(names=["x", "y"])),
        "vector": datasets.Sequence(datasets.Value("float32"), length=3),
        "tokens": datasets.Sequence(datasets.Value("int32")),
        "matrix": datasets.Array2D((2, 2), "int64"),
        "rows": datasets.Array2D((None, 2), "float32"),
        "messages": [{"role": datasets.Value("string"), "content": datasets.Value("string")}],
        "text": datasets.Value("large_string"),
        "at": datasets.Value("timestamp[ms]"),
    }
)
TYPES = {
    "image": "png",
    "audio": "bytes",
    "label": "int64",
    "labels": "int64[*]",
    "vector": "float32[3]",
    "tokens": "int32[*]",
    "matrix": "int64[2,2]",
    "rows": "float32[*,2]",
    "messages": "json",
    "text": "str?",
    "at": "int64",
}


def picture(number: int, form: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (2, 3), (number, 0, 0)).save(out, form)
    return out.getvalue()


def row(number: int) -> dict[str, Any]:
    return {
        "image": {"bytes": picture(number), "path": f"{number}.png"},
        "audio": {"bytes": b"RIFF%d" % number, "path": None},
        "label": number % 2,
        "labels": [1, 0],
        "vector": [number, 0.5, -1.0],
        "tokens": [*range(number)],
        "matrix": [[number, 1], [2, 3]],
        "rows": [[number, 0.5]] * (number % 3 + 1),
        "messages": [{"role": "user", "content": f"hello {number}"}, {"role": "assistant", "content": None}],
        "text": None if number == 3 else f"text {number}",
        "at": datetime(2026, 1, 1, 0, 0, number),
    }


def table(rows: list[dict[str, Any]], features: datasets.Features = FEATURES) -> datasets.Dataset:
    """Return a dataset of Arrow data, because encoding audio would need torchcodec."""
    storage = {name: [each[name] for each in rows] for name in features}
    schema = features.arrow_schema
    return datasets.Dataset(
        datasets.table.InMemoryTable(
            pa.Table.from_arrays(
                [
                    datasets.table.array_cast(
                        pa.array(storage[f.name], getattr(f.type, "storage_type", f.type)), f.type
                    )
                    for f in schema
                ],
                schema=schema,
            )
        )
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `save_to_disk`, with two files of six rows."""
    folder = tmp_path_factory.mktemp("saved") / "data"
    table([row(number) for number in range(12)]).save_to_disk(folder, num_shards=2)
    return folder


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder that `load_dataset` reads: three files of five rows."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for file in range(3):
        rows = [{"id": 5 * file + number, "text": "x" * number, "at": {"n": number}} for number in range(5)]
        (folder / f"train-{file}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def convert(source: Path, out: Path, **options: Any) -> mdsx.Conversion:
    return mdsx.convert("hf", str(source), out, **options)


def files(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# --- rows, types and metadata


def test_each_feature_has_its_type_and_values(saved: Path, tmp_path: Path) -> None:
    conversion = convert(saved, tmp_path / "out")
    assert (conversion.columns, conversion.samples) == (TYPES, 12)
    for number, sample in enumerate(mdsx.Dataset(tmp_path / "out")):
        wanted = row(number)
        found = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in sample.items()}
        wanted |= {name: wanted[name]["bytes"] for name in ("image", "audio")}
        assert found == wanted | {"at": 1_767_225_600_000 + 1000 * number}


def test_the_metadata_has_classes_origin_and_arrow_types(saved: Path, tmp_path: Path) -> None:
    names = {"kind": "label", "picture": "image"}
    convert(saved, tmp_path / "out", rename=names, drop=["labels"])
    metadata = mdsx.Dataset(tmp_path / "out").metadata
    assert metadata["class_names"] == {"kind": ["cat", "dog"]}
    assert metadata["huggingface"] == {"fingerprint": datasets.load_from_disk(saved)._fingerprint}
    mdsx.export("parquet", tmp_path / "out", tmp_path / "parquet")
    (file,) = (tmp_path / "parquet").glob("*.parquet")
    back = datasets.Dataset.from_parquet(str(file))
    features = {{"label": "kind", "image": "picture"}.get(name, name): kind for name, kind in FEATURES.items()}
    features |= {  # the Arrow types of arrays are known only to datasets
        "matrix": datasets.List(datasets.List(datasets.Value("int64"), length=2), length=2),
        "rows": datasets.List(datasets.List(datasets.Value("float32"), length=2)),
    }
    assert dict(back.features) == {name: kind for name, kind in features.items() if name != "labels"}
    assert back.with_format("arrow")[:]["text"].to_pylist() == [row(number)["text"] for number in range(12)]
    fifth = back.select_columns(["at", "picture"])[5]
    assert fifth["at"] == row(5)["at"]
    assert fifth["picture"].getpixel((0, 0)) == (5, 0, 0)


def test_pictures_of_several_kinds_are_bytes(tmp_path: Path) -> None:
    features = datasets.Features({"image": datasets.Image()})
    rows: list[dict[str, Any]] = [{"image": {"bytes": picture(1, form), "path": None}} for form in ("PNG", "JPEG")]
    for name, some, kind in (
        ("mixed", rows, "bytes"),
        ("jpeg", rows[1:], "jpeg"),
        ("null", [*rows[:1], {"image": None}], "png?"),
    ):
        table(some, features).save_to_disk(tmp_path / name)
        assert convert(tmp_path / name, tmp_path / f"out-{name}").columns == {"image": kind}
    assert [sample["image"] for sample in mdsx.Dataset(tmp_path / "out-mixed")] == [
        each["image"]["bytes"] for each in rows
    ]


def test_rows_that_were_selected_and_shuffled_are_converted_in_that_order(saved: Path, tmp_path: Path) -> None:
    chosen = datasets.load_from_disk(saved).shuffle(seed=3).select(range(5))
    wanted = chosen.with_format("arrow")[:]["text"].to_pylist()
    chosen.save_to_disk(tmp_path / "chosen")
    convert(tmp_path / "chosen", tmp_path / "out")
    assert [sample["text"] for sample in mdsx.Dataset(tmp_path / "out")] == wanted


def test_a_split_of_several_is_chosen(saved: Path, tmp_path: Path) -> None:
    whole = datasets.load_from_disk(saved)
    both = datasets.DatasetDict(train=whole.select(range(4)), test=whole.select([7]))
    both.save_to_disk(tmp_path / "both")
    with pytest.raises(UsageError, match=r"several splits \(expected train, test\); give --split"):
        convert(tmp_path / "both", tmp_path / "out")
    with pytest.raises(UsageError, match=r"no such split \(expected train, test, found dev\)"):
        convert(tmp_path / "both", tmp_path / "out", split="dev")
    convert(tmp_path / "both", tmp_path / "out", split="test")
    assert [sample["text"] for sample in mdsx.Dataset(tmp_path / "out")] == ["text 7"]
    assert mdsx.Dataset(tmp_path / "out").metadata["huggingface"]["split"] == "test"


# --- datasets that are loaded, and streamed


@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataset_is_loaded_or_streamed_in_order(lines: Path, tmp_path: Path, streaming: bool) -> None:
    conversion = convert(lines, tmp_path / "out", streaming=streaming)
    assert conversion.columns == {"id": "int64", "text": "str", "at": "json"}
    wanted = [
        {"id": 5 * file + number, "text": "x" * number, "at": {"n": number}} for file in range(3) for number in range(5)
    ]
    assert [*mdsx.Dataset(tmp_path / "out")] == wanted
    assert mdsx.Dataset(tmp_path / "out").metadata["huggingface"] == {"split": "train"}
    again = convert(lines, tmp_path / "out", streaming=streaming)
    assert again.already


def test_files_that_rows_only_name_are_read_if_the_caller_says_so(tmp_path: Path) -> None:
    (tmp_path / "images" / "train" / "cat").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "images" / "train" / "cat" / f"{number}.png").write_bytes(picture(number))
    with pytest.raises(UsageError, match=r"column 'image': .* not their bytes; give --embed to read the files"):
        convert(tmp_path / "images", tmp_path / "out")
    assert convert(tmp_path / "images", tmp_path / "out", embed=True).columns == {"image": "png"}
    assert [sample["image"] for sample in mdsx.Dataset(tmp_path / "out")] == [picture(number) for number in range(3)]


FROM_THE_HUB = """
import sys
import mdsx

for streaming in (False, True):
    out = f"{sys.argv[1]}-{streaming}"
    mdsx.convert("hf", "org/name", out, streaming=streaming, revision="main")
    print([sample["id"].item() for sample in mdsx.Dataset(out)], mdsx.Dataset(out).metadata["huggingface"]["revision"])
for name, revision in (("org/name", "none"), ("org/private", None), ("org/stranger", None)):
    try:
        mdsx.convert("hf", name, sys.argv[1], revision=revision)
    except mdsx.MdsxError as error:
        print(type(error).__name__, error.file)
"""


def test_a_dataset_on_the_hub_is_pinned_to_its_commit(tmp_path: Path) -> None:
    """In a process of its own, because the library reads the Hub's address when it is imported."""
    (tmp_path / "source").mkdir()
    for file in range(2):
        rows = [{"id": 5 * file + number} for number in range(5)]
        datasets.Dataset.from_list(rows).to_parquet(tmp_path / "source" / f"train-{file:05}-of-00002.parquet")
    with Hub(tmp_path / "hub") as hub:
        commit = hub.publish("org/name", tmp_path / "source")
        hub.publish("org/stranger", describe(tmp_path / "stranger", data_files=str(tmp_path / "source" / "*.parquet")))
        environment = {**os.environ, **hub.env(), "HF_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-c", FROM_THE_HUB, str(tmp_path / "out")]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=200, check=True)
    errors = ["MissingError org/name", "ForbiddenError org/private", "UsageError org/stranger/README.md"]
    assert done.stdout.splitlines() == [f"{[*range(10)]} {commit}"] * 2 + errors


# --- what belongs to a dataset


@pytest.mark.parametrize("split", [None, "train"])
def test_files_that_a_saved_dataset_does_not_name_are_no_part_of_it(tmp_path: Path, split: str | None) -> None:
    """The library's caches of `map`, and the output itself, also in a folder with the name of a split."""
    given, folder = datasets.Dataset.from_list([{"text": f"text {number}"} for number in range(5)]), tmp_path / "data"
    part = folder / (split or "")
    (datasets.DatasetDict({split: given}) if split else given).save_to_disk(folder)
    outs = {folder / "out", part / "out"}
    assert not any(convert(folder, out).already for out in outs)
    assert not convert(folder, tmp_path / "out").already
    datasets.load_from_disk(part).map(lambda row: {"more": row["text"] * 2})
    assert [*part.glob("cache-*.arrow")]
    assert all(convert(folder, out).already for out in (*outs, tmp_path / "out"))
    datasets.Dataset.from_list([{"text": "other"}] * 5).save_to_disk(part)
    with pytest.raises(UsageError, match="this conversion did not write"):
        convert(folder, tmp_path / "out")


def test_a_folder_with_the_name_of_a_saved_datasets_split_is_no_part_of_it(tmp_path: Path) -> None:
    given = datasets.Dataset.from_list([{"text": "a"}], split=datasets.Split("train"))
    given.save_to_disk(tmp_path / "data")
    assert not convert(tmp_path / "data", tmp_path / "data" / "train").already
    assert convert(tmp_path / "data", tmp_path / "data" / "train").already


def test_an_output_inside_a_folder_that_is_read_as_a_whole_is_refused(lines: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(lines)
    for out in (lines, lines / "out", tmp_path / "link" / "deep" / "out"):
        with pytest.raises(UsageError, match=r"the output is inside the dataset's folder.*give another output"):
            convert(lines, out)
    assert len(list(lines.iterdir())) == 3
    assert convert(lines, tmp_path / "lines-2").samples == 15


# --- errors


def test_a_value_that_does_not_fit_names_row_column_and_option(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError) as raised:
        convert(saved, tmp_path / "out", columns={"text": "str"})
    assert str(raised.value).startswith(f"{saved}: row 3, column 'text': does not fit str (")
    assert raised.value.hint == "--column 'text=str?' would accept it"
    with pytest.raises(SampleError, match=r"row 1, column 'tokens': .*; --column 'tokens=int32\[\*\]' would accept it"):
        convert(saved, tmp_path / "out", columns={"tokens": "int32[0]"})
    problems: list[str] = []
    conversion = convert(
        saved,
        tmp_path / "skipped",
        columns={"text": "str"},
        on_error="skip",
        watch=lambda progress: problems.extend(map(str, progress.problems)),
    )
    assert (conversion.samples, conversion.skipped, len(problems)) == (11, 1, 1)


def test_damaged_and_missing_datasets_are_errors(saved: Path, tmp_path: Path) -> None:
    datasets.load_from_disk(saved).save_to_disk(tmp_path / "damaged")
    (file,) = (tmp_path / "damaged").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises((CorruptError, UsageError), match=r"damaged: datasets cannot (load|read) it"):
        convert(tmp_path / "damaged", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingError, match=r"empty: datasets cannot load it"):
        convert(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"columns": {"none": "str"}}, "--column names a column that does not exist"),
        ({"drop": ["none"]}, "--drop names a column that does not exist"),
        ({"rename": {"text": "label"}}, "two columns get the same name"),
        ({"revision": "main"}, "revision does not apply to this kind of folder"),
        ({"streaming": True}, "streaming does not apply to this kind of folder"),
        ({"name": "en"}, "name does not apply to this kind of folder"),
    ],
)
def test_options_that_fit_nothing_are_errors(saved: Path, tmp_path: Path, options: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        convert(saved, tmp_path / "out", **options)


def test_several_datasets_and_remote_folders_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give exactly one Hugging Face dataset"):
        mdsx.convert("hf", [str(saved), str(saved)], tmp_path / "out")
    with pytest.raises(UsageError, match="neither a folder on this machine nor a name on the Hub"):
        mdsx.convert("hf", "s3://bucket/data", tmp_path / "out")


# --- what a dataset names, but does not hold


def describe(folder: Path, **config: object) -> Path:
    """Write a README with one configuration into a new folder with a data file."""
    folder.mkdir()
    (folder / "own.jsonl").write_text('{"text": "own"}\n')
    configs = json.dumps([{"config_name": "default", **config}])  # JSON is YAML
    (folder / "README.md").write_text(f"---\nconfigs: {configs}\n---\n")
    return folder


@pytest.mark.parametrize(
    "config",
    [
        {"data_files": "http://127.0.0.1:1/data.jsonl"},
        {"data_files": ["own.jsonl", "/etc/hosts"]},
        {"data_files": [{"split": "train", "path": ["../private.jsonl"]}]},
        {"data_files": "zip://x.jsonl::../private.zip"},
        {"data_files": "./*/../../private.jsonl"},
        {"data_dir": ".."},
        {"data_dir": "hf://datasets/org/name"},
    ],
)
def test_names_in_a_readme_lead_nowhere_else(tmp_path: Path, config: dict[str, object]) -> None:
    (tmp_path / "private.jsonl").write_text('{"text": "private"}\n')
    folder = describe(tmp_path / "data", **config)
    with pytest.raises(UsageError, match="names a file outside its own folder") as raised:
        convert(folder, tmp_path / "out")
    assert raised.value.file == str(folder / "README.md")
    assert "--outside" in str(raised.value.hint)
    (folder / "README.md").rename(folder / "other")
    described = (folder / "other").read_text().removeprefix("---\n").removesuffix("---\n")
    (folder / ".huggingface.yaml").write_text(described)
    with pytest.raises(UsageError, match="names a file outside its own folder"):
        convert(folder, tmp_path / "out")


def test_a_readme_names_files_of_its_folder_or_asked_others(tmp_path: Path) -> None:
    (tmp_path / "private.jsonl").write_text('{"text": "private"}\n')
    convert(describe(tmp_path / "own", data_files="own.jsonl"), tmp_path / "one")
    assert mdsx.Dataset(tmp_path / "one")[0] == {"text": "own"}
    convert(describe(tmp_path / "other", data_files="../private.jsonl"), tmp_path / "two", outside=True)
    assert mdsx.Dataset(tmp_path / "two")[0] == {"text": "private"}


def test_a_saved_dataset_leads_nowhere_else(tmp_path: Path) -> None:
    for name in ("private", "data"):
        datasets.Dataset.from_list([{"text": name}]).save_to_disk(tmp_path / name)
    state = json.loads((tmp_path / "data" / "state.json").read_text())
    state["_data_files"] = [{"filename": "../private/data-00000-of-00001.arrow"}]
    (tmp_path / "data" / "state.json").write_text(json.dumps(state))
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["../private"]}')
    for name in ("data", "dict"):
        with pytest.raises(UsageError, match=r"names a file outside its own folder.*\.\./private"):
            convert(tmp_path / name, tmp_path / f"of-{name}")
    convert(tmp_path / "data", tmp_path / "asked", outside=True)
    assert mdsx.Dataset(tmp_path / "asked")[0] == {"text": "private"}


def test_files_that_can_lead_to_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(UsageError, match="files of the kind hdf5 can refer to other files"):
        convert(tmp_path / "data", tmp_path / "out")


# --- the whole conversion


@pytest.mark.slow
def test_several_processes_and_a_resume_write_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hugging_face, "UNIT", 2**16)
    rows = [{"id": number, "text": hashlib.sha256(b"%d" % number).hexdigest() * 8} for number in range(1000)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "data")
    options: Any = {"shard_size": "64KiB"}
    convert(tmp_path / "data", tmp_path / "one", **options)
    convert(tmp_path / "data", tmp_path / "two", num_workers=2, **options)

    class StopError(Exception):
        pass

    def stop(progress: mdsx.Progress) -> None:
        if progress.samples > 400:
            raise StopError

    with pytest.raises(StopError):
        convert(tmp_path / "data", tmp_path / "stopped", watch=stop, **options)
    convert(tmp_path / "data", tmp_path / "stopped", **options)
    assert files(tmp_path / "one") == files(tmp_path / "two") == files(tmp_path / "stopped")
    assert [*mdsx.Dataset(tmp_path / "one")] == rows
