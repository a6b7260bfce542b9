"""A site that is lost while a study runs costs that site alone, and the coordinator's page says so."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from cape.core.files import give_to_owner
from tests.desk.conftest import Sit, Take
from tests.desk.steps import PATIENCE, approve, row, submit
from tests.desk.world import COORDINATOR, SITES, World, study, until

ANALYSES = """\
[[analysis]]
kind = "mean"
columns = ["chol"]
share = 0.4

[[analysis]]
kind = "count"
share = 0.4
"""


def test_the_others_answer_when_a_site_dies_in_the_middle(world: World, sit: Sit, picture: Take) -> None:
    crash = world.site("zurich") / "crash"
    crash.write_text("mask before daemon\n")  # tests/deploy/crash: it kills its own process in that round
    give_to_owner(crash)
    office = sit(COORDINATOR)
    submit(office, study("lost", analyses=ANALYSES))
    for site in SITES:
        approve(sit(site, "/inbox"), "lost")
    expect(office.get_by_role("main")).to_contain_text("finished: 2 of 2", timeout=2 * PATIENCE)
    assert not crash.read_text(), "it was not asked"
    expect(row(office, "zurich")).to_contain_text("lost", timeout=PATIENCE)
    picture(office, "desk-lost-site")
    (folder,) = world.submissions("lost")
    answers = json.loads((folder / "results" / "results.json").read_text())["analyses"]
    assert [each["participants"] for each in answers] == [["cleveland", "hungary"]] * 2

    page = sit("zurich", "/inbox")  # its desk still runs, and says what is wrong
    expect(page.get_by_role("alert")).to_contain_text("Is the site's daemon running")
    world.start_daemon("zurich")
    until(lambda: page.goto(world.origin("zurich") + "/inbox").ok, "the daemon of zurich")
    expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
