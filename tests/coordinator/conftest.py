from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.world import World

MEMORY = "/dev/shm"  # where a sync costs nothing


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield World(Path(folder))
