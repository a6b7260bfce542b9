from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest


@pytest.fixture(autouse=True)
def _dask_in_this_thread() -> Iterator[None]:
    """What is tested is the expressions, not Dask's threads, whose first imports race under coverage."""
    with dask.config.set(scheduler="synchronous"):
        yield
