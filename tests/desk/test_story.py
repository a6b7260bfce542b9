"""A study from an empty form to its report: two stewards approve, one refuses, and two sites answer."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.desk.conftest import Sit, Take
from tests.desk.steps import (
    PATIENCE,
    add_analysis,
    add_column,
    approve,
    go,
    refuse,
    review_and_submit,
    row,
    waiting,
)
from tests.desk.world import COORDINATOR, DESCRIPTION, SCHEMA, SITES, World, cape


def test_two_approve_one_refuses_and_two_answer(world: World, sit: Sit, picture: Take) -> None:
    stewards = {site: sit(site, "/inbox") for site in SITES}
    for page in stewards.values():
        expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()

    office = sit(COORDINATOR, width=1400)
    go(office, "New study")
    office.get_by_label("Name").first.fill("heart")
    office.get_by_label("Description").fill(DESCRIPTION)
    for name, told in SCHEMA.items():
        add_column(office, name, told)
    for site in SITES:
        office.get_by_label(f"Rows at {site}").fill("350")
    add_analysis(office, "mean", 0.3, "age", "chol")
    add_analysis(office, "proportion", 0.3, "disease")
    office.get_by_label("Epsilon, for the whole study").fill("0.8")
    office.get_by_label("Sites that may collude").fill("0")
    plan = office.get_by_role("region", name="Plan")
    expect(plan).to_contain_text("chol", timeout=PATIENCE)  # it follows what is written
    expect(plan).not_to_contain_text("Not complete yet")
    office.locator("#sites").scroll_into_view_if_needed()
    picture(office, "desk-new-study", whole=False)
    review_and_submit(office)
    office.set_viewport_size({"width": 1100, "height": 900})

    for page in stewards.values():  # nobody reloads
        card = waiting(page, "heart")
        expect(card).to_contain_text("trial office")
        expect(card).to_contain_text("Epsilon")
        card.get_by_text("How accurate it would be").scroll_into_view_if_needed()
        expect(card).to_contain_text("±", timeout=PATIENCE)  # it comes once somebody looks
    picture(stewards["cleveland"], "desk-inbox")
    for site in SITES:
        expect(row(office, site)).to_contain_text("waits", timeout=PATIENCE)
    picture(office, "coordinator-waiting")

    approve(stewards["cleveland"], "heart")
    approve(stewards["hungary"], "heart")
    refuse(stewards["zurich"], "heart", "our board meets in May")

    expect(office.get_by_role("main")).to_contain_text("finished: 2 of 2", timeout=PATIENCE)
    expect(office.get_by_role("link", name="Report", exact=True)).to_be_visible()
    expect(row(office, "zurich")).to_contain_text("refuse")
    picture(office, "desk-results")
    (folder,) = world.submissions("heart")
    answers = json.loads((folder / "results" / "results.json").read_text())["analyses"]
    assert [each["participants"] for each in answers] == [["cleveland", "hungary"]] * 2
    assert "our board meets in May" not in office.content()  # a reason stays at the site

    for site, lines in (("cleveland", 2), ("hungary", 2), ("zurich", 0)):
        said = json.loads(cape("site", "ledger", "--site", world.site(site), "--json"))
        assert said["shown"]["lines"] == lines

    page = stewards["cleveland"]
    go(page, "Ledger")
    expect(page.get_by_role("main")).to_contain_text("share of each category of disease")
    picture(page, "desk-ledger")
    go(page, "Log")
    expect(page.get_by_role("main")).to_contain_text("approved")
    log = cape("site", "log", "--site", world.site("zurich"))
    assert "our board meets in May" in log
