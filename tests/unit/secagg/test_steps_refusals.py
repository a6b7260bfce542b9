"""Refusals that have to do with steps, by name. Each leaves the machine where it was."""

from __future__ import annotations

import numpy as np
import pytest

from cape.core.errors import BadMessage, InvalidInput, Refused
from cape.secagg import AggregatorState, SiteState
from cape.secagg import messages as m
from cape.secagg.keys import KeyPair

ROUND_OF = {SiteState.READY: "mask", SiteState.MASKED: "consistency", SiteState.AGREED: "unmask"}


def at(cast, step: int, round_: str, steps: int = 4):
    """Return a cast in a round of a step, all earlier steps played."""
    play = cast(steps=steps).until("end")
    for earlier in range(1, step):
        play.step(earlier).rounds()
    return play.step(step).rounds(until=round_)


def refuses(play, data: bytes, error, match: str) -> None:
    """Site a refuses, stays where it is, and the step goes on to a right sum."""
    site = play.sites["a"]
    before = (site.state, site.transcript, site.step, site._chain.step)
    with pytest.raises(error, match=match):
        site.handle(data)
    assert (site.state, site.transcript, site.step, site._chain.step) == before
    while play.finished is None:
        play.deliver(play.answers())
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


# --- what a site refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize("round_", m.STEP_ROUNDS)
@pytest.mark.parametrize("other", [1, 3])
def test_a_message_of_another_step(cast, round_, other):
    play, elsewhere = at(cast, 2, round_), at(cast, other, round_)
    text = f"a message of step {other} came, and this site is in step 2"
    refuses(play, elsewhere.down["a"], Refused, text)


@pytest.mark.parametrize("round_", m.STEP_ROUNDS)
def test_a_message_of_another_step_with_the_number_of_this_one(cast, round_):
    """The number is only the label; what counts is in the transcript."""
    play, elsewhere = at(cast, 2, round_), at(cast, 1, round_)
    lie = play.alter(elsewhere.down["a"], step=2)
    if round_ == "mask":  # it holds nothing but the step
        lie = play.alter(lie, transcript=m.at_step(play.sites["a"]._setup, 1))
    refuses(play, lie, Refused, "an earlier list differs")


def test_consents_of_another_step(cast):
    play, elsewhere = at(cast, 2, "unmask"), at(cast, 1, "unmask")
    theirs = m.unpack(elsewhere.down["a"], play.parameters).consents
    refuses(play, play.alter(play.down["a"], consents=theirs), Refused, "signed another list of survivors")


@pytest.mark.parametrize("step", [0, 1, 2])
def test_to_begin_a_step_that_is_past(cast, step):
    play = at(cast, 2, "consistency")
    site = play.sites["a"]
    with pytest.raises(Refused, match=f"step {step} is past: the next one of this site is 3"):
        site.begin(step, play.vectors["a"])
    assert site.state is SiteState.MASKED


def test_to_begin_a_step_before_one_that_was_begun(cast):
    play = at(cast, 1, "end")
    site = play.sites["a"]
    site.begin(3, play.vectors["a"])
    with pytest.raises(Refused, match="step 2 is past"):
        site.begin(2, play.vectors["a"])


@pytest.mark.parametrize("step", [-1, 4, 1.5])
def test_to_begin_a_step_that_is_not_of_the_run(cast, step):
    play = at(cast, 1, "end")
    for machine, rest in ((play.sites["a"], [play.vectors["a"]]), (play.aggregator, [])):
        with pytest.raises(InvalidInput, match="step"):
            machine.begin(step, *rest)


def test_to_begin_before_the_setup_is_over(cast):
    play = cast(steps=2).until("share")
    with pytest.raises(Refused, match="the start of a step is refused"):
        play.sites["a"].begin(0, play.vectors["a"])
    with pytest.raises(Refused, match="the start of a step is refused"):
        play.aggregator.begin()


