from __future__ import annotations

from pathlib import Path

import pytest

from cape.core.errors import InvalidInput
from cape.site.apart import require_apart


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_client.json").write_text("{}")
    return tmp_path / "kit"


def _site(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "site.toml").write_text("")
    return folder


def test_folders_next_to_each_other_are_apart(kit, tmp_path):
    site = _site(tmp_path / "site")
    for each in ((kit, site), (kit, None), (None, site)):
        require_apart(*each)


@pytest.mark.parametrize("place", ["site", "deep/down/site", "startup"])
def test_a_site_folder_in_a_kit_is_refused_whichever_of_them_is_known(kit, place):
    site = kit / place if place == "startup" else _site(kit / place)
    (site / "ledger.sqlite").write_text("")
    for each in ((kit, site), (kit, None), (None, site)):
        with pytest.raises(InvalidInput, match="must not contain each other"):
            require_apart(*each)


def test_a_kit_in_a_site_folder_is_refused(kit):
    with pytest.raises(InvalidInput, match="must not contain each other"):
        require_apart(kit, kit.parent)


@pytest.mark.parametrize("name", ["site.toml", "ledger.sqlite", "identity.key"])
def test_a_file_of_a_site_in_a_kit_is_refused(kit, name):
    (kit / name).write_text("")
    with pytest.raises(InvalidInput, match="must not contain each other"):
        require_apart(kit, None)


def test_a_link_does_not_hide_where_a_folder_lies(kit, tmp_path):
    _site(kit / "site")
    (tmp_path / "elsewhere").symlink_to(kit / "site")
    with pytest.raises(InvalidInput, match="must not contain each other"):
        require_apart(None, tmp_path / "elsewhere")
