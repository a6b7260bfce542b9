"""One whole decision without a mouse: from the login link to the sentence that says what was decided."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.desk.conftest import Sit, Take
from tests.desk.steps import submit, waiting
from tests.desk.world import COORDINATOR, World, study

MOST = 40  # keys until something is reached

_FOCUS = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const name = (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent || "").trim();
  return {name: name.replace(/\\s+/g, " "), tag: e.tagName, ring: style.outlineStyle !== "none"
    && parseFloat(style.outlineWidth) >= 2};
}"""


def test_a_steward_decides_with_the_keyboard_alone(world: World, sit: Sit, picture: Take) -> None:
    office = sit(COORDINATOR)
    submit(office, study("by keyboard"))
    page = sit("hungary", "/inbox")
    waiting(page, "by keyboard")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    tab_to(page, "Approve …")
    page.keyboard.press("Enter")
    tab_to(page, "Note for your own records (optional)")
    page.keyboard.type("the board agreed on 3 March")
    picture(page, "keyboard", whole=False)
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Approved")).to_contain_text("by keyboard")
    office.get_by_text("Cancel", exact=True).click()
    office.get_by_role("button", name="Cancel the submission").click()


def tab_to(page: Page, name: str) -> None:
    """Press Tab until something has the focus, and see where it is all the way."""
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"{name!r} cannot be reached by Tab")


def focused(page: Page) -> str:
    """Return the name of what has the focus; it must be visible that it has it."""
    found = page.evaluate(_FOCUS)
    assert found["ring"], f"nobody sees that {found['tag']} {found['name']!r} has the focus"
    return str(found["name"])
