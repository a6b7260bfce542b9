"""What some steps reveal says nothing of another: by key, by attack, and by listing every mask.

The adversary of the first two is given more than it could ever have: for every step but one, *both* secrets
of every site, where the protocol reveals one of the two. Each test also finds the bug it is for: keys that
serve in two steps.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest

from cape.core.errors import BadMessage
from cape.secagg import masks, shamir
from cape.secagg import messages as m
from cape.secagg.keys import KeyPair, derive
from tests.unit.secagg.ideal import Ideal
from tests.unit.secagg.planted import same_keys_in_every_step

STEPS, TARGET = 4, 2
HONEST = ("a", "b", "c", "d")  # e colludes


def played(cast):
    """Play all steps, with another site dropping in each; keep every vector, message and secret."""
    play = cast(5, steps=STEPS, colluding=1)
    up = play.begin()
    play.secrets = {site.number: list(site._chain.walk(STEPS)) for site in play.sites.values()}
    play.deliver(up)
    play.deliver(play.answers())  # the share round; step 0 is begun
    play.words, play.given, play.reveals = [], [], []
    for step in range(STEPS):
        if step:
            play.step(step)
        up = play.answers()
        play.words.append({n: m.unpack_signed(data, play.parameters).words for n, data in up.items()})
        play.given.append(play.vectors)
        play.deliver(up, (HONEST[step],))  # called dropped after its vector was seen
        play.deliver(play.answers())
        up = play.answers()
        play.reveals.append({n: m.unpack_signed(data, play.parameters) for n, data in up.items()})
        play.deliver(up)
        assert np.array_equal(play.finished.total, play.sum_of(set("abcde") - {HONEST[step]}))
    return play


def known(play, without: int | None = TARGET) -> tuple[dict[int, list[bytes]], dict[int, list[bytes]]]:
    """Return every site's seeds and masking keys of all steps but one; all of e's, which colludes."""
    kept = {
        site: [pair for step, pair in enumerate(pairs) if step != without or site == 4]
        for site, pairs in play.secrets.items()
    }
    return (
        {site: [seed for seed, _ in pairs] for site, pairs in kept.items()},
        {site: [key for _, key in pairs] for site, pairs in kept.items()},
    )


def derivable(play, seeds, privates) -> set[bytes]:
    """Return every mask key that can be made: any secret, with any public key, for any pair and step."""
    at, adverts = play.aggregator._keys_at, play.aggregator._adverts
    made = {
        masks.self_key(seed, at, site, step)
        for site, own in seeds.items()
        for seed in own
        for step in range(STEPS)
    }
    for site, peer in permutations(range(5), 2):
        publics = {m.part(adverts[peer].masking, step) for step in range(STEPS)}
        for private, public in product(privates[site], publics):
            agreed = KeyPair(private).agree(public)
            made |= {masks.pair_key(agreed, at, site, peer, step) for step in range(STEPS)}
    return made


def used(play, step: int) -> set[bytes]:
    """Return the mask keys of a step that no colluder shares: honest self masks and honest pairs."""
    at, adverts = play.aggregator._keys_at, play.aggregator._adverts
    keys = {masks.self_key(play.secrets[site][step][0], at, site, step) for site in range(4)}
    for site, peer in permutations(range(4), 2):
        agreed = KeyPair(play.secrets[site][step][1]).agree(m.part(adverts[peer].masking, step))
        keys.add(masks.pair_key(agreed, at, site, peer, step))
    return keys


def bared(play, victim: int, seeds, privates) -> bool:
    """Try every known seed and masking key on the victim's masked vector; return whether one bares it."""
    at, adverts = play.aggregator._keys_at, play.aggregator._adverts
    name = play.parameters.roster.names[victim]
    for seed, private in product(seeds[victim], privates[victim]):
        words = np.frombuffer(play.words[TARGET][name], np.uint64).copy()
        off = [(masks.self_key(seed, at, victim, TARGET), -1)]
        for peer in set(range(5)) - {victim}:
            agreed = KeyPair(private).agree(m.part(adverts[peer].masking, TARGET))
            off.append((masks.pair_key(agreed, at, victim, peer, TARGET), -masks.sign(victim, peer)))
        masks.apply(words, off)
        if np.array_equal(words.view(np.int64), play.given[TARGET][name]):
            return True
    return False


def test_all_secrets_of_the_other_steps_give_no_mask_key_of_this_one(cast):
    play = played(cast)
    hidden = used(play, TARGET)
    assert len(hidden) == 4 + 6
    assert not hidden & derivable(play, *known(play))
    assert hidden <= derivable(play, *known(play, without=None))  # with this step's secrets it would


def test_all_secrets_of_the_other_steps_bare_nobody(cast):
    play = played(cast)
    for victim in range(4):
        assert not bared(play, victim, *known(play))
        assert bared(play, victim, *known(play, without=None))  # the attack is real


