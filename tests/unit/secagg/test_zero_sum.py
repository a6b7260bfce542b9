"""Algorithm 1: noise of the survivors that is exactly zero in sum, and a discrete Gaussian alone."""

from __future__ import annotations

import numpy as np
import pytest

from cape.core.errors import BadMessage, InvalidInput, OverflowRisk, Refused
from cape.noise import SecureStream
from cape.secagg import Aggregator, AggregatorState, Finished, Send, ZeroSumSite, drive, zero_sum_gaussian
from cape.secagg import messages as m

KEY = SecureStream(b"\5" * 32)


def stream(label: str) -> SecureStream:
    return KEY.fork(label)


@pytest.mark.parametrize("drop", [{}, {"share": ["0001"]}, {"mask": ["0000", "0004"]}])
@pytest.mark.parametrize("bits", [32, 64])
def test_the_noise_of_the_survivors_is_exactly_zero_in_sum(drop, bits):
    made = zero_sum_gaussian(
        1000.0, 7, 11, iterations=3, bits=bits, drop=drop, colluding=1, stream=stream(f"{drop}{bits}")
    )
    assert set(made.noise) == set(made.outcome.survivors)
    assert all(noise.shape == (3, 11) and noise.dtype == np.int64 for noise in made.noise.values())
    assert not sum(made.noise.values()).any()
    assert made.outcome.total.any()  # the sum was not zero before


def test_each_site_alone_has_the_variance_of_algorithm_1():
    # Var e_s = (1 - 1/S) alpha^2, and two sites have correlation -1/(S - 1).
    alpha, sites = 50.0, 4
    made = zero_sum_gaussian(alpha, sites, 4000, stream=stream("variance"))
    rows = np.array([noise.ravel() for noise in made.noise.values()], float)
    expected = alpha**2 * (np.eye(sites) - 1 / sites)
    covariance = rows @ rows.T / rows.shape[1]
    tolerance = 5 * alpha**2 * np.sqrt(2 / 4000)
    assert np.abs(covariance - expected).max() < tolerance
    assert np.abs(covariance - 1.2 * expected).max() > tolerance  # the test can fail


def test_a_site_that_leaves_before_the_end_has_no_noise_and_is_missed_in_the_sum():
    made = zero_sum_gaussian(100.0, 6, 5, colluding=1, drop={"unmask": ["0002"]}, stream=stream("late"))
    assert "0002" in made.outcome.survivors
    assert "0002" not in made.noise
    assert sum(made.noise.values()).any()


def machines(cast, names="abcde", std=100.0):
    play = cast(len(names), 4)
    sites = {
        name: ZeroSumSite(
            play.parameters, name, play.identities[name], std, stream=SecureStream(name.encode() * 32)
        )
        for name in names
    }
    return play, sites


def test_the_pieces_by_hand_as_a_network_driver_would(cast):
    play, sites = machines(cast)
    aggregator = Aggregator(play.parameters)
    pending = [site.start() for site in sites.values()]
    finished = None
    while finished is None:
        events = [event for data in pending for event in aggregator.handle(data)]
        if aggregator.state is AggregatorState.READY:
            for site in sites.values():
                site.begin(0, site.drawn)
            events = aggregator.begin()
        pending = [sites[e.to].handle(e.data) for e in events if isinstance(e, Send)]
        finished = next((e for e in events if isinstance(e, Finished)), None)
    announcement = aggregator.announcement()
    noise = [site.finish(announcement) for site in sites.values()]
    assert not sum(noise).any()
    with pytest.raises(Refused, match="returned once"):
        sites["a"].finish(announcement)
    with pytest.raises(Refused, match="returned once"):
        _ = sites["a"].drawn


def test_an_announcement_of_another_run_or_shape(cast):
    play, sites = machines(cast)
    aggregator = Aggregator(play.parameters)
    with pytest.raises(Refused, match="after it has taken part"):
        sites["a"].finish(b"")
    drive(sites, aggregator, {name: site.drawn for name, site in sites.items()})
    right = aggregator.announcement()
    wrong = m.unpack(right, play.parameters)
    with pytest.raises(Refused, match="not the announcement"):
        sites["a"].finish(play.alter(right, transcript=bytes(32)))
    with pytest.raises(BadMessage, match="does not have the length"):
        sites["a"].finish(play.alter(right, words=wrong.words[:-8]))
    with pytest.raises(BadMessage, match="decoded"):
        sites["a"].finish(right[:-1])
    with pytest.raises(Refused, match="not the announcement"):
        sites["a"].finish(play.alter(right, transcript=bytes(32)))
    assert sites["a"].finish(right).shape == (4,)


def test_noise_that_could_wrap_is_refused():
    with pytest.raises(OverflowRisk):
        zero_sum_gaussian(2.0**28, 5, 2, bits=32)


@pytest.mark.parametrize("bad", [{"iterations": 0}, {"length": 0}, {"sites": 1}, {"std": 0.0}])
def test_wrong_use(bad):
    arguments = {"std": 10.0, "sites": 4, "length": 3, **bad}
    with pytest.raises(InvalidInput):
        zero_sum_gaussian(**arguments)


def test_sites_by_name():
    made = zero_sum_gaussian(10.0, ["north", "south", "west"], 2, colluding=0)
    assert set(made.noise) == {"north", "south", "west"}
