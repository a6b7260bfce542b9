from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

from cape.blocks import Custom
from cape.core.errors import BudgetExceeded, InvalidInput, TooFewSites
from cape.engine.query import Query, ResumePoint
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import Setting, Stages, slack
from cape.privacy import Budget, dominating_mu, gaussian
from tests.unit.engine.questions import Bins, Rounds
from tests.unit.engine.test_consortium import BUDGET, EDGES, SCHEMA, TABLES, consortium, truth


def stages(analysis, share=0.5, scheme="cape", **options):
    together = consortium(**options)
    setting = Setting(SCHEMA, BUDGET, together.parties, "replace-one")
    return Stages.of(analysis, setting, SCHEMES[scheme](), share)


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "pooled"])
def test_the_stages_together_cost_the_share(scheme):
    made = stages(Rounds("age", EDGES, (1, 0.3, 2)), 0.37, scheme)
    query = Bins("age", EDGES).query(SCHEMA, "replace-one")
    each = [made.scheme.cost_mu(made.calibrate(i, query)[1], made.setting.parties) for i in range(3)]
    assert math.hypot(*each) == pytest.approx(BUDGET.cost(0.37).mu, rel=1e-12)
    assert each[2] / each[0] == pytest.approx(math.sqrt(2))
    assert made.cost(3) == Fraction("0.37")
    assert made.cost(1) + made.share * (made.parts[1] + made.parts[2]) == made.share


def test_every_stage_draws_a_graph_that_may_fail():
    parties = Parties(200, 10, 180)
    setting, scheme = Setting(SCHEMA, BUDGET, parties, "replace-one"), SCHEMES["cape"]()
    once = scheme.failure(parties)
    assert 0 < once < 2.0**-40
    for count in (1, 2, 5):
        made = Stages.of(Rounds("age", EDGES, (1,) * count), setting, scheme, 0.5)
        assert made.guarantee(count).extra == pytest.approx(count * once, rel=1e-9, abs=0)


def test_every_stage_is_answered_with_its_own_noise():
    exact, together = truth(), consortium(key=b"stages")
    asked = Rounds("age", EDGES, (1, 16))
    release = together.release(asked, 1.0)
    stds = [answer.noise[0][0] for answer in asked.answers]
    beside = math.sqrt(1 - 0.05)  # the first also pays for counts of cells outside bounds
    assert beside * stds[0] / stds[1] == pytest.approx(4, rel=1e-2)
    for answer, std in zip(asked.answers, stds, strict=True):
        errors = (answer.sums[0][0] - exact) / std
        assert 0.5 < np.sqrt(np.mean(errors**2)) < 1.6  # 36 bins; twice the noise is rejected
    assert not np.array_equal(asked.answers[0].sums[0][0], asked.answers[1].sums[0][0])
    assert release.model.answers == tuple(asked.answers)
    assert "2 answers" in release.summary()
    assert "differential privacy" in release.summary()
    assert together.budget.remaining == 0


@pytest.mark.parametrize("scheme", ["cape", "cape-gaussian", "conventional", "local", "pooled", "none"])
def test_a_series_of_stages_gives_right_answers_in_every_scheme(scheme, recwarn):
    exact = truth()
    asked = Rounds("age", EDGES, (1,) * 6)
    release = consortium(key=b"series", budget=type(BUDGET)(50.0, 1e-6)).release(asked, 1.0, scheme=scheme)
    if scheme != "local":
        for answer in asked.answers:
            assert np.abs(answer.sums[0][0] - exact).max() <= 6 * answer.noise[0][0]
    assert release.cost.rounds >= 6
    seen = {tuple(answer.sums[0][0]) for answer in asked.answers}
    assert len(seen) == (1 if scheme == "none" else 6)


@pytest.mark.parametrize(
    ("scheme", "round_"), [("cape", "mask"), ("cape", "unmask"), ("cape-gaussian", "message")]
)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_site_that_is_lost_in_one_stage_takes_part_in_the_next(scheme, round_, stage):
    exact = truth()
    asked = Rounds("age", EDGES, (1,) * 4)
    together = consortium(key=b"lost", budget=type(BUDGET)(50.0, 1e-6), min_sites=4, scheme=scheme)
    release = together.release(asked, 1.0, drop={stage: {"b": round_}})
    ages = np.concatenate([t["age"].to_numpy() for name, t in TABLES.items() if name != "b"])
    rest = np.histogram(ages.clip(18, 90), EDGES)[0]
    for number, answer in enumerate(asked.answers):
        lost = number == stage and (scheme, round_) != ("cape", "unmask")  # masked before it was lost
        wanted = rest if lost else exact
        assert np.abs(answer.sums[0][0] - wanted).max() <= 6 * answer.noise[0][0], number
        assert np.abs(answer.sums[0][0] - (exact + rest - wanted)).max() > 20 * answer.noise[0][0]
    assert "b" in release.participants
    assert release.lost == ("b",)
    noise = asked.answers[stage].noise[0][0]
    consortium(key=b"all", budget=type(BUDGET)(50.0, 1e-6), min_sites=4, scheme=scheme).release(asked, 1.0)
    assert release.growth == pytest.approx(noise / asked.answers[stage].noise[0][0])
    assert release.growth > 1.02
    assert f"Lost: b; the noise of the sums is up to {release.growth:.3g} times as large" in str(release)


