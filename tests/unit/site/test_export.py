"""A ledger handed out as a signed text: anybody with the site's card checks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cape.core.errors import InvalidInput
from cape.secagg import Identity
from cape.site.admin import Desk
from cape.site.ledger.export import export, verify_export
from tests.world import World


@pytest.fixture
def text(world: World) -> str:
    for _ in range(3):
        world.granted(world.request())
    return Desk(world.site).ledger_export()


def test_what_a_site_hands_out_is_what_it_has_signed(world: World, text: str, tmp_path: Path):
    path = tmp_path / "ledger.json"
    path.write_text(text)
    told, found = verify_export(path, [world.identities["a"].public], [world.site.ledger.head()])
    assert (found.problems, found.lines, found.heads, told.site) == ([], 3, 1, "a")
    _, found = verify_export(path, [Identity().public])
    assert any("signed with another key" in problem for problem in found.problems)
    assert found.problems[-1] == "the export as a whole does not have the site's signature"


def bend(change: Callable[[Any], Any]) -> Callable[[str], str]:
    def bent(text: str) -> str:
        told = json.loads(text)
        change(told)
        return json.dumps(told)

    return bent


BENT = {
    "a line was cut off": bend(lambda told: told["lines"].pop()),
    "the first line is gone": bend(lambda told: told["lines"].pop(0)),
    "another name": bend(lambda told: told.update(site="b")),
    "another time": bend(lambda told: told.update(at="2020-01-01T00:00:00+00:00")),
    "another ledger": bend(lambda told: told.update(ledger="00" * 16)),
    "another amount": bend(lambda told: told["lines"][1].__setitem__(-4, "1/1000000")),
    "another study": bend(lambda told: told["lines"][1].__setitem__(6, "hearts")),
    "no signature of a line": bend(lambda told: told["lines"][1].__setitem__(2, "")),
    "no signature": bend(lambda told: told.update(signature="")),
    "another's signature": bend(lambda told: told.update(signature="07" * 64)),
    "lines in another order": bend(lambda told: told["lines"].reverse()),
}


def test_an_export_that_was_changed_does_not_pass(world: World, text: str, tmp_path: Path):
    path = tmp_path / "ledger.json"
    for what, bent in BENT.items():
        path.write_text(bent(text))
        _, found = verify_export(path, [world.identities["a"].public])
        assert found.problems, what


def test_a_text_that_is_no_export_is_refused_in_a_sentence(world: World, text: str, tmp_path: Path):
    path = tmp_path / "ledger.json"
    odd = ["", "[]", "{}", text[:-20], bend(lambda told: told.update(more=1))(text)]
    odd += [bend(lambda told: told["lines"].__setitem__(0, [1]))(text)]
    odd += [bend(lambda told: told.update(format="cape ledger export 9"))(text)]
    for each in odd:
        path.write_text(each)
        with pytest.raises(InvalidInput, match=str(path)):
            verify_export(path, [world.identities["a"].public])
    with pytest.raises(InvalidInput, match="cannot be read"):
        verify_export(tmp_path / "none.json", [])


def test_an_export_of_another_site_with_these_lines_does_not_pass(world: World, text: str, tmp_path: Path):
    """Whoever holds another trusted key cannot sign the whole for the site."""
    path = tmp_path / "ledger.json"
    path.write_text(export(world.site.ledger, "a", world.identities["b"]))
    _, found = verify_export(path, [world.identities["a"].public])
    assert found.problems == ["the export as a whole does not have the site's signature"]


def test_the_desk_names_the_line_where_the_chain_breaks(world: World, text: str):
    desk = Desk(world.site)
    told = desk.verify()
    assert (told.ok, told.lines, told.line, told.problems) == (True, 3, None, ())
    import sqlite3

    with sqlite3.connect(world.site.path / "ledger.sqlite") as db:
        db.execute("DROP TRIGGER releases_UPDATE")
        db.execute("UPDATE releases SET amount = '1/1000000' WHERE id = 2")
    told = desk.verify()
    assert (told.ok, told.line) == (False, 2)
    assert told.problems[0].startswith("line 2 was changed")
