"""A coordinator's folder: its key, and whom it may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.coordinator import CoordinatorFolder
from cape.errors import InvalidInput
from cape.secagg import Identity
from cape.steward.keyring import Card


def test_a_folder_is_made_once(tmp_path: Path):
    folder = CoordinatorFolder.create(tmp_path / "office", 'the "office"')
    assert folder.name == 'the "office"'
    assert folder.card == Card('the "office"', folder.identity.public)
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
