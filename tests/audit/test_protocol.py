"""Every attack is refused or paid for; and with a defence taken away, the attack that it holds off wins.

Tests are named after attacks. A fault is planted in the real code while an attack plays, and the verdict must
tell what was won: what a site gives away then, the referee sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib import import_module

import pytest

from cape.audit import attacks, protocol
from cape.audit.attacks import ATTACKS, again, asked, keys, lists, rounds, sums
from cape.audit.attacks.attack import Attack, attack
from cape.audit.attacks.verdict import Verdict
from cape.audit.rounding import Check
from cape.release.schemes import Parties
from cape.secagg import Aggregator, Site, SiteState, states
from cape.secagg import messages as m
from cape.secagg.keys import Verifier
from cape.steward import Ledger, Request, member, wire
from cape.steward import review as policy_review
from tests.secagg.planted import same_keys_in_every_step

Patch = pytest.MonkeyPatch
Planted = Callable[[Patch], None]
steward = import_module("cape.steward.decide")  # the package has a function of this name


@pytest.fixture
def wins(monkeypatch: Patch) -> Callable[[Attack, Planted], str]:
    """A function that plays an attack with a fault planted, and returns what it has won."""

    def played(one: Attack, planted: Planted) -> str:
        with monkeypatch.context() as patch:
            planted(patch)
            verdict = protocol.verdict_on(one)
        assert verdict.won, str(verdict)
        assert not verdict.holds
        return str(verdict)

    return played


@pytest.mark.parametrize("one", ATTACKS, ids=[one.name.replace(" ", "_") for one in ATTACKS])
def test_refused_or_paid_for(one: Attack):
    verdict = protocol.verdict_on(one)
    assert verdict.holds, str(verdict)
    assert "WON" not in str(verdict)
    assert len(one.wants) > 30


def test_play_lists_every_attack(monkeypatch: Patch):
    monkeypatch.setattr(protocol, "ATTACKS", ATTACKS[:2])
    told: list[str] = []
    found = protocol.play(told.append)
    assert all(isinstance(check, Check) and check.holds for check in found)
    assert [check.name for check in found] == told == ["no attack", "a key of its own on the roster"]
    assert found[0].found.startswith("paid for (4 vectors left, 4 lines of ledgers")
    assert "1 sum" in found[0].found
    assert found[1].found == "refused (roster 3, signature 3)"


def test_names_are_told_apart():
    assert len({one.name for one in ATTACKS}) == len(ATTACKS) > 40


def test_an_attack_that_tries_nothing_does_not_count():
    assert not Verdict((), (), 0, 0, 0, Fraction(0)).holds

    @attack
    def idle(world):
        """Do nothing."""

    assert str(protocol.verdict_on(idle)) == "nothing was tried"


# Faults.


def nothing_is_signed(patch: Patch) -> None:
    patch.setattr(Verifier, "check", lambda *arguments: None)


def requests_need_no_signature(patch: Patch) -> None:
    patch.setattr(Request, "verify", lambda self: None)


def any_roster(patch: Patch) -> None:
    patch.setattr(steward, "check_roster", lambda *arguments: None)


def any_parties(patch: Patch) -> None:
    patch.setattr(policy_review, "_check_parties", lambda *arguments: None)


def the_threshold_of_a_curious_aggregator(patch: Patch) -> None:
    patch.setattr(Parties, "threshold", property(lambda self: 3))
    patch.setattr(Parties, "lying", property(lambda self: True))
    patch.setattr("cape.secagg.parameters.smallest_threshold", lambda *arguments, **more: 2)


def a_site_signs_two_lists(patch: Patch) -> None:
    """It takes a second list of survivors after the first, and forgets nothing."""
    again = {(state, m.Survivors): SiteState.AGREED for state in (SiteState.AGREED, SiteState.DONE)}
    patch.setattr(states, "TRANSITIONS", dict(states.TRANSITIONS) | again)
    patch.setattr(Site, "_forget_before", lambda self, step: self._chain.advance(step))
    patch.setattr(member._Session, "over", False)
    real = Site.handle

    def handle(self: Site, data: bytes) -> bytes:
        back = self._transcript
        if self.state in (SiteState.AGREED, SiteState.DONE) and b"survivors" in data[:16]:
            self._transcript = m.at_step(self._setup or b"", self._step)
        try:
            return real(self, data)
        except Exception:
            self._transcript = back
            raise

    patch.setattr(Site, "handle", handle)


def one_line_pays_for_all(patch: Patch) -> None:
    """A run that is in the ledger is answered again, and its sessions may be opened again."""
    real = Ledger.reserve
    patch.setattr(
        Ledger,
        "reserve",
        lambda self, entry, limits=(): 1 if self.begun(entry.run) else real(self, entry, limits),
    )
    patch.setattr(Ledger, "has", lambda self, run, stage: False)
    patch.setattr(Ledger, "runs", property(lambda self: set()))


def no_limits(patch: Patch) -> None:
    patch.setattr(Ledger, "_check", lambda *arguments: None)
    patch.setattr(again, "_MOST", 5)


def studies_without_a_budget(patch: Patch) -> None:
    """The policy's limits alone count."""
    patch.setattr(steward, "limits_of", lambda policy, asked, study_hash: policy.limits)


