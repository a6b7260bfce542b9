"""What a request may cost a site before anybody has approved it or paid for it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import numpy as np
import pytest

from assurance.inputs.hostile import HOSTILE, Hostile, forged
from cape.core.errors import InvalidInput
from cape.engine.session import AnalysisSession, StageResult
from cape.learning.kmeans import KMeans
from cape.site import Code, Offer, Refusal, read
from cape.site.decide.preview import preview
from cape.site.decide.review import takes_long
from cape.site.persons import Person
from tests.world import World, ask, document

STEWARD = Person("steward")


def clusters(many: int) -> dict:
    return document(
        analyses=[{"kind": "k-means", "columns": ["age", "weight"], "clusters": many, "share": 0.25}]
    )


def trial(world: World, study: dict, **changes):
    """A trial that was signed without computing what is asked."""
    plain = ask(document(), world.roster, world.office)
    return replace(plain, study=study, trial=True, **changes).signed(world.office)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the sessions that were begun."""
    begun: list[str] = []
    real = AnalysisSession.__init__

    def spy(self: AnalysisSession, analysis, *args, **options) -> None:
        begun.append(analysis.kind)
        real(self, analysis, *args, **options)

    monkeypatch.setattr(AnalysisSession, "__init__", spy)
    return begun


@pytest.mark.parametrize("approve", ["auto", "ask"])
def test_what_takes_long_is_held_before_it_is_computed(world: World, computed: list[str], approve: str):
    world.edit('approve = "auto"', f'approve = "{approve}"')
    answer = world.site.consider(trial(world, clusters(450)).pack())
    assert isinstance(answer, Refusal)
    assert answer.code is Code.APPROVAL
    assert "analysis 1 may take more than a second" in answer.sentence
    assert "k-means" not in computed
    (held,) = world.site.approvals.studies("waiting")
    assert held.study == clusters(450)


def test_what_is_quick_is_judged_at_once(world: World, computed: list[str]):
    request = world.request(clusters(3))
    computed.clear()
    assert isinstance(world.site.consider(request.pack()), Offer)
    assert computed == ["k-means"]


def test_it_is_computed_once_it_is_approved(world: World):
    study = clusters(80)
    asked = world.site.consider(trial(world, study).pack())
    assert isinstance(asked, Refusal)
    (held,) = world.site.approvals.studies("waiting")
    world.site.approvals.approve(held, STEWARD)
    assert isinstance(world.site.consider(world.request(study).pack()), Offer)


def test_a_refused_study_stays_refused(world: World, computed: list[str]):
    world.site.consider(trial(world, clusters(450)).pack())
    (held,) = world.site.approvals.studies("waiting")
    world.site.approvals.refuse(held, STEWARD)
    answer = world.site.consider(trial(world, clusters(450)).pack())
    assert isinstance(answer, Refusal)
    assert answer.code is Code.STEWARD
    assert "k-means" not in computed


def test_it_is_not_computed_for_a_budget_that_does_not_cover_it(world: World, computed: list[str]):
    world.site.consider(trial(world, clusters(450)).pack())
    (held,) = world.site.approvals.studies("waiting")
    world.site.approvals.approve(held, STEWARD)
    for number, share in enumerate([1.0] * 6 + [0.1] * 10):  # all of the budget goes to others
        mean = {"kind": "mean", "columns": ["age"], "share": share}
        world.site.decide(world.request(document(description=str(number), analyses=[mean])).pack())
    computed.clear()
    answer = world.site.consider(trial(world, clusters(450)).pack())
    assert isinstance(answer, Refusal)
    assert answer.code is Code.BUDGET
    assert "k-means" not in computed


def test_a_kind_that_is_not_allowed_does_not_bother_the_steward(world: World):
    tables = {"kind": "tables", "columns": ["sex", "ill"], "share": 0.25, "ways": 2}
    many = document(
        analyses=[{"kind": "k-means", "columns": ["age"], "clusters": 900, "share": 0.25}, tables]
    )
    world.edit('"k-means", ', "")
    answer = world.site.consider(trial(world, many).pack())
    assert isinstance(answer, Refusal)
    assert answer.code is Code.ANALYSIS
    assert not world.site.approvals.studies("waiting")


