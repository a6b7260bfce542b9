"""What a deployed site draws comes from nothing that anybody else has, nor from anything that it holds.

Twins are sites with the same bytes in their folders: the same key, policy, rows and ledger. They are asked by
the same bytes, in the same order, through `SiteEndpoint.handle`. Noise or a sample that is computed from what
is public (the run, a name, a line of the ledger), or even from the site's own key, is the same at both.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from cape.blocks import gradient
from cape.engine.calibration import RESOLUTION
from cape.secagg import Aggregator, Finished, Send
from cape.site import Request, SiteFolder, read, wire
from cape.site.endpoint import SiteEndpoint
from tests.world import THREE, World, document

AGES = {"kind": "histogram", "column": "age", "bins": 24, "share": 0.25}
NETWORK = {
    "kind": "neural-network",
    "target": "ill",
    "features": ["age"],
    "hidden": [2],
    "epochs": 2,
    "sampling": 0.5,
    "rows": 1200,
    "share": 0.25,
}


class Twins:
    """One world twice."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "first")
        shutil.copytree(folder / "first", folder / "second")
        self.members = [
            {name: SiteEndpoint(SiteFolder(folder / place / name)) for name in THREE}
            for place in ("first", "second")
        ]

    def messages(self, request: Request) -> list[NDArray[np.int64]]:
        """What site a of each world sends, with a scheme that needs no masks."""
        found = []
        for members in self.members:
            answer = _say(members["a"], wire.Ask(1, request.pack()))
            assert isinstance(answer, wire.Offered), answer
            found.append(np.frombuffer(answer.data, "<i8"))
        return found

    def totals(self, request: Request) -> list[NDArray[np.int64]]:
        """What secure aggregation gives in each world."""
        return [_aggregate(members, request) for members in self.members]


def _say(member: SiteEndpoint, message: Any) -> wire.FromSite:
    return wire.unpack_from_site(member.handle(wire.pack(message)))


def _aggregate(members: dict[str, SiteEndpoint], request: Request) -> NDArray[np.int64]:
    asked = read(request.study, request.number)
    size = asked.session().calibrate()[0].size
    aggregator = Aggregator(request.parameters(asked.setting.parties, size))
    events: tuple[Any, ...] = ()
    for member in members.values():
        offered = _say(member, wire.Ask(1, request.pack()))
        assert isinstance(offered, wire.Offered), offered
        events += aggregator.handle(offered.data)
    for round_ in range(4):
        answers: tuple[Any, ...] = ()
        for event in events if round_ != 1 else aggregator.begin():
            if isinstance(event, Send):
                carried = _say(members[event.to], wire.Carry(1, request.session, event.data))
                assert isinstance(carried, wire.Carried), carried
                answers += aggregator.handle(carried.data)
        events = answers
    (finished,) = [event for event in events if isinstance(event, Finished)]
    return finished.total


@contextmanager
def samples() -> Iterator[list[NDArray[np.int64]]]:
    """Which rows sites draw, in the order in which they do."""
    drawn: list[NDArray[np.int64]] = []
    real = gradient.sample

    def sample(*given: Any) -> NDArray[np.int64]:
        drawn.append(real(*given))
        return drawn[-1]

    with mock.patch.object(gradient, "sample", sample):
        yield drawn


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return Twins(tmp_path)


def require_independent(one: NDArray[np.int64], two: NDArray[np.int64], sites: int) -> None:
    """The exact sums are the same, so the difference is that of two noises, each over so many sites."""
    apart = (one - two) / (RESOLUTION * np.sqrt(2 * sites))
    assert one.size >= 24
    assert np.all(apart != 0)
    low, high = stats.chi2.interval(1 - 1e-9, one.size)
    assert low < apart @ apart < high


@pytest.mark.parametrize("run", [bytes(16), b"the same run yet"], ids=["zeros", "words"])
def test_twins_send_different_noise(twins: Twins, run: bytes):
    request = twins.world.request(document(scheme="conventional", analyses=[AGES]), run=run)
    require_independent(*twins.messages(request), sites=1)


def test_twins_put_different_noise_into_the_masks(twins: Twins):
    request = twins.world.request(document(analyses=[AGES]), run=bytes(16))
    require_independent(*twins.totals(request), sites=len(THREE))


def test_noise_is_fresh_in_every_run_and_stage_of_one_site(twins: Twins):
    study = document(scheme="conventional", analyses=[AGES, AGES])
    first = twins.messages(twins.world.request(study, run=bytes(16)))[0]
    second = twins.messages(twins.world.request(study, run=b"the second run..", number=2))[0]
    require_independent(first, second, sites=1)


def test_sites_with_the_same_rows_send_different_noise(twins: Twins):
    world = twins.world
    for name in THREE[1:]:
        shutil.copy(world.site.path / "rows.csv", world.sites[name].path / "rows.csv")
    request = world.request(document(scheme="conventional", analyses=[AGES]))
    sent = []
    for name in THREE:
        answer = _say(twins.members[0][name], wire.Ask(1, request.pack()))
        assert isinstance(answer, wire.Offered)
        sent.append(np.frombuffer(answer.data, "<i8"))
    for one, two in ((0, 1), (0, 2), (1, 2)):
        require_independent(sent[one], sent[two], sites=1)


@pytest.mark.parametrize("scheme", ["conventional", "cape"])
def test_twins_draw_different_samples(twins: Twins, scheme: str):
    request = twins.world.request(document(scheme=scheme, analyses=[NETWORK]), run=bytes(16))
    with samples() as drawn:
        found = twins.messages(request) if scheme == "conventional" else twins.totals(request)
    assert len(found) == 2
    sites = 1 if scheme == "conventional" else len(THREE)
    assert len(drawn) == 2 * sites
    for site in range(sites):
        one, two = (np.isin(np.arange(400), drawn[place + site]) for place in (0, sites))
        # of 400 rows, each taken with probability 1/2, twins agree on about 200
        assert 100 < (one == two).sum() < 300
        assert 100 < one.sum() < 300