def closed_runs_go_on(patch: Patch) -> None:
    patch.setattr(Ledger, "close", lambda self, run: None)


def the_grid_of_the_request(patch: Patch) -> None:
    real = steward._measure

    def measure(conversations, request, asked):
        query, calibration, local_std = real(conversations, request, asked)
        grid = request.grid or [(step.bits, step.factor) for step in calibration.steps]
        steps = [
            replace(step, bits=bits, factor=factor)
            for step, (bits, factor) in zip(calibration.steps, grid, strict=True)
        ]
        return query, replace(calibration, steps=tuple(steps)), local_std

    patch.setattr(steward, "_measure", measure)
    patch.setattr(steward, "same_grid", lambda *arguments: None)


def no_noise(patch: Patch) -> None:
    patch.setattr(steward, "add_noise", lambda vector, stream: vector)


def a_tenth_of_the_price(patch: Patch) -> None:
    real = steward.price

    def cheap(*arguments):
        cost, once = real(*arguments)
        return replace(cost, mu_squared=cost.mu_squared / 10), once

    patch.setattr(steward, "price", cheap)


def any_bounds(patch: Patch) -> None:
    for module in (steward, policy_review):
        patch.setattr(module, "check_columns", lambda *arguments: None)


def inquiries_need_no_signature(patch: Patch) -> None:
    patch.setattr(wire.Inquiry, "verify", lambda self: None)


def any_seed(patch: Patch) -> None:
    patch.setattr(Aggregator, "_opens_commitment", lambda *arguments: True)


def any_key(patch: Patch) -> None:
    patch.setattr(Aggregator, "_has_public_key", lambda *arguments: True)


def any_number_of_survivors(patch: Patch) -> None:
    """Beside two lists, lists of any length: what two sites that collude with each other would sign."""
    a_site_signs_two_lists(patch)
    for check in ("_require_enough", "_require_committee"):
        patch.setattr(Site, check, lambda *arguments: None)


def any_threshold(patch: Patch) -> None:
    any_parties(patch)
    patch.setattr("cape.secagg.parameters.smallest_threshold", lambda *arguments, **more: 2)


def a_vector_is_masked_twice(patch: Patch) -> None:
    """It keeps its vector and its secrets after it has masked it, and takes a second delivery."""
    patch.setattr(
        states, "TRANSITIONS", dict(states.TRANSITIONS) | {(SiteState.MASKED, m.Delivery): SiteState.MASKED}
    )
    real = Site._mask

    def mask(self: Site, message: m.Delivery | m.Begin) -> bytes:
        vector, link = self._vector, self._chain._link
        answer = real(self, message)
        self._vector, self._chain._link, self._chain.step = vector, link, self._step
        return answer

    patch.setattr(Site, "_mask", mask)


def less_noise_for_whoever_says_so(patch: Patch) -> None:
    real = steward._measure

    def measure(conversations, request, asked):
        query, calibration, local_std = real(conversations, request, asked)
        said = any(request.earlier) and any(request.earlier[0].total)
        return query, calibration, local_std / 2 if said else local_std

    patch.setattr(steward, "_measure", measure)
    patch.setattr(policy_review, "_CLOSE", 10.0)


# Attacks that win with them.


def test_keys_of_its_own_between_the_sites(wins):
    assert "the sum over a alone" in wins(keys.keys_of_its_own_between_the_sites, nothing_is_signed)


def test_a_key_of_its_own_on_the_roster(wins):
    assert "the sum over a + b alone" in wins(keys.a_key_of_its_own_on_the_roster, any_roster)


def test_a_site_left_out_of_the_roster(wins):
    assert "the sum over a + b alone" in wins(keys.a_site_left_out_of_the_roster, any_parties)


def test_two_survivor_sets(wins):
    found = wins(lists.two_survivor_sets, the_threshold_of_a_curious_aggregator)
    assert "the sum over d alone" in found


def test_a_survivor_counted_as_dropped(wins):
    assert "the sum over d alone" in wins(lists.a_survivor_counted_as_dropped, a_site_signs_two_lists)


def test_drop_lists_that_differ(wins):
    assert "sums of one stage" in wins(lists.drop_lists_that_differ, a_site_signs_two_lists)


def test_too_few_survivors(wins):
    assert "the sum over a alone" in wins(lists.too_few_survivors, any_number_of_survivors)


