from __future__ import annotations

import hashlib
import os
import shutil
import tempfile

import pytest
from hypothesis import settings

from cape.noise import SecureStream

settings.register_profile("cape", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("cape")

MEMORY = "/dev/shm"  # where a sync costs nothing; what a killed process has written is still there
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 1 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> SecureStream:
    """A reproducible stream, another one for every test."""
    return SecureStream(hashlib.sha256(request.node.nodeid.encode()).digest())
