"""What a coordinator keeps of sites' ledgers, and what it notices: backups put back, heads taken off."""

from __future__ import annotations

import warnings
from dataclasses import replace

import msgspec
import pytest

from cape.coordinator import Submission
from cape.coordinator.calls import AskReview, unpack_call
from cape.coordinator.heads import HEADS, Heads
from cape.core.errors import LedgerWarning, TooFewSites
from cape.site import Request, wire
from cape.site.ledger.heads import Head, read_heads
from cape.site.ledger.verify import verify
from tests.unit.site.test_heads import copy_of, put_back
from tests.world import COUNT, KMEANS, MEAN, NAMES, World


def kept(world: World) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    for site, head in read_heads(world.coordinator.path / HEADS):
        found[site].append(head.lines)
    return found


def answer(world: World, *analyses: str, **changes) -> list[str]:
    """Run a study; return what was warned of."""
    study = world.study(*analyses, **changes)
    submission = world.submission(study)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LedgerWarning)
        submission.check()
        for entry in study.analyses:
            submission.answer(entry)
    return [str(each.message) for each in caught if each.category is LedgerWarning]


@pytest.mark.quick_cases("conventional", seconds=2.7)
@pytest.mark.parametrize("scheme", ["cape", "conventional"])
def test_every_answer_that_was_paid_for_brings_the_head_that_holds_it(world: World, scheme: str):
    assert answer(world, MEAN, KMEANS, COUNT, scheme=scheme) == []
    for name in NAMES:
        ledger = world.sites[name].ledger
        assert kept(world)[name] == [line.id for line in ledger.entries()]
        found = [head for site, head in read_heads(world.coordinator.path / HEADS) if site == name]
        assert verify(ledger.path, [world.sites[name].identity.public], found).problems == []


def test_a_site_with_a_restored_backup_refuses_by_itself(world: World):
    copy = copy_of(world.sites["a"].ledger)
    assert answer(world, MEAN, name="first") == []
    put_back(world.sites["a"].ledger, copy)
    report = world.submission(world.study(MEAN, name="second")).check()["a"]
    assert report.refusals[0] is not None
    assert report.refusals[0].code == "ledger"
    assert "cape site settle" in str(report)
    assert world.lines("a") == 0
    assert answer(world, MEAN, name="third") == [], "the others go on"
    with pytest.raises(TooFewSites, match="ledger: this site's ledger lacks lines"):
        answer(world, MEAN, name="fourth", min_sites=4)
    world.sites["a"].ledger.settle()
    (warned,) = answer(world, MEAN, name="fifth", min_sites=4)
    assert warned.startswith("a: its ledger was rewritten"), "and the coordinator sees that it was"


@pytest.mark.slow(1.2)
def test_a_ledger_that_goes_back_while_nobody_looks_is_told(world: World):
    """A site of another make, which does not compare what it is shown."""
    answer(world, MEAN, MEAN, name="first")
    copy = copy_of(world.sites["a"].ledger)
    answer(world, MEAN, MEAN, name="second")
    put_back(world.sites["a"].ledger, copy)
    world.channel.left.clear()
    ledger = type(world.sites["a"].ledger)
    real = ledger.show
    ledger.show = lambda self, head, own: True  # type: ignore[method-assign]
    try:
        warned = answer(world, MEAN, name="third")
    finally:
        ledger.show = real  # type: ignore[method-assign]
    assert warned == [
        "a: its ledger has 3 lines after this answer, and had 4 before: it was restored from a backup, or "
        "cut off; ask its steward what happened (`cape site verify`)"
    ]


def test_an_aggregator_that_takes_heads_off_is_noticed(world: World):
    def strip(round_: str, site: str, data: bytes) -> list[bytes | None]:
        message = wire.unpack_from_site(data)
        if site == "b" and isinstance(message, wire.Offered | wire.Carried):
            data = wire.pack(msgspec.structs.replace(message, head=b""))
        return [data]

    world.channel.bend = strip
    (warned,) = answer(world, MEAN)
    assert warned.startswith("b sent no signed head of its ledger")
    assert kept(world) == {"a": [1], "b": [], "c": [1], "d": [1]}


def test_an_aggregator_cannot_pass_on_another_head(world: World):
    answer(world, MEAN, name="first")
    old = {site: head.pack() for site, head in read_heads(world.coordinator.path / HEADS)}

    def swap(heads: dict[str, bytes]):
        def bend(round_: str, site: str, data: bytes) -> list[bytes | None]:
            message = wire.unpack_from_site(data)
            if isinstance(message, wire.Carried) and message.head:
                data = wire.pack(msgspec.structs.replace(message, head=heads[site]))
            return [data]

        return bend

    world.channel.bend = swap({**old, "a": old["b"]})
    warned = answer(world, MEAN, name="second")
    assert len(warned) == 4
    assert warned[0].startswith("a sent no signed head"), "another site's"
    assert all("1 lines after this answer, and had 1 before" in each for each in warned[1:]), "an old one"


def test_a_request_shows_the_longest_heads_and_the_aggregator_cannot_take_them_out(world: World):
    answer(world, MEAN, name="first")
    heads = Heads(world.coordinator.path / HEADS, world.coordinator.sites)
    calls: list[bytes] = []

    class Tapped:
        def call(self, data: bytes) -> bytes:
            calls.append(data)
            return world.relay.call(data)

    Submission(world.study(MEAN, name="second"), world.coordinator, Tapped(), world.record()).check()
    review = unpack_call(calls[-1])
    assert isinstance(review, AskReview)
    request = Request.open(review.requests[0], lambda key: True)
    found = [Head.unpack(data) for data in request.heads]
    assert found == [heads.shown(name) for name in NAMES]
    bare = replace(request, heads=())
    refused = world.sites["a"].decide(bare.pack())
    assert str(getattr(refused, "code", "")) == "signature"


def test_heads_that_cannot_be_kept_are_told_and_cost_no_answer(world: World):
    (world.coordinator.path / HEADS).symlink_to(world.folder / "no" / "such" / "folder")
    (warned,) = answer(world, MEAN)
    assert "cannot be written (No such file or directory)" in warned
    assert world.lines("a") == 1


def test_a_torn_line_is_cut_off_by_the_next(world: World):
    answer(world, MEAN, name="first")
    path = world.coordinator.path / HEADS
    whole = path.read_bytes()
    for cut in (1, 30, len(whole) // 2):
        path.write_bytes(whole[:-cut])
        lines = whole[:-cut].count(b"\n")
        assert len(read_heads(path)) == lines
        Heads(path, world.coordinator.sites).take({}, {})
    answer(world, MEAN, name="second")
    assert path.read_bytes().endswith(b"\n")
    assert len(read_heads(path)) == lines + 4
