"""What GitHub reads: workflows, templates, the citation. They are valid, safe, and call commands that run here."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.commands import parser

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "ISSUE_TEMPLATE" / "wish.yml"],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}
INSTALLED = {'pip install -c constraints.txt ".[torch]"', "mdsx quickstart"}
"""Commands of the workflows that `python3 -m tools package` runs here in its own words."""


def run(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_is_what_github_expects(schema: str) -> None:
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *SCHEMAS[schema])


def test_workflows_are_safe() -> None:
    """Actions are pinned by hash, tokens have the least rights, and nothing of a stranger is executed."""
    run(Path(sysconfig.get_path("scripts"), "zizmor"), "--offline", "--no-progress", GITHUB)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_command_of_this_checkout(workflow: Path) -> None:
    for command in re.findall(r"run: (.+)", workflow.read_text(encoding="utf-8")):
        if command not in INSTALLED:
            assert command.startswith("python3 -m tools ")
            parser().parse_args(command.split()[3:])


def test_the_organisation_is_stated_once() -> None:
    url = re.search(r'Repository = "https://github.com/([\w-]+)/mdsx"', (ROOT / "pyproject.toml").read_text())
    assert url is not None
    folders = (".github", "docs", "mdsx", "tools", "examples")
    files = [*ROOT.glob("*.*"), *(path for folder in folders for path in (ROOT / folder).rglob("*.*"))]
    texts = [path for path in files if path.suffix in (".md", ".py", ".toml", ".yml", ".cff", ".txt", ".html", ".js")]
    if (ROOT / "PKG-INFO").exists():  # the README of a source distribution has the links of PyPI's page
        texts.remove(ROOT / "README.md")
    naming = [path for path in texts if f"{url[1]}/" in path.read_text(encoding="utf-8")]
    assert naming == [ROOT / "pyproject.toml"]
