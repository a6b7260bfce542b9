"""Several people at one desk: what a viewer sees, four eyes, questions; and who is in the log with what."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser import look
from tests.desk.conftest import Sit, Take
from tests.desk.steps import approve, go, waiting
from tests.desk.world import World, cape

STUDY = "by keyboard"  # it waits at zurich since test_keyboard.py


def test_a_viewer_sees_what_waits_and_decides_nothing(world: World, sit: Sit, axe: Path) -> None:
    page = sit("zurich", "/inbox", width=360, link=world.link("zurich", "vera", "viewer"))
    card = waiting(page, STUDY)
    expect(card.get_by_text("Approve …")).to_have_count(0)
    go(page, "Policy")
    expect(page.get_by_role("button", name="Show what would change")).to_have_count(0)
    page.goto(f"{world.origin('zurich')}/nowhere")
    assert not look.sticks_out(page) + look.barriers(page, axe)
    page.goto(f"{world.origin('zurich')}/inbox")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Log in")
    assert not look.sticks_out(page) + look.barriers(page, axe)
    page.goto(f"{world.origin('zurich')}/ledger")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Log in")


def test_a_question_is_asked_back_without_scripts(world: World, sit: Sit) -> None:
    page = sit("zurich", "/inbox", scripts=False)
    card = waiting(page, STUDY)
    card.get_by_text("Ask back …").click()
    card.get_by_label("Your question to trial office").fill("Who pays for the study?")
    card.get_by_role("button", name="Send the question").click()
    expect(waiting(page, STUDY)).to_contain_text("You asked back: “Who pays for the study?”")


def test_two_different_people_approve_where_the_policy_wants_two(
    world: World, sit: Sit, axe: Path, picture: Take
) -> None:
    page = sit("zurich", "/policy")
    page.get_by_label("How many stewards must approve a study").fill("2")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("main")).to_contain_text("+approvals = 2")
    assert not look.sticks_out(page) + look.barriers(page, axe)
    picture(page, "desk-policy-diff")
    page.get_by_role("button", name="Save").click()
    go(page, "Inbox")
    approve(page, STUDY)
    expect(waiting(page, STUDY)).to_contain_text("Approved by local")
    other = sit("zurich", "/inbox", link=world.link("zurich", "ana", "steward"))
    approve(other, STUDY)
    expect(other.get_by_role("article", name=STUDY)).to_have_count(0)
    log = cape("site", "log", "--site", world.site("zurich"))
    assert f"approved '{STUDY}'" in log
    assert "by 'local' (desk)" in log
    assert "by 'ana' (desk)" in log
