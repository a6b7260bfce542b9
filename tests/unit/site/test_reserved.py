"""What of a policy the desk's user may not change, under any name and over the socket."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from cape.core.errors import InvalidInput
from cape.site.admin import Client, Desk, serve
from cape.site.admin.desk import at_desk
from cape.site.admin.reserved import require_kept
from cape.site.admin.wire import handler
from cape.site.persons import Person
from tests.world import World

HOOK = 'command = ["/usr/local/bin/hook"]'
MAIL = 'smtp = {host = "mail.clinic.org", from = "cape@clinic.org", to = ["a@clinic.org"]}'
WEB = 'webhook = {url = "https://clinic.org/hook", secret_env = "CAPE_NOTIFY_HOOK"}'
ALL = f"[notify]\n{HOOK}\n{MAIL}\n{WEB}\n"


def test_cells_cannot_be_bisected_over_the_socket(world: World, tmp_path: Path):
    """Each bound would say how many cells lie beyond it, exactly and as often as one likes."""
    with serve(tmp_path / "s", world.site, desk=os.geteuid()), Client(tmp_path / "s", person="eve") as eve:
        now, before = eve.policy(), eve.check().survey
        (old,) = [line for line in now.text.splitlines() if line.startswith("age")]
        text = now.text.replace(old, "age = [0, 71.9]")
        for tried in (eve.try_policy(text), eve.save_policy(text, now.hash)):
            assert not tried.saved
            assert tried.summary is None
            assert "`data` under [site], [schema] and [person]" in str(tried.problem)
        assert eve.check().survey == before
        other = eve.save_policy(now.text.replace("min_rows = 100", "min_rows = 120"), now.hash)
        assert (other.problem, other.saved) == (None, True)


def test_the_desks_user_is_held_to_it_without_stating_a_name(world: World):
    now = Desk(world.site).policy()
    text = now.text.replace("[schema]", "[schema]\nward = [0, 1]")
    user = Person("cape-desk")
    assert at_desk(Desk(world.site), user).try_policy(text).problem is None
    assert at_desk(Desk(world.site), user, reserved=True).try_policy(text).problem is not None
    asked = msgspec.msgpack.encode({"type": "try_policy", "text": text})
    for reserved in (False, True):
        told = handler(Desk(world.site), user, may_state=True, reserved=reserved)(asked)
        assert (b"own user edits" in told) is reserved


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("age = [0, 1]", "age = [0, 1.0]"),
        ("age = [0, 1]", "age = [0, true]"),
        ("age = [0, 1]\nsex = [0, 1]", "sex = [0, 1]\nage = [0, 1]"),
        ('data = "x"', 'data = "y"'),
        ("rows = 4", "rows = 5"),
    ],
)
def test_rows_are_read_as_before_or_nothing_is_saved(old: str, new: str):
    text = '[site]\ndata = "x"\n[schema]\nage = [0, 1]\nsex = [0, 1]\n[person]\nid = "p"\nrows = 4\n'
    require_kept(text.replace("[site]", "[site]  # remark\nname = 'b'"), text)
    assert old in text
    with pytest.raises(InvalidInput, match="own user edits this part"):
        require_kept(text.replace(old, new), text)


@pytest.mark.parametrize(
    ("before", "after", "may"),
    [
        (ALL, "", True),
        (ALL, ALL.replace("a@clinic.org", "b@clinic.org"), True),
        (ALL, f"[notify]\n{MAIL}\n", True),
        (ALL, ALL + 'about = ["policy"]\n', True),
        ("", ALL, False),
        (ALL, ALL.replace("bin/hook", "bin/sh"), False),
        (ALL, ALL.replace("mail.clinic", "mail.evil"), False),
        (ALL, ALL.replace("//clinic.org", "//evil.org"), False),
        (ALL, ALL.replace("NOTIFY_HOOK", "NOTIFY_OTHER"), False),
        (ALL, "[notify]\ncommand = 1\n", False),
    ],
)
def test_notices_go_where_they_went_and_run_what_they_ran(before: str, after: str, may: bool):
    if may:
        return require_kept(after, before)
    with pytest.raises(InvalidInput, match="cannot be changed at the desk"):
        require_kept(after, before)
