"""Ray's environment, made when it is first needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.environment import PeerEnvironment


@pytest.fixture(scope="session")
def ray_python() -> Path:
    environment = PeerEnvironment("ray")
    environment.install()
    return environment.python
