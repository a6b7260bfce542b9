"""Surplus noise through the real protocol: what is in the sum is exactly what has to stay."""

from __future__ import annotations

import hashlib
import hmac
from itertools import product

import numpy as np
import pytest

from cape.core.errors import BadMessage, InvalidInput, Refused, TooFewSites
from cape.noise import SecureStream, discrete_gaussian
from cape.secagg import AGGREGATOR, ROUNDS, Observer, Parameters, Roster, Session, Surplus, simulate
from cape.secagg import messages as m
from cape.secagg.keys import Identity, derive
from cape.secagg.surplus import SurplusKey

MASK = ROUNDS.index("mask")
STDS = (3000.0, 1000.0, 200.0)


def surplus(losses: int) -> Surplus:
    """A part for each loss."""
    return Surplus(tuple(range(losses + 1)), STDS[:losses])


class Keys(Observer):
    """Takes each site's first surplus key, step by step, before the site gives it up."""

    def __init__(self):
        self.parts: dict[tuple[str, int], list[np.ndarray]] = {}

    def began(self, sites, aggregator):
        self.sites = sites

    def carried(self, wire):
        if wire.receiver == AGGREGATOR and wire.round == "mask":
            site = self.sites[wire.sender]
            key = site._surplus
            self.parts[wire.sender, site.step] = drawn(key.secret, site)


def drawn(secret: bytes, site) -> list[np.ndarray]:
    """Return every part that follows from a first key: HKDF from its definition, then the sampler."""
    parts, parameters = [], site.parameters
    for level, std in enumerate(parameters.surplus.stds):
        keys = {}
        for label in ("surplus part", "surplus next"):
            info = f"cape secagg 3 {label}".encode() + b"\0"
            info += b"".join(number.to_bytes(8, "big") for number in (site.number, site.step, level))
            extracted = hmac.digest(parameters.digest(), secret, hashlib.sha256)
            keys[label] = hmac.digest(extracted, info + b"\1", hashlib.sha256)
        parts.append(discrete_gaussian(std, parameters.length, SecureStream(keys["surplus part"])))
        secret = keys["surplus next"]
    return parts


