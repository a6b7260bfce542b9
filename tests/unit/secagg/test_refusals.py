"""Each refusal, by name. Every one leaves the machine where it was, and the run goes on afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from cape.core.errors import BadMessage, InvalidInput, OverflowRisk, Refused, TooFewSites
from cape.secagg import AggregatorState, Identity, Parameters, Roster, Site, SiteState
from cape.secagg import messages as m


def refuses(play, name: str, data: bytes, error, match: str) -> None:
    """The site refuses, its state stays, and it still answers the right message with a right sum."""
    site = play.sites[name]
    before, transcript = site.state, site.transcript
    with pytest.raises(error, match=match):
        site.handle(data)
    assert site.state is before
    assert site.transcript == transcript
    round_ = {
        SiteState.ADVERTISED: "share",
        SiteState.BEGUN: "mask",
        SiteState.READY: "mask",
        SiteState.MASKED: "consistency",
        SiteState.AGREED: "unmask",
    }[before]
    rounds = ("share", "mask", "consistency", "unmask")
    for _ in rounds[rounds.index(round_) :]:
        play.deliver(play.answers())
    assert np.array_equal(play.finished.total, play.sum_of(play.finished.survivors))


# --- what a site refuses -------------------------------------------------------------------------


def test_to_unmask_a_peer_both_as_survivor_and_as_dropped(cast):
    play = cast(6).until("consistency", {"mask": ("f",)})
    lie = play.alter(play.down["a"], dropped=(4, 5))
    refuses(play, "a", lie, Refused, "'e' is listed both as survivor and as dropped")


def test_to_answer_for_fewer_survivors_than_its_own_threshold(cast):
    play = cast(6).until("consistency")
    lie = play.alter(play.down["a"], survivors=(0, 1, 2), dropped=(3, 4, 5))
    refuses(play, "a", lie, Refused, "only 3 sites survived; this site's threshold is 4")


def test_to_leave_a_site_that_shared_off_both_lists(cast):
    play = cast(6).until("consistency")
    lie = play.alter(play.down["a"], survivors=(0, 1, 2, 3, 4), dropped=())
    refuses(play, "a", lie, Refused, "not the sites that shared")


def test_to_be_counted_as_dropped_itself(cast):
    play = cast(6).until("consistency")
    lie = play.alter(play.down["a"], survivors=(1, 2, 3, 4, 5), dropped=(0,))
    refuses(play, "a", lie, Refused, "this site sent its vector and is not among the survivors")


def test_lists_that_are_not_ascending_or_not_on_the_roster(cast):
    for survivors in ((1, 0, 2, 3, 4), (0, 0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 9)):
        play = cast().until("consistency")
        lie = play.alter(play.down["a"], survivors=survivors)
        refuses(play, "a", lie, BadMessage, "ascending and on the roster")


def test_a_list_of_survivors_that_too_few_signed(cast):
    play = cast(6).until("unmask")
    few = m.unpack(play.down["a"], play.parameters).consents[:3]
    refuses(play, "a", play.alter(play.down["a"], consents=few), Refused, "only 3 sites signed")


def test_one_signature_repeated_is_one_signature(cast):
    play = cast(6).until("unmask")
    consents = m.unpack(play.down["a"], play.parameters).consents
    lie = play.alter(play.down["a"], consents=consents[:3] + consents[:3])
    refuses(play, "a", lie, Refused, "only 3 sites signed")


def test_a_signature_on_another_list_of_survivors(cast):
    play, other = cast(6).until("unmask"), cast(6).until("unmask", {"mask": ("f",)})
    consents = m.unpack(play.down["a"], play.parameters).consents
    theirs = m.unpack(other.down["a"], other.parameters).consents
    lie = play.alter(play.down["a"], consents=(consents[0], *theirs[1:5]))
    refuses(play, "a", lie, Refused, "signed another list of survivors")


def test_a_signature_of_a_site_that_is_not_a_survivor(cast):
    play = cast(6).until("unmask", {"mask": ("f",)})
    consents = m.unpack(play.down["a"], play.parameters).consents
    stray = m.Consent(
        version=m.VERSION,
        run=play.parameters.run,
        transcript=play.sites["a"].transcript,
        sender=5,
        round=4,
        step=0,
    )
    lie = play.alter(play.down["a"], consents=(*consents, m.pack_signed(stray, play.identities["f"])))
    refuses(play, "a", lie, Refused, "not among the survivors signed")


def test_a_forged_consent(cast):
    play = cast(6).until("unmask")
    consents = m.unpack(play.down["a"], play.parameters).consents
    forged = bytes([consents[1][0] ^ 1]) + consents[1][1:]
    lie = play.alter(play.down["a"], consents=(consents[0], forged, *consents[2:]))
    refuses(play, "a", lie, BadMessage, "signature of b")


@pytest.mark.parametrize("round_", ["share", "mask", "consistency", "unmask"])
def test_a_foreign_run(cast, round_):
    play, other = cast().until(round_), cast(run=b"another run here").until(round_)
    refuses(play, "a", other.down["a"], Refused, "replayed, or meant for another run")


def test_a_run_that_it_has_taken_part_in_before(cast):
    play, used = cast(), set()

    def claim(run: bytes) -> None:
        if run in used:
            raise Refused("was used before")
        used.add(run)

    arguments = (play.parameters, "a", play.identities["a"])
    Site(*arguments, claim=claim)
    with pytest.raises(Refused, match="was used before"):
        Site(*arguments, claim=claim)


@pytest.mark.parametrize("round_", ["share", "mask", "consistency", "unmask"])
@pytest.mark.parametrize("change", [{"threshold": 5}, {"length": 4}, {"bits": 32}])
def test_a_threshold_or_width_that_is_not_its_own(cast, round_, change):
    play, other = cast().until(round_), cast(**change).until(round_)
    refuses(play, "a", other.down["a"], Refused, "roster, threshold, graph or an earlier list differs")


def test_a_roster_that_changed(cast):
    play, other = cast(5).until("mask"), cast(6).until("mask")
    refuses(play, "a", other.down["a"], Refused, "roster, threshold, graph")


@pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")
def test_a_graph_that_changed(cast):
    play = cast(9, neighbours=6, dropping=1).until("mask")
    other = cast(9, neighbours=4, dropping=1).until("mask")
    refuses(play, "a", other.down["a"], Refused, "roster, threshold, graph")


def test_keys_of_a_site_that_the_roster_does_not_pin(cast):
    play = cast().until("share")
    adverts = m.unpack(play.down["a"], play.parameters).adverts
    stranger = Identity(b"\7" * 32)
    fake = m.pack_signed(m.unpack_signed(adverts[1], play.parameters), stranger)
    lie = play.alter(play.down["a"], adverts=(adverts[0], fake, *adverts[2:]))
    refuses(play, "a", lie, BadMessage, "signature of b")


def test_an_advertisement_of_nobody(cast):
    play = cast().until("share")
    adverts = m.unpack(play.down["a"], play.parameters).adverts
    fake = play.resign("b", adverts[1], sender=7)
    lie = play.alter(play.down["a"], adverts=(*adverts, fake))
    refuses(play, "a", lie, BadMessage, "site number 7 is not on the roster")


def test_an_advertisement_for_other_parameters(cast):
    play, other = cast().until("share"), cast(threshold=5).until("share")
    adverts = m.unpack(play.down["a"], play.parameters).adverts
    theirs = m.unpack(other.down["a"], other.parameters).adverts
    lie = play.alter(play.down["a"], adverts=(adverts[0], theirs[1], *adverts[2:]))
    refuses(play, "a", lie, Refused, "advertised for another roster, threshold or graph")


def test_a_list_of_keys_without_its_own(cast):
    play = cast().until("share")
    adverts = m.unpack(play.down["a"], play.parameters).adverts
    refuses(play, "a", play.alter(play.down["a"], adverts=adverts[1:]), Refused, "own advertisement")


def test_two_advertisements_of_one_site_and_a_wrong_order(cast):
    for order in ([0, 1, 1, 2, 3, 4], [0, 2, 1, 3, 4]):
        play = cast().until("share")
        adverts = m.unpack(play.down["a"], play.parameters).adverts
        lie = play.alter(play.down["a"], adverts=tuple(adverts[i] for i in order))
        refuses(play, "a", lie, BadMessage, "ascending order")


def test_too_few_advertisements_or_shares(cast):
    play = cast().until("share")
    adverts = m.unpack(play.down["a"], play.parameters).adverts
    lie = play.alter(play.down["a"], adverts=adverts[:2])
    refuses(play, "a", lie, Refused, "only 2 sites advertised; this site's threshold is 3")
    play = cast().until("mask")
    sealed = m.unpack(play.down["a"], play.parameters).sealed
    lie = play.alter(play.down["a"], sharers=(0, 1), sealed=sealed[:1])
    refuses(play, "a", lie, Refused, "only 2 sites shared; this site's threshold is 3")


@pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")
def test_too_few_neighbours(cast):
    play = cast(9, neighbours=4, dropping=0, threshold=5).until("share")
    around = set(play.aggregator._graph.neighbours(0))
    far = sorted({0, *(set(range(9)) - around), min(around)})
    play.deliver(play.answers())
    down = m.unpack(play.down["a"], play.parameters)
    lie = play.alter(play.down["a"], sharers=tuple(far), sealed=down.sealed[:1])
    refuses(play, "a", lie, Refused, "only 2 of this site's neighbours and itself shared; it asks for")


@pytest.mark.filterwarnings("ignore::cape.core.errors.PrivacyLeakWarning")
def test_too_few_neighbours_survived(cast):
    play = cast(9, neighbours=4, dropping=0, threshold=5).until("consistency")
    around = set(play.aggregator._graph.neighbours(0))
    lost = tuple(sorted(around)[1:])  # five others survive, and one neighbour of four
    kept = tuple(site for site in range(9) if site not in lost)
    lie = play.alter(play.down["a"], survivors=kept, dropped=lost)
    refuses(play, "a", lie, Refused, "only 2 of this site's neighbours and itself survived; it asks for")


def test_shares_that_were_changed_or_are_for_another(cast):
    play = cast().until("mask")
    mine = m.unpack(play.down["a"], play.parameters).sealed
    theirs = m.unpack(play.down["b"], play.parameters).sealed
    for sealed in ((mine[1], mine[0], *mine[2:]), theirs, (bytes(len(mine[0])), *mine[1:])):
        play = cast().until("mask")
        refuses(play, "a", play.alter(play.down["a"], sealed=sealed), BadMessage, "were changed or are not")


def test_shares_of_other_sites_than_were_named(cast):
    play = cast().until("mask")
    sealed = m.unpack(play.down["a"], play.parameters).sealed
    refuses(play, "a", play.alter(play.down["a"], sealed=sealed[1:]), BadMessage, "are not those of")


def test_a_list_of_sharers_without_itself(cast):
    play = cast(6).until("mask")
    lie = play.alter(play.down["a"], sharers=(1, 2, 3, 4, 5))
    refuses(play, "a", lie, BadMessage, "are not those of this site's neighbours")


def test_a_second_unmask(cast):
    play = cast().until("unmask")
    play.sites["a"].handle(play.down["a"])
    with pytest.raises(Refused, match="answers each message once"):
        play.sites["a"].handle(play.down["a"])
    assert play.sites["a"].state is SiteState.DONE


def test_a_second_start(cast):
    play = cast()
    play.sites["a"].start()
    with pytest.raises(Refused, match="start is refused"):
        play.sites["a"].start()


@pytest.mark.parametrize(
    ("vector", "match"),
    [
        (np.zeros(4, np.int64), r"shape \(3,\), not \(4,\)"),
        (np.zeros((3, 1), np.int64), "shape"),
        (np.zeros(3, np.int32), "int64, not int32"),
        (np.zeros(3), "int64, not float64"),
        ([0, 0, 0], "int64, not list"),
    ],
)
def test_a_vector_of_the_wrong_length_or_width(cast, vector, match):
    site = cast().until("mask").sites["a"]
    with pytest.raises(InvalidInput, match=match):
        site.begin(0, vector)
    assert site.state is SiteState.BEGUN


@pytest.mark.parametrize("value", [1 << 31, -(1 << 31) - 1])
def test_a_vector_too_wide_for_32_bits(cast, value):
    play = cast(bits=32).until("mask")
    with pytest.raises(InvalidInput, match="does not fit 32 bits") as caught:
        play.sites["a"].begin(0, np.array([0, value, 0]))
    assert str(value) not in str(caught.value)


def test_an_identity_that_is_not_the_rosters(cast):
    play = cast()
    with pytest.raises(InvalidInput, match="not that of 'a'"):
        Site(play.parameters, "a", play.identities["b"])


def test_survivors_are_known_once_the_list_is_signed(cast):
    play = cast().until("consistency")
    with pytest.raises(Refused, match="has not signed"):
        _ = play.sites["a"].survivors
    play.answers()
    assert play.sites["a"].survivors == ("a", "b", "c", "d", "e")


# --- what the aggregator refuses -----------------------------------------------------------------


def finishes(play, up: dict[str, bytes], without=()) -> None:
    play.deliver(up, without)
    while play.finished is None:
        play.deliver(play.answers())
    assert np.array_equal(play.finished.total, play.sum_of(play.finished.survivors))


def test_a_late_masked_input_of_a_site_already_counted_as_dropped(cast):
    play = cast().until("mask")
    up = play.answers()
    play.take(play.aggregator.gone(["e"]))
    with pytest.raises(Refused, match="'e' is late"):
        play.aggregator.handle(up["e"])
    finishes(play, {name: data for name, data in up.items() if name != "e"})
    assert "e" not in play.finished.survivors
    with pytest.raises(Refused, match="the aggregator now waits for nothing"):
        play.aggregator.handle(up["e"])


def test_a_late_masked_input_in_the_next_round(cast):
    play = cast().until("mask")
    up = play.answers()
    play.deliver({name: data for name, data in up.items() if name != "e"})
    play.take(play.aggregator.gone(["e"]))
    with pytest.raises(Refused, match="waits for consents"):
        play.aggregator.handle(up["e"])
    finishes(play, play.answers())


@pytest.mark.parametrize("round_", ["advertise", "share", "mask", "consistency", "unmask"])
def test_an_answer_that_its_sender_did_not_sign(cast, round_):
    play = cast().until(round_)
    up = play.begin() if round_ == "advertise" else play.answers()
    theirs = m.pack_signed(m.unpack_signed(up["a"], play.parameters), play.identities["b"])
    for forged in (theirs, up["b"][:64] + up["a"][64:], bytes(64) + up["a"][64:]):
        with pytest.raises(BadMessage, match="the signature of a does not fit"):
            play.aggregator.handle(forged)
    finishes(play, up)


@pytest.mark.parametrize("round_", ["advertise", "share", "mask", "consistency", "unmask"])
def test_a_second_answer_in_a_round(cast, round_):
    play = cast().until(round_)
    up = play.begin() if round_ == "advertise" else play.answers()
    play.aggregator.handle(up["a"])
    with pytest.raises(Refused, match="'a' has answered this round already"):
        play.aggregator.handle(up["a"])
    del up["a"]
    finishes(play, up)


def test_a_masked_input_of_the_wrong_length(cast):
    play = cast().until("mask")
    up = play.answers()
    for size in (0, 16, 32):
        with pytest.raises(BadMessage, match="bytes for a vector of 24"):
            play.aggregator.handle(play.resign("a", up["a"], words=bytes(size)))
    finishes(play, up)


def test_shares_for_other_sites_than_its_neighbours(cast):
    play = cast().until("share")
    up = play.answers()
    sealed = m.unpack_signed(up["a"], play.parameters).sealed
    with pytest.raises(BadMessage, match="sites that are not its neighbours"):
        play.aggregator.handle(play.resign("a", up["a"], sealed=sealed[1:]))
    finishes(play, up)


def test_a_reveal_of_other_shares_than_asked_for(cast):
    play = cast(6).until("unmask", {"mask": ("f",)})
    up = play.answers()
    reveal = m.unpack_signed(up["a"], play.parameters)
    for change in ({"seeds": reveal.seeds[1:]}, {"keys": ()}, {"keys": reveal.keys * 2}):
        with pytest.raises(BadMessage, match="sites that it was not asked for"):
            play.aggregator.handle(play.resign("a", up["a"], **change))
    finishes(play, up)


def test_an_answer_about_another_list(cast):
    play, other = cast(6).until("consistency"), cast(6).until("consistency", {"mask": ("f",)})
    theirs = other.answers()
    with pytest.raises(BadMessage, match="another roster, threshold, graph or list"):
        play.aggregator.handle(theirs["a"])
    finishes(play, play.answers())


def test_an_advertised_key_that_agrees_on_nothing(cast):
    play = cast()
    up = play.begin()
    with pytest.raises(BadMessage, match="agrees on nothing"):
        play.aggregator.handle(play.resign("a", up["a"], masking=bytes(32)))
    finishes(play, up)


@pytest.mark.parametrize("secret", ["seeds", "keys"])
def test_one_wrong_share_is_worked_around_when_there_are_enough_others(cast, secret):
    play = cast(6).until("unmask", {"mask": ("f",)})
    up = play.answers()
    wrong = tuple(bytes(33) for _ in getattr(m.unpack_signed(up["b"], play.parameters), secret))
    up["b"] = play.resign("b", up["b"], **{secret: wrong})
    finishes(play, up)


@pytest.mark.parametrize("secret", ["seeds", "keys"])
def test_wrong_shares_end_the_run_and_never_give_a_wrong_sum(cast, secret):
    play = cast(6, threshold=5).until("unmask", {"mask": ("f",)})
    up = play.answers()
    wrong = tuple(bytes(33) for _ in getattr(m.unpack_signed(up["b"], play.parameters), secret))
    up["b"] = play.resign("b", up["b"], **{secret: wrong})
    with pytest.raises(BadMessage, match="do not recover its secret"):
        play.deliver(up)
    assert play.aggregator.state is AggregatorState.FAILED
    assert play.finished is None


def test_a_commitment_to_another_seed_ends_the_run(cast):
    play = cast().until("share")
    up = play.answers()
    up["c"] = play.resign("c", up["c"], commitments=bytes(32))
    with pytest.raises(BadMessage, match="revealed for 'c' do not recover"):
        finishes(play, up)


def test_nothing_after_the_end(cast):
    play = cast().until("end")
    assert play.aggregator.state is AggregatorState.DONE
    with pytest.raises(Refused, match="no site can drop now"):
        play.aggregator.gone(["a"])


def test_an_announcement_before_the_sum(cast):
    with pytest.raises(Refused, match="no sum is known yet"):
        cast().aggregator.announcement()


def test_gone_sites_stay_gone_and_all_gone_ends_the_run(cast):
    play = cast().until("mask")
    up = play.answers()
    play.aggregator.handle(up["a"])
    play.take(play.aggregator.gone(["a"]))  # its vector is in the sum; it will not be asked again
    del up["a"]
    play.deliver(up)
    assert "a" not in play.down
    while play.finished is None:
        play.deliver(play.answers())
    assert "a" in play.finished.survivors
    assert np.array_equal(play.finished.total, play.sum_of("abcde"))
    with pytest.raises(TooFewSites, match="0 of 5 sites"):
        cast().aggregator.gone("abcde")


def test_everyone_answering_and_leaving_ends_the_run_and_does_not_hang(cast):
    play = cast()
    up = play.begin()
    for name in "abcd":
        play.aggregator.handle(up[name])
    with pytest.raises(TooFewSites, match="0 of 5 sites were left in the round 'share'"):
        play.aggregator.gone("abcde")
    assert play.aggregator.state is AggregatorState.FAILED


def test_gone_needs_a_name_on_the_roster(cast):
    with pytest.raises(InvalidInput, match="'z' is not on the roster"):
        cast().aggregator.gone(["z"])


def test_noise_that_may_overflow_the_ring():
    from cape.secagg import zero_sum_gaussian

    with pytest.raises(OverflowRisk):
        zero_sum_gaussian(2.0**28, 4, 2, bits=32)


# --- sizes and forms -----------------------------------------------------------------------------


def test_messages_that_are_too_large_are_refused_before_they_are_decoded(cast, monkeypatch):
    play = cast().until("share")

    def never(data):
        raise AssertionError("decoded a message that is too large")

    class Decoder:
        decode = staticmethod(never)

    monkeypatch.setattr(m, "_decode_site", Decoder)
    monkeypatch.setattr(m, "_decode_aggregator", Decoder)
    for machine in (play.sites["a"], play.aggregator):
        with pytest.raises(BadMessage, match=r"a message must have .* bytes, not 100000"):
            machine.handle(bytes(100_000))
        with pytest.raises(BadMessage, match="a message must have"):
            machine.handle(b"")
        with pytest.raises(BadMessage, match="must be bytes, not str"):
            machine.handle("text")


def test_another_version_is_refused(cast):
    play = cast().until("share")
    data = play.down["a"]
    at = data.index(b"adverts") + len(b"adverts")
    assert data[at] == m.VERSION
    with pytest.raises(BadMessage, match="cannot be decoded"):
        play.sites["a"].handle(data[:at] + b"\1" + data[at + 1 :])


def test_parameters_are_each_partys_own():
    identity = Identity(b"\1" * 32)
    roster = Roster.of({"a": identity.public, "b": Identity(b"\2" * 32).public})
    parameters = Parameters.agree(bytes(16), roster, 1, colluding=0)
    site = Site(parameters, "a", identity)
    assert site.parameters is parameters
