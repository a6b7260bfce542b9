"""Each refusal with its code, and what a grant holds."""

from __future__ import annotations

import copy
import math
import pickle
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest

from cape.core.errors import Refused
from cape.engine.calibration import RESOLUTION
from cape.engine.session import StageResult
from cape.noise import SecureStream
from cape.privacy import Budget, gaussian
from cape.secagg import Aggregator, Identity, Roster, Site
from cape.secagg.drive import drive
from cape.site import Code, Grant, Offer, Refusal, answer, read
from cape.site.decide.preview import preview
from cape.site.decide.request import hash_of
from cape.site.keyring import public_text
from tests.world import SECRET, THREE, World, ask, document

WHOLE = Fraction(Budget(1.0, 1e-6).mu) ** 2


def test_a_grant_is_in_the_ledger_already_and_priced_exactly(world: World):
    request = world.request()
    grant = world.granted(request)
    (line,) = world.site.ledger.entries()
    assert line.id == grant.number
    assert (line.study, line.kind, line.coordinator) == ("lungs", "mean", world.office.public)
    assert line.charged.mu_squared == Fraction(1, 4) * WHOLE
    assert grant.paid == line.charged
    assert grant.rows == 400
    assert grant.parameters is not None
    assert (grant.parameters.threshold, grant.parameters.lying) == (3, True)
    # the noise is that of two honest sites of three: the site's own, not the coordinator's
    assert grant.local_std == pytest.approx(1 / math.sqrt(float(line.charged.mu_squared) * 2))


def test_the_whole_way_through_secure_aggregation(world: World):
    request = world.request(document(analyses=[{"kind": "histogram", "column": "sex", "share": 1.0}]))
    grants = {name: world.granted(request, name) for name in THREE}
    vectors = {name: world.sites[name].answer(grant) for name, grant in grants.items()}
    parameters = grants["a"].parameters
    assert parameters is not None
    assert all(grant.parameters == parameters for grant in grants.values())
    machines = {
        name: Site(parameters, name, world.identities[name], claim=world.sites[name].ledger.claim)
        for name in THREE
    }
    outcome = drive(machines, Aggregator(parameters), vectors)
    exact = sum(
        grants[name].calibration.encode(
            tuple(p for ps in world.sites[name].table().sums(grants[name].query.blocks) for p in ps)
        )
        for name in THREE
    )
    assert np.abs(outcome.total - exact).max() < 10 * RESOLUTION * math.sqrt(3)
    assert np.array_equal(outcome.total, sum(vectors.values()))
    with pytest.raises(Refused, match="used before"):
        Site(parameters, "a", world.identities["a"], claim=world.site.ledger.claim)


def test_the_answer_has_the_noise_of_its_own_calibration(world: World):
    analysis = {"kind": "histogram", "column": "age", "bins": 4096, "share": 1.0}
    grant = world.granted(world.request(document(analyses=[analysis])))
    sums = tuple(p for parts in world.site.table().sums(grant.query.blocks) for p in parts)
    noise = answer(grant, world.site.table()) - grant.calibration.encode(sums)

    def fits(values: np.ndarray) -> bool:  # 4096 draws: 1.1% standard error
        return abs(values.std() / RESOLUTION - 1) < 0.06

    assert fits(noise)
    assert not fits(0.9 * noise)
    assert not fits(1.1 * noise)


def test_an_offer_costs_nothing_until_it_is_reserved(world: World):
    request = world.request(document(analyses=[{"kind": "mean", "columns": ["age"], "share": 1.0}]))
    offer = world.site.consider(request.pack())
    assert isinstance(offer, Offer)
    again = world.site.reconsider(offer.request)
    assert isinstance(again, Offer)
    assert not world.site.ledger.entries()
    grant = offer.reserve()
    assert isinstance(grant, Grant)
    assert (grant.number, grant.rows, grant.parameters) == (1, offer.rows, offer.parameters)
    for late in (offer, again):
        found = late.reserve()
        assert isinstance(found, Refusal)
        assert found.code is Code.RUN
    assert len(world.site.ledger.entries()) == 1