def vectors(sites: int, length: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(sites)
    return {f"{i:02d}": random.integers(-(1 << 50), 1 << 50, length) for i in range(sites)}


def must_stay(keys: Keys, survivors, late, lost: int, step: int = 0) -> np.ndarray:
    """Return the noise that has to be in a sum: the parts that the losses need, and all of the late ones."""
    return sum(
        (
            part
            for name in survivors
            for number, part in enumerate(keys.parts[name, step])
            if number < lost or name in late
        ),
        start=np.zeros(3, np.int64),
    )


@pytest.mark.parametrize(
    ("sites", "threshold", "colluding"),
    [
        (3, 2, 0),
        pytest.param(4, 3, 1, marks=pytest.mark.slow(5)),
        pytest.param(5, 3, 0, marks=pytest.mark.slow(40)),
    ],
)
def test_whoever_drops_and_whenever_exactly_the_parts_that_are_needed_stay(sites, threshold, colluding):
    data, sums = vectors(sites), 0
    for leaves in product((0, 2, 3, 4, 5), repeat=sites):
        names = list(data)
        drop = {r: [n for n, at in zip(names, leaves, strict=True) if at == i] for i, r in enumerate(ROUNDS)}
        keys = Keys()
        try:
            outcome = simulate(
                data,
                drop=drop,
                threshold=threshold,
                colluding=colluding,
                surplus=surplus(sites - threshold),
                observer=keys,
                stream=SecureStream(bytes(32)),
            )
        except TooFewSites:
            continue
        survivors = [name for name, at in zip(names, leaves, strict=True) if at > MASK]
        silent = [name for name, at in zip(names, leaves, strict=True) if MASK < at < len(ROUNDS)]
        lost = sites - len(survivors)
        assert outcome.survivors == tuple(survivors)
        assert outcome.late == (tuple(silent) if lost < sites - threshold else ())
        expected = sum(data[name] for name in survivors) + must_stay(keys, survivors, silent, lost)
        assert np.array_equal(outcome.total, expected)
        sums += 1
    assert sums > 10


def test_nobody_lost_leaves_nothing():
    data = vectors(6, 1000)
    outcome = simulate(data, colluding=1, surplus=surplus(2), threshold=4)
    assert np.array_equal(outcome.total, sum(data.values()))
    assert outcome.late == ()


@pytest.mark.parametrize("bits", [32, 64])
def test_what_a_loss_leaves_has_the_variance_of_its_parts(bits):
    length, sites = 60_000, 5
    data = {f"{i}": np.zeros(length, np.int64) for i in range(sites)}
    key = SecureStream(b"\7" * 32)
    outcome = simulate(
        data, colluding=0, surplus=surplus(2), threshold=3, bits=bits, drop={"mask": ["0"]}, stream=key
    )
    # Four sites' first parts. The standard error of the ratio is 0.6%, so 3% too little would be noticed.
    assert np.var(outcome.total) / (4 * STDS[0] ** 2) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_long_part_is_drawn_block_by_block_from_one_stream(monkeypatch, bits):
    monkeypatch.setattr("cape.secagg.surplus._BLOCK", 4)
    key = SurplusKey(surplus(2), bytes(32), 1, 0, 1, bytes(range(32)))
    words = np.arange(10, dtype=f"u{bits // 8}")
    key.apply(words, 1)
    stream = SecureStream(derive(key.secret, key.run, "surplus part", 1, 0, 1))
    blocks = [discrete_gaussian(STDS[1], size, stream) for size in (4, 4, 2)]
    assert (words.view(f"i{bits // 8}") == np.arange(10) + np.concatenate(blocks)).all()
    key.apply(words, -1)
    assert (words == np.arange(10)).all()


def test_every_step_has_parts_of_its_own():
    data, keys = vectors(4), Keys()
    session = Session(list(data), 3, 3, colluding=1, surplus=surplus(1), observer=keys)
    lost = [[], ["01"], ["02"]]
    for step, gone in enumerate(lost):
        outcome = session.step(data, drop={"mask": gone})
        left = [name for name in data if name not in gone]
        expected = sum(data[name] for name in left) + must_stay(keys, left, [], len(gone), step)
        assert np.array_equal(outcome.total, expected)
    noise = [tuple(parts[0]) for parts in keys.parts.values()]
    assert len(set(noise)) == len(noise)


@pytest.mark.slow(2.4)
def test_a_sparse_graph_and_levels_for_several_losses():
    sites, names = 60, [f"{i:02d}" for i in range(60)]
    ladder = Surplus((0, 3, 12), (3000.0, 1000.0))
    for lost, kept in ((0, 0), (1, 1), (3, 1), (4, 2), (12, 2)):
        keys, late = Keys(), names[-1:] if kept < 2 else []
        outcome = simulate(
            vectors(sites),
            colluding=5,
            dropping=12,
            threshold=48,
            neighbours=40,
            surplus=ladder,
            drop={"mask": names[:lost], "unmask": late},
            observer=keys,
            stream=SecureStream(bytes(32)),
        )
        left = names[lost:]
        assert outcome.late == tuple(late)
        expected = sum(vectors(sites)[name] for name in left) + must_stay(keys, left, late, kept)
        assert np.array_equal(outcome.total, expected)


# --- a site reveals one level, for the one list that it signed -------------------------------------


def test_signing_deletes_the_keys_of_the_parts_that_stay(cast):
    play = cast(5, surplus=surplus(2)).until("consistency", drop={"mask": ("c",)})
    before = {name: play.sites[name]._surplus for name in "abde"}
    assert {key.level for key in before.values()} == {0}
    play.deliver(play.answers())
    for name in "abde":
        assert play.sites[name]._surplus == before[name].at(1)
    up = play.answers()
    assert all(play.sites[name]._surplus is None for name in "abde")
    revealed = m.unpack_signed(up["a"], play.parameters).surplus
    assert revealed == before["a"].at(1).secret
    assert revealed not in (before["a"].secret, before["a"].tip)


def test_with_as_many_lost_as_may_be_nothing_is_revealed(cast):
    play = cast(5, surplus=surplus(2)).until("unmask", drop={"mask": ("c", "d")})
    assert m.unpack_signed(play.answers()["a"], play.parameters).surplus == b""


def test_a_new_step_deletes_the_surplus_key_of_one_that_broke_off(cast):
    play = cast(5, steps=2, surplus=surplus(2)).until("consistency")
    assert play.sites["a"]._surplus is not None
    play.sites["a"].begin(1, play.vectors["a"])
    assert play.sites["a"]._surplus is None


def test_a_site_counts_the_missing_by_its_own_roster(cast):
    """Whatever the aggregator says of who dropped: sites that never shared are missing too."""
    play = cast(5, surplus=surplus(2)).until("unmask", drop={"advertise": ("e",), "share": ("d",)})
    assert play.sites["a"]._surplus.level == 2


@pytest.mark.parametrize("sites", [5, 10])
def test_phantoms_are_refused(cast, sites):
    """Advertisements are suppressed, and the sites listed as sharers, to be survivors later."""
    names = [chr(ord("a") + number) for number in range(sites)]
    phantoms = tuple(names[-2:])
    play = cast(sites, surplus=Surplus((0, 2), (1000.0,)), threshold=sites - 2).until(
        "mask", drop={"advertise": phantoms}
    )
    lie = play.alter(play.down["a"], sharers=tuple(range(sites)))
    with pytest.raises(Refused, match=f"'{phantoms[0]}' is said to have shared, and has not advertised"):
        play.sites["a"].handle(lie)
    play.sites["a"].handle(play.down["a"])  # the true list is still welcome


def test_a_sharer_whose_shares_do_not_come_is_refused(cast):
    """All are neighbours: one that advertised and did not share cannot be listed either."""
    play = cast(5, surplus=surplus(2)).until("mask", drop={"share": ("e",)})
    lie = play.alter(play.down["a"], sharers=(0, 1, 2, 3, 4))
    with pytest.raises(BadMessage, match="not those of this site's neighbours who shared"):
        play.sites["a"].handle(lie)


# --- the aggregator checks what is revealed --------------------------------------------------------


def test_a_wrong_surplus_key_is_refused_and_the_right_one_is_still_taken(cast):
    play = cast(5, surplus=surplus(2)).until("unmask", drop={"mask": ("c",)})
    up = play.answers()
    right = m.unpack_signed(up["a"], play.parameters).surplus
    other = m.unpack_signed(up["b"], play.parameters).surplus
    for wrong in (b"", other, bytes(32), right[:31]):
        with pytest.raises(BadMessage, match="'a' revealed a surplus key that is not the one of its vector"):
            play.aggregator.handle(play.resign("a", up["a"], surplus=wrong))
    play.deliver(up)
    assert play.finished.late == ()


def test_noise_that_has_to_stay_is_not_taken_off(cast):
    play = cast(5, surplus=surplus(2)).until("unmask", drop={"mask": ("c", "d")})
    up = play.answers()
    with pytest.raises(BadMessage, match="'a' revealed surplus noise that has to stay"):
        play.aggregator.handle(play.resign("a", up["a"], surplus=bytes(32)))


def test_a_vector_needs_its_tip(cast):
    play = cast(5, surplus=surplus(2)).until("mask")
    up = play.answers()
    with pytest.raises(BadMessage, match="'a' did not send the tip of its surplus keys"):
        play.aggregator.handle(play.resign("a", up["a"], tip=b""))
    plain = cast(5).until("mask")
    up = plain.answers()
    with pytest.raises(BadMessage, match="tip"):
        plain.aggregator.handle(plain.resign("a", up["a"], tip=bytes(32)))


# --- what the parties agree on ---------------------------------------------------------------------


def test_the_surplus_and_its_sampler_are_part_of_the_transcript(cast, monkeypatch):
    one, two = (
        cast(5, surplus=each).parameters for each in (surplus(2), Surplus((0, 1, 2), (3000.0, 999.0)))
    )
    known = one.digest()
    assert known != two.digest()
    monkeypatch.setattr("cape.secagg.surplus.SAMPLER", b"another sampler")
    assert cast(5, surplus=surplus(2)).parameters.digest() != known


def test_a_surplus_must_cover_what_the_threshold_lets_go():
    roster = Roster.of({name: Identity(stream=SecureStream(name.encode() * 32)).public for name in "abcde"})
    with pytest.raises(
        InvalidInput, match="made for 1 missing sites, and a threshold of 3 lets 2 be missing"
    ):
        Parameters.agree(bytes(16), roster, 1, colluding=0, surplus=surplus(1))


@pytest.mark.parametrize(
    ("losses", "stds", "message"),
    [
        ((), (), "losses of a surplus must ascend from 0"),
        ((0, 1, 1), (9.0, 9.0), "losses of a surplus must ascend from 0"),
        ((0, 1), (), "a standard deviation for each level above 0"),
        ((0, 1), (7.0,), "at least 8 steps"),
        ((0, 1), (float("nan"),), "at least 8 steps"),
    ],
)
def test_a_surplus_that_makes_no_sense_is_refused(losses, stds, message):
    with pytest.raises(InvalidInput, match=message):
        Surplus(losses, stds)


def test_a_surplus_key_does_not_show_its_secret(cast):
    play = cast(5, surplus=surplus(2)).until("consistency")
    key = play.sites["a"]._surplus
    assert key.secret.hex() not in repr(key)
    assert repr(key) == "SurplusKey(site=0, step=0, level=0)"
