"""A private step of gradient descent at a site, against a plain one in torch without privacy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Result, Skip, bench, paired_seconds
from cape.learning import SGD
from cape.noise import SecureStream, discrete_gaussian
from cape.site.gradient import BITS, Records, Workspace, clipped_sum
from cape.site.network import Network

INPUTS, HIDDEN = 50, 64
RATE, CLIP = 0.1, 1.0
NETWORK = Network(INPUTS, (HIDDEN,))


def data(rows: int) -> tuple[Any, Any]:
    """Return x in [-1, 1] and y of 0 or 1, which x says something about."""
    generator = np.random.default_rng(1)
    x = generator.uniform(-1, 1, (rows, INPUTS))
    return x, (x[:, :5].sum(axis=1) + generator.normal(0, 1, rows) > 0).astype(float)


def private_step(rows: int, noise: float = 0.0) -> Callable[[], Any]:
    """Return our step on the network 50-64-1: forward, norms, clipped sum on the grid, noise, update.

    `noise` is the multiplier of the clip; with 0 there is none, as in a site whose noise comes with its
    masks. What is prepared once per table stays outside the step.
    """
    records, workspace, optimiser = Records(NETWORK, *data(rows)), Workspace(NETWORK), SGD(RATE)
    stream, place = SecureStream(), [NETWORK.initial(bytes(32))]

    def step() -> Any:
        sums = clipped_sum(NETWORK, place[0], records, CLIP, workspace=workspace).sums
        unit = CLIP / rows * 2.0**-BITS
        if noise:
            sums >>= BITS // 2
            sums += discrete_gaussian(noise * 2.0 ** (BITS // 2), sums.size, stream)
            unit *= 2.0 ** (BITS // 2)
        place[0] = optimiser.step(place[0], sums * unit)
        return place[0]

    return step


def plain_step(rows: int) -> Callable[[], Any]:
    """Return torch's step on the same network and table, in float32."""
    if importlib.util.find_spec("torch") is None:
        raise Skip("torch is not installed: pip install torch==2.13.0")
    import torch

    torch.set_num_threads(1)
    x, y = (torch.tensor(part, dtype=torch.float32) for part in data(rows))
    y = y[:, None]
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))
    optimiser, criterion = torch.optim.SGD(model.parameters(), lr=RATE), torch.nn.BCEWithLogitsLoss()

    def step() -> Any:
        optimiser.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimiser.step()
        return loss

    return step


def compare(rows: int, bar: float, repeat: int) -> Result:
    """Time of our private step as a multiple of torch's plain one, one thread each."""
    theirs = plain_step(rows)  # first: it says so if torch is missing
    mine, reference = paired_seconds(private_step(rows), theirs, repeat=repeat)
    detail = {"microseconds": round(mine * 1e6), "torch_microseconds": round(reference * 1e6)}
    return Result(mine / reference, bar, "lower", detail=detail)


bench("learning.step.1000")(lambda: compare(1_000, 1.3, 1500))
bench("learning.step.10000")(lambda: compare(10_000, 1.8, 250))
