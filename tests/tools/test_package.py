"""The packages: what is in them, and what a stranger reads of them."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import mdsx
from tools.commands import parser
from tools.package import Failed, _run, absolute_links, build, extras, find_python, oldest, project, run

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("package"))


def test_the_version_is_that_of_the_module(built: tuple[Path, Path]) -> None:
    assert [path.name for path in built] == [
        f"mdsx-{mdsx.__version__}.tar.gz",
        f"mdsx-{mdsx.__version__}-py3-none-any.whl",
    ]


def test_no_text_states_the_version_but_the_changelog_and_what_was_measured() -> None:
    texts = {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "pyproject.toml", ROOT / "CITATION.cff"}
    measured = re.compile(r"<!-- (\w+: [\w-]+) -->.*?<!-- end of \1 -->", re.DOTALL)
    said = {path.relative_to(ROOT).as_posix(): measured.sub("", path.read_text("utf-8")) for path in texts}
    assert {name for name, text in said.items() if mdsx.__version__ in text} <= {"CHANGELOG.md"}
    assert f"\n## {mdsx.__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_wheel_has_the_package_alone(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        (about,) = (name for name in names if name.endswith("/METADATA"))
        metadata = Parser().parsestr(wheel.read(about).decode())
    assets = ("base/pages/assets/uplot.js", "view/assets/view.css", "quickstart/assets/page.css")
    there = {"mdsx/__init__.pyi", "mdsx/py.typed", *(f"mdsx/{name}" for name in assets)}
    assert there <= names
    assert {name.split("/")[0] for name in names} == {"mdsx", f"mdsx-{mdsx.__version__}.dist-info"}
    assert {name.split("/licenses/")[1] for name in names if "/licenses/" in name} == {
        "LICENSE",
        "mdsx/base/pages/assets/uplot.LICENSE",
    }
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {url.split(",")[0] for url in metadata.get_all("Project-URL", [])} >= {"Documentation", "Issues"}
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_the_source_distribution_has_its_tests(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {
        "tests/conftest.py",
        "tools/check.py",
        "format-spec.md",
        "constraints.txt",
        "docs/README.md",
        "LICENSE",
    }
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name]


def test_a_tag_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parser().parse_args(["package", "--tag", "v0.0.1"])) == 1
    assert capsys.readouterr().out == f"The tag is v0.0.1, but the version in mdsx/__init__.py is {mdsx.__version__}.\n"


def test_a_command_that_does_not_end_fails_its_test_alone(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no end in 1 s"):
        _run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, timeout=1)


def test_relative_links_lead_to_the_repository() -> None:
    repository = project()["urls"]["Repository"]
    text = "[a](docs/a.md#b), [c](#c), [d](https://d.org)"
    assert absolute_links(text) == f"[a]({repository}/blob/main/docs/a.md#b), [c](#c), [d](https://d.org)"


def test_the_oldest_versions_are_those_of_the_project() -> None:
    assert "numpy==1.26.*" in oldest()
    assert "boto3==1.35.69" in oldest()
    assert {"torch", "parquet", "view"} <= set(extras())
    assert find_python("3.0") is None
