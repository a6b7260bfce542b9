"""The policy as a form: what is written there becomes the file, with its comments, or nothing does."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from cape.core.errors import InvalidInput
from cape.desk.site import policy as pages
from cape.desk.site.edit import FIELDS, Sheet
from cape.site import SiteFolder
from cape.site.admin import Desk
from tests.unit.desk.visitor import Visitor, desk


@pytest.fixture
def folder(tmp_path: Path) -> SiteFolder:
    """A site with the policy that `cape site init` writes, comments and all."""
    made = SiteFolder.create(tmp_path / "a")
    (made.path / "data.csv").write_text("age,sex\n" + "50,male\n" * 200)
    return made


@pytest.fixture
def admin(folder: SiteFolder, tmp_path: Path) -> Visitor:
    return Visitor(desk(pages.PAGES, tmp_path, folder), "admin")


def text_of(folder: SiteFolder) -> str:
    return (folder.path / "site.toml").read_text()


def fields_of(page: str) -> list[tuple[str, str]]:
    """What a browser would send if nobody changed anything."""
    sent = []
    for tag in re.findall(r"<input[^>]*>", page):
        attributes = dict(re.findall(r'([a-z]+)="([^"]*)"', tag))
        if "name" not in attributes:
            continue
        if attributes.get("type") in ("checkbox", "radio") and " checked" not in tag:
            continue
        sent.append((unescape(attributes["name"]), unescape(attributes.get("value", ""))))
    return sent


def send(admin: Visitor, change: dict[str, Any], path: str = "/policy/try") -> Any:
    """Load the form, change some fields, and send it."""
    sent: dict[str, list[str]] = {}
    for name, value in fields_of(admin.get("/policy").text):
        sent.setdefault(name, []).append(value)
    for name, value in change.items():
        sent[name] = value if isinstance(value, list) else [value]
    return admin.post(path, data=sent)


def proposed(page: str) -> dict[str, str]:
    """What the page with the differences would send."""
    (text,) = re.findall(r"<textarea name=\"text\"[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    (digest,) = re.findall(r'name="hash" value="([0-9a-f]+)"', page)
    return {"text": unescape(text), "hash": digest}


def test_a_form_that_nobody_changed_changes_nothing(admin: Visitor, folder: SiteFolder):
    before = text_of(folder)
    done = send(admin, {})
    assert (done.status_code, done.headers["location"]) == (303, "/policy")
    assert "Nothing was changed." in admin.words("/policy")
    assert text_of(folder) == before


def test_a_change_is_shown_as_a_diff_and_saved_with_all_comments(admin: Visitor, folder: SiteFolder):
    before = text_of(folder)
    shown = send(admin, {"protect.min_rows": "250", "budget.year.epsilon": "1.5"})
    assert shown.status_code == 200
    assert "-min_rows = 100" in shown.text
    assert "+min_rows = 250" in shown.text
    assert text_of(folder) == before, "nothing is saved before it is confirmed"
    done = admin.submit("/policy/save", **proposed(shown.text))
    assert done.status_code == 303
    assert text_of(folder) == before.replace("min_rows = 100", "min_rows = 250").replace(
        "year = {epsilon = 2.0, delta = 1e-6} ", "year = {epsilon = 1.5, delta = 1e-6} "
    )


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        ({"protect.min_rows": "many"}, "protect.min_rows", "min_rows"),
        ({"budget.total.epsilon": "-1"}, "budget.total", "epsilon"),
        ({"site.expires": "soon"}, "site.expires", "as in 2027-12-31"),
        ({"allow.analyses": []}, "allow.analyses", "at least one entry"),
    ],
)
def test_a_wrong_field_is_marked_with_what_the_policys_reader_says(
    admin: Visitor, folder: SiteFolder, change: dict[str, Any], where: str, what: str
):
    before = text_of(folder)
    shown = send(admin, change)
    assert shown.status_code == 422
    (marked,) = re.findall(rf'id="problem-{re.escape(where)}">(.*?)</span>', shown.text)
    assert what in unescape(marked)
    assert str(folder.path) not in shown.text
    for value in (each for each in change.values() if isinstance(each, str)):
        assert f'value="{value}"' in shown.text, "what was written stays in the form"
    assert text_of(folder) == before


def test_fields_that_are_valid_together_only_are_accepted_together(admin: Visitor):
    alone = send(admin, {"allow.adjacency": ["add-remove"]})
    assert alone.status_code == 422
    assert "expected_rows is missing" in unescape(alone.text)
    both = send(admin, {"allow.adjacency": ["add-remove"], "site.expected_rows": "1000"})
    assert both.status_code == 200
    assert "+expected_rows = 1000" in both.text


def test_a_file_that_changed_meanwhile_is_not_overwritten(admin: Visitor, folder: SiteFolder):
    shown = send(admin, {"protect.min_rows": "250"})
    changed = text_of(folder).replace("other_honest = 1", "other_honest = 2")
    (folder.path / "site.toml").write_text(changed)
    done = admin.submit("/policy/save", **proposed(shown.text))
    assert done.status_code == 400
    assert "has changed since it was read" in done.text
    assert text_of(folder) == changed
    assert (
        "has changed since it was read"
        in admin.post("/policy/try", data={"csrf": admin.csrf, "hash": "0" * 64}).text
    )


def test_columns_are_shown_and_stay_as_they_are(admin: Visitor, folder: SiteFolder):
    before = text_of(folder)
    page = admin.get("/policy").text
    assert "[18, 90]" in page
    assert "The site's own user edits this part" in page
    assert not re.findall(r'name="(?:schema|new)\.', page)
    done = send(admin, {"schema.age": "[0, 120]", "schema.sex.remove": "yes", "new.name": "x"})
    assert (done.status_code, text_of(folder)) == (303, before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("age = [18, 90]", "age = [18, 71.9]"),
        ("age = [18, 90]", ""),
        ("[schema]", "[schema]\nward = [0, 1]"),
        ('data = "data.csv"', 'data = {path = "data.csv", null_values = ["50"]}'),
        ("[allow]", '[person]\nid = "who"\n\n[allow]'),
        ("[allow]", '[notify]\ncommand = ["/bin/sh", "-c", "id"]\n\n[allow]'),
    ],
)
def test_what_a_check_counts_and_what_notices_run_cannot_be_changed(
    admin: Visitor, folder: SiteFolder, old: str, new: str
):
    before = text_of(folder)
    text = before.replace(old, new, 1)
    digest = re.findall(r'name="hash" value="([0-9a-f]+)"', admin.get("/policy/text").text)[0]
    shown = admin.submit("/policy/text/try", text=text, hash=digest)
    assert "own user edits this part of site.toml" in unescape(shown.text)
    done = admin.submit("/policy/save", text=text, hash=digest)
    assert (done.status_code, text_of(folder)) == (400, before)
    assert Desk(folder).try_policy(text).problem is None, "the site's own user may"


def test_a_new_key_stands_below_the_comment_that_shows_it(admin: Visitor, folder: SiteFolder):
    before = text_of(folder)
    shown = send(admin, {"allow.ways": "2", "allow.columns": ["age"]})
    admin.submit("/policy/save", **proposed(shown.text))
    assert text_of(folder) == before.replace("# ways = 2\n", "# ways = 2\nways = 2\n").replace(
        '# columns = ["age"]\n', '# columns = ["age"]\ncolumns = ["age"]\n'
    )


def test_a_list_keeps_its_lines_and_comments():
    text = '[allow]\nanalyses = [\n    "mean",  # since May\n    "count",\n]\n'
    sheet = Sheet(text)
    (field,) = [each for each in FIELDS if each.name == "allow.analyses"]
    sheet.set(field, ["mean", "sum"])
    assert "# since May" in sheet.text
    assert tomlkit.parse(sheet.text)["allow"]["analyses"] == ["mean", "sum"]


@pytest.mark.parametrize(
    "text",
    [
        '["allow"]\nanalyses = ["mean"]\n',
        'allow.analyses = ["mean"]\n',
        '[allow]\nx = """\n# ways = 2\n"""\n',
    ],
)
def test_a_key_that_cannot_be_added_is_left_to_people(text: str):
    (field,) = [each for each in FIELDS if each.name == "allow.ways"]
    with pytest.raises(InvalidInput, match="edit the whole file"):
        Sheet(text).set(field, 2)


