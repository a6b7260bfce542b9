"""The coordinator's pages: a study is written with a form or as text, planned, reviewed and submitted."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from cape.site.keyring import fingerprint
from cape.study import Study
from tests.unit.desk.office import TEXT, Office, office, sent
from tests.unit.desk.visitor import Visitor

__all__ = ["office"]


def post(visitor: Visitor, path: str, fields: list[tuple[str, str]]) -> str:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    found = visitor.post(path, content=urlencode(fields), headers=headers)
    assert found.status_code == 200, (found.status_code, found.text)
    return found.text


def text_of(page: str) -> str:
    return dict(sent(page, "text"))["text"]


def test_a_study_is_written_with_the_form_alone(office: Office):
    visitor = office.visitor()
    page = visitor.get("/studies/new").text
    assert "Not complete yet." in page
    page = post(
        visitor,
        "/study",
        sent(
            page,
            name="lungs",
            column__0__name="age",
            column__0__low="18",
            column__0__high="90",
            do="add-column",
        ),
    )
    page = post(
        visitor,
        "/study",
        sent(
            page,
            column__1__name="sex",
            column__1__kind="category",
            column__1__values="f, m",
            new="mean",
            do="add-analysis",
        ),
    )
    assert 'name="analysis.0.columns" value="age"' in page
    page = post(
        visitor, "/study", sent(page, analysis__0__columns="age", analysis__0__share="0.5", do="plan")
    )
    for words in ("conventional", "pooled", "expected error", "0.5", "As a bet:"):
        assert words in page, words
    page = post(visitor, "/study", sent(page, do="show-text"))
    assert text_of(page) == (
        '[study]\nname = "lungs"\n\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\n\n[schema]\n'
        'age = {low = 18, high = 90}\nsex = ["f", "m"]\n\n[sites]\na = {}\nb = {}\nc = {}\nd = {}\n'
        '[[analysis]]\nkind = "mean"\ncolumns = ["age"]\nshare = 0.5\n'
    )


def test_text_becomes_a_form_and_the_same_text_again(office: Office):
    visitor = office.visitor()
    fields = [("csrf", visitor.csrf), ("mode", "text"), ("text", TEXT), ("do", "show-form")]
    page = post(visitor, "/study", fields)
    assert "lungs &amp; &lt;hearts&gt;" in page
    assert "<hearts>" not in page
    assert text_of(post(visitor, "/study", sent(page, do="show-text"))) == TEXT


def test_the_plan_follows_what_is_typed_and_leaves_no_line_in_the_trail(office: Office):
    visitor = office.visitor()
    fields = [("csrf", visitor.csrf), ("mode", "text"), ("text", TEXT), ("do", "show-form")]
    page = post(visitor, "/study", fields)
    lines = office.app.state.access.trail.lines
    plan = post(visitor, "/study/plan", sent(page, privacy__epsilon="2"))
    assert "epsilon = 2, delta = 1e-06" in plan
    assert "<html" not in plan
    broken = post(visitor, "/study/plan", sent(page, column__0__low="95"))
    assert "Not complete yet. [schema]: column" in broken
    assert "<html" not in broken
    assert office.app.state.access.trail.lines == lines


def test_the_plan_is_that_of_the_command_line(office: Office):
    visitor = office.visitor()
    plan = post(visitor, "/study/plan", [("csrf", visitor.csrf), ("mode", "text"), ("text", TEXT)])
    path = office.world.folder / "study.toml"
    path.write_text(TEXT)
    study = Study.load(path)
    for entry in study.analyses:
        table = study.plan(entry).table()
        for row in table.rows:
            for cell in row:
                assert cell in plan


def test_a_draft_is_kept_and_discarded(office: Office):
    visitor = office.visitor()
    fields = [("csrf", visitor.csrf), ("mode", "text"), ("text", TEXT), ("do", "save")]
    found = visitor.submit("/study", **dict(fields))
    assert (found.status_code, found.headers["location"]) == (303, "/drafts/lungs-hearts")
    office.restart()
    visitor = office.visitor()
    assert "lungs-hearts" in visitor.words("/")
    page = visitor.get("/drafts/lungs-hearts").text
    found = visitor.submit("/study", **dict(sent(page, do="discard", csrf=visitor.csrf)))
    assert found.headers["location"] == "/"
    assert office.state.drafts() == []
    assert visitor.get("/drafts/lungs-hearts").status_code == 400
    assert visitor.get("/drafts/..%2f..%2foffice").status_code == 404


def test_a_study_is_reviewed_before_it_is_submitted(office: Office):
    visitor = office.visitor()
    fields = [("csrf", visitor.csrf), ("mode", "text"), ("do", "review")]
    page = post(visitor, "/study", [*fields, ("text", TEXT)])
    assert "Submit to 4 sites" in page
    assert dict(sent(page, "wait"))["text"] == TEXT
    page = post(visitor, "/study", [*fields, ("text", TEXT.replace("age = [18, 90]", "age = [18]"))])
    assert "Not complete yet." in page
    assert "Submit to" not in page


def test_a_viewer_reads_and_writes_nothing(office: Office):
    viewer = office.visitor("viewer")
    assert "New study" not in viewer.words("/")
    assert viewer.get("/studies/new").status_code == 403
    for path in ("/study", "/study/plan", "/submissions"):
        assert viewer.submit(path, text=TEXT, mode="text").status_code == 403
    assert office.visitor(None).get("/").status_code == 303


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a = {rows = 400}", 'a = "/etc/passwd"', "each site alone knows where its rows are"),
        ("a = {rows = 400}", 'a = {query = "select", connection = "env:HOME"}', "each site alone knows"),
        ('kind = "histogram"', 'kind = "evaluate"\nmodel = "/etc/passwd"', "model names a file"),
        ('kind = "histogram"', 'kind = "x"\nof = [{checkpoint = "/tmp/x"}]', "checkpoint names a file"),
        ("min_sites = 3", 'scheme = "none"', "cannot be run across machines"),
        ("[study]", "a.a.a.a.a.a.a.a.a = 1\n[study]", "more than eight names"),
        ("[study]", "x = " + 3000 * "[" + "\n[study]", "not a TOML file"),
    ],
)
def test_a_text_cannot_make_the_desk_open_a_file(office: Office, old: str, new: str, said: str):
    visitor = office.visitor()
    text = TEXT.replace(old, new)
    page = post(visitor, "/study", [("csrf", visitor.csrf), ("mode", "text"), ("text", text), ("do", "plan")])
    assert said in page
    assert "root:" not in page
    found = visitor.submit("/submissions", text=text)
    assert found.status_code == 400
    assert office.state.submissions() == []


def test_a_site_without_a_key_is_named_before_anything_is_submitted(office: Office):
    visitor = office.visitor()
    text = TEXT.replace("c = {rows = 700}", "elsewhere = {rows = 700}")
    plan = post(visitor, "/study/plan", [("csrf", visitor.csrf), ("mode", "text"), ("text", text)])
    assert "No key of elsewhere is pinned" in plan
    found = visitor.submit("/submissions", text=text)
    assert found.status_code == 400
    assert "elsewhere" in found.text
    assert str(office.world.folder) not in found.text


def test_keys_are_shown_to_compare(office: Office):
    words = office.visitor("viewer").words("/sites")
    for site in office.world.sites.values():
        assert fingerprint(site.card.key) in words
