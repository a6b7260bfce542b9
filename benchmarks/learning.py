"""Learning in rounds: a private step beside torch's plain one, a whole run, and how good its networks are.

`python -m benchmarks.learning` prints accuracies for other choices of `Training`, on three tables.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from benchmarks.harness import Result, Skip, bench, paired_seconds
from cape import Budget, Category, NeuralNetwork, Number, Schema
from cape.blocks.clipped import BITS, Records, clipped_sum
from cape.blocks.network import Network
from cape.core.errors import PrivacyLeakWarning
from cape.engine.consortium import Consortium
from cape.engine.result import Release
from cape.learning import SGD
from cape.noise import SecureStream, discrete_gaussian

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
    records, optimiser = Records(NETWORK, *data(rows)), SGD(RATE)
    stream, place = SecureStream(), [NETWORK.initial(bytes(32))]

    def step() -> Any:
        sums = clipped_sum(place[0], records, CLIP).sums
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


class Labelled(NamedTuple):
    """Rows with a label, public bounds of each column, and the network that is asked of them."""

    x: Any
    label: Any
    bounds: list[tuple[float, float]]
    hidden: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        return [f"x{i}" for i in range(len(self.bounds))]

    @property
    def schema(self) -> Schema:
        classes = tuple(f"class {i}" for i in range(int(self.label.max()) + 1))
        columns = dict(zip(self.names, self.bounds, strict=True))
        numbers = {name: Number(*bound, missing=False) for name, bound in columns.items()}
        return Schema({**numbers, "label": Category(classes, missing=False)})

    def table(self, some: slice) -> pl.DataFrame:
        rows = pl.DataFrame(self.x[some], schema=self.names, orient="row")
        return rows.with_columns(label=pl.Series([f"class {i}" for i in self.label[some]]))


def gaussians(seed: int, rows: int = 10_000, hidden: tuple[int, ...] = (5,)) -> Labelled:
    """Return the paper's classes: 50 columns of unit variance around -0.5 and 0.5."""
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 2, rows)
    x = generator.normal(size=(rows, INPUTS)) + (label - 0.5)[:, None]
    return Labelled(x, label, [(-4.5, 4.5)] * INPUTS, hidden)


def _shuffled(found: Any, seed: int, bounds: list[tuple[float, float]], hidden: int) -> Labelled:
    order = np.random.default_rng(seed).permutation(len(found.target))
    return Labelled(found.data[order], found.target[order], bounds, (hidden,))


