"""The example for Composer: killed in an epoch and after its last batch, and resumed on other ranks."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.examples.runs import EXAMPLES, killed
from tools.environment import PeerEnvironment

pytestmark = pytest.mark.slow

SAMPLES, EPOCHS = 1003, 2

PROGRAM = """
import json, sys
from pathlib import Path

from tools.peers.mosaicml import declare_operators

declare_operators()

import composer_trainer  # once for all ranks
from tests.examples.runs import Start, run_ranks

data, run = sys.argv[1:]
starts = [Start(2, killed_in=18), Start(2, killed_in=34), Start(3)]  # an epoch has 32 steps on 2 ranks
print(json.dumps([run_ranks("composer_trainer.py", data, Path(run), start) for start in starts]))
"""


def test_composer_resumes_on_other_ranks_exactly_once(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = PeerEnvironment("composer")
    environment.install()
    paths = os.pathsep.join((str(EXAMPLES), str(EXAMPLES.parent)))
    command = [str(environment.python), "-c", PROGRAM, data, str(tmp_path / "run")]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, timeout=280, check=True
    )
    *first, last = json.loads(found.stdout)
    assert all(map(killed, first))
    assert last == [0, 0, 0]
    monkeypatch.syspath_prepend(EXAMPLES)
    module: Any = importlib.import_module("data")
    monkeypatch.delitem(sys.modules, "data")
    assert module.epochs(tmp_path / "run") == [Counter(range(SAMPLES))] * EPOCHS
