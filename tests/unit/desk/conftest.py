from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio.from_thread import start_blocking_portal

from tests.unit.desk import visitor


@pytest.fixture(scope="session", autouse=True)
def one_loop() -> Iterator[None]:
    """One event loop for all requests: to start one takes longer than a request."""
    with start_blocking_portal() as portal:
        visitor.PORTALS.append(portal)
        yield
        visitor.PORTALS.clear()
