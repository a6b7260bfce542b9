"""Attacks of an aggregator that lies, each by name; and that it works where the defence is taken away."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cape.core.errors import BadMessage, ProtocolError, Refused
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.keys import KeyPair

VICTIM, LIAR = "a", "e"  # e colludes: it signs whatever the aggregator likes


def two_stories(play, believers: set[str]):
    """Tell some that the victim survived and the others that it dropped; return what each answers.

    The colluder signs both stories and gives its shares for both.
    """
    step = play.aggregator.next_step - 1
    everyone = tuple(range(len(play.sites)))
    stories = {
        True: play.alter(play.down["b"], survivors=everyone, dropped=()),
        False: play.alter(play.down["b"], survivors=everyone[1:], dropped=everyone[:1]),
    }
    transcripts = {
        True: m.after_masked(play.sites["b"].transcript, everyone, ()),
        False: m.after_masked(play.sites["b"].transcript, everyone[1:], everyone[:1]),
    }
    consents: dict[bool, list[tuple[int, bytes]]] = {True: [], False: []}
    for number, name in enumerate(play.sites):
        told = name in believers
        if name != LIAR:
            consents[told].append((number, play.sites[name].handle(stories[told])))
    liar = play.sites[LIAR]
    for told in consents:
        signed = m.Consent(
            version=m.VERSION,
            run=play.parameters.run,
            transcript=transcripts[told],
            sender=liar.number,
            round=4,
            step=step,
        )
        consents[told].append((liar.number, m.pack_signed(signed, play.identities[LIAR])))
    revealed: dict[bool, list[m.Reveal]] = {True: [], False: []}
    for name in play.sites:
        if name == LIAR:
            continue
        told = name in believers
        ask = m.Consents(
            version=m.VERSION,
            run=play.parameters.run,
            transcript=transcripts[told],
            round=5,
            step=step,
            consents=tuple(data for _, data in sorted(consents[told])),
        )
        try:
            answer = play.sites[name].handle(m.pack(ask))
        except Refused:
            continue
        revealed[told].append(m.unpack_signed(answer, play.parameters))
    return revealed


def unmasked_victim(play, revealed) -> np.ndarray | None:
    """Return the victim's bare vector if both of its secrets came out."""
    step = play.aggregator.next_step - 1
    held = play.sites[LIAR]._held[0].at(step)
    t = play.parameters.helpers
    seeds = [(r.sender + 1, r.seeds[0]) for r in revealed[True]] + [(5, held[0])]
    keys = [(r.sender + 1, r.keys[0]) for r in revealed[False]] + [(5, held[1])]
    if len(seeds) < t or len(keys) < t:
        return None
    seed = shamir.combine(*zip(*seeds[:t], strict=True))
    pair = KeyPair(shamir.combine(*zip(*keys[:t], strict=True)))
    transcript = play.aggregator._keys_at
    words = np.frombuffer(play.victim_words, np.uint64).copy()
    off = [(masks.self_key(seed, transcript, 0, step), -1)]
    for peer in range(1, 5):
        agreed = pair.agree(m.part(play.aggregator._adverts[peer].masking, step))
        off.append((masks.pair_key(agreed, transcript, 0, peer, step), -masks.sign(0, peer)))
    masks.apply(words, off)
    return words.view(np.int64)


def stage(cast, step: int, **choices):
    """Play to the consistency round of a step, and keep the victim's message."""
    play = cast(5, colluding=1, steps=step + 1, **choices).until("mask")
    for number in range(step):
        play.rounds()
        play.step(number + 1)
    up = play.answers()
    play.victim_words = m.unpack_signed(up[VICTIM], play.parameters).words
    play.deliver(up)
    return play


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("believers", list(product([True, False], repeat=3)))
def test_two_stories_about_one_site_get_at_most_one_of_its_secrets(cast, believers, step):
    play = stage(cast, step)
    told = {VICTIM, *(name for name, told in zip("bcd", believers, strict=True) if told)}
    revealed = two_stories(play, told)
    assert not (revealed[True] and revealed[False])
    assert unmasked_victim(play, revealed) is None


@pytest.mark.parametrize("step", [0, 2])
def test_the_same_attack_works_against_the_curious_threshold(cast, step):
    # t = 2 is right for an aggregator that is only curious. A liar gets both secrets: the attack is real.
    play = stage(cast, step, lying=False)
    assert play.parameters.threshold == 2
    revealed = two_stories(play, {VICTIM, "b"})
    assert np.array_equal(unmasked_victim(play, revealed), play.vectors[VICTIM])


