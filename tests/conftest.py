from __future__ import annotations

import hashlib

import pytest
from hypothesis import settings

from cape.noise import SecureStream

settings.register_profile("cape", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("cape")


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> SecureStream:
    """A reproducible stream, another one for every test."""
    return SecureStream(hashlib.sha256(request.node.nodeid.encode()).digest())
