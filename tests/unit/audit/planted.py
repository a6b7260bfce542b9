"""Bugs to plant in the real code, one at a time: an audit that does not find them has found nothing.

Each is a context manager that changes one thing while it is open. `PLANTED` has for each the row that it is
planted in, with the check that must flag it, and how many runs of each table that takes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from cape.analyses.registry import KINDS
from cape.audit.cases import Case
from cape.audit.support import float_noise
from cape.blocks import gradient, persons, sampling
from cape.blocks.table import Table
from cape.data import Person
from cape.engine import contribution as engine_contribution
from cape.engine import execute
from cape.engine.calibration import RESOLUTION, Calibration
from cape.engine.contribution import contribution
from cape.engine.query import Query
from cape.engine.schemes import Scheme, messages
from cape.engine.stages import Setting, Stages
from cape.noise import LaplacePart, Part, Ring, SecureStream, discrete_gaussian
from cape.privacy import Budget
from cape.secagg import masks
from cape.secagg import surplus as surplus_module
from cape.secagg.surplus import Surplus, SurplusKey
from cape.site import folder
from cape.site.decide import grant as grant_module
from cape.site.decide.grant import Grant, answer

LESS = 0.95


@contextmanager
def less_noise() -> Iterator[None]:
    """Every site's noise has a scale that is 5% too small."""

    def smaller(vector: NDArray[np.int64], part: Part, stream: SecureStream) -> NDArray[np.int64]:
        if isinstance(part, LaplacePart):
            return vector + replace(part, scale=part.scale * LESS).draw(vector.size, stream)
        return vector + replace(part, std=part.std * LESS).draw(vector.size, stream)

    with mock.patch.object(engine_contribution, "add_noise", smaller):
        yield


@contextmanager
def noise_left_out() -> Iterator[None]:
    """One honest site, not that of the row at stake, adds no noise."""
    real = contribution

    def bare(table: Any, query: Query, calibration: Calibration, **streams: Any) -> NDArray[np.int64]:
        if table.name == "site-01":
            streams["noise"] = None
        return real(table, query, calibration, **streams)

    with mock.patch.object(execute, "contribution", bare):
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

    def add_noise(vector: NDArray[np.int64], part: Part, stream: SecureStream) -> NDArray[np.float64]:
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
        mock.patch.object(engine_contribution, "add_noise", add_noise),
        mock.patch.object(Ring, "encode", as_it_is),
        mock.patch.object(messages, "aggregate", add_up),
    ):
        yield


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

    # The audit draws again what a site draws: with what draws for both.
    with mock.patch.object(gradient, "sample", all_rows), mock.patch.object(sampling, "sample", all_rows):
        yield


@contextmanager
def less_deployed_noise() -> Iterator[None]:
    """A deployed site's noise has a scale that is 10% too small; in one process it is right."""

    def smaller(table: Any, query: Query, calibration: Calibration, **streams: Any) -> NDArray[np.int64]:
        vector = contribution(table, query, calibration, sample=streams["sample"], noise=None)
        return vector + discrete_gaussian(0.9 * RESOLUTION, vector.size, streams["noise"])

    with mock.patch.object(grant_module, "contribution", smaller):
        yield


@contextmanager
def public_noise() -> Iterator[None]:
    """A deployed site's noise is keyed by the run and the site's name, which everyone knows."""

    def keyed(grant: Grant, table: Table, stream: SecureStream | None = None) -> NDArray[np.int64]:
        key = hashlib.sha256(grant.request.run + table.name.encode()).digest()
        return answer(grant, table, SecureStream(key))

    with mock.patch.object(folder, "answer", keyed):
        yield


@contextmanager
def less_surplus() -> Iterator[None]:
    """Surplus noise has a scale that is 3% too small, at sites and at the aggregator alike.

    That is 1.8% of all noise: a histogram of many bins shows it in few runs.
    """
    real = discrete_gaussian

    def smaller(std: float, size: int, stream: SecureStream) -> NDArray[np.int64]:
        return real(std * 0.97, size, stream)

    with (
        mock.patch.object(surplus_module, "discrete_gaussian", smaller),
        mock.patch.dict(KINDS["histogram"].example, {"bins": 512}),
    ):
        yield


@contextmanager
def a_level_too_early() -> Iterator[None]:
    """One part of surplus noise more than may be is given up, and subtracted."""
    real = Surplus.kept

    def fewer(surplus: Surplus, lost: int) -> int:
        return max(0, real(surplus, lost) - 1)

    with mock.patch.object(Surplus, "kept", fewer):
        yield