def test_forged_results_are_not_computed_before_approval(world: World, computed: list[str]):
    network = {"kind": "neural-network", "target": "ill", "features": ["sex"], "hidden": [2], "epochs": 3000}
    study = document(analyses=[network | {"share": 0.25, "rows": 1000}])
    session = read(study, 1).session()
    result = StageResult.of(np.zeros(session.calibrate()[0].size), 3, 1000)
    computed.clear()
    for results, code in ((2000, Code.APPROVAL), (2, Code.NOISE)):
        earlier = (result,) * results
        request = trial(world, study, stage=results, first=results, earlier=earlier)
        answer = world.site.consider(request.pack())
        assert isinstance(answer, Refusal)
        assert answer.code is code
    assert computed.count("neural-network") == 1


def test_a_run_that_is_paid_for_goes_on_without_another_approval(world: World):
    study = clusters(80)
    world.site.consider(trial(world, study).pack())
    (held,) = world.site.approvals.studies("waiting")
    world.site.approvals.approve(held, STEWARD)
    session = read(study, 1).session()
    request = world.request(study, talk=session)
    world.granted(request)
    world.site.approvals.end()  # the policy says "auto": the run may go on
    size = session.calibrate()[0].size
    first = StageResult.of(np.arange(size), 3, 1624)
    session.tell(first)
    later = ask(study, world.roster, world.office, run=request.run, talk=session, earlier=(first,))
    assert isinstance(world.site.consider(later.pack()), Offer)


def test_a_question_that_is_computed_delays_no_other(world: World, monkeypatch: pytest.MonkeyPatch):
    """A session is made while another one is being made."""
    slow, quick = world.request(clusters(3)), world.request()
    began, go_on = threading.Event(), threading.Event()
    real = KMeans.places

    def places(self: KMeans, schema):
        began.set()
        assert go_on.wait(60)
        return real(self, schema)

    monkeypatch.setattr(KMeans, "places", places)
    answers: list[Offer | Refusal] = []
    thread = threading.Thread(target=lambda: answers.append(world.site.consider(slow.pack())))
    thread.start()
    try:
        assert began.wait(60)
        assert isinstance(world.site.consider(quick.pack()), Offer)
        assert answers == []
    finally:
        go_on.set()
        thread.join()
    assert isinstance(answers[0], Offer)


def test_a_trial_does_not_take_the_session_of_a_run(world: World):
    study = clusters(3)
    session = read(study, 1).session()
    request = world.request(study, talk=session)
    world.granted(request)
    world.site.consider(replace(request, trial=True).signed(world.office).pack())
    first = StageResult.of(np.arange(session.calibrate()[0].size), 3, 1624)
    session.tell(first)
    later = ask(study, world.roster, world.office, run=request.run, talk=session, earlier=(first,))
    assert isinstance(world.site.consider(later.pack()), Offer)


def test_a_preview_says_what_is_judged_later(world: World, computed: list[str]):
    (verdict,) = preview(world.site.policy, world.site.ledger, clusters(450), world.office.public)
    assert verdict.description.endswith("(its columns are checked once it is approved)")
    assert verdict.cost.mu_squared > 0
    assert verdict.refusal is None
    assert "k-means" not in computed


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
@pytest.mark.one_in(4, seconds=1)
@pytest.mark.slow_cases(
    "binomial, 399 features, forged",
    "multinomial, 399 features, forged",
    "negative-binomial, 399 features, forged",
    "a mixed model, 399 features, forged",
    seconds=5,
)
def test_every_hostile_study_is_known_to_be_long_or_is_quickly_asked(hostile: Hostile):
    """`benchmarks edge.cost` measures the rest."""
    with contextlib.suppress(InvalidInput):
        asked = read(hostile.study(), 1)
        assert asked.stages.effort(asked.analysis, [len(each.total) // 8 for each in forged(hostile)]) >= 0
        assert takes_long(asked) or asked.query is not None


@pytest.mark.parametrize("results", [0, 1])
def test_more_clusters_columns_and_results_take_longer(results: int):
    def effort(many: int, columns: list[str]) -> float:
        study = document(analyses=[{"kind": "k-means", "columns": columns, "clusters": many, "share": 0.25}])
        asked = read(study, 1)
        return asked.stages.effort(asked.analysis, [1000] * results)

    assert effort(10, ["age"]) < effort(20, ["age"]) < effort(20, ["age", "weight"])
    assert effort(200, ["age", "weight"]) > 1


@pytest.mark.parametrize("many", [4, 9])
def test_a_regression_on_many_categories_waits_as_its_query_is_decomposed(many: int):
    wards = [f"c{place}" for place in range(many)]  # of 200 categories each
    model = {"kind": "logistic-regression", "target": "t0", "features": wards}
    assert takes_long(read(Hostile("wide", model).study(), 1)) == (many == 9)
