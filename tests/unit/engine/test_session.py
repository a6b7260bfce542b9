"""An analysis driven by hand: no tables, no clock, and the same queries whoever drives it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from cape.analyses import Count
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine import Query
from cape.engine.calibration import RESOLUTION
from cape.engine.schemes import SCHEMES, Cost, Parties, make_scheme
from cape.engine.session import AnalysisSession, StageResult
from cape.engine.stages import Setting, Stages
from cape.privacy import Budget
from tests.unit.engine.questions import Average, Bins, Rounds, Size

SCHEMA = Schema(age=(18, 90))
EDGES = (18.0, 40.0, 60.0, 90.0)


BUDGET = Budget(1.0, 1e-6)


def session(analysis, *, share=0.5, scheme="cape", neighbours="replace-one", budget=BUDGET):
    setting = Setting(SCHEMA, budget, Parties(5, 1, 5), neighbours)
    return AnalysisSession(analysis, Stages.of(analysis, setting, SCHEMES[scheme](), share))


def result(at, value=0, rows=1500, **how):
    return StageResult.of(np.full(at.calibrate()[0].size, value), 5, rows, **how)


def test_an_analysis_goes_from_its_first_query_to_its_release():
    at = session(Average("age"))
    assert (at.stage, at.done, at.free) == (0, False, False)
    at.tell(result(at))
    assert at.done
    release = at.release(["a", "b"], Cost(5, 100, 20, 0.1))
    assert release.value == 54.0  # a sum of 0 is the middle of the bounds
    assert (release.participants, release.rows, release.share) == (("a", "b"), 1500, 0.5)
    assert release.guarantee == at.guarantee(1)


def test_private_numbers_of_rows_are_not_told_even_if_a_result_has_them():
    at = session(Bins("age", EDGES), neighbours="add-remove")
    at.tell(result(at, rows=1500))
    assert at.release(["a", "b"], Cost(5, 100, 20, 0.1)).rows is None


def test_the_same_results_lead_to_the_same_queries():
    """What a coordinator asks, and what a site finds that it is asked, come from one object."""
    one, two = (session(Rounds("age", EDGES, (1, 1, 2))) for _ in range(2))
    while not one.done:
        assert one.pending() == two.pending()
        assert one.calibrate() == two.calibrate()
        told = result(one, value=one.stage << 20)
        one.tell(told)
        two.tell(told)
    assert two.done


def test_noise_is_that_of_the_sites_that_took_part_unless_it_is_stated():
    seen = []
    for told in (result(session(Bins("age", EDGES))), result(session(Bins("age", EDGES)), noise=2.0**21)):
        at = session(Bins("age", EDGES))
        at.tell(told)
        seen.append(at.release("a", Cost(0, 0, 0, 0.0)).estimates[0].privacy)
    assert seen[1] / seen[0] == pytest.approx(2.0**21 / (RESOLUTION * math.sqrt(5)))


def test_what_stages_cost_is_known_before_they_are_asked():
    at = session(Rounds("age", EDGES, (1, 1, 2)), share=0.8)
    assert [at.price(stages) for stages in range(4)] == [0, Fraction(1, 5), Fraction(2, 5), Fraction(4, 5)]
    assert at.guarantee(1).mu < at.guarantee(3).mu


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"total": b""}, "as many numbers as its stage releases"),
        ({"participants": 0}, "participants must be"),
        ({"participants": 6}, "participants must be"),
        ({"rows": None}, "rows must be"),
        ({"rows": -1}, "rows must be"),
        ({"noise": -1.0}, "noise must be"),
        ({"noise": math.nan}, "noise must be"),
    ],
)
def test_results_that_cannot_be_right_are_refused(change, problem):
    at = session(Bins("age", EDGES))
    given = {
        "total": bytes(8 * at.calibrate()[0].size),
        "participants": 5,
        "rows": 1500,
        "noise": None,
    } | change
    with pytest.raises(InvalidInput, match=problem):
        at.tell(StageResult(**given))
    assert at.stage == 0, "and nothing was told"


@pytest.mark.parametrize("noise", [1e300, 1e200, 1e-3])
def test_noise_that_no_sites_make_is_refused_like_any_impossible_total(noise):
    """The law of Laplace noise has a shape, which follows from how many sites made so much of it."""
    setting = Setting(SCHEMA, Budget(1.0), Parties(5, 1, 5), "replace-one")
    asked = Count("age")
    at = AnalysisSession(asked, Stages.of(asked, setting, make_scheme("cape", "laplace"), 0.5))
    with pytest.raises(InvalidInput, match=r"the total of stage 1: no table and no noise of this size"):
        at.tell(result(at, noise=noise))
    assert at.stage == 0, "and nothing was told"
    at.tell(result(at))
    assert at.done


def test_the_ring_is_made_from_what_is_public():
    for neighbours, expected in (("replace-one", [32, 64]), ("add-remove", [64, 64])):
        at = session(Bins("age", EDGES), share=0.01, neighbours=neighbours, budget=Budget(0.01, 1e-6))
        rings = [at.ring(rows).bits for rows in (50, 5 * 10**8)]
        assert rings == expected, "private numbers of rows change nothing"
        assert at.ring(None).bits == 64, "what nobody says is the most that there can be"


def test_keys_are_agreed_once_from_the_second_query_of_a_length_on():
    at = session(Rounds("age", EDGES, (1,) * 5))
    seen = []
    while not at.done:
        seen.append(at.keys())
        assert at.keys() == seen[-1], "asking twice changes nothing"
        at.tell(result(at))
    assert seen == [(0, 1), (1, 4), (1, 4), (1, 4), (1, 4)], "counts of cells outside bounds delay nothing"
    plain = session(Rounds("age", EDGES, (1,) * 5), scheme="conventional")
    plain.tell(result(plain))
    assert plain.keys() == (1, 1)


class Hungry(Bins):
    """Asks one query after another, whatever its stages say; the first may ask nothing."""

    def __init__(self, free=False):
        super().__init__("age", EDGES)
        self.first = Query((), (), 0.0) if free else None

    def conduct(self, schema, neighbours):
        if self.first is not None:
            yield self.first
        while True:
            yield self.query(schema, neighbours)

    def stages(self):
        return (1.0, 1.0)


def test_nothing_is_asked_beyond_the_stages_that_are_paid_for():
    at = session(Hungry())
    at.tell(result(at))
    at.tell(result(at))
    with pytest.raises(InvalidInput, match="asked more often than its 2 stages"):
        at.calibrate()


def test_what_began_as_a_public_question_stays_one():
    at = session(Hungry(free=True))
    assert at.free
    assert at.price(2) == 0
    at.tell(result(at))
    with pytest.raises(InvalidInput, match="began as a public question"):
        at.calibrate()


def test_what_is_public_is_free():
    at = session(Size())
    assert at.free
    at.tell(result(at))
    release = at.release("a", Cost(0, 0, 0, 0.0))
    assert (release.value, release.share, release.guarantee.mu) == (1500, 0.0, 0.0)


def test_an_analysis_that_is_done_asks_nothing_and_one_that_is_not_has_no_release():
    at = session(Average("age"))
    with pytest.raises(InvalidInput, match="is not done"):
        at.release("a", Cost(0, 0, 0, 0.0))
    at.tell(result(at))
    with pytest.raises(InvalidInput, match="nothing left to ask"):
        at.pending()
