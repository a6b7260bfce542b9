"""The table of transitions is all there is: whatever is not in it is refused and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from cape.core.errors import Refused
from cape.secagg import TRANSITIONS, AggregatorState, SiteState
from cape.secagg import messages as m
from cape.secagg.states import Cue, following

TRIGGERS = [
    *(m.Advert, m.Shares, m.Masked, m.Consent, m.Reveal),
    *(m.Adverts, m.Delivery, m.Begin, m.Survivors, m.Consents, m.Total),
    *Cue,
]


def test_what_is_not_in_the_table_is_refused():
    refused = 0
    for state, trigger in product([*SiteState, *AggregatorState], TRIGGERS):
        if (state, trigger) in TRANSITIONS:
            assert following(state, trigger) is TRANSITIONS[state, trigger]
        else:
            refused += 1
            with pytest.raises(Refused):
                following(state, trigger)
    assert refused == 16 * len(TRIGGERS) - len(TRANSITIONS)


def test_the_table_can_only_be_read():
    with pytest.raises(TypeError):
        TRANSITIONS[SiteState.DONE, m.Consents] = SiteState.NEW


def test_nothing_leaves_an_end_and_only_a_new_step_goes_back():
    ends = {AggregatorState.DONE, AggregatorState.FAILED}
    assert not [state for state, _ in TRANSITIONS if state in ends]
    to_the_next = {Cue.BEGIN, Cue.LOST}
    for kind in (SiteState, AggregatorState):
        order = list(kind)
        for (state, trigger), after in TRANSITIONS.items():
            back = isinstance(state, kind) and order.index(after) < order.index(state)
            if back and (state, trigger) != (AggregatorState.UNMASK, Cue.CLOSED):
                assert trigger in to_the_next


def test_a_site_moves_on_with_every_answer_so_it_answers_no_message_twice():
    for (state, trigger), after in TRANSITIONS.items():
        if isinstance(state, SiteState) and trigger is not Cue.BEGIN:
            assert after is not state


ROUND_OF = {m.Adverts: "share", m.Delivery: "mask", m.Survivors: "consistency", m.Consents: "unmask"}


def test_every_message_in_every_state_of_a_site(cast):
    """Play until each round, then give the site each message of the run: only one is answered."""
    whole = cast()
    kept = {}
    for kind, round_ in ROUND_OF.items():
        kept[kind] = cast().until(round_).down["a"]
    for round_ in ("advertise", *ROUND_OF.values()):
        for kind, data in kept.items():
            site = cast().until(round_).sites["a"]
            before = site.state
            if ROUND_OF[kind] == round_:
                site.handle(data)
                assert site.state is TRANSITIONS[before, kind]
            else:
                with pytest.raises(Refused):
                    site.handle(data)
                assert site.state is before
    assert whole.sites["a"].state is SiteState.NEW


def test_machines_say_where_they_are(cast):
    play = cast().until("mask")
    assert repr(play.sites["a"]) == "Site('a', BEGUN)"
    assert repr(play.aggregator) == "Aggregator(5 sites, waits for masked vectors)"
    assert play.aggregator.waiting == ("a", "b", "c", "d", "e")
