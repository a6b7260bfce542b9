from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _double():
    """Compare in float64, with one thread and the same numbers each time."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
