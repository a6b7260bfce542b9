"""An aggregator that lies to get more surplus noise taken off than the signed list allows: it gets one level.

The same lies against deployed sites, with what they would gain, are in `assurance.attacks.levels`.
"""

from __future__ import annotations

import pytest

from cape.core.errors import ProtocolError, Refused
from cape.secagg import messages as m
from cape.secagg.chain import Chain
from cape.secagg.surplus import SurplusKey
from tests.unit.secagg.test_surplus import surplus

EVERYONE, SHORT = (0, 1, 2, 3, 4), (0, 1, 2, 3)  # without e


def told(play, survivors: tuple[int, ...]) -> bytes:
    """A list of survivors, as it would be right for site a."""
    dropped = tuple(site for site in EVERYONE if site not in survivors)
    return play.alter(play.down["a"], survivors=survivors, dropped=dropped)


def asking(play, name: str, consents: list[bytes]) -> bytes:
    """A message that shows signatures on the list that a site has signed."""
    head = {"version": m.VERSION, "run": play.parameters.run, "transcript": play.sites[name].transcript}
    return m.pack(m.Consents(**head, round=5, step=play.sites[name].step, consents=tuple(consents)))


def revealed(play, data: bytes) -> bytes:
    return m.unpack_signed(data, play.parameters).surplus


@pytest.mark.parametrize(("first", "second", "level"), [(EVERYONE, SHORT, 0), (SHORT, EVERYONE, 1)])
def test_a_second_list_of_another_length_gets_no_second_level(cast, first, second, level):
    play = cast(5, surplus=surplus(2)).until("consistency")
    keys = {name: play.sites[name]._surplus for name in "abcd"}
    lie, other = told(play, first), told(play, second)
    consents = [play.sites[name].handle(lie) for name in "abcd"]
    for name in "abcd":
        with pytest.raises(Refused):
            play.sites[name].handle(other)  # before it has revealed
    for name in "abcd":
        assert (
            revealed(play, play.sites[name].handle(asking(play, name, consents)))
            == keys[name].at(level).secret
        )
        for again in (other, lie, asking(play, name, consents)):  # and after
            with pytest.raises(ProtocolError):
                play.sites[name].handle(again)


def test_nothing_is_revealed_before_enough_sites_have_signed(cast):
    play = cast(5, surplus=surplus(2)).until("consistency")
    consents = [play.sites[name].handle(told(play, SHORT)) for name in "ab"]
    for shown in (consents, consents * 2, consents[:1] * 5, []):
        with pytest.raises(Refused, match="signed the list of survivors"):
            play.sites["a"].handle(asking(play, "a", shown))
    consents.append(play.sites["c"].handle(told(play, SHORT)))
    key = play.sites["a"]._surplus
    assert key.level == 1
    assert revealed(play, play.sites["a"].handle(asking(play, "a", consents))) == key.secret


def test_the_number_of_signatures_does_not_change_the_level(cast):
    """The list without e, with as many signatures as there are sites: one of them comes twice."""
    play = cast(5, surplus=surplus(2)).until("consistency")
    consents = [play.sites[name].handle(told(play, SHORT)) for name in "abcd"]
    key = play.sites["a"]._surplus
    assert revealed(play, play.sites["a"].handle(asking(play, "a", [*consents, consents[0]]))) == key.secret
    assert key.level == 1


def test_a_key_of_one_step_is_none_of_another(cast):
    """All keys of step 0 came out; in step 1 a site is lost, and its others' parts must stay."""
    play = cast(5, steps=3, surplus=surplus(2)).until("mask")
    parameters, old = play.parameters, {}
    play.deliver(play.answers())
    play.deliver(play.answers())
    up = play.answers()
    old = {name: revealed(play, data) for name, data in up.items()}
    play.deliver(up)
    play.step(1)
    up = play.answers()
    tips = {name: m.unpack_signed(data, parameters).tip for name, data in up.items()}
    for number, name in enumerate(play.sites):
        first = SurplusKey(parameters.surplus, parameters.digest(), number, 0, 0, old[name])
        for step in (0, 1):
            for level in range(2):
                for secret in (first.secret, first.at(1).secret, first.at(2).secret):
                    made = SurplusKey(parameters.surplus, parameters.digest(), number, step, level, secret)
                    assert made.tip != tips[name]
    ask = asking(play, "a", [])
    for name in "abcde":
        with pytest.raises(ProtocolError):
            play.sites[name].handle(play.alter(ask, step=0))


def test_a_surplus_key_is_no_seed_no_masking_key_and_no_link():
    """The seed of a survivor comes out: with it nothing of its surplus may follow."""
    chain, found = Chain(b"\1" * 32, b"\2" * 32), []
    for step in range(5):
        found += [chain.surplus(), *chain.secrets(), chain._link]
        chain.advance(step + 1)
    assert len(set(found)) == len(found)


def test_part_and_next_key_are_told_apart(cast):
    """Who has key j + 1 has not what part j was drawn from."""
    key = cast(5, surplus=surplus(2)).until("consistency").sites["a"]._surplus
    ahead = [key.at(level) for level in range(3)]
    drawn = {each._derived("surplus part") for each in ahead}
    assert len(drawn) == 3
    assert not drawn & {each.secret for each in ahead}


def test_nothing_of_a_step_is_left_once_it_is_revealed(cast):
    play = cast(5, steps=2, surplus=surplus(2)).until("unmask")
    keys = {name: play.sites[name]._surplus for name in "abcde"}
    play.deliver(play.answers())
    for name, site in play.sites.items():
        assert keys[name] not in vars(site).values()
        assert site._chain.step == 1
