"""Identities, rosters, agreed keys: who signed what, and nothing secret in sight."""

from __future__ import annotations

import pickle

import pytest

from cape.core.errors import BadMessage, InvalidInput
from cape.secagg import keys
from cape.secagg.keys import Identity, KeyPair, Roster, Verifier, derive, digest

ONE, TWO = Identity(b"\1" * 32), Identity(b"\2" * 32)


def test_a_signature_is_good_for_its_message_and_its_key():
    signature = ONE.sign(b"message")
    for verifier in (Verifier(), Verifier(remember=True)):
        for _ in range(2):
            verifier.check(ONE.public, signature, b"message", "one")
        for public, signed, message in [
            (TWO.public, signature, b"message"),
            (ONE.public, signature, b"massage"),
            (ONE.public, bytes(64), b"message"),
            (ONE.public, b"short", b"message"),
        ]:
            for _ in range(2):  # a failure is not remembered as a success
                with pytest.raises(BadMessage, match="signature of one"):
                    verifier.check(public, signed, message, "one")


def test_what_was_checked_is_remembered_only_if_asked(monkeypatch):
    signature, tries = ONE.sign(b"message"), []
    real = keys.Ed25519PublicKey

    class Counting:
        @staticmethod
        def from_public_bytes(raw):
            tries.append(raw)
            return real.from_public_bytes(raw)

    monkeypatch.setattr(keys, "Ed25519PublicKey", Counting)
    for verifier, expected in ((Verifier(), 3), (Verifier(remember=True), 1)):
        tries.clear()
        for _ in range(3):
            verifier.check(ONE.public, signature, b"message", "one")
        assert len(tries) == expected
        for public, signed, message in (
            (ONE.public, signature, b"another"),
            (TWO.public, signature, b"message"),
            (ONE.public, ONE.sign(b"another"), b"message"),
        ):
            with pytest.raises(BadMessage, match="signature of one"):
                verifier.check(public, signed, message, "one")


def test_two_sides_agree():
    one, two = KeyPair(b"\3" * 32), KeyPair(b"\4" * 32)
    assert one.agree(two.public) == two.agree(one.public)


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_a_point_of_low_order_is_refused(point):
    with pytest.raises(BadMessage, match="agrees on nothing"):
        KeyPair(b"\3" * 32).agree(point)
    with pytest.raises(BadMessage, match="agrees on nothing"):
        KeyPair.require_usable(point)


def test_derived_keys_differ_with_every_word():
    base = derive(b"s", b"t", "label", 1, 2)
    assert len({base, derive(b"x", b"t", "label", 1, 2), derive(b"s", b"x", "label", 1, 2)}) == 3
    assert len({base, derive(b"s", b"t", "babel", 1, 2), derive(b"s", b"t", "label", 2, 1)}) == 3
    assert derive(b"s", b"t", "label", 1) != derive(b"s", b"t", "label", 1, 0)


def test_a_digest_tells_parts_apart():
    assert digest("x", b"ab", b"c") != digest("x", b"a", b"bc") != digest("x", b"abc")
    assert digest("x", b"ab") != digest("y", b"ab")


@pytest.mark.parametrize("secret", [ONE, KeyPair(b"\3" * 32)])
def test_secrets_are_neither_shown_nor_pickled(secret):
    assert secret.public.hex() in repr(secret)
    assert (b"\1" * 32).hex() not in repr(secret)
    assert (b"\3" * 32).hex() not in repr(secret)
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(secret)


@pytest.mark.parametrize("private", [b"short", "text", bytearray(32)])
def test_an_identity_needs_32_bytes(private):
    with pytest.raises(InvalidInput, match="32 bytes"):
        Identity(private)


def test_an_identity_is_new_unless_it_is_given():
    assert Identity().public != Identity().public
    assert Identity(b"\1" * 32).public == ONE.public


def test_a_roster_is_sorted_by_name_and_found_by_name():
    roster = Roster.of({"b": TWO.public, "a": ONE.public})
    assert roster.names == ("a", "b")
    assert roster.index("b") == 1
    with pytest.raises(InvalidInput, match="'c' is not on the roster"):
        roster.index("c")


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("a",), (ONE.public,)),
        (("a", "b"), (ONE.public,)),
        (("a", "a"), (ONE.public, TWO.public)),
        (("a", "b"), (ONE.public, ONE.public)),
        (("a", ""), (ONE.public, TWO.public)),
        (("a", "b" * 201), (ONE.public, TWO.public)),
        (("a", "b"), (ONE.public, b"short")),
        (tuple(str(i) for i in range(10_001)), tuple(i.to_bytes(32, "big") for i in range(10_001))),
    ],
)
def test_a_roster_that_cannot_be_right_is_refused(names, keys):
    with pytest.raises(InvalidInput):
        Roster(names, keys)


def test_a_roster_with_another_name_or_key_has_another_digest():
    base = Roster(("a", "b"), (ONE.public, TWO.public)).digest()
    assert Roster(("a", "c"), (ONE.public, TWO.public)).digest() != base
    assert Roster(("a", "b"), (TWO.public, ONE.public)).digest() != base