@contextmanager
def public_surplus() -> Iterator[None]:
    """Surplus noise is keyed by the site's number and the step's, which everyone knows."""

    def known(key: SurplusKey, label: str) -> bytes:
        return hashlib.sha256(f"{label} {key.site} {key.step} {key.level}".encode()).digest()

    with mock.patch.object(SurplusKey, "_derived", known):
        yield


@contextmanager
def rows_of_a_person_ignored() -> Iterator[None]:
    """Noise is that of one row a person."""
    with mock.patch.object(Setting, "of_person", lambda setting, query: query):
        yield


@contextmanager
def sites_of_a_person_ignored() -> Iterator[None]:
    """Noise is that of one site a person."""
    real = Setting.local_std

    def local_std(setting: Setting, scheme: Scheme, share: float) -> float | None:
        alone = replace(setting, schema=setting.schema.of_persons(None))
        return real(alone, scheme, share)

    with mock.patch.object(Setting, "local_std", local_std):
        yield


@contextmanager
def all_rows_of_a_person() -> Iterator[None]:
    """All rows of a person count, with the noise of so many as may."""
    real = persons.Choice.__init__

    def without_end(choice: persons.Choice, schema: Any, key: bytes, **options: Any) -> None:
        real(choice, schema.of_persons(replace(schema.person, rows=1000)), key, **options)

    with mock.patch.object(persons.Choice, "__init__", without_end):
        yield


Bug = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Planted:
    """A bug, and the row that it is planted in; its number of runs is that of the tests."""

    bug: Bug
    case: Case


_MU_ONE = Budget(1.0, 1e-6).mu


def _row(name: str, analysis: str, scheme: str, runs: int, mu: float, flag: str, **more: Any) -> Case:
    return Case(f"bug: {name}", analysis, scheme, runs, mu, flag=flag, **more)


_RATIO = "likelihood ratio"
_SAMPLED = "neural-network, sampled"
_LOST: dict[str, Any] = {"sites": 6, "spare": 3, "silent": "mask"}  # surplus is 3/5 of the variance then
PLANTED = {
    planted.case.name.removeprefix("bug: "): planted
    for planted in (
        Planted(less_noise, _row("noise scale -5%", "mean", "cape", 450, 3.0, "noise scale")),
        Planted(noise_left_out, _row("a site's noise left out", "mean", "cape", 300, 2.0, _RATIO)),
        Planted(reused_mask, _row("a reused mask", "mean", "cape", 600, 2.0, "learned")),
        Planted(
            skipped_composition, _row("a skipped composition", "neural-network", "cape", 300, 2.0, _RATIO)
        ),
        Planted(no_sample, _row("no sample is drawn", _SAMPLED, "cape", 60, 2.0, _RATIO)),
        Planted(share_ignored, _row("noise that ignores the share", "mean twice", "cape", 250, 2.0, _RATIO)),
        Planted(
            less_deployed_noise,
            _row(
                "a deployed site's noise -10%",
                "quantiles",
                "conventional",
                60,
                2.0,
                "noise scale",
                deployed=True,
            ),
        ),
        Planted(
            public_noise,
            _row(
                "a deployed site's noise is public",
                "mean",
                "conventional",
                60,
                2.0,
                "learned",
                deployed=True,
            ),
        ),
        Planted(
            less_surplus, _row("surplus noise -3%", "histogram", "cape", 60, 2.0, "noise scale", **_LOST)
        ),
        Planted(
            a_level_too_early, _row("a level too early", "mean", "cape", 110, 2.0, "noise scale", **_LOST)
        ),
        Planted(
            public_surplus, _row("surplus noise is public", "mean", "cape", 250, 2.0, "learned", **_LOST)
        ),
        Planted(
            rows_of_a_person_ignored,
            _row("a person's rows are one", "mean", "cape", 40, 2.0, _RATIO, person=Person("p", rows=3)),
        ),
        Planted(
            sites_of_a_person_ignored,
            _row(
                "a person's sites are one",
                "mean",
                "cape",
                60,
                2.0,
                _RATIO,
                person=Person("p", rows=2, sites=2),
            ),
        ),
        Planted(
            all_rows_of_a_person,
            _row("all rows of a person", "mean", "cape", 60, 2.0, _RATIO, person=Person("p", rows=3)),
        ),
        Planted(
            float_sampler,
            _row(
                "a float sampler",
                "mean",
                "pooled",
                150,
                _MU_ONE,
                "support",
                delta=1e-6,
                look="support",
                powered=False,
            ),
        ),
    )
}
