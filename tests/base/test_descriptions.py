"""A description in a file is read whole: no key twice, no unknown field."""

from __future__ import annotations

from pathlib import Path

import pytest

import mdsx
from mdsx.base.descriptions import fields, read_description


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", '{"phases": {"0": {}, "1B": {}}}'), ("a.toml", "[phases]\n0 = {}\n1B = {}\n")]
)
def test_json_and_toml_give_the_same(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_description(tmp_path / name) == {"phases": {"0": {}, "1B": {}}}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.json", b'{"components": {"web": 1, "web": 2}}', "not valid JSON.*duplicate key 'web'"),
        ("a.toml", b"[components]\nweb = 1\nweb = 2\n", "not valid TOML"),
        ("a.json", b'{"components"', "not valid JSON"),
        ("a.json", b"[" * 100_000, "not valid JSON.*nested too deeply"),
        ("a.json", b'"\xff"', "not valid JSON"),
        ("a.toml", b'a = "\xff"', "not valid TOML"),
        ("missing.json", None, "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(mdsx.UsageError, match=message) as caught:
        read_description(tmp_path / name)
    assert caught.value.file == str(tmp_path / name)


def test_a_mixture_and_a_plan_with_a_repeated_key_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mix.json").write_text('{"components": {"web": {"url": "a"}, "web": {"url": "b"}}}')
    with pytest.raises(mdsx.UsageError, match="duplicate key 'web'"):
        mdsx.Mixture.from_json(tmp_path / "mix.json")
    (tmp_path / "plan.json").write_text('{"phases": {"0": {"batch_size": 1}, "0": {"batch_size": 2}}}')
    with pytest.raises(mdsx.UsageError, match="duplicate key '0'"):
        mdsx.Plan.from_json(tmp_path / "plan.json")


@pytest.mark.parametrize(("found", "message"), [([], "not an object"), ({"b": 1}, "unknown field.*'b'")])
def test_other_fields_are_refused(found: object, message: str) -> None:
    with pytest.raises(mdsx.UsageError, match=f"^plan.json: phase 0: {message}"):
        fields(found, ("a",), file="plan.json", place="phase 0")