def whole(number: int) -> dict:
    """A study that spends all that it states; each number is another study."""
    return document(name=f"lungs {number}", analyses=[{"kind": "mean", "columns": ["age"], "share": 1.0}])


def test_an_offer_may_come_too_late(world: World):
    most = int(gaussian.mu(2.0, 1e-6) ** 2 / gaussian.mu(1.0, 1e-6) ** 2)
    offers = [world.site.consider(world.request(whole(number)).pack()) for number in range(most + 1)]
    *paid, late = [offer.reserve() for offer in offers if isinstance(offer, Offer)]
    assert all(isinstance(each, Grant) for each in paid)
    assert len(paid) == most
    assert isinstance(late, Refusal)
    assert late.code is Code.BUDGET
    assert "of this coordinator for this year" in late.sentence
    assert world.code(world.request(whole(-1))) == "budget", "and the next is not even offered"
    sampled = {"kind": "neural-network", "target": "ill", "features": ["age"], "hidden": [2], "sampling": 0.2}
    found = world.site.consider(world.request(document(analyses=[sampled | {"share": 1.0}])).pack())
    assert isinstance(found, Refusal), "nor one that is paid for as a whole"
    assert found.code is Code.BUDGET
    assert "of this coordinator for this year" in found.sentence


def test_a_grant_answers_once(world: World):
    grant = world.granted(world.request())
    answer(grant, world.site.table())
    with pytest.raises(Refused, match="answers once"):
        answer(grant, world.site.table())
    with pytest.raises(Refused, match="answers once"):
        answer(copy.copy(grant), world.site.table())
    with pytest.raises(TypeError):
        pickle.dumps(grant)
    again = world.site.answer(grant)
    assert isinstance(again, Refusal)


def test_two_grants_have_different_noise(world: World, stream: SecureStream):
    first, second = (answer(world.granted(world.request()), world.site.table(), stream) for _ in range(2))
    assert not np.array_equal(first, second)


BENT = {
    "scheme": ("scheme", {"scheme": "none"}),
    "zero-sum noise that it could not be sure of": ("scheme", {"scheme": "cape-gaussian"}),
    "a curator": ("scheme", {"scheme": "pooled"}),
    "no such scheme": ("request", {"scheme": "capy"}),
    "kind": ("analysis", {"analyses": [{"kind": "variance", "columns": ["age"], "share": 0.1}]}),
    "no such kind": ("request", {"analyses": [{"kind": "cell", "column": "age", "share": 0.1}]}),
    "no share": ("request", {"analyses": [{"kind": "count"}]}),
    "column": ("column", {"analyses": [{"kind": "histogram", "column": "hiv", "share": 0.1}]}),
    "a column in a condition": (
        "column",
        {"analyses": [{"kind": "count", "where": {"hiv": "yes"}, "share": 0.1}]},
    ),
    "a file": (
        "request",
        {
            "analyses": [
                {
                    "kind": "neural-network",
                    "target": "ill",
                    "features": ["age"],
                    "checkpoint": "/tmp/x",
                    "share": 0.1,
                }
            ]
        },
    ),
    "bounds": (
        "schema",
        {"schema": document()["schema"] | {"age": {"low": 18, "high": 91, "missing": True}}},
    ),
    "narrow": (
        "schema",
        {"schema": document()["schema"] | {"age": {"low": 20, "high": 80, "missing": True}}},
    ),
    "missing": (
        "schema",
        {"schema": document()["schema"] | {"age": {"low": 18, "high": 90, "missing": False}}},
    ),
    "no such column here": (
        "column",
        {
            "schema": document()["schema"] | {"new": [0, 1]},
            "analyses": [{"kind": "mean", "columns": ["new"], "share": 1}],
        },
    ),
    "nobody colludes": ("honest", {"colluding": 0}),
    "few honest": ("honest", {"colluding": 2}),
    "few answer": ("honest", {"min_sites": 2}),
    "price": ("release", {"epsilon": 3.0}),
    "no epsilon": ("request", {"epsilon": 0.0}),
    "endless epsilon": ("request", {"epsilon": math.inf}),
    "no such study": ("request", {"surprise": 1}),
    "neighbours": ("request", {"neighbours": "none"}),
    "other sites": ("roster", {"sites": ["a", "b", "d"]}),
}