def test_what_is_not_asked_is_given_back():
    together = consortium()
    release = together.release(Rounds("age", EDGES, (1, 1, 2), ask=2), 0.8)
    assert together.budget.spent == Fraction("0.4")
    assert release.share == pytest.approx(0.4)
    assert release.guarantee.mu == pytest.approx(BUDGET.cost(0.4).mu)


def test_a_run_that_fails_keeps_what_was_released():
    together = consortium(min_sites=5)
    with pytest.raises(InvalidInput, match="gave up") as caught:
        together.release(Rounds("age", EDGES, (1, 1, 2), fail_after=1), 0.8)
    assert together.budget.spent == Fraction("0.2")
    assert "1 of 3 stages had begun" in caught.value.__notes__[0]
    with pytest.raises(TooFewSites):
        together.release(Rounds("age", EDGES, (1, 1, 2)), 0.4, drop={1: {"b": "unmask"}})
    assert together.budget.spent == Fraction("0.4")  # a masked vector had left in the second stage
    with pytest.raises(TooFewSites):
        together.release(Rounds("age", EDGES, (1, 1, 2)), 0.4, drop={0: {"b": "share"}})
    assert together.budget.spent == Fraction("0.4")


def test_a_callback_that_fails_does_not_give_back_the_stage_that_it_was_told_of():
    together = consortium()

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together.release(Rounds("age", EDGES, (1, 1, 2)), 0.8, progress=stop)
    assert together.budget.spent == Fraction("0.2")


def test_progress_tells_what_is_spent_so_far():
    told = []
    together = consortium()
    release = together.release(Rounds("age", EDGES, (1, 1, 2)), 0.8, progress=told.append)
    assert [(p.done, p.of, p.note) for p in told] == [(1, 3, "0"), (2, 3, "1"), (3, 3, "2")]
    assert told[0].epsilon < told[1].epsilon < told[2].epsilon
    assert told[2].epsilon == pytest.approx(release.guarantee.epsilon)


def test_a_run_may_not_ask_more_often_than_it_said():
    together = consortium()
    with pytest.raises(InvalidInput, match="more often"):
        together.release(Rounds("age", EDGES, (1, 1), ask=3), 0.8)
    assert together.budget.spent == Fraction("0.8")


def test_too_little_is_left():
    together = consortium()
    with pytest.raises(BudgetExceeded):
        together.release(Rounds("age", EDGES, (1, 1)), 0.8) and together.release(Rounds("age", EDGES), 0.3)
    assert together.budget.spent == Fraction("0.8")


def test_stages_and_drops_that_make_no_sense():
    with pytest.raises(InvalidInput, match="stages"):
        stages(Rounds("age", EDGES, (1, 0)))
    with pytest.raises(InvalidInput, match="at least one stage"):
        stages(Rounds("age", EDGES, ()))
    with pytest.raises(InvalidInput, match="drop names stage 7"):
        consortium().release(Rounds("age", EDGES), 0.1, drop={7: {"b": "mask"}})
    with pytest.raises(InvalidInput, match="equal size"):
        stages(Rounds("age", EDGES, (1, 2), sampling=0.1))


def test_a_sampled_run_is_covered_by_the_gaussian_that_is_charged():
    asked = Rounds("age", EDGES, (1,) * 50, sampling=0.05)
    made, query = stages(asked, 0.5), asked.query(SCHEMA, "replace-one")
    with pytest.raises(InvalidInput, match="one record alone"):
        made.calibrate(0, query)
    query = replace(query, norm=1.0)
    calibration, local = made.calibrate(0, query)
    multiplier = 1 / made.scheme.cost_mu(local, made.setting.parties)
    assert calibration.local_noise == pytest.approx(local, rel=1e-4)  # per unit of what one record adds
    assert calibration.local_noise > local  # rounding is counted
    cover = dominating_mu(multiplier, 0.05, 50, made.slack)
    assert cover <= math.sqrt(0.5) * made.mu * (1 + 1e-12)
    assert gaussian.delta(BUDGET.epsilon, made.mu) + 2 * made.slack <= BUDGET.delta, "the slack included"
    assert cover == pytest.approx(BUDGET.cost(0.5).mu, rel=2e-3)
    assert made.mu == BUDGET.mu
    assert made.cost(1) == made.cost(50) == Fraction("0.5")  # paid for whole
    promise = made.guarantee(50)
    assert promise.extra >= made.slack > 0
    assert "Sampling" in promise.statement


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-6, 1e-7, 1e-8, 2.1e-9])
def test_slacks_of_a_whole_budget_are_within_what_it_leaves(delta):
    """Also where each is the least that can be computed with."""
    whole = gaussian.delta(1.0, Budget(1.0, delta).mu)
    for many in (1, 3, 100, 10**4):
        try:
            found = slack(delta, 1 / many)
        except InvalidInput:
            assert delta / many < 2e-9
            continue
        assert found >= 1e-12
        assert whole + many * found <= delta


