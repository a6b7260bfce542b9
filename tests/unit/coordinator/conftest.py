from __future__ import annotations

from pathlib import Path

import pytest

from tests.world import NAMES, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, NAMES, epsilon=(20.0, 20.0, 20.0))