@pytest.mark.parametrize("what", BENT)
def test_the_policy_refuses(world: World, what: str):
    code, changes = BENT[what]
    good = world.request()
    request = replace(good, study=document(**changes)).signed(world.office)
    assert world.code(request) == code
    assert isinstance(world.decide(good), Grant), "a refusal changes nothing for the next"


def test_a_refusal_names_the_column_whose_bounds_differ(world: World):
    schema = document()["schema"] | {"age": {"low": 18, "high": 91, "missing": True}}
    found = world.decide(world.request(document(schema=schema)))
    assert isinstance(found, Refusal)
    assert "'age'" in found.sentence
    assert "90" not in found.sentence, "the site's own bounds are in its log"
    assert "90.0" in (world.site.path / "site.log").read_text()


def test_bounds_of_columns_that_are_not_used_do_not_matter(world: World):
    schema = {name: document()["schema"][name] for name in ("age", "weight")}
    world.granted(world.request(document(schema=schema | {"other": [0, 1]})))


def test_how_a_column_is_shown_is_the_studys_own_business(world: World):
    shown = {"label": "Age", "unit": "years", "per": 10}
    schema = document()["schema"] | {"age": {"low": 18, "high": 90, "missing": True} | shown}
    study = document(schema=schema)
    world.granted(world.request(study))
    assert hash_of(study) != hash_of(document()), "whoever approves a study approves its labels too"


def test_true_is_no_1(world: World):
    world.edit('sex = ["female", "male"]', "sex = {categories = [0, 1]}")  # [0, 1] would be bounds
    schema = document()["schema"] | {"sex": {"categories": [False, True], "missing": True}}
    study = document(schema=schema, analyses=[{"kind": "histogram", "column": "sex", "share": 0.1}])
    assert world.code(world.request(study)) == "schema"


def test_a_lying_aggregator_must_be_held_off(world: World):
    world.edit("other_honest = 1", "other_honest = 0")
    assert world.code(world.request(document(min_sites=2))) == "threshold"


@pytest.mark.parametrize("key", ["adjacency", "neighbours"])
def test_neighbours_can_be_limited(world: World, key: str):
    world.hide_sizes()
    world.edit("adjacency =", f"{key} =")
    assert world.code(world.request()) == "neighbours"
    grant = world.granted(world.request(document(neighbours="add-remove")))
    assert grant.rows is None, "the number of rows is private there"


def test_who_is_not_trusted_learns_nothing(world: World):
    stranger = Identity()
    request = replace(world.request(), coordinator=stranger.public, study={"x": 1}).signed(stranger)
    assert world.code(request) == "coordinator"


def test_a_tampered_request_is_refused(world: World):
    good = world.request()
    for bent in (
        replace(good, study=document(epsilon=0.5)),
        replace(good, number=2),
        replace(good, grid=good.grid[:-1]),
        replace(good, run=bytes(16)),
        replace(good, signature=bytes(64)),
        replace(good, coordinator=world.other.public),
        replace(good, nonce=bytes(16)),
        replace(good, issued=good.issued - 1),
        replace(good, expires=good.expires + 1),
    ):
        assert world.code(bent) == "signature"
    data = bytearray(good.pack())
    for place in range(0, len(data), 97):
        data[place] ^= 1
        assert world.code(bytes(data)) in {"signature", "request", "coordinator"}
        data[place] ^= 1
    world.granted(good)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x81\xa1a", bytes(96)])
def test_garbage_is_refused(world: World, data: bytes):
    assert world.code(data) == "request"


@pytest.mark.parametrize("data", [b"\xff" * 100, bytes(5000)])
def test_garbage_names_no_key_that_is_trusted(world: World, data: bytes):
    assert world.code(data) == "coordinator"


