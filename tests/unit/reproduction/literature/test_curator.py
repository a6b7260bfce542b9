"""A trusted curator: the whole budget or nothing, and a statement that says whom one trusts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape.core.errors import InvalidInput
from cape.engine.query import AnalysisResult
from cape.stats.estimates import Estimate
from reproduction.literature import Curator, methods_of
from tests.unit.engine.questions import Average, Bins
from tests.unit.engine.test_consortium import BUDGET, EDGES, SCHEMA, TABLES, consortium


class Asked(Average):
    """A question that a trusted curator can answer by other means as well."""

    kind = "asked"

    def exactly(self, held):
        sums = [table.sums(self.query(held.schema, held.neighbours).blocks) for table in held.tables.values()]
        first = sum(int(each[0][1][0]) for each in sums)
        return AnalysisResult([Estimate(self.column, first * 2.0**-20, math.nan, math.nan)])

    def refusing(self, held):
        raise InvalidInput("this method cannot be asked for that")


@methods_of.register
def _(analysis: Asked):
    return {"exactly": analysis.exactly, "refusing": analysis.refusing}


def test_a_method_for_a_trusted_curator_spends_everything_and_says_whom_one_trusts():
    curator = Curator(TABLES, SCHEMA, BUDGET)
    with pytest.raises(InvalidInput, match="its share must be 1"):
        curator.release(Asked("age"), 0.5, method="exactly")
    with pytest.raises(InvalidInput, match="cannot be asked"):
        curator.release(Asked("age"), 1.0, method="refusing")
    assert curator.budget.spent == 0
    release = curator.release(Asked("age"), 1.0, method="exactly")
    assert curator.budget.remaining == 0
    assert release.guarantee.epsilon == BUDGET.epsilon
    assert "a trusted curator saw every row" in release.guarantee.statement
    assert "mu" not in release.guarantee.statement
    assert "epsilon = 1" in " ".join(str(release).split())  # lines end where the terminal does
    ages = np.concatenate([t["age"].to_numpy() for t in TABLES.values()]).clip(18, 90)
    assert release.value == pytest.approx(((ages - 54) / 36).sum(), abs=0.01)


def test_a_method_that_a_question_does_not_have():
    with pytest.raises(InvalidInput, match="method must be one of none for this question, not 'exactly'"):
        Curator(TABLES, SCHEMA, BUDGET).release(Bins("age", EDGES), 1.0, method="exactly")
    with pytest.raises(InvalidInput, match="method must be one of exactly, refusing, not 'dp-fm'"):
        Curator(TABLES, SCHEMA, BUDGET).release(Asked("age"), 1.0, method="dp-fm")


def test_sites_that_trust_nobody_have_no_such_methods():
    with pytest.raises(InvalidInput, match="scheme must be one of"):
        consortium().release(Asked("age"), 1.0, scheme="exactly")
    with pytest.raises(InvalidInput, match="scheme must be one of"):
        consortium().plan(Asked("age"), 1.0, scheme="exactly")
