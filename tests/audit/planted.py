"""Bugs to plant in the real code, one at a time: an audit that does not find them has found nothing.

Each is a context manager that changes one thing while it is open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cape.blocks import gradient
from cape.blocks.table import Table
from cape.engine.calibration import RESOLUTION, Calibration
from cape.engine.query import Query
from cape.engine.schemes import Scheme, messages
from cape.engine.schemes import cape as ring_masks
from cape.engine.setting import Setting
from cape.engine.stages import Stages
from cape.noise import Ring, SecureStream, discrete_gaussian
from cape.secagg import masks
from cape.steward import folder
from cape.steward.grant import Grant, answer

__all__ = ["BUGS", "LESS", "float_noise"]

_decide = import_module("cape.steward.decide")  # in the package a function has this name
LESS = 0.95
Floats = NDArray[np.float64]


@contextmanager
def less_noise() -> Iterator[None]:
    """Every site's noise has a scale that is 5% too small."""
    real = discrete_gaussian

    def smaller(std: float, size: int, stream: SecureStream) -> NDArray[np.int64]:
        return real(std * LESS, size, stream)

    with mock.patch.object(messages, "discrete_gaussian", smaller):
        yield


@contextmanager
def noise_left_out() -> Iterator[None]:
    """One honest site, not that of the row at stake, adds no noise."""
    real = ring_masks._noisy

    def noisy(task: Any) -> dict[str, NDArray[np.int64]]:
        bare = list(task.vectors)[1]
        return {**real(task), bare: task.vectors[bare]}

    with mock.patch.object(ring_masks, "_noisy", noisy):
        yield


@contextmanager
def reused_mask() -> Iterator[None]:
    """Each pair of sites uses one mask in every run, instead of a fresh one."""

    def same(agreed: bytes, transcript: bytes, site: int, peer: int, step: int = 0) -> bytes:
        return hashlib.sha256(f"pair {sorted((site, peer))}".encode()).digest()

    with mock.patch.object(masks, "pair_key", same):
        yield


@contextmanager
def float_sampler() -> Iterator[None]:
    """Float64 noise is added to the float64 sum, as in a textbook: no grid, no integers."""
    encode, aggregate = Ring.encode, messages.aggregate

    def add_noise(vector: NDArray[np.int64], stream: SecureStream) -> Floats:
        return vector.astype(np.float64) + float_noise(float(RESOLUTION), vector.size, stream)

    def as_it_is(ring: Ring, values: Any) -> Any:
        return values.astype(np.float64) if values.dtype.kind == "f" else encode(ring, values)

    def add_up(ring: Ring, sent: list[Any]) -> Any:
        if not any(one.dtype.kind == "f" for one in sent):
            return aggregate(ring, sent)
        plain = [one if one.dtype.kind == "f" else ring.decode(one).astype(np.float64) for one in sent]
        exact, noisy = plain[1:], plain[0]
        return sum(exact, np.zeros(noisy.size)) + noisy

    with (
        mock.patch.object(messages, "add_noise", add_noise),
        mock.patch.object(Ring, "encode", as_it_is),
        mock.patch.object(messages, "aggregate", add_up),
    ):
        yield


def float_noise(std: float, size: int, stream: SecureStream) -> Floats:
    """Return normal noise as float64, by inversion of 53 uniform bits."""
    uniform = (stream.words(size) >> np.uint64(11)) * 2.0**-53 + 2.0**-54
    return np.asarray(std * ndtri(uniform), np.float64)


@contextmanager
def skipped_composition() -> Iterator[None]:
    """Each stage of an analysis takes the whole share, as if it were alone."""
    real = Stages.calibrate

    def calibrate(stages: Stages, stage: int, query: Query) -> tuple[Calibration, float]:
        return real(replace(stages, parts=(Fraction(1),) * len(stages.parts)), stage, query)

    with mock.patch.object(Stages, "calibrate", calibrate):
        yield


@contextmanager
def share_ignored() -> Iterator[None]:
    """Every release, and every stage of one, has the noise that the whole budget buys."""
    real = Setting.local_std

    def local_std(setting: Setting, scheme: Scheme, share: float) -> float | None:
        return real(setting, scheme, 1.0)

    with mock.patch.object(Setting, "local_std", local_std):
        yield


@contextmanager
def no_sample() -> Iterator[None]:
    """Every row takes part in every step, with noise that is calibrated for a sample."""

    def all_rows(stream: SecureStream, rows: int, rate: float) -> NDArray[np.int64]:
        return np.arange(rows)

    with mock.patch.object(gradient, "sample", all_rows):
        yield


@contextmanager
def less_deployed_noise() -> Iterator[None]:
    """A deployed site's noise has a scale that is 10% too small; in one process it is right."""

    def smaller(vector: NDArray[np.int64], stream: SecureStream) -> NDArray[np.int64]:
        return vector + discrete_gaussian(0.9 * RESOLUTION, vector.size, stream)

    with mock.patch.object(_decide, "add_noise", smaller):
        yield


@contextmanager
def public_noise() -> Iterator[None]:
    """A deployed site's noise is keyed by the run and the site's name, which everyone knows."""

    def keyed(grant: Grant, table: Table, stream: SecureStream | None = None) -> NDArray[np.int64]:
        key = hashlib.sha256(grant.request.run + table.name.encode()).digest()
        return answer(grant, table, SecureStream(key))

    with mock.patch.object(folder, "answer", keyed):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "noise scale -5%": less_noise,
    "a site's noise left out": noise_left_out,
    "a reused mask": reused_mask,
    "a float sampler": float_sampler,
    "a skipped composition": skipped_composition,
    "no sample is drawn": no_sample,
    "noise that ignores the share": share_ignored,
    "a deployed site's noise -10%": less_deployed_noise,
    "a deployed site's noise is public": public_noise,
}
