"""A study whose persons have several rows, as a user runs it."""

from __future__ import annotations

import json

import pytest

PERSON = '[person]\nid = "patient"\nrows = 3\n[schema]'


@pytest.fixture
def visits(study):
    for path in (study.parent / "data").glob("*.csv"):
        head, *lines = path.read_text().splitlines()
        named = [f"{line},hidden-{path.stem}-{number // 5}" for number, line in enumerate(lines)]
        path.write_text("\n".join([f"{head},patient", *named]) + "\n")
    study.write_text(study.read_text().replace("[schema]", PERSON))
    return study


def test_the_report_and_results_say_who_is_protected(cape, visits):
    out = visits.parent / "out"
    done = cape("run", visits, "--json", "--out", out)
    assert done.code == 0, done.err
    results = json.loads(done.out)
    for answered in results["analyses"]:
        assert answered["rows"] is None
        assert answered["guarantee"]["person"]["rows"] == 3
        assert "at most 3 count at a site" in answered["guarantee"]["statement"]
    report = (out / "report.html").read_text()
    assert "At most 3 rows of each person count at a site, drawn by the site in secret" in report
    assert "How many rows each site holds is public" not in report
    for path in out.rglob("*"):
        assert not path.is_file() or b"hidden-" not in path.read_bytes(), path.name
    assert "hidden-" not in done.err


def test_a_plan_counts_the_rows_of_a_person(cape, visits):
    def noise():
        planned = json.loads(cape("plan", visits, "--json").out)
        return {name: by["cape"] for name, by in planned["analyses"][0]["noise"].items()}

    three = noise()
    visits.write_text(visits.read_text().replace("rows = 3\n", "rows = 1\nsites = 1\n"))
    one = noise()
    assert three.keys() == one.keys()
    for name in three:
        assert three[name] > 2.9 * one[name]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('id = "age"', "[person]: the id 'age' must not be a column of the schema"),
        ('id = "patient"\ntake = "latest"\nby = "agee"', "did you mean 'age'?"),
        ('id = "patient"\nsites = 4', "a person may appear at 4 sites, but there are only 3"),
        ("rows = 2", "[person]: the key 'id' is missing"),
        ('id = "patient"\nrow = 4', "[person]: row must be a table"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(cape, study, wrong, said):
    study.write_text(study.read_text().replace("[schema]", f"[person]\n{wrong}\n[schema]"))
    done = cape("plan", study)
    assert done.code == 1 or done.code == 2
    assert said in " ".join(done.err.split())
