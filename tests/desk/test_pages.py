"""Every page of a desk with something to show: on a phone and on a wide screen, in the dark, to axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser import look
from tests.desk.conftest import Sit, Take
from tests.desk.steps import paths, submit, waiting
from tests.desk.world import COORDINATOR, World, study

MORE = {  # pages that the navigation does not name: where a link leads there, and which one
    "cleveland": {"Study": ("/inbox", "a[href^='/study/']"), "Text": ("/policy", "a[href='/policy/text']")},
    COORDINATOR: {"Submission": ("/", "a[href^='/submissions/']")},
}


@pytest.mark.parametrize("desk", ["cleveland", COORDINATOR])
def test_no_page_is_cut_off_or_has_a_barrier(
    desk: str, world: World, sit: Sit, axe: Path, picture: Take
) -> None:
    first = sit(desk)
    if desk == COORDINATOR:
        submit(first, study("pages"))
    else:
        waiting(sit(desk, "/inbox"), "by keyboard")  # it waits there still
    shown = paths(first)
    for title, (start, link) in MORE[desk].items():
        shown[title] = sit(desk, start).locator(link).first.get_attribute("href") or ""
    if desk == COORDINATOR:
        shown["Submitted"] = shown["Submission"] + "/study"
    wrong = {}
    for title, path in shown.items():
        page = sit(desk, path)
        page.locator("details").evaluate_all("found => found.forEach(each => each.open = true)")
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        for width in look.WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wrong[title, width] = look.sticks_out(page)
            picture(page, f"{desk}-{title.lower().replace(' ', '-')}-{width}")
        wrong[title, "light"] = look.barriers(page, axe)
        page.emulate_media(color_scheme="dark")
        wrong[title, "dark"] = look.barriers(page, axe)
    assert not {where: found for where, found in wrong.items() if found}