def test_different_keys_for_different_sites(cast):
    """One half is shown four advertisements, the other five: neither can use what the other sends."""
    play = cast(6, colluding=0).until("share")
    adverts = m.unpack(play.down["a"], play.parameters).adverts
    fewer = play.alter(play.down["a"], adverts=adverts[:5])
    up = {name: play.sites[name].handle(fewer if name in "abc" else play.down[name]) for name in "abcdef"}
    shares = {name: m.unpack_signed(data, play.parameters) for name, data in up.items()}
    assert shares["a"].transcript != shares["d"].transcript
    with pytest.raises(BadMessage, match="another roster, threshold, graph or list"):
        play.aggregator.handle(up["a"])  # an honest aggregator notices by itself
    # A liar forges the delivery: to `a` from b, c (the same list) and d, e (the other list).
    sealed = [shares["b"].sealed[0], shares["c"].sealed[0], shares["d"].sealed[0], shares["e"].sealed[0]]
    lie = m.Delivery(
        version=m.VERSION,
        run=play.parameters.run,
        transcript=shares["a"].transcript,
        round=3,
        step=0,
        sharers=(0, 1, 2, 3, 4),
        sealed=tuple(sealed),
    )
    play.sites["a"].begin(0, play.vectors["a"])
    with pytest.raises(BadMessage, match="the shares from 'd' were changed or are not for this site"):
        play.sites["a"].handle(m.pack(lie))


def test_different_lists_of_sharers_for_different_sites(cast):
    """Sites that were told different sharers apply masks that do not cancel, and their signatures differ."""
    play = cast(6).until("mask")
    down = m.unpack(play.down["a"], play.parameters)
    lie = play.alter(play.down["a"], sharers=(0, 1, 2, 3, 4), sealed=down.sealed[:4])
    up = {name: play.sites[name].handle(lie if name == "a" else play.down[name]) for name in play.down}
    with pytest.raises(BadMessage, match="'a' answered for another"):
        play.aggregator.handle(up["a"])
    assert play.sites["a"].transcript != play.sites["b"].transcript


def test_the_late_vector_of_a_dropped_site_is_still_masked(cast):
    """The others revealed its masking key; its self mask, whose seed they never reveal, protects it."""
    play = cast(5).until("mask")
    up = play.answers()
    late = np.frombuffer(m.unpack_signed(up["e"], play.parameters).words, np.uint64).copy()
    play.deliver(up, ("e",))
    play.deliver(play.answers())
    reveals = [m.unpack_signed(data, play.parameters) for data in play.answers().values()]
    t = play.parameters.helpers
    points, keys = zip(*[(r.sender + 1, r.keys[0]) for r in reveals[:t]], strict=True)
    pair = KeyPair(shamir.combine(points, keys))
    transcript = play.aggregator._keys_at
    masks.apply(
        late,
        [
            (
                masks.pair_key(pair.agree(play.aggregator._adverts[p].masking), transcript, 4, p),
                -masks.sign(4, p),
            )
            for p in range(4)
        ],
    )
    rest = late - play.vectors["e"].view(np.uint64)
    assert (rest > 1 << 40).all()  # the self mask is left on every entry
    assert all(len(r.seeds) == 4 for r in reveals)  # a, b, c, d: nobody gave a share of e's seed


def test_asking_again_after_a_failure(cast):
    """A liar says "the run failed, once more": the site is done, and a new run needs a new name and keys."""
    play = cast().until("unmask")
    play.answers()
    for name, site in play.sites.items():
        for data in play.down.values():
            with pytest.raises(ProtocolError):
                site.handle(data)
        for held in site._held.values():
            with pytest.raises(LookupError):
                held.at(0)
        assert site._chain.step == 1, name


def test_a_site_forgets_what_it_no_longer_needs(cast):
    play = cast().until("consistency")
    site = play.sites["a"]
    assert site._vector is None
    assert not site._opening
    assert site._chain.step == 1  # past the seed and the masking key
    for secret in ("_encryption", "_stream"):
        assert not hasattr(site, secret)


def test_a_roster_of_the_aggregators_own_sites(cast):
    """Sybils: keys that are not on the pinned roster do not count, however many there are."""
    play, fake = cast().until("share"), cast(seed=9).until("share")
    with pytest.raises(ProtocolError):
        play.sites["a"].handle(fake.down["a"])
    mine = m.unpack(play.down["a"], play.parameters).adverts[0]
    theirs = m.unpack(fake.down["a"], fake.parameters).adverts
    with pytest.raises(ProtocolError):
        play.sites["a"].handle(play.alter(play.down["a"], adverts=(mine, *theirs[1:])))
