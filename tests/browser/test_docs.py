"""The documentation as a reader's browser shows it: from files, with the network off."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import cape
from tests.browser import look

PAGES = ("index", "choosing-epsilon", "comparison", "ethics", "guarantee", "tutorial", "reference/privacy")


def test_nothing_sticks_out_of_any_page(site, visit, picture):
    wrong = {}
    shown = visit(site / "index.html")
    for file in sorted(set(site.rglob("*.html")) - {site / "404.html"}):
        name = file.relative_to(site).with_suffix("").as_posix()
        shown.goto(file.as_uri())
        for width in look.WIDTHS:
            shown.set_viewport_size({"width": width, "height": 900})
            wrong[name, width] = look.sticks_out(shown)
            if name in PAGES:
                picture(shown, f"{name.replace('/', '-')}-{width}")
    assert len(wrong) > 40 * len(look.WIDTHS)
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_barrier(page, dark, site, visit, axe, picture):
    shown = visit(site / f"{page}.html", dark=dark)
    if dark:
        picture(shown, f"{page.replace('/', '-')}-dark")
    assert not look.barriers(shown, axe)


def test_what_is_too_wide_is_noticed(tmp_path, visit, axe):
    page = tmp_path / "wide.html"
    page.write_text('<body><p style="width: 900px">wide</p><img src="data:,"></body>')
    shown = visit(page, width=360)
    assert any("900" in found or "wide" in found for found in look.sticks_out(shown))
    assert any("image-alt" in found for found in look.barriers(shown, axe))


def test_the_search_finds_a_page_without_a_server(site, visit):
    shown = visit(site / "index.html")
    shown.locator(".md-search__input").click()
    shown.keyboard.type("ledger")
    found = shown.locator('.md-search-result__link[href*="stewards.html"]').first
    found.wait_for(state="attached")  # results change with every letter


def test_every_page_shows_the_version(site):
    for page in site.glob("*.html"):
        assert f"CAPE {cape.__version__}" in page.read_text(encoding="utf-8"), page.name


def test_no_page_names_an_asset_of_another_host(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assets = re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="?([^" >]+)', text)
        assets += re.findall(r'<link[^>]*rel="?(?:stylesheet|preconnect|icon)"?[^>]*href="?([^" >]+)', text)
        assert not [asset for asset in assets if urlsplit(asset).netloc], page.name


def test_every_link_and_anchor_is_there(site):
    """MkDocs checks links between pages of Markdown; this checks all of what was built, the reference too."""
    anchors: dict[Path, set[str]] = {}

    def ids(page: Path) -> set[str]:
        if page not in anchors:
            anchors[page] = set(re.findall(r'\b(?:id|name)="?([^" >]+)', page.read_text(encoding="utf-8")))
        return anchors[page]

    broken = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links start at the root of a server
            continue
        for link in re.findall(r'<a\b[^>]*\bhref="?([^" >]+)', page.read_text(encoding="utf-8")):
            to = urlsplit(link.replace("&amp;", "&"))
            if to.scheme or to.netloc:
                continue
            target = (page.parent / unquote(to.path)).resolve() if to.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                broken.append(f"{page.relative_to(site)}: {link}")
            elif to.fragment and target.suffix == ".html" and unquote(to.fragment) not in ids(target):
                broken.append(f"{page.relative_to(site)}: {link}: no such anchor")
    assert not broken, "\n".join(broken)


def test_the_reference_has_every_public_name(site):
    inventory = (site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]
    described = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    modules = {name for name in cape.__all__ if isinstance(getattr(cape, name), ModuleType)}
    assert sorted({f"cape.{name}" for name in set(cape.__all__) - modules} - described) == []
    from cape import privacy, sklearn

    assert sorted({f"cape.sklearn.{name}" for name in sklearn.__all__} - described) == []
    for name in privacy.__all__:
        value = getattr(privacy, name)
        names = [f"{name}.{each}" for each in value.__all__] if isinstance(value, ModuleType) else [name]
        assert sorted({f"cape.privacy.{each}" for each in names} - described) == []
    torch = (Path(cape.__file__).parent / "torch/__init__.py").read_text()
    names = re.findall(r'"(\w+)"', torch.partition("__all__")[2])
    assert len(names) == 6
    assert not {f"cape.torch.{name}" for name in names if name != "train"} - described
    assert "cape.torch.train.train" in described  # the module has the function's name