@pytest.mark.parametrize(
    "changes",
    [
        {"run": b"short"},
        {"stage": -1},
        {"stage": 1},
        {"first": 1},
        {"steps": 0},
        {"bits": 8},
        {"number": 0},
        {"number": 2},
        {"earlier": (StageResult(b"", 1, 1),)},
    ],
)
def test_numbers_that_cannot_be_right_are_refused(world: World, changes: dict):
    assert world.code(replace(world.request(), **changes).signed(world.office)) == "request"


def test_a_coordinator_cannot_ask_for_less_noise(world: World):
    good = world.request()
    finer = tuple((bits, max(1, factor // 2)) for bits, factor in good.grid)
    assert world.code(world.request(grid=finer)) == "noise"
    # the price of a small share with the grid of a large one
    dear = world.request(document(analyses=[{"kind": "mean", "columns": ["age", "weight"], "share": 1.0}]))
    assert dear.grid != good.grid
    assert world.code(world.request(grid=dear.grid)) == "noise"


def test_rosters(world: World):
    own = dict(zip(world.roster.names, world.roster.keys, strict=True))
    stranger = Identity().public

    def with_roster(sites: dict[str, bytes], **changes) -> str:
        pairs = tuple(sites.items())
        study = document(sites=list(sites), **changes)
        return world.code(replace(world.request(), study=study, roster=pairs).signed(world.office))

    assert with_roster(own | {"b": stranger}) == "roster"
    assert with_roster(own | {"d": stranger}) == "roster"
    assert with_roster(own | {"b": own["c"], "c": own["b"]}) == "roster"
    assert with_roster(own | {"a": stranger}) == "roster"
    assert with_roster({"b": own["b"], "c": own["c"]}, min_sites=2) == "roster"
    twice = (*own.items(), ("a", own["a"]))
    assert world.code(replace(world.request(), roster=twice).signed(world.office)) == "roster"


def test_an_expired_policy_answers_nothing(world: World):
    world.edit("2999-12-31", "2020-01-31")
    assert world.code(world.request()) == "expired"


def test_the_last_day_counts(world: World):
    world.edit("2999-12-31", "2020-01-31")
    site = world.site

    def at(now: datetime) -> Grant | Refusal:
        issued = int(now.timestamp())
        decider = replace(site.decider(), clock=lambda: now)
        return decider.decide(world.request(issued=issued, expires=issued + 60).pack())

    assert isinstance(at(datetime(2020, 1, 31, 23, 59, tzinfo=UTC)), Grant)
    late = at(datetime(2020, 2, 1, tzinfo=UTC))
    assert isinstance(late, Refusal)
    assert late.code is Code.EXPIRED


def test_a_run_is_never_accepted_twice(world: World):
    request = world.request()
    world.granted(request)
    assert world.code(request) == "run"
    study = document(analyses=[{"kind": "histogram", "column": "sex", "share": 0.1}])
    assert world.code(world.request(study, run=request.run)) == "run"


def test_one_run_cannot_become_another_in_a_later_stage(world: World):
    study = document(
        analyses=[{"kind": "k-means", "columns": ["age", "weight"], "clusters": 2, "share": 0.1}]
    )
    request = world.request(study)
    world.granted(request)
    talk = read(study, 1).session()
    earlier = StageResult.of(np.zeros(talk.calibrate()[0].size, np.int64), 3, 1200)
    talk.tell(earlier)
    dear = copy.deepcopy(study)
    dear["analyses"][0]["share"] = 0.2
    theirs = read(dear, 1).session()
    theirs.tell(earlier)
    assert world.code(world.request(dear, run=request.run, talk=theirs, earlier=(earlier,))) == "run"
    world.granted(world.request(study, run=request.run, talk=talk, earlier=(earlier,)))


DESCENT = {"kind": "neural-network", "target": "ill", "features": ["age"], "hidden": [2], "epochs": 3}


def test_one_run_cannot_change_its_roster_in_a_later_stage(world: World):
    study = document(analyses=[DESCENT | {"share": 0.5}])
    request = world.request(study)
    world.granted(request)
    talk = read(study, 1).session()
    earlier = StageResult.of(np.zeros(talk.calibrate()[0].size, np.int64), 3, 1200)
    talk.tell(earlier)
    renewed = Identity()
    world.edit(public_text(world.identities["b"].public), public_text(renewed.public))
    keys = {name: identity.public for name, identity in world.identities.items()} | {"b": renewed.public}
    later = ask(study, Roster.of(keys), world.office, run=request.run, talk=talk, earlier=(earlier,))
    assert world.code(later) == "run", "the same sites, and one of them with another key"


def test_runs_at_once_are_asked_their_own_questions(world: World):
    study = document(analyses=[DESCENT | {"share": 0.5}])
    runs = {bytes([number] * 16): read(study | {"name": f"lungs {number}"}, 1).session() for number in (1, 2)}
    for stage in range(3):
        for run, talk in runs.items():
            named, earlier = study | {"name": f"lungs {run[0]}"}, ()
            if stage:  # two submissions, of which each has released something else
                size = talk.calibrate()[0].size
                earlier = (StageResult.of(np.full(size, run[0] << 22), 3, 1200),)
                talk.tell(earlier[0])
            request = world.request(named, run=run, talk=talk, earlier=earlier)
            # A member considers a request when it is asked, and again before it pays: one question.
            offer = world.site.consider(request.pack())
            assert isinstance(offer, Offer), offer
            again = world.site.reconsider(offer.request)
            assert isinstance(again, Offer), again
            for found in (offer, again, again.reserve()):
                assert isinstance(found, Offer | Grant), found
                mine, theirs = (world.site.table().sums(q.blocks) for q in (found.query, talk.query))
                assert all(
                    np.array_equal(a, b)
                    for m, t in zip(mine, theirs, strict=True)
                    for a, b in zip(m, t, strict=True)
                )
    first, second = (talk.query for talk in runs.values())
    (one,), (two,) = (world.site.table().sums(query.blocks) for query in (first, second))
    assert not np.array_equal(one[0], two[0]), "they are different questions by now"


def test_budgets_run_out(world: World):
    most = int(gaussian.mu(2.0, 1e-6) ** 2 / gaussian.mu(1.0, 1e-6) ** 2)
    for number in range(most):
        world.granted(world.request(whole(number)))
    found = world.decide(world.request(whole(most)))
    assert isinstance(found, Refusal)
    assert found.code is Code.BUDGET
    assert "of this coordinator for this year" in found.sentence
    # another coordinator has a budget of its own, until that of the year is spent too
    world.edit("year = {epsilon = 3.0", "year = {epsilon = 2.5")
    left = int((gaussian.mu(2.5, 1e-6) / gaussian.mu(1.0, 1e-6)) ** 2) - most
    assert 0 < left < most
    for number in range(left):
        world.granted(ask(whole(number), world.roster, world.other))
    found = world.decide(ask(whole(left), world.roster, world.other))
    assert isinstance(found, Refusal)
    assert found.code is Code.BUDGET
    assert "of this site for this year" in found.sentence


OWN = "the budget that the study itself states (earlier submissions count) does not cover this release"


def test_a_study_is_answered_once(world: World):
    study = whole(1)
    world.granted(world.request(study))
    again = world.decide(world.request(study))
    assert again == Refusal(Code.BUDGET, OWN)
    assert len(world.site.ledger.entries()) == 1
    world.granted(ask(study, world.roster, world.other))  # another coordinator has its own
    assert world.decide(ask(study, world.roster, world.other)) == Refusal(Code.BUDGET, OWN)
    world.granted(world.request(study | {"description": "another study"}))
    world.granted(world.request(study), "b")  # and so has another site


def test_a_preview_knows_what_a_study_has_been_given(world: World):
    study, site = whole(1), world.site

    def sentences(coordinator: bytes | None) -> list[str | None]:
        found = preview(site.policy, site.ledger, study, coordinator)
        return [each.refusal and each.refusal.sentence for each in found]

    world.granted(world.request(study))
    assert sentences(world.office.public) == [OWN]
    assert sentences(world.other.public) == sentences(None) == [None]


def test_a_study_that_leaves_room_may_be_asked_again(world: World):
    mean = {"kind": "mean", "columns": ["age"], "share": 0.4}
    study = document(analyses=[mean, mean, {"kind": "count", "share": 0.2}])
    for _ in range(2):  # the second time in place of analysis 2, say after a failure
        world.granted(world.request(study, number=1))
    for number in (1, 2):
        assert world.decide(world.request(study, number=number)) == Refusal(Code.BUDGET, OWN)
    world.granted(world.request(study, number=3))  # what costs nothing is never too much


@pytest.mark.quick_cases("mean", seconds=5.3)
@pytest.mark.parametrize("kind", ["mean", "k-means"])
def test_a_coordinator_that_lies_gets_no_more_than_the_study_states(world: World, kind: str):
    """Fresh runs of both analyses and of later stages, from several threads: at most the stated mu²."""
    for key, most in (("release", 1.0), ("coordinator", 2.0), ("year", 3.0)):
        world.edit(f"{key} = {{epsilon = {most}", f"{key} = {{epsilon = 100.0")
    analysis = {"kind": kind, "columns": ["age", "weight"]} | ({"clusters": 2} if kind == "k-means" else {})
    study = document(analyses=[analysis | {"share": 0.3}, analysis | {"share": 0.7}])
    requests = [world.request(study, number=1 + i % 2) for i in range(16)]
    for request in requests[:8] if kind == "k-means" else ():
        talk = read(study, request.number).session()
        made_up = StageResult.of(np.zeros(talk.calibrate()[0].size, np.int64), 3, 1200)
        talk.tell(made_up)
        later = {"number": request.number, "run": request.run, "talk": talk, "earlier": (made_up,)}
        requests.insert(0, world.request(study, **later))
    found: list[Grant | Refusal] = []
    start = threading.Barrier(4)

    def ask_some(part: list) -> None:
        start.wait()
        found.extend(world.site.decide(each.pack()) for each in part)

    threads = [threading.Thread(target=ask_some, args=(requests[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stated = WHOLE
    spent = world.site.ledger.spent().mu_squared
    assert Fraction(7, 10) * stated < spent <= stated
    assert spent == sum(each.paid.mu_squared for each in found if isinstance(each, Grant))
    refused = {each for each in found if isinstance(each, Refusal)}
    assert refused == {Refusal(Code.BUDGET, OWN)}


def test_a_study_that_spends_the_whole_budget_fits_exactly(world: World):
    world.edit("coordinator = {epsilon = 2.0", "coordinator = {epsilon = 1.0")
    shares = [0.1, 0.2, 0.3, 0.15, 0.25]
    study = document(analyses=[{"kind": "mean", "columns": ["age"], "share": share} for share in shares])
    for number in range(1, 6):
        world.granted(world.request(study, number=number))
    tiny = document(analyses=[{"kind": "mean", "columns": ["age"], "share": 1e-9}])
    assert world.code(world.request(tiny)) == "budget"


def test_what_asks_nothing_of_the_table_costs_nothing(world: World):
    grant = world.granted(world.request(document(analyses=[{"kind": "count", "share": 0.5}])))
    assert grant.paid.mu_squared == 0
    assert answer(grant, world.site.table()).size == 0


def test_too_few_rows_and_a_broken_table_look_alike(world: World):
    world.edit("min_rows = 100", "min_rows = 401")
    few = world.decide(world.request())
    world.edit("min_rows = 401", "min_rows = 100")
    (world.site.path / "rows.csv").write_text("age,weight\n1,2\n")
    assert isinstance(few, Refusal)
    broken = world.decide(
        world.request(document(analyses=[{"kind": "histogram", "column": "sex", "share": 0.1}]))
    )
    (world.site.path / "rows.csv").unlink()
    gone = world.decide(world.request())
    assert few == broken == gone
    assert few.code is Code.DATA
    assert "min_rows" in (world.site.path / "site.log").read_text()
    assert not world.site.ledger.entries()


def test_a_table_that_breaks_after_the_grant_is_paid_for(world: World):
    path = world.site.path / "rows.csv"
    text = path.read_text()
    path.write_text(text.replace(",ill,", ",perhaps,", 1))
    study = document(analyses=[{"kind": "histogram", "column": "ill", "share": 0.1}])
    grant = world.granted(world.request(study))
    found = world.site.answer(grant)
    assert isinstance(found, Refusal)
    assert found.code is Code.DATA
    assert "perhaps" not in found.sentence
    assert "perhaps" not in (world.site.path / "site.log").read_text()
    assert len(world.site.ledger.entries()) == 1


def test_a_failure_inside_says_nothing_to_others(world: World):
    def broken():
        raise RuntimeError(f"cell {SECRET}")

    site, lines = world.site, []
    decider = replace(site.decider(), table=broken, log=lines.append)
    found = decider.decide(world.request().pack())
    assert isinstance(found, Refusal)
    assert found.code is Code.SITE
    assert str(SECRET) not in found.sentence + "".join(lines)
    assert "RuntimeError" in lines[0]
    (site.path / "ledger.sqlite").unlink()
    assert world.decide(world.request()).code is Code.SITE  # type: ignore[union-attr]


def test_no_secret_and_no_cell_in_the_log(world: World):
    world.decide(world.request())
    world.decide(world.request(document(name="two\nlines")))
    world.code(world.request(document(scheme="none")))
    log = (world.site.path / "site.log").read_text()
    assert len(log.splitlines()) == 3
    assert all(" office (key " in line for line in log.splitlines()), log
    private = (world.site.path / "identity.key").read_text().strip().rpartition(":")[2]
    assert private not in log
    for secret in (str(SECRET), "400"):  # which may stand in a key's or a run's digits
        assert secret not in re.sub("[0-9a-f]{16,}", "", log)
    assert (world.site.path / "site.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.one_in(3, seconds=0.6)
@pytest.mark.parametrize("scheme", ["cape", "conventional"])
@pytest.mark.parametrize(
    "analysis",
    [
        {"kind": "k-means", "columns": ["age", "weight"], "clusters": 3},
        {"kind": "logistic-regression", "target": "ill", "features": ["age", "sex"]},
        {"kind": "neural-network", "target": "ill", "features": ["age"], "hidden": [2], "epochs": 4},
    ],
    ids=lambda analysis: analysis["kind"],
)
@pytest.mark.filterwarnings("ignore::cape.TooNoisyWarning")
def test_stage_after_stage(world: World, scheme: str, analysis: dict):
    study = document(scheme=scheme, analyses=[analysis | {"share": 1.0}])
    talk, run = read(study, 1).session(), bytes(range(16))
    history: list[StageResult] = []
    while not talk.done:
        total = 0
        for name in THREE:
            # b has kept everything, a forgets (a restart) and needs it all
            if name == "a":
                world.sites["a"] = type(world.site)(world.site.path)
            known = history[-1:] if name != "a" else history
            request = world.request(study, run=run, talk=talk, earlier=tuple(known))
            if name == "a" and len(history) > 1:
                short = world.request(study, run=run, talk=talk, earlier=tuple(history[-1:]))
                assert world.code(short) == "history"
            grant = world.granted(request, name)
            vector = world.sites[name].answer(grant)
            assert isinstance(vector, np.ndarray)
            total = total + vector
        history.append(StageResult.of(total, 3, 1200))
        talk.tell(history[-1])
    assert len(history) == len(read(study, 1).stages)
    whole = WHOLE
    assert world.site.ledger.spent().mu_squared == whole, "the stages add up to the share, exactly"


def test_a_run_over_samples_is_paid_once_by_each_site(world: World):
    analysis = {"kind": "neural-network", "target": "ill", "features": ["age"], "hidden": [2], "epochs": 1}
    study = document(analyses=[analysis | {"sampling": 0.2, "share": 0.5}])
    talk, run, history = read(study, 1).session(), bytes(16), []
    for stage in range(3):
        if stage:  # the site missed the first stage
            request = world.request(study, run=run, talk=talk, earlier=tuple(history))
            world.granted(request)
        history.append(StageResult.of(np.zeros(talk.calibrate()[0].size, np.int64), 3, 1200))
        talk.tell(history[-1])
    first, second = world.site.ledger.entries()
    assert first.charged.mu_squared == Fraction(1, 2) * Fraction(read(study, 1).stages.mu) ** 2 < WHOLE
    assert first.charged.extra == Fraction(read(study, 1).stages.slack) > 0
    assert second.charged.mu_squared == 0


def test_made_up_answers_of_earlier_stages_are_refused_or_harmless(world: World):
    study = document(
        analyses=[{"kind": "logistic-regression", "target": "ill", "features": ["age"], "share": 0.5}]
    )
    talk = read(study, 1).session()
    size = talk.calibrate()[0].size
    good = StageResult.of(np.zeros(size, np.int64), 3, 1200)
    talk.tell(good)
    for bad in (
        StageResult(b"", 3, 1200),
        StageResult(bytes(8 * size + 8), 3, 1200),
        StageResult(bytes(8 * size), 0, 1200),
        StageResult(bytes(8 * size), 4, 1200),
        StageResult(bytes(8 * size), 3, None),
        StageResult(bytes(8 * size), 3, -1),
    ):
        assert world.code(world.request(study, talk=talk, earlier=(bad,))) == "request"
    for value in (-(2**63), 2**63 - 1):
        wild = StageResult.of(np.full(size, value), 3, 1200)
        found = world.decide(world.request(study, talk=talk, earlier=(wild,)))
        assert isinstance(found, Grant) or found.code in {Code.NOISE, Code.REQUEST}


def test_two_studies_at_once_cannot_overdraw(world: World):
    studies = [
        document(name=f"{name}{number}", analyses=[{"kind": "mean", "columns": ["age"], "share": 0.5}])
        for number in range(4)
        for name in ("x", "y")
    ]
    requests = [world.request(studies[i % 8]).pack() for i in range(16)]
    most = int(2 * (gaussian.mu(2.0, 1e-6) / gaussian.mu(1.0, 1e-6)) ** 2)
    found: list[Grant | Refusal] = []
    start = threading.Barrier(4)

    def ask_some(part: list[bytes]) -> None:
        start.wait()
        found.extend(world.site.decide(each) for each in part)

    threads = [threading.Thread(target=ask_some, args=(requests[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    granted = [each for each in found if isinstance(each, Grant)]
    assert len(granted) == most < 16
    limit = (
        "the budget of this coordinator for this year does not cover this release; its steward can raise "
        "coordinator under [budget] in site.toml, or the study can state less"
    )
    assert {each for each in found if isinstance(each, Refusal)} == {Refusal(Code.BUDGET, limit)}
    assert world.site.ledger.spent().mu_squared <= Fraction(gaussian.mu(2.0, 1e-6)) ** 2


def test_roster_order_does_not_matter_to_the_session(world: World):
    run = bytes(range(16))
    grants = []
    for name, order in (("a", 1), ("b", -1)):
        pairs = tuple(zip(world.roster.names, world.roster.keys, strict=True))[::order]
        request = replace(world.request(run=run), roster=pairs).signed(world.office)
        grants.append(world.granted(request, name))
    assert grants[0].parameters == grants[1].parameters
    assert isinstance(grants[0].parameters.roster, Roster)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "model",
    [
        {"coefficients": {"age": 1e308}, "intercept": 1e308},
        {"coefficients": {"hiv=yes": 1.0}},
        {"coefficients": {"age": math.nan}},
        {"coefficients": {"age": 1.0}, "columns": {"age": {"sql": "hiv"}}},
    ],
)
def test_a_model_that_does_not_fit_is_refused_as_part_of_the_request(world: World, model: dict[str, object]):
    analyses = [
        {"kind": "logistic-regression", "target": "ill", "features": ["age"], "share": 0.1},
        {"kind": "evaluate", "model": 1, "share": 0.1},
    ]
    request = world.request(document(analyses=analyses), number=2, model=model)
    assert world.code(request) == Code.REQUEST
