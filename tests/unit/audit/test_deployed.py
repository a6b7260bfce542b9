"""Deployed sites in the audit: the real path is played, and what is wrong with it alone is seen."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from cape.audit import deployed
from cape.audit.cases import Case, cases
from cape.audit.game import Game
from cape.audit.pool import Job, Search
from cape.audit.table import judge
from cape.core.errors import CapeError
from cape.engine.calibration import RESOLUTION
from cape.site import Ledger, SiteEndpoint, read

SEED, TESTS = 11, 9
FAST = {case.name: case for case in cases(fast=True) if case.deployed}
FULL = {case.name: case for case in cases(fast=False) if case.deployed}


def played(case: Case, runs: int):
    found = Search(case, SEED)()
    return Job(case, found, 0, 2 * runs, SEED)()


def row_of(case: Case, runs: int):
    return judge(replace(case, runs=runs), played(case, runs), 0, TESTS, True)


def game(case: Case) -> Game:
    found = Search(case, SEED)()
    return Game(
        case.analysis,
        case.scheme,
        found.tables,
        case.budget,
        case.colluding,
        spare=case.spare,
        silent=case.silent,
        forged=case.forged,
    )


def test_both_schemes_lost_sites_and_forged_answers_are_played():
    for table in (FAST, FULL):
        honest = [case for case in table.values() if not case.flag]
        assert {case.scheme for case in honest} == {"cape", "conventional"}
        assert any(case.silent == "mask" for case in honest)
        assert any(case.forged for case in honest)
    assert any(case.forged and case.spare for case in FULL.values())
    assert {case.analysis for case in FULL.values() if case.forged} == {
        "cox",
        "glm",
        "logistic-regression",
        "neural-network",
        "k-means",
    }


@pytest.mark.quick_cases("deployed conventional/mean-60", seconds=6.1)
@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("deployed conventional/mean", 60),
        ("deployed cape/mean, a site lost", 40),
        ("deployed conventional/logistic-regression, forged answers", 40),
    ],
)
def test_the_real_code_is_not_flagged(name: str, runs: int):
    row = row_of(FAST[name], runs)
    assert row.flagged == ()
    assert row.mu_bound < row.claim_mu
    assert FAST[name].reach * row.claim_mu * 0.999 <= row.attained <= row.claim_mu * (1 + 1e-9)


@pytest.mark.one_in(4, seconds=0.4)
@pytest.mark.parametrize("name", [name for name, case in FULL.items() if case.forged and not case.spare])
def test_tables_are_searched_for_what_forged_answers_lead_to(name: str):
    case = FULL[name]
    found = Search(case, SEED)()
    assert found.distance > case.reach * case.mu, "they are as far apart as the row's floor supposes"
    assert found.distance <= case.mu * (1 + 1e-9)


def test_a_run_pays_and_goes_through_the_function_that_a_site_runs():
    case = FAST["deployed cape/mean, a site lost"]
    lines, handled = [], []
    reserve, handle = Ledger.reserve, SiteEndpoint.handle

    def paid(*given):
        lines.append(reserve(*given))
        return lines[-1]

    def watched(member, data):
        handled.append(member.folder.card.name)
        return handle(member, data)

    with mock.patch.object(Ledger, "reserve", paid), mock.patch.object(SiteEndpoint, "handle", watched):
        played(case, 2)
    assert len(lines) == 4 * 2, "two honest sites are left in each of four runs, and each writes a line"
    assert set(handled) == {"site-00", "site-01", "site-02"}
    assert handled.count("site-02") == 4 * 2, "the lost one agreed on keys, and sent no vector"


def test_every_run_sends_the_same_bytes():
    sent: list[list[bytes]] = []
    handle = SiteEndpoint.handle

    def watched(member, data):
        sent[-1].append(data)
        return handle(member, data)

    def run(sites, present, drawn):
        sent.append([])
        return real(sites, present, drawn)

    real = deployed._Sites.run
    with mock.patch.object(SiteEndpoint, "handle", watched), mock.patch.object(deployed._Sites, "run", run):
        played(FAST["deployed conventional/logistic-regression, forged answers"], 2)
    assert len(sent) == 4
    assert sent[0]
    assert all(each == sent[0] for each in sent)


@pytest.mark.one_in(2, seconds=0.9)
@pytest.mark.parametrize("name", ["deployed conventional/mean", "deployed cape/mean, a site lost"])
def test_a_run_repeats_with_its_seed(name):
    one, two = played(FAST[name], 4), played(FAST[name], 4)
    assert np.array_equal(one.views, two.views)
    assert len(np.unique(one.views, axis=0)) == 8


def test_forged_answers_are_not_what_was_released():
    case = FAST["deployed conventional/logistic-regression, forged answers"]
    asked = deployed.forged_questions(game(case))
    assert len(asked) == len(read(deployed.document(game(case)), 1).stages)
    total = np.frombuffer(deployed.forge(case.analysis, 0, asked[0][1], 14, 3).total, "<i8")
    far = np.abs(total) / RESOLUTION
    assert (far > 100).any(), "some numbers are far from what rows and noise could give"


def test_a_site_that_refuses_ends_the_row():
    with (
        mock.patch.object(SiteEndpoint, "_ask", side_effect=RuntimeError),
        pytest.raises(CapeError, match="unexpected answer"),
    ):
        played(FAST["deployed conventional/mean"], 2)


@pytest.mark.slow(5)
def test_many_stages_are_played_with_forged_answers_only():
    case = replace(FAST["deployed conventional/logistic-regression, forged answers"], forged=False)
    with pytest.raises(CapeError, match="only with forged answers"):
        played(case, 2)
