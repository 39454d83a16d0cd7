"""The project's environment is made once, is complete only with its stamp, and is made again after an interruption."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from tools import environment
from tools.environment import CannotInstall, PeerEnvironment, ProjectEnvironment

FAILING = (("install it", ("nothing",)),)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "constraints.txt").write_text("x==1\n")
    return tmp_path


def test_an_environment_is_made_once_and_again_after_a_failure(
    checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pip, which takes ten seconds to install, so that the failing step fails because pip is missing."""
    monkeypatch.setattr("tools.environment.VENV", ("-m", "venv", "--without-pip"))
    environment = ProjectEnvironment(checkout, steps=())
    assert not environment.complete()
    environment.install()
    assert environment.complete()
    assert "ready" in capfd.readouterr().out
    environment.install()
    assert capfd.readouterr().out == ""

    (checkout / "constraints.txt").write_text("x==2\n")
    assert not environment.complete()
    kept = environment.directory / "kept"
    kept.touch()
    environment.install()  # updated, not made again
    assert environment.complete()
    assert kept.exists()

    (checkout / "constraints.txt").write_text("x==3\n")
    with pytest.raises(SystemExit, match="install it: failed with status 1"):
        ProjectEnvironment(checkout, steps=FAILING).install()
    assert "No module named pip" in capfd.readouterr().err
    assert not environment.complete()
    environment.install()
    assert environment.complete()
    assert not kept.exists()  # perhaps half-installed
    assert not ProjectEnvironment(
        checkout.rename(checkout.with_name("moved")), steps=()
    ).complete()  # its scripts name paths


def test_the_environment_of_another_checkout_is_never_emptied_through_a_link(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "kept").touch()
    for link in (tmp_path / "a" / ".venvs", tmp_path / "b" / ".venvs" / "peer"):
        link.parent.mkdir(parents=True)
        link.symlink_to(others)
    (tmp_path / "requirements.txt").touch()
    for root in ("a", "b"):
        with pytest.raises(CannotInstall, match="remove the link"):
            PeerEnvironment("peer", tmp_path / root, tmp_path / "requirements.txt").install()
    assert [path.name for path in others.iterdir()] == ["kept"]


def test_the_environment_needs_only_the_standard_library() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import tools.environment; print(sorted(sys.modules))"
    root = str(Path(environment.__file__).parent.parent)
    bare = [str(Path(sys.executable).resolve()), "-I", "-S", "-c", program, root]
    loaded = subprocess.run(bare, check=True, capture_output=True, text=True).stdout
    assert "tools.environment" in loaded


def test_an_old_python_is_refused_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer"):
        environment.require_python()


Requires = Callable[[str], Sequence[str] | None]
"""The requirements of an installed distribution, from its metadata."""

CUDA = {
    "torch": (
        "cuda-toolkit[cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx]==13.0.3",
        "cuda-bindings<14,>=13.0.3",
        "nvidia-cudnn-cu13==9.20.0.48",
        "nvidia-cusparselt-cu13==0.8.1",
        "nvidia-nccl-cu13==2.29.7",
        "nvidia-nvshmem-cu13==3.4.5",
        "triton==3.7.1",
    ),
    "cuda-toolkit": ("nvidia-cublas==13.1.1.3.*; extra == 'cublas'", "nvidia-nvjitlink<14,>=13.0.88; extra == 'cufft'"),
    "cuda-bindings": ("cuda-pathfinder>=1.4.2",),
    "nvidia-cudnn-cu13": ("nvidia-cublas",),
}
"""What the CUDA build of PyTorch 2.13.0 additionally requires on Linux; shortened."""


def constraints() -> dict[NormalizedName, SpecifierSet]:
    lines = (Path(environment.__file__).parent.parent / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(Requirement(line).name): Requirement(line).specifier for line in lines}


def unpinned(requires: Requires) -> set[NormalizedName]:
    """Return the needed distributions that neither constraints.txt nor a distribution in need of them pins."""
    pinned, seen = {canonicalize_name("mdsx"), *constraints()}, set[str]()
    wanted = [Requirement("mdsx[torch,test]"), Requirement("setuptools")]
    while wanted:
        requirement = wanted.pop()
        if (found := str(requirement)) in seen:
            continue
        seen.add(found)
        extras = requirement.extras or {""}
        wanted += (
            following
            for following in map(Requirement, requires(requirement.name) or ())
            if not following.marker or any(following.marker.evaluate({"extra": extra}) for extra in extras)
        )
        if any(one.operator == "==" for one in requirement.specifier):
            pinned.add(canonicalize_name(requirement.name))
    return {canonicalize_name(Requirement(found).name) for found in seen} - pinned


def test_everything_that_is_installed_is_pinned() -> None:
    """`constraints.txt` or a distribution that needs one exact version pins it."""
    assert all([one.operator for one in pin] == ["=="] for pin in constraints().values())
    assert not unpinned(metadata.requires)


def test_everything_that_cuda_needs_is_pinned() -> None:
    assert constraints()[canonicalize_name("torch")] == "==2.13.0", (
        "copy the requirements of the new version's CUDA build"
    )

    def requires(name: str) -> Sequence[str] | None:
        if name.startswith(("cuda-", "nvidia-", "triton")):
            return CUDA.get(name)
        return (*CUDA.get(name, ()), *(metadata.requires(name) or ()))

    assert not unpinned(requires)
