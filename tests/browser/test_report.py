"""The report of the example study, as readers see it: on a phone, on paper, in the dark, without scripts."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import unicodedata

import pypdf
import pytest

from tests.browser import look
from tests.browser.conftest import ROOT


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """The folder of results of examples/clinic, a study with every kind of picture."""
    out = tmp_path_factory.mktemp("clinic") / "results"
    study = ROOT / "examples" / "clinic" / "study.toml"
    subprocess.run(
        [sys.executable, "-m", "cape", "run", str(study), "--out", str(out)], check=True, capture_output=True
    )
    return out


@pytest.mark.parametrize("width", look.WIDTHS)
def test_nothing_is_cut_off(width, results, visit, picture):
    page = visit(results / "report.html", width=width, scripts=True)
    picture(page, f"report-{width}")
    assert not look.sticks_out(page)
    for box in page.locator(".wide").all():  # no table needs to be scrolled
        assert box.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    drawn = page.locator("svg:visible")
    assert drawn.count() >= 5
    for place in range(drawn.count()):
        text = drawn.nth(place).locator("text").first.evaluate("e => e.getBoundingClientRect().height")
        assert text >= 9  # pixels: a picture that shrinks to a phone cannot be read


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_a_report_has_no_barrier(width, dark, results, visit, axe, picture):
    page = visit(results / "report.html", width=width, dark=dark)
    if dark:
        picture(page, f"report-dark-{width}")
    for folded in page.locator("details").all():
        folded.evaluate("e => { e.open = true }")
    assert not look.barriers(page, axe)


def test_the_first_result_is_on_the_first_screen(results, visit):
    page = visit(results / "report.html", scripts=False)
    first = page.locator("#findings li").first.bounding_box()
    assert first is not None
    assert first["y"] < 400


def test_every_link_leads_somewhere_by_keyboard(results, visit):
    page = visit(results / "report.html")
    anchors = [link.get_attribute("href") for link in page.locator('a[href^="#"]').all()]
    assert len(anchors) > 5
    for anchor in anchors:
        assert page.locator(anchor).count() == 1, anchor
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "A"


def test_it_prints_with_every_result_and_a_certificate_of_one_page(results, visit, tmp_path):
    page = visit(results / "report.html")
    pages = _printed(page.pdf(format="A4"))
    told = json.loads((results / "results.json").read_text())["analyses"]
    text = " ".join(pages)
    for each in told:
        assert _plain(each["description"]) in _plain(text), each["description"]
    (certificate,) = [_plain(page) for page in pages if "itrestson" in _plain(page)]
    assert "privacycertificate" in certificate
    assert "addstotheloss" in certificate


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", unicodedata.normalize("NFKC", text)).lower()


def _printed(pdf: bytes) -> list[str]:
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages]


def test_numbers_and_pictures_can_be_saved_from_the_page(results, visit):
    page = visit(results / "report.html")
    links = page.locator("a[download]")
    kinds = {link.get_attribute("download").rpartition(".")[2] for link in links.all()}
    assert kinds == {"csv", "svg"}
    for link in links.all():
        data = base64.b64decode(link.get_attribute("href").partition(",")[2]).decode()
        if link.get_attribute("download").endswith("csv"):
            assert data.startswith("label,value,low,high")
        else:
            assert data.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
            page.evaluate(
                "text => { const d = new DOMParser().parseFromString(text, 'image/svg+xml');"
                " if (d.querySelector('parsererror')) throw new Error('not a picture'); }",
                data,
            )