def test_a_second_mask_of_a_step(cast):
    play = at(cast, 1, "mask")
    site, data = play.sites["a"], play.down["a"]
    first = site.handle(data)
    with pytest.raises(Refused, match="answers each message once"):
        site.handle(data)
    with pytest.raises(Refused, match="step 1 is past"):
        site.begin(1, play.vectors["a"] + 1)
    up = {"a": first, **{name: play.sites[name].handle(play.down[name]) for name in "bcde"}}
    play.deliver(up)
    while play.finished is None:
        play.deliver(play.answers())
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_a_second_list_of_survivors_in_a_step(cast):
    play = at(cast, 1, "consistency")
    site = play.sites["a"]
    site.handle(play.down["a"])
    other = play.alter(play.down["a"], survivors=(0, 1, 2, 3), dropped=(4,))
    for data in (play.down["a"], other):
        with pytest.raises(Refused, match="answers each message once"):
            site.handle(data)


def test_to_help_with_a_step_after_the_next_has_begun(cast):
    """It signed the list of step 1 and was never asked to reveal; from step 2 on nobody can make it."""
    play = at(cast, 1, "unmask")
    late = play.down["a"]
    play.sites["a"].begin(2, play.vectors["a"])
    with pytest.raises(Refused, match="'Consents' is refused"):
        play.sites["a"].handle(late)
    play.step(3).rounds(until="unmask")
    with pytest.raises(Refused, match="a message of step 1 came"):
        play.sites["a"].handle(late)
    play.deliver(play.answers())
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_to_be_asked_for_a_vector_before_it_has_shares(cast):
    play = cast(steps=2).until("mask")
    begin = m.Begin(
        version=m.VERSION, run=play.parameters.run, transcript=play.sites["a"].transcript, round=3, step=0
    )
    with pytest.raises(Refused, match="no key shares of others yet"):
        play.sites["a"].handle(m.pack(begin))
    play.rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_a_second_delivery_that_tells_of_other_sharers(cast):
    play = cast(6, steps=3).until("mask")
    down = m.unpack(play.down["a"], play.parameters)
    play.rounds()
    play.step(1)
    lie = m.pack(
        m.Delivery(
            version=m.VERSION,
            run=play.parameters.run,
            transcript=down.transcript,
            round=3,
            step=1,
            sharers=(0, 1, 2, 3, 4),
            sealed=down.sealed[:4],
        )
    )
    before = play.sites["a"].state
    with pytest.raises(Refused, match="sent this site another list of sharers before"):
        play.sites["a"].handle(lie)
    assert play.sites["a"].state is before
    play.rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcdef"))


def test_a_site_whose_first_answer_was_lost_gets_its_shares_again_and_takes_part(cast):
    play = cast(steps=3).until("mask")
    play.deliver(play.answers(), ("a",))  # a has answered; the aggregator never saw it
    while play.finished is None:
        play.deliver({name: play.sites[name].handle(data) for name, data in play.down.items() if name != "a"})
    play.step(1)
    assert isinstance(m.unpack(play.down["a"], play.parameters), m.Delivery)
    assert isinstance(m.unpack(play.down["b"], play.parameters), m.Begin)
    play.rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_keys_and_shares_for_another_number_of_steps(cast):
    play = cast(steps=3)
    up = play.begin()
    masking = m.unpack_signed(up["b"], play.parameters).masking
    for wrong in (masking[:-32], masking + masking[:32], masking[:-1]):
        short = play.resign("b", up["b"], masking=wrong)
        with pytest.raises(BadMessage, match="'b' sent keys for another number of steps than 3"):
            play.aggregator.handle(short)
        lie = m.Adverts(
            version=m.VERSION,
            run=play.parameters.run,
            transcript=play.parameters.digest(),
            round=2,
            adverts=(up["a"], short, up["c"], up["d"], up["e"]),
        )
        with pytest.raises(BadMessage, match="keys for another number of steps"):
            play.sites["a"].handle(m.pack(lie))
    play.deliver(up)
    up = play.answers()
    shares = m.unpack_signed(up["b"], play.parameters)
    changes = {
        "commitments for another number": {"commitments": shares.commitments[:-32]},
        "sealed key shares for another number": {"sealed": tuple(part[66:] for part in shares.sealed)},
    }
    for match, change in changes.items():
        with pytest.raises(BadMessage, match=match):
            play.aggregator.handle(play.resign("b", up["b"], **change))


def test_shares_that_a_colluder_sealed_for_fewer_steps(cast, monkeypatch):
    play = cast(steps=3).until("share")
    with monkeypatch.context() as patch:
        real = play.sites["b"]._chain.walk
        patch.setattr(play.sites["b"]._chain, "walk", lambda steps: list(real(steps))[:2])
        short = m.unpack_signed(play.sites["b"].handle(play.down["b"]), play.parameters).sealed
    play.deliver({name: play.sites[name].handle(play.down[name]) for name in "acde"}, ("b",))
    assert play.aggregator.sharers == tuple("acde")
    down = m.unpack(play.down["a"], play.parameters)
    lie = play.alter(play.down["a"], sharers=(0, 1, 2, 3, 4), sealed=(short[0], *down.sealed))
    with pytest.raises(BadMessage, match="the shares from 'b' are not two for each step"):
        play.sites["a"].handle(lie)
    play.rounds()
    assert np.array_equal(play.finished.total, play.sum_of("acde"))


def test_a_key_of_a_later_step_that_agrees_on_nothing(cast):
    play = cast(steps=3)
    up = play.begin()
    masking = m.unpack_signed(up["b"], play.parameters).masking
    with pytest.raises(BadMessage, match="agrees on nothing"):
        play.aggregator.handle(play.resign("b", up["b"], masking=masking[:64] + bytes(32)))
    KeyPair.require_usable(masking[64:])


# --- what the aggregator refuses -------------------------------------------------------------------


@pytest.mark.parametrize("round_", m.STEP_ROUNDS)
def test_an_answer_to_an_earlier_step(cast, round_):
    old, play = at(cast, 1, round_).answers(), at(cast, 2, round_)
    with pytest.raises(Refused, match="'b' answered step 1, and this is step 2"):
        play.aggregator.handle(old["b"])
    forged = play.resign("b", old["b"], step=2)  # even b itself cannot make it count
    with pytest.raises(BadMessage, match="another roster, threshold, graph or list"):
        play.aggregator.handle(forged)
    while play.finished is None:
        play.deliver(play.answers())
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_a_step_that_the_aggregator_has_begun_before(cast):
    play = at(cast, 2, "mask")
    for step in (0, 1, 2):
        with pytest.raises(Refused, match=f"step {step} is past: the next one is 3"):
            play.aggregator.begin(step)
    play.rounds()
    play.step(3).rounds()
    with pytest.raises(Refused, match="waits for nothing"):
        play.aggregator.begin(3)


def test_a_step_after_the_last_was_begun(cast):
    play = at(cast, 3, "mask")
    with pytest.raises(Refused, match="all 4 steps of this run are over"):
        play.aggregator.begin()
    play.rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_nobody_drops_between_steps(cast):
    play = at(cast, 1, "end")
    assert play.aggregator.state is AggregatorState.READY
    with pytest.raises(Refused, match="no site can drop now"):
        play.aggregator.gone(["a"])


def test_a_sum_is_announced_until_the_next_step_begins(cast):
    play = at(cast, 1, "end")
    assert m.unpack(play.aggregator.announcement(), play.parameters).step == 1
    play.step(2)
    with pytest.raises(Refused, match="no sum is known yet"):
        play.aggregator.announcement()


@pytest.mark.parametrize("secret", ["seeds", "keys"])
def test_wrong_shares_end_the_step_and_not_the_run(cast, secret):
    play = cast(6, threshold=5, steps=3).until("unmask", {"mask": ("f",)})
    up = play.answers()
    wrong = tuple(bytes(33) for _ in getattr(m.unpack_signed(up["b"], play.parameters), secret))
    up["b"] = play.resign("b", up["b"], **{secret: wrong})
    with pytest.raises(BadMessage, match="do not recover its secret"):
        play.deliver(up)
    assert play.finished is None
    assert play.aggregator.state is AggregatorState.READY
    play.step(1).rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcdef"))


def test_a_commitment_binds_each_step_alone(cast):
    """c commits to another seed in step 1: that step fails, and the others give sums."""
    play = cast(steps=3).until("share")
    up = play.answers()
    commitments = m.unpack_signed(up["c"], play.parameters).commitments
    up["c"] = play.resign("c", up["c"], commitments=commitments[:32] + bytes(32) + commitments[64:])
    play.deliver(up)
    play.rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))
    with pytest.raises(BadMessage, match="revealed for 'c' do not recover"):
        play.step(1).rounds()
    play.step(2).rounds()
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))
