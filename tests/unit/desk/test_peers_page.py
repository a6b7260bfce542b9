"""Keys at the desk: a key is trusted only with the fingerprint that its owner reads out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cape.desk.site import peers as pages
from cape.secagg import Identity
from cape.site.keyring import Card, fingerprint, public_text
from tests.unit.desk.visitor import Visitor, desk
from tests.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "w", ("a", "b"))


@pytest.fixture
def admin(world: World, tmp_path: Path) -> Visitor:
    return Visitor(desk(pages.PAGES, tmp_path, world.site), "admin")


NEW = Identity()


def trust(admin: Visitor, heard: str, **more: str) -> int:
    sent = {"name": "zurich", "key": public_text(NEW.public), "role": "site", "fingerprint": heard}
    return admin.submit("/peers/trust", **sent | more).status_code


def test_a_card_alone_is_not_trusted_and_its_fingerprint_is_not_shown(admin: Visitor, world: World):
    card = Card("zurich", NEW.public, "site").to_text()
    page = admin.submit("/peers/read", card=card)
    assert page.status_code == 200
    assert "Trust zurich?" in page.text
    assert fingerprint(NEW.public) not in page.text
    assert "zurich" not in world.site.policy.peers


@pytest.mark.parametrize(
    "typed", [str, str.upper, lambda text: text.replace("-", " "), lambda text: f" {text}\n"]
)
def test_the_fingerprint_as_it_was_heard_is_accepted(admin: Visitor, world: World, typed):
    assert trust(admin, typed(fingerprint(NEW.public))) == 303
    assert world.site.policy.peers["zurich"] == NEW.public
    assert fingerprint(NEW.public) in admin.words("/peers")


WRONG = {
    "nothing": "",
    "another": "0000-0000-0000-0000-0000",
    "all but one digit": fingerprint(NEW.public)[:-1],
}


@pytest.mark.parametrize("heard", WRONG.values(), ids=WRONG)
def test_another_fingerprint_is_refused(admin: Visitor, world: World, heard: str):
    before = (world.site.path / "site.toml").read_text()
    assert trust(admin, heard) == 400
    assert (world.site.path / "site.toml").read_text() == before


def test_a_card_without_a_role_needs_one(admin: Visitor, world: World):
    page = admin.submit("/peers/read", card=Card("zurich", NEW.public).to_text())
    assert "a coordinator, who may ask" in page.text
    own = fingerprint(NEW.public)
    assert trust(admin, own, role="") == 400
    assert trust(admin, own, role="", **{"as": "coordinator"}) == 303
    assert world.site.policy.coordinators["zurich"] == NEW.public


def test_a_coordinators_card_is_never_trusted_as_a_site(admin: Visitor, world: World):
    assert trust(admin, fingerprint(NEW.public), role="coordinator", **{"as": "site"}) == 400
    assert "zurich" not in world.site.policy.peers


@pytest.mark.parametrize("card", ["", "nonsense", "name = 'x'", "cape-private-ed25519:" + "0" * 64])
def test_what_is_no_card_is_said_to_be_none(admin: Visitor, card: str):
    page = admin.submit("/peers/read", card=card)
    assert page.status_code == 400
    assert "0" * 64 not in page.text


def test_a_key_is_revoked_in_its_role_only(admin: Visitor, world: World):
    world.site.trust(Card("b", NEW.public, "coordinator"), coordinator=True)
    assert admin.submit("/peers/revoke", name="b", **{"as": "coordinator"}).status_code == 303
    assert "b" not in world.site.policy.coordinators
    assert "b" in world.site.policy.peers
    assert "No longer trusted: coordinator b." in admin.words("/peers")


def test_the_own_card_can_be_saved(admin: Visitor, world: World):
    card = admin.get("/peers/card")
    assert card.headers["content-disposition"] == 'attachment; filename="a.card"'
    assert Card.parse(card.text, Path("a.card")) == world.site.card
    own = world.site.card
    assert " ".join(fingerprint(own.key).split("-")) in admin.words("/peers")


def test_only_an_admin_changes_keys(world: World, tmp_path: Path):
    steward = Visitor(desk(pages.PAGES, tmp_path, world.site), "steward")
    assert "Trust a key" not in steward.words("/peers")
    for path in ("/peers/read", "/peers/trust", "/peers/revoke"):
        assert steward.submit(path, name="b").status_code == 403
