"""Heads: a ledger that was put back, cut off or written anew is found, and charged for, never too little."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cape.core.errors import BadMessage, InvalidInput
from cape.privacy.accounting import Basis, total
from cape.secagg import Identity
from cape.site import Amount, Code, Ledger, Refusal, wire
from cape.site.endpoint import SiteEndpoint
from cape.site.ledger.gaps import Unsettled
from cape.site.ledger.heads import Head, before, read_heads
from tests.slices import examples
from tests.unit.site.test_ledger import KEY, entry, own
from tests.world import World, document

MEAN = {"kind": "mean", "columns": ["age"], "share": 0.1}


def ledger_of(path: Path, lines: int = 0) -> Ledger:
    ledger = Ledger.create(path / f"{os.urandom(4).hex()}.sqlite", own)
    for _ in range(lines):
        ledger.reserve(entry())
    return ledger


def head_of(ledger: Ledger, lines: int | None = None) -> Head:
    head = ledger.head(lines)
    assert head is not None
    return head


def copy_of(ledger: Ledger) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in ledger.path.parent.glob(f"{ledger.path.name}*")}


def put_back(ledger: Ledger, copy: dict[str, bytes]) -> None:
    for path in ledger.path.parent.glob(f"{ledger.path.name}*"):
        path.unlink()
    for name, data in copy.items():
        (ledger.path.parent / name).write_bytes(data)


def test_a_head_states_the_totals_and_is_signed(tmp_path: Path):
    ledger = ledger_of(tmp_path)
    assert ledger.head() is None
    ledger.reserve(entry(cost=Fraction(1, 7), extra=Fraction(1, 10**9)))
    ledger.reserve(replace(entry(cost=Fraction(1, 5)), basis=Basis("add-remove")))
    ledger.reserve(replace(entry(), cost=Amount(pure=Fraction(1, 3)), basis=Basis("add-remove")))
    head = head_of(ledger)
    assert (head.ledger, head.lines, head.key) == (ledger.id, 3, KEY.public)
    assert head.spent == {
        Basis(): Amount(Fraction(1, 7), Fraction(1, 10**9)).rounded_up(),
        Basis("add-remove"): Amount(Fraction(1, 5), pure=Fraction(1, 3)).rounded_up(),
    }
    assert Head.unpack(head.pack()) == head
    assert not head.contradicts(head_of(ledger, 2))
    assert ledger.head(4) is None


def test_a_head_that_anything_changes_is_none(tmp_path: Path):
    head = head_of(ledger_of(tmp_path, 3))
    other = Identity()
    for bent in (
        msgspec.structs.replace(head, lines=4),
        msgspec.structs.replace(head, chain=bytes(32)),
        msgspec.structs.replace(head, ledger=bytes(16)),
        msgspec.structs.replace(head, totals=()),
        msgspec.structs.replace(head, earlier=head.earlier[::-1]),
        msgspec.structs.replace(head, key=other.public),
        msgspec.structs.replace(head, signature=b""),
    ):
        with pytest.raises(BadMessage):
            Head.unpack(bent.pack())
    with pytest.raises(InvalidInput, match="key that it names"):
        head.signed(other)


@examples(200)
@given(st.binary(max_size=300))
def test_garbage_is_no_head(data: bytes):
    with pytest.raises(BadMessage):
        Head.unpack(data)


def test_a_total_that_is_no_fraction_is_no_head(tmp_path: Path):
    head = head_of(ledger_of(tmp_path, 1))
    for wrong in ("1/0", "-1", "nan", "1e5", "9" * 7000, "1\n"):
        for name in ("mu_squared", "epsilon", "extra"):
            totals = (msgspec.structs.replace(head.totals[0], **{name: wrong}),)
            with pytest.raises(BadMessage):
                Head.unpack(msgspec.structs.replace(head, totals=totals).signed(KEY).pack())


def test_earlier_lines_are_stated_at_powers_of_two():
    assert [before(lines) for lines in (1, 2, 3, 8, 9)] == [
        [],
        [1],
        [2, 1],
        [7, 6, 4],
        [8, 7, 5, 1],
    ]


def test_what_is_on_the_ledger_is_no_gap(tmp_path: Path):
    ledger = ledger_of(tmp_path, 5)
    for lines in range(1, 6):
        assert ledger.show(head_of(ledger, lines), KEY.public)
    assert ledger.settled
    stranger = ledger_of(tmp_path, 1)
    theirs = msgspec.structs.replace(head_of(stranger), key=Identity(bytes(32)).public)
    assert ledger.show(theirs.signed(Identity(bytes(32))), KEY.public), "of another site: left aside"
    assert ledger.settle() == 0


@pytest.mark.parametrize("lost", [1, 2, 3, 7])
@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_gap_is_charged_whatever_was_written_since(tmp_path: Path, lost: int, since: int):
    """Backups of all ages; what was answered after the copy was put back counts beside what was lost."""
    ledger = ledger_of(tmp_path, 6)
    copy = copy_of(ledger)
    for number in range(lost):
        ledger.reserve(entry(cost=Fraction(1, 3 + number)))
    head = head_of(ledger)
    gone = ledger.spent().mu_squared - Fraction(6, 10)
    put_back(ledger, copy)
    for number in range(since):
        ledger.reserve(entry(cost=Fraction(1, 20 + number)))
    here = ledger.spent().mu_squared
    assert not ledger.show(head, KEY.public)
    assert not Ledger(ledger.path).settled, "and this is on the disk"
    with pytest.raises(Unsettled):
        ledger.reserve(entry())
    assert ledger.settle() == 1
    assert ledger.settled
    assert ledger.spent().mu_squared >= here + gone
    if lost in (1, 2):
        assert ledger.spent().mu_squared == here + gone, "the head states these lines"
    assert ledger.spent(b"z" * 32).mu_squared >= gone, "it counts for every coordinator"
    assert ledger.show(head, KEY.public), "settled once"
    assert ledger.show(head_of(ledger), KEY.public)
    assert ledger.may_have(bytes(16), 0, bytes(32)), "what was lost may be anything"
    ledger.reserve(entry())


def test_a_second_head_of_the_same_lost_lines_is_not_charged_again_if_that_is_certain(tmp_path: Path):
    ledger = ledger_of(tmp_path, 4)
    copy = copy_of(ledger)
    for _ in range(2):
        ledger.reserve(entry())
    first, second = head_of(ledger, 5), head_of(ledger, 6)
    put_back(ledger, copy)
    assert not ledger.show(first, KEY.public)
    assert not ledger.show(second, KEY.public)
    assert [gap.head.lines for gap in ledger.gaps()] == [6, 5]
    ledger.settle()
    assert ledger.spent().mu_squared == Fraction(6, 10)


def test_two_lost_tails_are_both_charged(tmp_path: Path):
    ledger = ledger_of(tmp_path, 4)
    copy = copy_of(ledger)
    heads = []
    for _ in range(2):
        for _ in range(2):
            ledger.reserve(entry())
        heads.append(head_of(ledger))
        put_back(ledger, copy)
    for head in heads:
        assert not ledger.show(head, KEY.public)
    ledger.settle()
    assert ledger.spent().mu_squared == Fraction(8, 10)


def test_a_ledger_made_anew_with_the_same_key_owes_all_of_the_old_one(tmp_path: Path):
    old, new = ledger_of(tmp_path, 3), ledger_of(tmp_path, 2)
    assert not new.show(head_of(old), KEY.public)
    new.settle()
    assert new.spent().mu_squared == Fraction(5, 10)


def test_each_adjacency_and_kind_of_loss_is_settled_for_itself(tmp_path: Path):
    ledger = ledger_of(tmp_path, 1)
    copy = copy_of(ledger)
    ledger.reserve(replace(entry(), basis=Basis(sampled=True)))
    ledger.reserve(replace(entry(), cost=Amount(pure=Fraction(1, 3))))
    ledger.reserve(entry(extra=Fraction(1, 10**9)))
    head = head_of(ledger)
    lost = ledger.spent()
    put_back(ledger, copy)
    assert not ledger.show(head, KEY.public)
    ledger.settle()
    found = ledger.spent()
    assert found.covers(lost)
    assert {line.basis for line in ledger.entries()} == {Basis(), Basis(sampled=True)}
    assert total(head_of(ledger).spent) == found


def test_only_its_own_key_stops_a_site(tmp_path: Path):
    ledger = ledger_of(tmp_path, 2)
    forger = Identity()
    forged = msgspec.structs.replace(head_of(ledger), lines=900, key=forger.public)
    assert ledger.show(forged.signed(forger), KEY.public)
    assert ledger.settled


def test_reading_needs_no_key_and_writing_does(tmp_path: Path):
    ledger = ledger_of(tmp_path, 1)
    read = Ledger(ledger.path)
    assert read.head() == ledger.head()
    with pytest.raises(InvalidInput, match="site's key"):
        read.reserve(entry())
    assert len(read.entries()) == 1


def test_a_restored_backup_answers_nothing_until_it_is_settled(world: World):
    """Copy the ledger, answer twice, put the copy back."""
    site = world.site
    copy = copy_of(site.ledger)
    study = document(scheme="conventional", analyses=[MEAN])
    for _ in range(2):
        world.granted(world.request(study))
    spent, head = site.ledger.spent(), head_of(site.ledger)
    put_back(site.ledger, copy)

    def code(request) -> str:
        found = world.decide(request)
        assert isinstance(found, Refusal), found
        assert "settle" in found.sentence
        return str(found.code)

    trial = replace(world.request(study), trial=True, heads=(head.pack(),)).signed(world.office)
    reviewed = SiteEndpoint(site).handle(wire.pack(wire.Review(1, (trial.pack(),))))
    found = wire.unpack_from_site(reviewed)
    assert isinstance(found, wire.Reviewed)
    assert found.rows is None
    assert found.refusals[0] is not None
    assert found.refusals[0].code == Code.LEDGER
    assert code(world.request(study)) == "ledger", "also who shows nothing"
    assert code(world.request(document(analyses=[{"kind": "count", "share": 0.5}]))) == "ledger"
    inquiry = wire.Inquiry(1, bytes(16), 0, world.office.public).signed(world.office)
    said = wire.unpack_from_site(SiteEndpoint(site).handle(wire.pack(inquiry)))
    assert isinstance(said, wire.Refused)
    assert said.code == Code.LEDGER
    assert not site.ledger.entries()
    site.ledger.settle()
    assert site.ledger.spent().covers(spent)
    said = wire.unpack_from_site(SiteEndpoint(site).handle(wire.pack(inquiry)))
    assert isinstance(said, wire.Known)
    assert said.known, "what became of lost lines is not known, so it counts"
    world.granted(world.request(study, heads=(head.pack(),)))
    assert site.ledger.spent().mu_squared > spent.mu_squared


def test_an_offer_made_before_the_gap_was_found_is_not_paid_for(world: World):
    site = world.site
    copy = copy_of(site.ledger)
    world.granted(world.request(document(analyses=[MEAN])))
    head = head_of(site.ledger)
    put_back(site.ledger, copy)
    offer = site.consider(world.request(document(analyses=[MEAN])).pack())
    assert not isinstance(offer, Refusal)
    assert not site.ledger.show(head, site.identity.public)
    found = offer.reserve()
    assert isinstance(found, Refusal)
    assert found.code is Code.LEDGER


def test_a_request_with_a_head_that_is_none_is_refused(world: World):
    assert world.code(world.request(heads=(b"garbage",))) == "request"


def test_a_file_of_heads_is_read_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "heads.jsonl"
    for text in ("nonsense\n", '{"site": "a"}\n', '{"site": "a", "head": "AAAA"}\n', "[" * 10**5 + "\n"):
        path.write_text(text)
        with pytest.raises(InvalidInput, match="line 1 is not a site's head"):
            read_heads(path)
    path.write_text("torn")
    assert read_heads(path) == []
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_heads(tmp_path / "none")
    shutil.rmtree(tmp_path)
