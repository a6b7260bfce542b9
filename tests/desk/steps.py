"""What people do at a desk, by the labels, buttons and links that they see."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

PATIENCE = 60_000  # milliseconds for what other processes do


def go(page: Page, title: str) -> None:
    """Open a page from the navigation."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=title, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(title)


def paths(page: Page) -> dict[str, str]:
    """Return what the navigation offers: titles and paths."""
    links = page.get_by_role("navigation", name="Pages").get_by_role("link").all()
    return {link.inner_text(): link.get_attribute("href") or "" for link in links}


def read_out(page: Page) -> str:
    """Return the fingerprint of a site's own key, as its steward reads it out from the page."""
    go(page, "Peers")
    return page.locator(".print.large").inner_text()


def trust(page: Page, name: str, card: str, heard: str) -> None:
    """Trust a card, after comparing the fingerprint that its owner read out."""
    go(page, "Peers")
    page.get_by_label("or its text").fill(card)
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("The fingerprint that you hear").fill(heard)
    page.get_by_role("button", name=f"Trust {name}").click()
    expect(page.get_by_role("status").filter(has_text="Trusted from now on")).to_contain_text(name)


def waiting(page: Page, study: str) -> Locator:
    """Return the card of a study that waits, once it is in the inbox."""
    found = page.get_by_role("article").filter(has=page.get_by_role("heading", name=study, exact=True))
    expect(found).to_be_visible(timeout=PATIENCE)
    return found


def approve(page: Page, study: str) -> None:
    """Approve a study that waits."""
    card = waiting(page, study)
    card.get_by_text("Approve …").click()
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Approved")).to_contain_text(study)


def refuse(page: Page, study: str, reason: str) -> None:
    """Refuse a study that waits."""
    card = waiting(page, study)
    card.get_by_text("Refuse …").click()
    card.get_by_label(re.compile("^Reason")).fill(reason)
    card.get_by_role("button", name="Refuse", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Refused")).to_contain_text(study)


def add_column(page: Page, name: str, told: object) -> None:
    """Describe a column of a new study: bounds, or categories."""
    blank = page.get_by_role("group", name="New column")
    blank.get_by_label("Name").fill(name)
    if isinstance(told, dict):
        blank.get_by_label("Least").fill(str(told["low"]))
        blank.get_by_label("Largest").fill(str(told["high"]))
        blank.get_by_text("Label, unit, what is expected").click()
        blank.get_by_label("Unit").fill(told["unit"])
    else:
        assert isinstance(told, list)
        blank.get_by_label("Kind").select_option("categories")
        blank.get_by_role("textbox", name="Categories").fill(", ".join(told))
    page.get_by_role("button", name="Add a column").click()
    expect(page.get_by_role("group", name=name, exact=True)).to_be_visible()


def add_analysis(page: Page, kind: str, share: float, *columns: str) -> None:
    """Ask for an analysis of some columns."""
    before = page.get_by_role("group", name=re.compile(r"^\d+\. ")).count()
    page.locator("#analyses").get_by_label("Kind").select_option(kind)
    page.get_by_role("button", name="Add an analysis").click()
    added = page.get_by_role("group", name=f"{before + 1}. {kind}")
    for column in columns:
        added.get_by_role("checkbox", name=column, exact=True).check()
    added.get_by_label("Share of the budget").fill(str(share))


def submit(page: Page, text: str, wait: str = "10 minutes") -> None:
    """Write a study as text, review it, and submit it; the page then shows the submission."""
    go(page, "New study")
    page.get_by_role("button", name="Edit as text").click()
    page.get_by_label("Study file (TOML)").fill(text)
    review_and_submit(page, wait)


def review_and_submit(page: Page, wait: str = "10 minutes") -> None:
    """Submit the study that is being written."""
    page.get_by_role("button", name="Review and submit").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Review")
    page.get_by_label("Wait for stewards").select_option(label=wait)
    page.get_by_role("button", name="Submit to 3 sites").click()
    expect(page).to_have_url(re.compile("/submissions/"))


def row(page: Page, name: str) -> Locator:
    """Return the row of a table that begins with a name."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