def test_both_find_keys_that_serve_in_two_steps(cast, monkeypatch):
    same_keys_in_every_step(monkeypatch)
    play = played(cast)  # the sums are right all the same
    assert used(play, TARGET) <= derivable(play, *known(play))
    assert all(bared(play, victim, *known(play)) for victim in range(4))


def test_what_is_really_revealed_of_a_site_is_one_secret_a_step(cast):
    """From the messages alone: for each step and site, shares give back the seed or the key, as is right."""
    play = played(cast)
    t = play.parameters.helpers
    for step in range(STEPS):
        gone = step
        alive = [site for site in range(5) if site != gone]
        reveals = list(play.reveals[step].values())
        points = [reveal.sender + 1 for reveal in reveals]
        assert all(len(reveal.seeds) == 4 and len(reveal.keys) == 1 for reveal in reveals)
        for place, site in enumerate(alive):
            seed = shamir.combine(points[:t], [reveal.seeds[place] for reveal in reveals[:t]])
            assert seed == play.secrets[site][step][0]
        key = shamir.combine(points[:t], [reveal.keys[0] for reveal in reveals[:t]])
        assert key == play.secrets[gone][step][1]


def test_shares_of_different_steps_do_not_go_together(cast):
    """Shares of one site's secrets in several steps lie on different polynomials."""
    play = played(cast)
    t = play.parameters.helpers
    first, second = ([*play.reveals[step].values()] for step in (0, 1))
    points = [reveal.sender + 1 for reveal in second]
    # The seed of e, which is alive in both steps and the last of them; c is the second helper in both.
    right = [reveal.seeds[-1] for reveal in second]
    assert first[1].sender == second[1].sender == 2
    mixed = [right[0], first[1].seeds[-1], *right[2:]]
    secrets = {secret for pair in play.secrets[4] for secret in pair}
    assert shamir.combine(points[:t], right[:t]) in secrets
    with contextlib.suppress(BadMessage):
        assert shamir.combine(points[:t], mixed[:t]) not in secrets


def test_no_message_of_the_run_holds_a_secret_of_a_step(cast):
    play = played(cast)
    for site in play.sites.values():
        assert site._chain.step == STEPS
    sent = b"".join(
        part for reveals in play.reveals for r in reveals.values() for part in (*r.seeds, *r.keys)
    )
    assert not [
        secret for pairs in play.secrets.values() for pair in pairs for secret in pair if secret in sent
    ]


# --- every value of every mask of the second step ----------------------------------------------------

SIZE, UNIT = 2, 1 << 63


def view(cast, monkeypatch, inputs, values, drop, bug) -> tuple:
    """Play two steps: all masks of the first are zero and known; return what is seen of the second."""
    ideal = Ideal((0,) * 6 + values, UNIT)
    with monkeypatch.context() as patch:
        if bug:
            same_keys_in_every_step(patch)
            patch.setattr(masks, "derive", lambda secret, at, text, *n: derive(secret, at, text, *n[:-1]))
        patch.setattr(masks, "keystream", ideal)
        play = cast(3, 1, steps=2).until("mask")
        ideal.user = "sites"
        up = play.answers()
        ideal.user = "aggregator"
        play.deliver(up, drop[0])
        while play.finished is None:
            play.deliver(play.answers())
        given = {
            n: np.array([v * UNIT], np.uint64).view(np.int64) for n, v in zip("abc", inputs, strict=True)
        }
        play.step(1, given)
        ideal.user = "sites"
        up = play.answers()
        words = tuple(m.unpack_signed(data, play.parameters).words for data in up.values())
        ideal.user = "aggregator"
        play.deliver(up, drop[1])
        while play.finished is None:
            play.deliver(play.answers())
    return words, ideal.known_to("aggregator")


def views(cast, monkeypatch, inputs, drop, bug=False) -> Counter:
    return Counter(
        view(cast, monkeypatch, inputs, values, drop, bug) for values in product(range(SIZE), repeat=6)
    )


@pytest.mark.parametrize(
    "drop",
    [
        (("c",), ()),
        pytest.param((("b",), ("c",)), marks=pytest.mark.slow(2)),
        pytest.param(((), ()), marks=pytest.mark.slow(2)),
        pytest.param(((), ("c",)), marks=pytest.mark.slow(2)),
    ],
)
def test_same_sum_same_view_of_a_step_with_the_masks_of_an_earlier_one_known(cast, monkeypatch, drop):
    base = views(cast, monkeypatch, (0, 1, 0), drop)
    assert views(cast, monkeypatch, (1, 0, 0), drop) == base
    assert views(cast, monkeypatch, (1, 1, 0), drop) != base  # another sum is another view


def test_the_view_shows_it_when_keys_serve_in_two_steps(cast, monkeypatch):
    drop = ((), ())
    base = views(cast, monkeypatch, (0, 1, 0), drop, bug=True)
    assert views(cast, monkeypatch, (1, 0, 0), drop, bug=True) != base
