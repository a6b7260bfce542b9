"""A coordinator's folder: its key, and whom it may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.coordinator import CoordinatorFolder, SiteReport
from cape.core.errors import InvalidInput
from cape.secagg import Identity
from cape.site import SiteFolder
from cape.site.keyring import Card
from cape.site.wire import Present, Refused


def test_a_folder_is_made_once(tmp_path: Path):
    folder = CoordinatorFolder.create(tmp_path / "office", 'the "office"')
    assert folder.name == 'the "office"'
    assert folder.card == Card('the "office"', folder.identity.public, "coordinator")
    assert (folder.path / "identity.key").stat().st_mode & 0o777 == 0o600
    assert folder.sites == {}
    with pytest.raises(InvalidInput, match="nothing is overwritten"):
        CoordinatorFolder.create(folder.path)
    with pytest.raises(InvalidInput, match="has no coordinator's key yet"):
        CoordinatorFolder(tmp_path)


def test_keys_are_pinned(tmp_path: Path):
    folder = CoordinatorFolder.create(tmp_path / "office")
    keys = {name: Identity().public for name in ("zurich", "a site", "va")}
    for name, key in keys.items():
        assert folder.trust(Card(name, key))
        assert not folder.trust(Card(name, key))
    assert folder.sites == keys
    roster = folder.roster(["va", "zurich"])
    assert roster.names == ("va", "zurich")
    assert roster.keys == (keys["va"], keys["zurich"])
    with pytest.raises(InvalidInput, match="has another key"):
        folder.trust(Card("va", Identity().public))
    with pytest.raises(InvalidInput, match="two names have the same key"):
        folder.trust(Card("twin", keys["va"]))
    with pytest.raises(InvalidInput, match="own key"):
        folder.trust(folder.card)
    assert folder.sites == keys
    with pytest.raises(InvalidInput, match=r"no key of 'b', 'c' .*cape deploy trust"):
        folder.roster(["va", "b", "c"])


@pytest.mark.parametrize(
    "text", ["nonsense", "[sites]\n", "[coordinator]\nname = 3\n[sites]\n", "[sites]\na = 1"]
)
def test_a_file_that_cannot_be_right_says_where(tmp_path: Path, text: str):
    folder = CoordinatorFolder.create(tmp_path / "office")
    (folder.path / "sites.toml").write_text(text)
    with pytest.raises(InvalidInput, match=r"sites\.toml"):
        _ = folder.sites


def test_a_coordinator_is_not_taken_for_a_site(tmp_path: Path):
    one, two = (CoordinatorFolder.create(tmp_path / name) for name in ("one", "two"))
    site = SiteFolder.create(tmp_path / "site")
    card = tmp_path / "two.card"
    card.write_text(two.card.to_text())
    with pytest.raises(InvalidInput, match="that is the key of coordinator 'two', not of a site"):
        one.trust(Card.load(card))
    with pytest.raises(InvalidInput, match="can trust it with --coordinator"):
        site.trust(Card.load(card), coordinator=False)
    assert site.trust(Card.load(card), coordinator=True)
    card.write_text(card.read_text().replace("coordinator", "king"))
    with pytest.raises(InvalidInput, match="role"):
        Card.load(card)


def test_a_refusal_of_many_analyses_is_said_once():
    here, why = Present(1, "1", "a", b"k" * 32), Refused(1, "budget", "nothing is left")
    wait = Refused(1, "approval", "it is held")

    def said(*refusals: Refused | None) -> str:
        return str(SiteReport("a", here, False, refusals, None, None))

    other = Refused(1, "rows", "too few")
    assert said(why, None, why, other) == (
        "a: refuses analyses 1, 3 (budget: nothing is left); analysis 4 (rows: too few)"
    )
    assert said(why, why) == "a: refuses all 2 analyses (budget: nothing is left)"
    assert said(wait, None, wait) == "a: waits for its steward"
    assert said(None, None) == "a: would answer"
    assert str(SiteReport("a", None, False, (), why, None)) == "a: refused (budget: nothing is left)"
    assert str(SiteReport("a", None, False, (), None, None)) == "a: is not connected"


def test_a_name_that_is_nearly_known_is_told(tmp_path: Path):
    office = CoordinatorFolder.create(tmp_path / "office")
    office.trust(Card("south", Identity().public))
    with pytest.raises(InvalidInput, match=r"no key of 'soth' in .* \(did you mean 'south'\?\)"):
        office.roster(["soth"])


def test_a_private_key_is_not_handed_on(tmp_path: Path):
    site = SiteFolder.create(tmp_path / "site")
    with pytest.raises(InvalidInput, match="is a private key: keep it"):
        Card.load(site.path / "identity.key")


@pytest.mark.parametrize("header", ["[sites]", '["sites"]', "[ 'sites' ] # those that may be asked"])
def test_a_key_finds_its_section_however_it_is_written(tmp_path: Path, header: str):
    folder = CoordinatorFolder.create(tmp_path / "office")
    file = folder.path / "sites.toml"
    file.write_text(file.read_text().replace("[sites]", header))
    assert folder.trust(Card("va", Identity().public))
    assert list(folder.sites) == ["va"]
