"""An aggregator that lies across steps: what it gets in one step is of no use in another."""

from __future__ import annotations

import numpy as np
import pytest

from cape.core.errors import ProtocolError, Refused
from cape.secagg import SiteState, masks, shamir
from cape.secagg import messages as m
from cape.secagg.keys import KeyPair
from tests.unit.secagg.planted import same_keys_in_every_step

VICTIM = "a"


def reveals(play, up) -> list[m.Reveal]:
    return [m.unpack_signed(data, play.parameters) for data in up.values()]


def secret(play, shares: list[tuple[int, bytes]]) -> bytes:
    points, parts = zip(*shares[: play.parameters.helpers], strict=True)
    return shamir.combine(points, parts)


def survive_then_drop(cast):
    """The victim survives step 0 and its seed comes out; it "drops" in step 1 and its key comes out.

    Its masked vector of both steps was seen. Return the cast with both vectors, and the two secrets.
    """
    play = cast(5, steps=3).until("mask")
    up = play.answers()
    words, given = [m.unpack_signed(up[VICTIM], play.parameters).words], [play.vectors[VICTIM]]
    play.deliver(up)
    play.deliver(play.answers())
    up = play.answers()
    seed = secret(play, [(r.sender + 1, r.seeds[0]) for r in reveals(play, up)])
    play.deliver(up)
    play.step(1)
    up = play.answers()
    words.append(m.unpack_signed(up[VICTIM], play.parameters).words)
    given.append(play.vectors[VICTIM])
    play.deliver(up, (VICTIM,))
    play.deliver(play.answers())
    key = secret(play, [(r.sender + 1, r.keys[0]) for r in reveals(play, play.answers())])
    return play, words, given, seed, key


def unmasked(play, words: bytes, step: int, seed: bytes, key: bytes) -> np.ndarray:
    at, adverts = play.aggregator._keys_at, play.aggregator._adverts
    out = np.frombuffer(words, np.uint64).copy()
    off = [(masks.self_key(seed, at, 0, step), -1)]
    for peer in range(1, 5):
        agreed = KeyPair(key).agree(m.part(adverts[peer].masking, step))
        off.append((masks.pair_key(agreed, at, 0, peer, step), -masks.sign(0, peer)))
    masks.apply(out, off)
    return out.view(np.int64)


def test_the_seed_of_one_step_and_the_key_of_another_bare_neither(cast):
    play, words, given, seed, key = survive_then_drop(cast)
    for step in (0, 1):
        assert not np.array_equal(unmasked(play, words[step], step, seed, key), given[step])


def test_with_the_same_keys_in_both_steps_they_would_bare_both(cast, monkeypatch):
    same_keys_in_every_step(monkeypatch)
    play, words, given, seed, key = survive_then_drop(cast)
    for step in (0, 1):
        assert np.array_equal(unmasked(play, words[step], step, seed, key), given[step])


def test_asking_for_the_other_secret_of_a_step_in_the_next(cast):
    """The victim survived step 0. In step 1 the liar repeats step 0 with the victim as dropped."""
    play = cast(5, steps=3).until("consistency")
    old = play.down["b"]
    while play.finished is None:
        play.deliver(play.answers())
    play.step(1).rounds(until="consistency")
    before = {name: site.transcript for name, site in play.sites.items()}
    lie = play.alter(old, survivors=(1, 2, 3, 4), dropped=(0,))
    for name in "bcde":
        for data in (lie, play.alter(lie, step=1)):
            with pytest.raises(Refused):
                play.sites[name].handle(data)
    assert before == {name: site.transcript for name, site in play.sites.items()}
    # Told in this step's own words, it gets the key of *this* step, and no share of step 0 is left anywhere.
    lie = play.alter(play.down["b"], survivors=(1, 2, 3, 4), dropped=(0,))
    consents = tuple(play.sites[name].handle(lie) for name in "bcde")
    ask = m.Consents(
        version=m.VERSION,
        run=play.parameters.run,
        transcript=play.sites["b"].transcript,
        round=5,
        step=1,
        consents=consents,
    )
    got = reveals(play, {name: play.sites[name].handle(m.pack(ask)) for name in "bcde"})
    key = KeyPair(secret(play, [(r.sender + 1, r.keys[0]) for r in got]))
    masking = play.aggregator._adverts[0].masking
    assert key.public == m.part(masking, 1) != m.part(masking, 0)
    for name in "bcde":
        for held in play.sites[name]._held.values():
            for step in (0, 1):
                with pytest.raises(LookupError):
                    held.at(step)


def test_half_of_the_sites_held_back_in_a_step(cast):
    """c, d, e are kept waiting in step 0 with a list that says the victim survived; b moved on to step 1.

    Nobody can be brought to tell another story about step 0: it needs a site that has not signed one.
    """
    play = cast(5, steps=3).until("consistency")
    other = play.alter(play.down["b"], survivors=(1, 2, 3, 4), dropped=(0,))
    consents = play.answers()
    ask = play.sites["b"].transcript
    play.sites["b"].begin(1, play.vectors["b"])
    for name in "bcde":
        with pytest.raises(Refused):
            play.sites[name].handle(other)
    lie = m.Consents(
        version=m.VERSION,
        run=play.parameters.run,
        transcript=m.after_masked(m.at_step(play.sites["c"]._setup, 0), (1, 2, 3, 4), (0,)),
        round=5,
        step=0,
        consents=tuple(consents.values()),
    )
    for name in "cde":
        with pytest.raises(ProtocolError):
            play.sites[name].handle(m.pack(lie))
        assert play.sites[name].state is SiteState.AGREED
        assert play.sites[name].transcript == ask


def test_different_lists_in_different_steps_are_no_lie(cast):
    """Lists are not chained over steps: who was told nothing of step 1 verifies step 2 like the others."""
    play = cast(5, steps=3).until("end")
    play.step(1, without="ab").rounds()
    assert play.finished.survivors == tuple("cde")
    play.step(2).rounds()
    assert play.finished.survivors == tuple("abcde")
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))


def test_one_vector_a_step_whatever_the_aggregator_asks(cast):
    """ParsedAnalysis for later steps than its owner has begun, a site gives nothing away."""
    play = cast(5, steps=4).until("end")
    site = play.sites[VICTIM]
    for step in range(4):
        ahead = m.Begin(
            version=m.VERSION,
            run=play.parameters.run,
            transcript=m.at_step(site._setup, step),
            round=3,
            step=step,
        )
        with pytest.raises(Refused, match="answers each message once"):
            site.handle(m.pack(ahead))
    site.begin(1, play.vectors[VICTIM])
    ahead = m.Begin(
        version=m.VERSION, run=play.parameters.run, transcript=m.at_step(site._setup, 3), round=3, step=3
    )
    with pytest.raises(Refused, match="a message of step 3 came, and this site is in step 1"):
        site.handle(m.pack(ahead))
