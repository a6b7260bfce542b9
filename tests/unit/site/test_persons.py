"""A site whose persons have several rows: what it refuses, charges and chooses, and what it never says."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from cape.privacy import Budget
from cape.site import Basis, Offer
from tests.world import NAMES, World, document

WHOLE = Fraction(Budget(1.0, 1e-6).mu) ** 2
FOUR = {"id": "patient", "rows": 4}


@pytest.fixture
def clinics(world: World) -> World:
    """Every person has six rows at a site, of which four may count."""
    for name, site in world.sites.items():
        path = site.path / "rows.csv"
        head, *lines = path.read_text().splitlines()
        ids = [f"{name}-secret-{number // 6}" for number in range(len(lines))]
        path.write_text("\n".join([f"{head},patient", *map(",".join, zip(lines, ids, strict=True))]) + "\n")
        world.edit("[allow]", '[person]\nid = "patient"\nrows = 4\n[allow]', name)
    world.edit("min_rows = 100", "min_rows = 50", *world.sites)
    return world


@pytest.mark.parametrize(
    ("person", "said"),
    [
        (None, 'write [person] with id = "patient" and rows = 4 or fewer'),
        ({"id": "sex_of_patient"}, "another column says whose a row is"),
        ({"id": "patient", "rows": 5}, "at most 4 rows of a person may count"),
    ],
)
def test_a_study_that_protects_less_is_refused(clinics: World, person, said):
    found = clinics.decide(clinics.request(document(person=person)))
    assert found.code == "person"
    assert said in found.sentence


def test_a_site_of_rows_refuses_persons(world: World):
    found = world.decide(world.request(document(person=FOUR)))
    assert found.code == "person"
    assert "at this site each row is a person" in found.sentence


def test_a_site_can_ask_for_persons_at_several_sites(clinics: World):
    clinics.edit("rows = 4\n", "rows = 4\nsites = 2\n")
    clinics.edit("[schema]", "expected_rows = 300\n[schema]")
    assert clinics.code(clinics.request(document(person=FOUR))) == "person"
    assert clinics.granted(clinics.request(document(person=FOUR | {"sites": 2}))).rows is None


def test_no_number_of_persons_is_used_where_it_is_private(clinics: World):
    """A study may say that persons are at two sites; then min_rows is compared with a public estimate."""
    request = clinics.request(document(person=FOUR | {"sites": 2}))
    assert clinics.code(request) == "data"
    clinics.edit("[schema]", "expected_rows = 49\n[schema]")
    assert clinics.code(clinics.request(document(person=FOUR | {"sites": 2}))) == "data"
    clinics.edit("expected_rows = 49", "expected_rows = 50")
    clinics.granted(clinics.request(document(person=FOUR | {"sites": 2})))


def test_a_grant_counts_rows_and_sites_in_its_noise_and_says_no_size(clinics: World):
    one = clinics.granted(clinics.request(document(person={"id": "patient"})))
    assert one.rows == math.ceil(400 / 6), (
        "the number of persons is public where each counts once, at one site"
    )
    four = clinics.granted(clinics.request(document(person=FOUR)))
    assert four.rows is None
    assert four.local_std == one.local_std
    lines = clinics.site.ledger.entries()
    assert [line.charged.mu_squared for line in lines] == [WHOLE / 4, WHOLE / 4]
    assert [line.basis for line in lines] == [Basis(unit="person"), Basis(unit="person", rows=4)]
    offer = clinics.site.consider(clinics.request(document(person=FOUR)).pack())
    assert isinstance(offer, Offer)
    assert offer.rows is None


def test_noise_is_four_times_that_of_a_person_with_one_row(clinics: World):
    clinics.edit("[schema]", "expected_rows = 300\n[schema]")
    noise = {
        (rows, sites): clinics.granted(
            clinics.request(document(person={"id": "patient", "rows": rows, "sites": sites}, epsilon=0.5))
        ).calibration.local_noise
        for rows, sites in ((1, 2), (4, 2), (4, 1))
    }
    assert noise[4, 2] == 4 * noise[1, 2]
    assert noise[4, 2] == pytest.approx(2 * noise[4, 1], rel=1e-4)  # but for what rounding adds


def test_a_restart_chooses_the_same_rows(clinics: World):
    def sums():
        grant = clinics.granted(clinics.request(document(person=FOUR, epsilon=0.1)))
        table = clinics.site.table().of(grant.schema)
        return [part for parts in table.sums(grant.query.blocks) for part in parts]

    before = sums()
    clinics.restart("a")
    for first, second in zip(before, sums(), strict=True):
        np.testing.assert_array_equal(first, second)
    people = sum(math.ceil(rows / 6) for rows in (400,))
    assert before[0][0] <= 4 * people


def test_the_ids_are_in_no_file_that_a_site_writes(clinics: World):
    clinics.granted(clinics.request(document(person=FOUR)))
    clinics.site.answer(clinics.granted(clinics.request(document(person=FOUR))))
    for path in clinics.site.path.rglob("*"):
        if path.is_file() and path.name != "rows.csv":
            assert b"secret-" not in path.read_bytes(), path.name


def test_a_study_is_released_across_the_sites(clinics: World):
    study = clinics.study('kind = "count"', 'kind = "mean"\ncolumns = ["age", "weight"]')
    text = study.path.read_text().replace("[schema]", '[person]\nid = "patient"\nrows = 4\n[schema]')
    study.path.write_text(text.replace("epsilon = 8.0", "epsilon = 1.0"))
    study = type(study).load(study.path)
    submission = clinics.submission(study)
    releases = [submission.answer(entry) for entry in study.analyses]
    assert [release.rows for release in releases] == [None, None]
    assert "at most 4 count at a site" in releases[0].guarantee.statement
    assert NAMES[0] in releases[0].participants
    for event in clinics.events:
        assert "secret-" not in repr(event)
