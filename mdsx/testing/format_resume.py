"""A run over any format continues where its state says, and refuses the state of another dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mdsx
from mdsx.testing.format_case import FormatCase


def loader_of(url: str, cache: Path) -> mdsx.Loader:
    return mdsx.Loader(url, cache=cache, columns=["id", "text"], batch_size=6)


def read(loader: mdsx.Loader, batches: int | None = None) -> list[Any]:
    found = []
    for number, batch in enumerate(loader, 1):
        found.append((batch["id"].tolist(), batch["text"]))
        if number == batches:
            break
    return found


class Resume(FormatCase):
    """A run continues at its state."""

    @pytest.mark.filterwarnings("ignore:the epoch was left")
    def test_a_run_continues_at_its_state(self, far: str, tmp_path: Path) -> None:
        whole = read(loader_of(far, tmp_path / "a"))
        first = loader_of(far, tmp_path / "b")
        begun = read(first, 4)
        state = json.loads(json.dumps(first.state_dict()))
        second = loader_of(far, tmp_path / "c")
        second.load_state_dict(state)
        assert begun + read(second) == whole

    @pytest.mark.filterwarnings("ignore:the epoch was left")
    def test_a_state_of_another_dataset_is_refused(self, far: str, tmp_path: Path) -> None:
        first, fingerprint = loader_of(far, tmp_path / "cache"), mdsx.Dataset(far).fingerprint
        read(first, 2)
        state = json.dumps(first.state_dict())
        assert fingerprint in state
        second = loader_of(far, tmp_path / "cache")
        with pytest.raises(mdsx.StateError):
            second.load_state_dict(json.loads(state.replace(fingerprint, "0" * 32)))
