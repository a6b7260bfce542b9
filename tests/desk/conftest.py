"""Chromium at the desks of a consortium of real processes, which its people set up on the pages themselves.

`world` is the consortium after set-up; `sit(name)` logs in at a desk and returns Playwright's page. A page
that asks another server for anything, breaks the policy on scripts and styles, or answers with a server error
fails the test. Pictures go to browser-out/, and with --docs those named desk-* to docs/img/ too.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, expect

from tests.browser.conftest import PICTURES, ROOT, axe, browser
from tests.desk.steps import read_out, trust
from tests.desk.world import COORDINATOR, SITES, World, cape

__all__ = ["axe", "browser"]

Sit = Callable[..., Page]
Take = Callable[..., None]
ORDER = ("test_story", "test_lost_site", "test_keyboard", "test_pages", "test_persons")
DOCS = ROOT / "docs" / "img"
CRASH = ROOT / "tests" / "deploy" / "crash"  # lets a test kill a site in a chosen round


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--docs", action="store_true", help="draw the pictures of docs/desk.md again")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell the story first, since later tests look at what it left behind; and let NVFLARE's threads warn."""
    items.sort(key=lambda item: ORDER.index(item.path.stem) if item.path.stem in ORDER else len(ORDER))
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("default"))


class Watch:
    """What went wrong in the pages of one browser."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def look_after(self, context: BrowserContext, origin: str) -> None:
        """Note requests elsewhere, errors of scripts and of the content security policy, and statuses 5xx."""

        def asked(request: Request) -> None:
            if not request.url.startswith((origin, "data:", "blob:", "about:")):
                self.wrong.append(f"asked for {request.url}")

        def answered(response: Response) -> None:
            if response.status >= 500:
                self.wrong.append(f"{response.url} answered {response.status}")

        def printed(message: ConsoleMessage) -> None:
            if message.type == "error" and "Failed to load resource" not in message.text:
                self.wrong.append(f"{message.page and message.page.url}: {message.text}")

        context.on("request", asked)
        context.on("response", answered)
        context.on("console", printed)
        context.on("weberror", lambda error: self.wrong.append(f"a script failed: {error.error}"))


@pytest.fixture(scope="session")
def doors() -> dict[str, dict[str, object]]:
    """The session of each desk that somebody has logged in to: a one-time link opens it once."""
    return {}


@pytest.fixture
def sit(world: World, browser: Browser, doors: dict[str, dict[str, object]]) -> Iterator[Sit]:
    yield from _seats(world, browser, doors)


def _seats(world: World, browser: Browser, doors: dict[str, dict[str, object]]) -> Iterator[Sit]:
    """Yield what opens a page of a desk: `sit("zurich", "/ledger")`; `link=` logs another person in."""
    opened: list[BrowserContext] = []
    watch = Watch()

    def at(name: str, path: str = "/", *, width: int = 1100, scripts: bool = True, link: str = "") -> Page:
        origin = world.origin(name)
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            reduced_motion="reduce",
            java_script_enabled=scripts,
            storage_state=None if link else doors.get(name),  # type: ignore[arg-type]
        )
        opened.append(context)
        watch.look_after(context, origin)
        page = context.new_page()
        if link or name not in doors:
            page.goto(link or world.links[name])
            expect(page.get_by_role("button", name="Log out")).to_be_visible()
        if name not in doors and not link:
            doors[name] = context.storage_state()  # type: ignore[assignment]
        page.goto(origin + path)
        page.wait_for_load_state("load")
        return page

    yield at
    for context in opened:
        context.close()
    assert not watch.wrong, "\n".join(watch.wrong)


@pytest.fixture(scope="session")
def world(browser: Browser, doors: dict[str, dict[str, object]]) -> Iterator[World]:
    """Everything, set up as docs/deployment.md and docs/desk.md say."""
    folder = Path(tempfile.mkdtemp(prefix="cape-desk-"))
    path = os.pathsep.join(filter(None, [str(CRASH), os.environ.get("PYTHONPATH")]))
    here = World(folder, {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""})  # many processes start
    try:
        here.make_kits()
        for name in SITES:
            here.init_site(name)
        here.start()
        seats = _seats(here, browser, doors)
        exchange_keys(here, next(seats))
        next(seats, None)
        here.wait()
        yield here
    finally:
        here.stop()
        shutil.rmtree(folder, ignore_errors=True)


def exchange_keys(world: World, sit: Sit) -> None:
    """Let everybody trust whom they must: a card comes by mail, and its fingerprint by telephone."""
    pages = {name: sit(name) for name in SITES}
    spoken = {name: read_out(page) for name, page in pages.items()}
    told = json.loads(cape("deploy", "export-key", "--kit", world.kit, "--json"))
    for name, page in pages.items():
        trust(page, told["name"], world.cards[COORDINATOR].read_text(), told["fingerprint"])
        for other in SITES:
            if other != name:
                trust(page, other, world.cards[other].read_text(), spoken[other])
    cape("deploy", "trust", *(world.cards[name] for name in SITES), "--kit", world.kit)


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Take:
    """Keep a picture of a page: `picture(page, "desk-inbox")`."""

    def take(page: Page, name: str, *, whole: bool = True) -> None:
        PICTURES.mkdir(exist_ok=True)
        path = PICTURES / f"{name}.png"
        page.screenshot(path=path, full_page=whole, animations="disabled")
        if request.config.getoption("--docs") and name.startswith("desk-"):
            from PIL import Image

            with Image.open(path) as drawn:
                drawn.convert("RGB").quantize(128).save(DOCS / path.name, optimize=True)

    return take
