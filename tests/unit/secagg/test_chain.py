"""The chain of a site's secrets: fresh for every step, forward only; and shares that are thrown away."""

from __future__ import annotations

import pickle

import pytest

from cape.secagg.chain import Chain
from cape.secagg.held import Held
from cape.secagg.messages import BOTH_BYTES

ROOT, RUN = b"\1" * 32, b"\2" * 32


def test_every_secret_of_every_step_is_another():
    pairs = list(Chain(ROOT, RUN).walk(50))
    assert len({secret for pair in pairs for secret in pair}) == 100
    assert len({*pairs[0], *Chain(ROOT, b"\3" * 32).secrets(), *Chain(b"\3" * 32, RUN).secrets()}) == 6


def test_walking_and_advancing_meet_the_same_secrets_and_walking_moves_nothing():
    chain, expected = Chain(ROOT, RUN), list(Chain(ROOT, RUN).walk(6))
    for step in (0, 1, 4, 5):
        chain.advance(step)
        assert chain.secrets() == expected[step]
        assert list(chain.walk(6)) == expected[step:]


def test_a_chain_does_not_go_back():
    chain = Chain(ROOT, RUN)
    chain.advance(3)
    before = chain.secrets()
    chain.advance(1)
    assert chain.step == 3
    assert chain.secrets() == before
    # Nothing that it holds is, or gives, an earlier link: the earlier steps' secrets are not in reach.
    earlier = [secret for pair in Chain(ROOT, RUN).walk(3) for secret in pair]
    assert ROOT not in vars(chain).values()
    assert not {secret for pair in chain.walk(20) for secret in pair} & set(earlier)


def test_what_a_step_reveals_is_no_link_of_the_chain():
    chain, revealed = Chain(ROOT, RUN), set()
    for step in range(6):
        revealed |= set(chain.secrets())
        assert chain._link not in revealed
        chain.advance(step + 1)
        assert chain._link not in revealed, "with it, all later secrets could be computed"


def test_held_shares_are_given_for_their_step_and_thrown_away_before_it():
    parts = [bytes([step]) * 33 + bytes([100 + step]) * 33 for step in range(5)]
    held = Held(b"".join(parts))
    assert held.at(3) == (parts[3][:33], parts[3][33:])
    held.forget_before(2)
    held.forget_before(1)  # going back gives nothing back
    assert held.at(2) == (parts[2][:33], parts[2][33:])
    for gone in (0, 1, 5):
        with pytest.raises(LookupError):
            held.at(gone)
    assert bytes([1]) * 33 not in bytes(held._rest)
    held.forget_before(9)
    assert not held._rest
    with pytest.raises(LookupError):
        held.at(9)


@pytest.mark.parametrize("secret", [Chain(ROOT, RUN), Held(bytes(BOTH_BYTES))])
def test_neither_is_shown_or_pickled(secret):
    assert "step" in repr(secret)
    assert "\\x" not in repr(secret)
    assert ROOT.hex() not in repr(secret)
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(secret)