def test_a_query_over_a_sample_must_sample_as_its_analysis_says():
    made = stages(Rounds("age", EDGES, (1,) * 5, sampling=0.05), 0.5)
    query = replace(Rounds("age", EDGES).query(SCHEMA, "replace-one"), norm=1.0)
    with pytest.raises(InvalidInput, match="one block"):
        made.calibrate(0, replace(query, blocks=query.blocks * 2, scales=query.scales * 2))
    block = Custom(lambda batch: batch["age"], ("age",), 1, 1.0, rate=0.5)
    for blocks in ((block,), query.blocks):  # another rate, and every row
        with pytest.raises(InvalidInput, match="sample as its analysis says"):
            made.calibrate(0, replace(query, blocks=blocks))
    with pytest.raises(InvalidInput, match="delta of at least"):
        stages(Rounds("age", EDGES, (1, 1), sampling=0.1), 1e-5).slack  # noqa: B018
    with pytest.raises(InvalidInput, match="sampling"):
        stages(Rounds("age", EDGES, (1, 1), sampling=1e-9))


class Public(Rounds):
    """It begins as if it asked nothing of the tables, and then asks."""

    def conduct(self, schema, neighbours):
        yield Query((), (), 0.0)
        yield self.query(schema, neighbours)
        return []


def test_a_question_that_began_as_public_may_not_ask_for_sums():
    together = consortium()
    with pytest.raises(InvalidInput, match="began as a public question"):
        together.release(Public("age", EDGES, (1, 1)), 0.5)
    assert together.releases == []


class Resumed(Rounds):
    """A run of which some stages were begun elsewhere."""

    def __init__(self, *arguments, begun=None, **options):
        super().__init__(*arguments, **options)
        self.cut_off = begun

    def converse(self, schema, neighbours, terms):
        return self.cut_off, self.conduct(schema, neighbours)


def test_a_run_that_goes_on_pays_for_what_was_begun_elsewhere():
    together = consortium()
    together.release(Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 2), ask=1), 0.8)
    assert together.budget.spent == Fraction("0.8")


def test_a_run_that_goes_on_where_it_began_pays_once():
    together = consortium()
    asked = Resumed("age", EDGES, (1, 1, 2), fail_after=1)
    asked.cut_off = ResumePoint("x", 0)
    with pytest.raises(InvalidInput):
        together.release(asked, 0.8)
    assert together.budget.spent == Fraction("0.2")
    again = Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 1), ask=2)
    together.release(again, 0.8)
    assert together.budget.spent == Fraction("0.8")
    assert gaussian.epsilon(BUDGET.delta, BUDGET.cost(0.8).mu) < BUDGET.epsilon


def test_a_run_that_is_asked_again_from_an_older_copy_pays_again():
    together = consortium()
    together.release(Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 0)), 0.2)
    assert together.budget.spent == Fraction("0.2")
    together.release(Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 1), ask=2), 0.2)
    assert together.budget.spent == Fraction("0.35")
    together.release(Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 3), ask=0), 0.2)
    assert together.budget.spent == Fraction("0.35")  # nothing was left to ask


def test_a_sampled_run_from_an_older_copy_pays_for_all_of_it_again():
    together = consortium()
    for begun, spent in ((0, "0.2"), (2, "0.4"), (4, "0.4"), (1, "0.6")):
        asked = Resumed("age", EDGES, (1,) * 4, begun=ResumePoint("x", begun), ask=4 - begun, sampling=0.5)
        together.release(asked, 0.2)
        assert together.budget.spent == Fraction(spent)


def test_a_run_goes_on_once_at_a_time():
    together = consortium()
    inner = []

    def again(progress):
        with pytest.raises(InvalidInput, match="going on already"):
            together.release(Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 1), ask=2), 0.2)
        inner.append(progress.done)

    together.release(Resumed("age", EDGES, (1, 1, 2), begun=ResumePoint("x", 0)), 0.2, progress=again)
    assert inner == [1, 2, 3]
    assert together.budget.spent == Fraction("0.2")


def test_what_cannot_be_promised_is_not_paid_for():
    together = consortium(budget=type(BUDGET)(1.0, 1e-300))
    with pytest.raises(InvalidInput):
        together.release(Rounds("age", EDGES, (1, 1), sampling=0.1), 0.5)
    assert together.budget.spent == 0


@pytest.mark.parametrize("pure", [None, 1.0])
def test_a_bet_counts_what_is_added_to_delta(pure: float | None):
    plain = ReleaseGuarantee(1.0, 1e-6, "cape", Parties(5, 1, 4), "replace-one", pure=pure)
    won = ndtr(0.5) if pure is None else math.e / (1 + math.e)
    assert plain.bet == pytest.approx(won, abs=1e-12)
    assert replace(plain, extra=0.01).bet == pytest.approx(won + 0.005, abs=1e-12)
    assert replace(plain, mu=math.inf, pure=None).bet == 1.0