def test_the_older_name_of_a_key_is_the_one_that_is_edited(admin: Visitor, folder: SiteFolder):
    path = folder.path / "site.toml"
    path.write_text(path.read_text().replace('adjacency = ["replace-one"]', 'neighbours = ["replace-one"]'))
    shown = send(admin, {"allow.neighbours": ["replace-one", "add-remove"]})
    assert "+neighbours = [&#34;replace-one&#34;, &#34;add-remove&#34;]" in shown.text


def test_a_broken_file_is_mended_as_text(admin: Visitor, folder: SiteFolder):
    good = text_of(folder)
    (folder.path / "site.toml").write_text(good.replace("min_rows = 100", "min_rows = 'many'"))
    page = admin.get("/policy/text")
    assert str(Desk(folder).policy().problem) in unescape(page.text)
    digest = re.findall(r'name="hash" value="([0-9a-f]+)"', page.text)[0]
    shown = admin.submit("/policy/text/try", text=good, hash=digest)
    admin.submit("/policy/save", **proposed(shown.text))
    assert text_of(folder) == good


def test_a_file_that_cannot_be_read_at_all_is_the_site_users(admin: Visitor, folder: SiteFolder):
    good = text_of(folder)
    (folder.path / "site.toml").write_text("[site\n")
    page = admin.get("/policy")
    assert str(Desk(folder).policy().problem) in unescape(page.text)
    with pytest.raises(InvalidInput):
        Sheet("[site\n")
    digest = re.findall(r'name="hash" value="([0-9a-f]+)"', page.text)[0]
    shown = admin.submit("/policy/text/try", text=good, hash=digest)
    assert "the file in force is not valid TOML" in unescape(shown.text)
    assert text_of(folder) == "[site\n"


def test_a_password_is_not_shown_and_stays(admin: Visitor, folder: SiteFolder):
    path = folder.path / "site.toml"
    secret = 'data = {query = "SELECT 1", connection = "postgresql://u:hunter2@db/x"}'
    path.write_text(path.read_text().replace('data = "data.csv"', secret))
    for page in ("/policy", "/policy/text"):
        assert "hunter2" not in admin.get(page).text
    shown = send(admin, {"protect.min_rows": "250"})
    assert "hunter2" not in shown.text
    admin.submit("/policy/save", **proposed(shown.text))
    assert secret in path.read_text()
    assert folder.policy.min_rows == 250


def test_only_an_admin_may_try_or_save(folder: SiteFolder, tmp_path: Path):
    steward = Visitor(desk(pages.PAGES, tmp_path, folder), "steward")
    assert "only an admin can change it" in steward.words("/policy")
    for path in ("/policy/try", "/policy/text/try", "/policy/save"):
        assert steward.submit(path, text="", hash="").status_code == 403
