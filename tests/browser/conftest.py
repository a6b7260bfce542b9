"""A real browser for what people look at: Debian's Chromium, driven by Playwright, with the network off.

`visit(path)` opens a file and `look` says what is wrong with it; pictures go to browser-out/, for people.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

from tests.checkout import ROOT

CACHE = ROOT / ".cache"
PICTURES = ROOT / "browser-out"
AXE, AXE_SHA256 = "4.14.0", "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
Visit = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.fail("there is no chromium: run .ci/packages chromium, or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe() -> Path:
    """axe-core, fetched from npm once; what comes must be what was looked at."""
    path = CACHE / f"axe-core-{AXE}.min.js"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        subprocess.run(
            ["npm", "pack", f"axe-core@{AXE}", "--silent"], cwd=CACHE, check=True, capture_output=True
        )
        with tarfile.open(CACHE / f"axe-core-{AXE}.tgz") as packed:
            member = packed.extractfile("package/axe.min.js")
            assert member is not None
            path.write_bytes(member.read())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == AXE_SHA256, f"{path} is not axe-core {AXE}"
    return path


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Open a file or an address: `visit(path, width=360, dark=True)` returns Playwright's page.

    A page that asks the network for anything, or whose scripts fail, fails the test.
    """
    opened: list[BrowserContext] = []
    wrong: list[str] = []

    def go(
        target: Path | str,
        *,
        width: int = 1400,
        height: int = 900,
        dark: bool = False,
        scripts: bool = True,
        fragment: str = "",
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            java_script_enabled=scripts,
            offline=True,
        )
        opened.append(context)
        page = context.new_page()
        page.on("request", lambda asked: _local(asked.url) or wrong.append(f"asked for {asked.url}"))
        page.on("requestfailed", lambda asked: _left(asked) or wrong.append(f"could not load {asked.url}"))
        page.on("pageerror", lambda error: wrong.append(f"a script failed: {error}"))
        page.goto((target.resolve().as_uri() if isinstance(target, Path) else target) + fragment)
        page.wait_for_load_state("load")
        return page

    yield go
    for context in opened:
        context.close()
    assert not wrong, "\n".join(wrong)


def _left(asked: Request) -> bool:
    """Return whether a file was not loaded because the page was left before."""
    return "ERR_ABORTED" in (asked.failure or "")


def _local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:", "about:"))


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Keep a picture of a page: `picture(page, "name")`, or `whole=False` for what the window shows."""

    def take(page: Page, name: str, *, whole: bool = True) -> Path:
        PICTURES.mkdir(exist_ok=True)
        path = PICTURES / f"{name}.png"
        page.screenshot(path=path, full_page=whole, animations="disabled")
        return path

    return take


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built as `make docs` builds it, without drawing the figures again."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder
