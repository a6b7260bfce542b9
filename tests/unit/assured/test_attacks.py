"""Every attack is refused or paid for; and with a defence taken away, the attack that it holds off wins.

A fault is planted in the real code while an attack plays, and the verdict must tell what was won: what a site
gives away then, the referee sees. An attack that no fault lets win could not fail, so there is none.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

from assurance import attacks
from assurance.attacks import ATTACKS, again, asked, keys, levels, lists, rounds, sums
from assurance.attacks import play as protocol
from assurance.attacks.attack import Attack, attack
from assurance.attacks.verdict import Verdict
from tests.unit.assured import faults
from tests.unit.assured.faults import Patch, Planted
from tests.unit.secagg.planted import same_keys_in_every_step

# An attack, the fault that lets it win, and what the verdict says that it has won.
WINS: list[tuple[Attack, Planted, tuple[str, ...]]] = [
    (attacks.no_attack, faults.no_noise, ("without its noise",)),
    (attacks.no_attack, faults.a_tenth_of_the_price, ("paid for less than its noise costs",)),
    (keys.a_key_of_its_own_on_the_roster, faults.any_roster, ("the sum over a + b alone",)),
    (keys.a_site_left_out_of_the_roster, faults.any_parties, ("the sum over a + b alone",)),
    (
        keys.advertisements_that_differ,
        faults.the_threshold_of_a_curious_aggregator,
        ("the sum over a + b alone", "2 sums of one stage"),
    ),
    (keys.keys_of_its_own_between_the_sites, faults.nothing_is_signed, ("the sum over a alone",)),
    (
        keys.messages_reflected_to_their_sender,
        faults.sealed_alike_both_ways,
        ("a answered its own shares as those of others",),
    ),
    (keys.names_swapped_on_the_roster, faults.any_roster, ("a answered among keys that it does not trust",)),
    (keys.one_site_as_another, faults.nothing_is_signed, ("a answered keys of one site as another's",)),
    (keys.one_site_as_another, faults.lists_that_nobody_signs, ("the sum over d alone",)),
    (lists.a_second_delivery, faults.a_vector_is_masked_twice, ("a gave 2 vectors and wrote 1 lines",)),
    (lists.a_survivor_counted_as_dropped, faults.a_site_signs_two_lists, ("the sum over d alone",)),
    (lists.deliveries_that_differ, faults.the_threshold_of_a_curious_aggregator, ("the sum over a alone",)),
    (lists.drop_lists_that_differ, faults.a_site_signs_two_lists, ("sums of one stage",)),
    (lists.seed_of_one_step_and_key_of_another, same_keys_in_every_step, ("the sum over d alone",)),
    (lists.signatures_of_others_forged, faults.lists_that_nobody_signs, ("the sum over d alone",)),
    (lists.too_few_survivors, faults.any_number_of_survivors, ("the sum over a alone",)),
    (lists.two_survivor_sets, faults.the_threshold_of_a_curious_aggregator, ("the sum over d alone",)),
    (levels.two_levels_of_one_site, faults.a_site_signs_two_lists, ("3 honest sites holds 75%",)),
    (levels.a_level_for_another_list, faults.losses_counted_by_signatures, ("3 honest sites holds 75%",)),
    (
        levels.a_level_before_the_list_is_signed,
        faults.nobody_counts_signatures,
        ("3 honest sites holds 92% of the noise that it must",),
    ),
    (
        levels.a_vanished_site_said_to_be_alive,
        faults.losses_counted_by_the_list,
        ("3 honest sites holds 75%",),
    ),
    (levels.a_site_alive_said_to_be_gone, faults.every_part_is_revealed, ("3 honest sites holds 75%",)),
    (levels.an_old_steps_keys, faults.one_surplus_for_all_steps, ("3 honest sites holds 83%",)),
    (
        levels.sites_that_were_never_there,
        faults.sharers_need_not_advertise,
        ("3 honest sites holds 75%", "5 honest sites holds 62%", "56 honest sites holds 90%"),
    ),
    (levels.sites_that_never_shared, faults.one_helper_is_enough, ("honest sites holds 9",)),
    (
        rounds.replay_in_another_session,
        faults.messages_are_bound_to_nothing,
        ("a answered a message of another session",),
    ),
    (rounds.replay_in_another_step, faults.a_site_signs_two_lists, ("answered a message of another step",)),
    (rounds.replay_in_the_same_session, faults.a_site_signs_two_lists, ("answered a message twice",)),
    (
        rounds.rounds_in_another_order,
        faults.rounds_in_any_order,
        ("a answered round 'consistency' in round 'unmask'",),
    ),
    (rounds.rounds_skipped, faults.rounds_in_any_order, ("a answered without a vector",)),
    (rounds.steps_backward, faults.one_line_pays_for_all, ("a gave 3 vectors and wrote 1 lines",)),
    (again.asked_again_after_a_failure, faults.one_line_pays_for_all, ("a gave", "sums of one stage")),
    (again.asked_again_after_a_restart, faults.one_line_pays_for_all, ("and wrote 2 lines",)),
    (
        again.asked_again_until_the_budget_is_out,
        faults.no_limits,
        ("a overdrew the budget of this coordinator", "never ran out"),
    ),
    (
        again.asked_again_until_the_budget_is_out,
        faults.studies_without_a_budget,
        ("a gave a study more than it states", "a study that was paid for once was answered twice"),
    ),
    (again.kept_and_sent_later, faults.requests_are_forgotten, ("a answered a request that it had refused",)),
    (again.asked_from_many_threads_at_once, faults.one_line_pays_for_all, ("and wrote 2 lines",)),
    (
        again.more_offers_than_the_budget_covers,
        faults.an_offer_holds,
        ("a overdrew the budget of this coordinator",),
    ),
    (again.one_run_for_two_analyses, faults.one_line_pays_for_all, ("and wrote 1 lines",)),
    (
        again.said_to_be_unpaid_and_asked_again,
        faults.closed_runs_go_on,
        ("a said that nothing was paid, and gave a vector afterwards",),
    ),
    (
        again.two_runs_with_other_survivors,
        faults.a_study_is_paid_for_once,
        ("a gave 2 vectors and wrote 1 lines",),
    ),
    (asked.a_lower_threshold, faults.any_threshold, ("the sum over d alone",)),
    (
        asked.a_price_of_its_own_for_each_site,
        faults.one_grid_for_every_price,
        ("a is hidden by less noise than it was paid for",),
    ),
    (asked.a_stage_asked_again_with_other_answers, faults.one_line_pays_for_all, ("a gave",)),
    (
        asked.a_trial_sent_as_a_request,
        faults.requests_need_no_signature,
        ("a answered what no coordinator signed to be answered",),
    ),
    (
        asked.an_approved_study_changed,
        faults.studies_are_approved_by_name,
        ("a study was answered that no steward has seen",),
    ),
    (
        asked.earlier_answers_made_up,
        faults.less_noise_for_whoever_says_so,
        ("the noise depends on answers that the coordinator made up", "paid for less than its noise costs"),
    ),
    (asked.fewer_honest_sites_than_the_policy, faults.any_threshold, ("the sum over a + b alone",)),
    (
        asked.going_on_without_trust,
        faults.an_offer_holds,
        ("a vector left for a coordinator that is not trusted any more",),
    ),
    (
        asked.inquiry_by_another_coordinator,
        faults.a_run_is_anybodys,
        ("a told another coordinator what was paid for", "a run was closed by another coordinator"),
    ),
    (asked.inquiry_by_somebody_else, faults.inquiries_need_no_signature, ("told a stranger",)),
    (asked.less_noise, faults.the_grid_of_the_request, ("on a grid that is not its own",)),
    (asked.nobody_colludes, faults.any_parties, ("paid for less than its noise costs",)),
    (asked.other_bounds, faults.any_bounds, ("bounds that are not its own",)),
    (
        asked.parameters_that_differ,
        faults.parameters_are_bound_to_nothing,
        ("a took keys of sites that were told other parameters",),
    ),
    (
        asked.request_of_a_stranger,
        faults.requests_need_no_signature,
        ("a answered what no coordinator signed to be answered",),
    ),
    (
        asked.run_of_another_coordinator,
        faults.a_run_is_anybodys,
        ("a run was used up by another coordinator",),
    ),
    (
        asked.signature_of_another_study,
        faults.requests_need_no_signature,
        ("a answered what no coordinator signed to be answered",),
    ),
    (sums.forged_commitment, faults.any_seed, ("a wrong sum was taken for right",)),
    (sums.forged_key, faults.any_key, ("a wrong sum was taken for right",)),
    (sums.forged_shares, faults.any_seed, ("a wrong sum was taken for right",)),
    (sums.forged_surplus_key, faults.any_surplus_key, ("a wrong sum was taken for right",)),
    (sums.tampered_on_the_wire, faults.nothing_is_signed, ("a wrong sum was taken for right",)),
]


@cache
def played(one: Attack, planted: Planted) -> Verdict:
    """The verdict on an attack with a fault planted."""
    with Patch.context() as patch:
        planted(patch)
        return protocol.verdict_on(one)


@pytest.mark.one_in(4, seconds=0.3)
@pytest.mark.slow_cases("sites_that_never_shared", seconds=4.5)
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
    assert [result.verdict for result in found] == ["pass", "pass"]
    assert [result.name for result in found] == told == ["no attack", "a key of its own on the roster"]
    assert found[0].figures["outcome"].startswith("paid for (4 vectors left, 4 lines of ledgers")
    assert "1 sum" in found[0].figures["outcome"]
    assert found[1].figures == {"outcome": "refused (roster 3, signature 3)"}


def test_names_are_told_apart():
    assert len({one.name for one in ATTACKS}) == len(ATTACKS) > 40


def test_an_attack_that_tries_nothing_does_not_count():
    assert not Verdict((), (), 0, 0, 0, Fraction(0)).holds

    @attack
    def idle(world):
        """Do nothing."""

    assert str(protocol.verdict_on(idle)) == "nothing was tried"


@pytest.mark.quick_cases(
    "keys_of_its_own_between_the_sites-nothing_is_signed",
    "no_attack-no_noise",
    "messages_reflected_to_their_sender-sealed_alike_both_ways",
    "an_approved_study_changed-studies_are_approved_by_name",
    seconds=0.35,
)
@pytest.mark.parametrize(
    ("one", "fault", "said"),
    WINS,
    ids=[f"{one.name}-{fault.__name__}".replace(" ", "_") for one, fault, _ in WINS],
)
def test_wins_without_its_defence(one: Attack, fault: Planted, said: tuple[str, ...]):
    verdict = played(one, fault)
    assert verdict.won, str(verdict)
    assert not verdict.holds
    for each in said:
        assert each in str(verdict)


def test_every_attack_can_win():
    assert [one.name for one in ATTACKS if one not in [each for each, _, _ in WINS]] == []


def test_without_the_budget_of_a_study_that_of_the_policy_holds():
    found = str(played(again.asked_again_until_the_budget_is_out, faults.studies_without_a_budget))
    assert "overdrew" not in found
    assert "never ran out" not in found


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (keys.one_site_as_another, faults.signatures_alone_keep_lists_apart),
        (lists.signatures_of_others_forged, faults.nothing_is_signed),
        (lists.signatures_of_others_forged, faults.signatures_alone_keep_lists_apart),
    ],
)
def test_either_of_two_defences_is_enough(one: Attack, fault: Planted):
    assert played(one, fault).holds


def test_other_prices_alone_see_through_a_grid_for_every_price():
    assert "hidden by less noise" not in str(played(attacks.no_attack, faults.one_grid_for_every_price))