def test_a_second_delivery(wins):
    assert "a gave 2 vectors and wrote 1 lines" in wins(lists.a_second_delivery, a_vector_is_masked_twice)


def test_seed_of_one_step_and_key_of_another(wins):
    found = wins(lists.seed_of_one_step_and_key_of_another, same_keys_in_every_step)
    assert "the sum over d alone" in found


def test_replay_in_the_same_session(wins):
    assert "answered a message twice" in wins(rounds.replay_in_the_same_session, a_site_signs_two_lists)


def test_replay_in_another_step(wins):
    found = wins(rounds.replay_in_another_step, a_site_signs_two_lists)
    assert "answered a message of another step" in found


def test_steps_backward(wins):
    assert "a gave 3 vectors and wrote 1 lines" in wins(rounds.steps_backward, one_line_pays_for_all)


def test_asked_again_after_a_failure(wins):
    found = wins(again.asked_again_after_a_failure, one_line_pays_for_all)
    assert "a gave" in found
    assert "sums of one stage" in found


def test_asked_again_after_a_restart(wins):
    assert "and wrote 2 lines" in wins(again.asked_again_after_a_restart, one_line_pays_for_all)


def test_asked_from_many_threads_at_once(wins):
    assert "and wrote 2 lines" in wins(again.asked_from_many_threads_at_once, one_line_pays_for_all)


def test_asked_again_until_the_budget_is_out(wins):
    found = wins(again.asked_again_until_the_budget_is_out, no_limits)
    assert "a overdrew the budget of this coordinator" in found
    assert "never ran out" in found
    found = wins(again.asked_again_until_the_budget_is_out, studies_without_a_budget)
    assert "a gave a study more than it states" in found
    assert "a study that was paid for once was answered twice" in found
    assert "overdrew" not in found
    assert "never ran out" not in found


def test_one_run_for_two_analyses(wins):
    assert "and wrote 1 lines" in wins(again.one_run_for_two_analyses, one_line_pays_for_all)


def test_said_to_be_unpaid_and_asked_again(wins):
    found = wins(again.said_to_be_unpaid_and_asked_again, closed_runs_go_on)
    assert "a said that nothing was paid, and gave a vector afterwards" in found


def test_a_trial_sent_as_a_request(wins):
    found = wins(asked.a_trial_sent_as_a_request, requests_need_no_signature)
    assert "a answered what no coordinator signed to be answered" in found


def test_signature_of_another_study(wins):
    found = wins(asked.signature_of_another_study, requests_need_no_signature)
    assert "a answered what no coordinator signed to be answered" in found


def test_request_of_a_stranger(wins):
    found = wins(asked.request_of_a_stranger, requests_need_no_signature)
    assert "a answered what no coordinator signed to be answered" in found


def test_a_stage_asked_again_with_other_answers(wins):
    assert "a gave" in wins(asked.a_stage_asked_again_with_other_answers, one_line_pays_for_all)


def test_less_noise(wins):
    assert "on a grid that is not its own" in wins(asked.less_noise, the_grid_of_the_request)


def test_fewer_honest_sites_than_the_policy(wins):
    assert "the sum over a + b alone" in wins(asked.fewer_honest_sites_than_the_policy, any_threshold)


def test_a_lower_threshold(wins):
    assert "the sum over d alone" in wins(asked.a_lower_threshold, any_threshold)


def test_earlier_answers_made_up(wins):
    found = wins(asked.earlier_answers_made_up, less_noise_for_whoever_says_so)
    assert "the noise depends on answers that the coordinator made up" in found
    assert "paid for less than its noise costs" in found


def test_nobody_colludes(wins):
    assert "paid for less than its noise costs" in wins(asked.nobody_colludes, any_parties)


def test_other_bounds(wins):
    assert "bounds that are not its own" in wins(asked.other_bounds, any_bounds)


def test_inquiry_by_somebody_else(wins):
    assert "told a stranger" in wins(asked.inquiry_by_somebody_else, inquiries_need_no_signature)


def test_forged_commitment(wins):
    assert "a wrong sum was taken for right" in wins(sums.forged_commitment, any_seed)


def test_forged_shares(wins):
    assert "a wrong sum was taken for right" in wins(sums.forged_shares, any_seed)


def test_forged_key(wins):
    assert "a wrong sum was taken for right" in wins(sums.forged_key, any_key)


def test_tampered_on_the_wire(wins):
    assert "a wrong sum was taken for right" in wins(sums.tampered_on_the_wire, nothing_is_signed)


@pytest.mark.parametrize(
    ("fault", "said"),
    [(no_noise, "without its noise"), (a_tenth_of_the_price, "paid for less than its noise costs")],
)
def test_the_referee_looks_at_noise_and_price_without_any_attack(wins, fault: Planted, said: str):
    assert said in wins(attacks.no_attack, fault)
