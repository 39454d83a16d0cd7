"""What other packages add is found by entry points, and only when it is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mdsx
from mdsx.format import parse_type
from mdsx.storage import open_storage
from mdsx.storage.remote.s3 import S3Storage
from tests.testing.packages import install

CODEC = "def encode(value):\n    return str(value).encode()\ndef decode(data):\n    return data.decode()\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where packages are installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def write(url: Path, kind: str, *values: object) -> None:
    with mdsx.Writer(url, {"id": "int64", "value": kind}) as out:
        for number, value in enumerate(values):
            out.write({"id": number, "value": value})


def test_a_type_of_a_package_is_found(site: Path, tmp_path: Path) -> None:
    install(site, "found-types", {"mdsx.types": {"found-types.Text": "found_types_module"}}, found_types_module=CODEC)
    write(tmp_path / "data", "found-types.Text", "a", 5)
    assert [sample["value"] for sample in mdsx.Dataset(tmp_path / "data")] == ["a", "5"]


def test_what_a_program_registers_comes_before_what_is_installed(site: Path, tmp_path: Path) -> None:
    install(site, "twice", {"mdsx.types": {"twice.Text": "twice_module"}}, twice_module=CODEC)
    mdsx.register("twice.Text", encode=lambda value: b"mine", decode=bytes)
    write(tmp_path / "data", "twice.Text", "a")
    assert mdsx.Dataset(tmp_path / "data")[0]["value"] == b"mine"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("absent", "import nothing_of_this_name", "ModuleNotFoundError"),
        ("failing", "raise RuntimeError('out of order')", "out of order"),
        ("empty", "x = 1", "AttributeError"),
    ],
)
def test_a_broken_package_is_named(site: Path, tmp_path: Path, name: str, text: str, says: str) -> None:
    points = {
        "mdsx.types": {f"{name}.Text": f"{name}_module:Codec"},
        "mdsx.formats": {"broken": f"{name}_module:Format"},
        "mdsx.storages": {name: f"{name}_module:Storage"},
    }
    install(site, name, points, **{f"{name}_module": text})
    (tmp_path / "empty").mkdir()
    with pytest.raises(mdsx.UsageError, match=f"{name}.*{says}.*uninstall {name}"):
        mdsx.Dataset(f"{name}://place")
    with pytest.raises(mdsx.UsageError, match=f"{name}.*{says}.*uninstall {name}"):
        mdsx.Dataset(tmp_path / "empty")
    with pytest.raises(mdsx.UsageError, match=f"{name}.*{says}.*uninstall {name}"):
        write(tmp_path / "data", f"{name}.Text", "a")


def test_the_other_columns_are_read_without_a_broken_package(site: Path, tmp_path: Path) -> None:
    mdsx.register("shaky.Text", encode=lambda text: text.encode(), decode=bytes.decode)
    write(tmp_path / "data", "shaky.Text", "a")
    install(site, "shaky", {"mdsx.types": {"shaky.Text": "shaky_module"}}, shaky_module="raise RuntimeError")
    program = f"""
import mdsx
print(mdsx.Dataset({str(tmp_path / "data")!r}, columns=["id"])[0]["id"])
try:
    mdsx.Dataset({str(tmp_path / "data")!r})[0]
except mdsx.UsageError as error:
    print(error)
"""
    found = run(program, site)
    assert found.splitlines()[0] == "0"
    assert "package shaky cannot be loaded" in found


def run(program: str, site: Path) -> str:
    path = ":".join([str(site), str(Path(mdsx.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_packages_with_one_name_are_an_error(site: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        install(site, f"{name}-storage", {"mdsx.storages": {"both": "json:loads"}})
    with pytest.raises(mdsx.UsageError, match=r"several packages.*'both'.*one-storage and other-storage"):
        mdsx.Dataset("both://place")


def test_a_package_names_only_its_own_types(site: Path) -> None:
    """A package cannot take the types of another one."""
    install(site, "thief", {"mdsx.types": {"owner.Text": "thief_module"}}, thief_module=CODEC)
    assert not parse_type("owner.Text").known
    with pytest.raises(mdsx.UsageError, match="thief"):
        write(site / "data", "owner.Text", "a")


def test_names_of_mdsx_cannot_be_replaced(site: Path, tmp_path: Path) -> None:
    points = {
        "mdsx.types": {"str": "bold_module"},
        "mdsx.storages": {"s3": "bold_module:storage"},
        "mdsx.formats": {"mdsx": "bold_module:Format"},
    }
    install(site, "bold", points, bold_module=f"{CODEC}\nraise SystemExit('loaded')\n")
    write(tmp_path / "data", "str", "a")
    assert mdsx.Dataset(tmp_path / "data")[0]["value"] == "a"
    assert isinstance(open_storage("s3://bucket/x"), S3Storage)


def test_a_format_with_a_name_of_mdsx_is_refused(site: Path, tmp_path: Path) -> None:
    text = "class Format:\n    name, index_key, files = 'mdsx', 'own.json', {}\n"
    install(site, "imitation", {"mdsx.formats": {"imitation": "imitation_module:Format"}}, imitation_module=text)
    (tmp_path / "empty").mkdir()
    with pytest.raises(mdsx.UsageError, match=r"format of the package imitation cannot be used.*'mdsx'"):
        mdsx.Dataset(tmp_path / "empty")


def test_a_storage_gets_its_options_as_they_were_given(site: Path) -> None:
    text = "def storage(url, options):\n    raise ValueError(f'{url} {options}')\n"
    install(site, "asked", {"mdsx.storages": {"asked": "asked_module:storage"}}, asked_module=text)
    with pytest.raises(mdsx.UsageError, match=r"package asked failed: ValueError: asked://x \{'level': '9'\}"):
        mdsx.Dataset("asked://x", storage_options={"level": "9"})


def test_nothing_is_looked_up_for_what_mdsx_has(site: Path, tmp_path: Path) -> None:
    """Opening, reading and streaming an ordinary dataset scans no entry points."""
    write(tmp_path / "data", "str", "a")
    install(
        site, "unasked", {"mdsx.types": {"unasked.A": "unasked_module"}}, unasked_module="raise SystemExit('loaded')"
    )
    program = f"""
import json
import mdsx
from mdsx.base import plugins
data = mdsx.Dataset({str(tmp_path / "data")!r})
[sample for sample in data]
list(mdsx.Loader({str(tmp_path / "data")!r}, batch_size=1))
print(json.dumps(plugins._offers.cache_info().misses))
"""
    assert json.loads(run(program, site)) == 0
