"""The source distribution has the package without its tests, which need the checkout around them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_source_distribution_has_the_package_and_no_tests(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("mdsx", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    (made,) = (tmp_path / "dist").iterdir()
    with tarfile.open(made) as tar:
        names = [name.partition("/")[2] for name in tar.getnames()]
    assert {
        "mdsx/__init__.py",
        "mdsx/__init__.pyi",
        "mdsx/py.typed",
        "mdsx/base/pages/assets/uplot.js",
        "LICENSE",
    } <= set(names)
    assert not [name for name in names if name.startswith("tests")]