def tumours(seed: int) -> Labelled:
    """Return 569 tumours; bounds are 0 and 5% more than the largest value, which people would know."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    return _shuffled(found, seed, [(0.0, 1.05 * most) for most in found.data.max(axis=0)], 5)


def digits(seed: int) -> Labelled:
    """Return 1,797 images of 8 x 8 pixels, of ten digits."""
    from sklearn.datasets import load_digits

    return _shuffled(load_digits(), seed, [(0.0, 16.0)] * 64, 16)


def learn(
    table: Labelled, seed: int, sites: int, scheme: str, epsilon: float, rows: int, **training: Any
) -> Release:
    """Return the release of a network from the first `rows` rows, split evenly, one site colluding."""
    ends = [rows * i // sites for i in range(sites + 1)]
    tables = {f"site {i}": table.table(slice(ends[i], ends[i + 1])) for i in range(sites)}
    consortium = Consortium(tables, table.schema, Budget(epsilon, 1e-5), colluding=1, scheme=scheme)
    asked = NeuralNetwork("label", table.names, hidden=table.hidden, seed=seed, **training)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return consortium.release(asked, 1.0)


@functools.cache
def accuracy(make: Any, seed: int, scheme: str, epsilon: float, training: tuple[Any, ...] = ()) -> float:
    """Return the part of 30% of the rows, put aside, that a network of four sites has right."""
    table = make(seed)
    rows = round(0.7 * len(table.label))
    release = learn(table, seed, 4, scheme, epsilon, rows, **dict(training))
    aside = table.table(slice(rows, None))
    return float((release.model.predict(aside) == aside["label"].to_numpy()).mean())


SEEDS = 10
EPSILONS = (0.1, 0.5, 2.0, 8.0)


def points(scheme: str, epsilon: float) -> Any:
    """Return the paper's network's accuracy in percent, one number for each seed."""
    return np.array([100 * accuracy(gaussians, seed, scheme, epsilon) for seed in range(SEEDS)])


@bench("learning.run")
def whole_run() -> Result:
    """Time of a private run (5 sites, 100 steps, 9,985 parameters, masks) over that without privacy."""
    table = gaussians(1, 5_000, (192,))
    tables = {f"site {i}": table.table(slice(1000 * i, 1000 * i + 1000)) for i in range(5)}
    asked = NeuralNetwork("label", table.names, hidden=table.hidden, epochs=100)

    def run(scheme: str) -> Release:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            consortium = Consortium(tables, table.schema, Budget(2.0, 1e-5), colluding=1, scheme=scheme)
            return consortium.release(asked, 1.0)

    made = run("cape")
    run("none")
    mine, bare = paired_seconds(lambda: run("cape"), lambda: run("none"), repeat=7)
    detail = {
        "parameters": len(made.model.parameters),
        "private_seconds": round(mine, 3),
        "plain_seconds": round(bare, 3),
        "megabytes": round(made.cost.bytes / 1e6, 1),
    }
    return Result(mine / bare, 2.0, "lower", detail=detail)


@bench("learning.network")
def network() -> Result:
    """Points of accuracy that privacy costs the paper's network (50-5-1, four sites) at epsilon 2."""
    private, plain = points("cape", 2.0), points("none", 2.0)
    told = {"private": private.mean(), "worst": private.min(), "plain": plain.mean()}
    detail = {name: round(float(value), 3) for name, value in told.items()}
    return Result(float(plain.mean() - private.mean()), 2.0, "lower", "points", detail)


@bench("learning.network.schemes")
def network_schemes() -> Result:
    """Points of accuracy by which conventional noise is better than cape's, at epsilon 2 (bar) and less."""
    detail = {
        f"epsilon {epsilon:g}": {
            scheme: round(float(points(scheme, epsilon).mean()), 3) for scheme in ("cape", "conventional")
        }
        for epsilon in EPSILONS[:3]
    }
    found = detail["epsilon 2"]
    return Result(found["conventional"] - found["cape"], 1.0, "lower", "points", detail)


@bench("learning.network.epsilon")
def network_epsilon() -> Result:
    """Points of accuracy by which a larger epsilon is worse than the next smaller one, at most."""
    means = [float(points("cape", epsilon).mean()) for epsilon in EPSILONS]
    detail = {f"epsilon {e:g}": round(mean, 3) for e, mean in zip(EPSILONS, means, strict=True)}
    return Result(float(-np.diff(means).min()), 0.2, "lower", "points", detail)


def choices() -> dict[str, dict[str, float]]:
    """Return mean accuracies in percent over three seeds for choices of `Training`, the default first."""
    ways: list[dict[str, Any]] = [{}]
    ways += [{"epochs": n, "rate": rate} for n in (20, 50, 100) for rate in (0.02, 0.05, 0.1, 0.2)]
    ways += [{"clip": 0.2}, {"clip": "adaptive"}, {"epochs": 20, "sampling": 0.1, "rate": 0.02}]
    asked = [(gaussians, 0.5), (gaussians, 2.0), (tumours, 2.0), (tumours, 8.0), (digits, 8.0)]
    found: dict[str, dict[str, float]] = {}
    for way in ways:
        for make, epsilon in asked:
            right = [accuracy(make, seed, "cape", epsilon, tuple(way.items())) for seed in range(3)]
            name = ", ".join(f"{key} {value}" for key, value in way.items()) or "default"
            mean = round(100 * float(np.mean(right)), 2)
            found.setdefault(name, {})[f"{make.__name__}, epsilon {epsilon:g}"] = mean
    return found


if __name__ == "__main__":
    print(json.dumps(choices(), indent=1))
