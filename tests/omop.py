"""A small database of OMOP's model, and what its columns are, computed from the rows in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from typing import Any

DAY_0 = date(2020, 3, 1)
COLUMNS = {
    "person": "person_id gender_concept_id year_of_birth month_of_birth day_of_birth",
    "cohort": "cohort_definition_id subject_id cohort_start_date",
    "condition_occurrence": "person_id condition_concept_id condition_start_date",
    "drug_exposure": "person_id drug_concept_id drug_exposure_start_date",
    "procedure_occurrence": "person_id procedure_concept_id procedure_date",
    "measurement": "measurement_id person_id measurement_concept_id measurement_date measurement_datetime "
    "value_as_number",
    "concept_ancestor": "ancestor_concept_id descendant_concept_id",
    "death": "person_id death_date",
    "observation_period": "person_id observation_period_start_date observation_period_end_date",
}
EVENTS = {"condition": "condition_occurrence", "drug": "drug_exposure", "procedure": "procedure_occurrence"}
CONCEPTS = (201826, 4193704, 40482801, 2000000001)
SEXES = {8532: "female", 8507: "male"}
NAMES = (
    *("person", "index_date", "age", "sex", "died", "days_to_death", "observation_days"),
    *(f"{kind}_{concept}" for kind in (*EVENTS, "measurement") for concept in CONCEPTS),
)

Rows = dict[str, list[tuple[Any, ...]]]


def rows(seed: int = 1, persons: int = 60) -> Rows:
    """Rows of which many are at the edges: of a window of 30 days, of birthdays, of observation periods."""
    generator = random.Random(seed)
    found: Rows = {name: [] for name in COLUMNS}

    def near(day: date) -> date:
        return day + timedelta(days=generator.choice([-31, -30, -29, -1, 0, 1, 29, 30, 31]))

    for person in range(1, persons + 1):
        index = DAY_0 + timedelta(days=generator.randrange(-2, 3))
        birth = near(index.replace(day=1, year=generator.choice([1952, 1980, 2019, 2020])))
        month, day = generator.choice([(birth.month, birth.day), (birth.month, None), (None, None)])
        sex = generator.choice([8532, 8507, 0])
        found["person"].append((person, sex, birth.year, month, day))
        entries = [index, *([index + timedelta(days=30)] if person % 3 == 0 else [])]
        found["cohort"] += [(7, person, entry) for entry in entries]
        found["cohort"].append((8, person, near(index)))
        for table in EVENTS.values():
            for _ in range(generator.randrange(4)):
                found[table].append((person, generator.choice(CONCEPTS), near(index)))
        for _ in range(generator.randrange(8)):
            when = near(index)
            hour = datetime(when.year, when.month, when.day, generator.choice([8, 20]))
            value = generator.choice([None, 0.5, 120.25, -3.0, 7.0])
            measured = (person, generator.choice(CONCEPTS), when, generator.choice([None, hour]), value)
            found["measurement"].append((len(found["measurement"]) + 1, *measured))
        if person % 4 == 0:
            found["death"].append((person, near(index)))
        if person % 5:
            found["observation_period"] += [
                (person, near(index) - timedelta(days=30), near(index)),
                (person, index - timedelta(days=2), index + timedelta(days=person)),  # they may overlap
                (person, index + timedelta(days=40), index + timedelta(days=50)),
            ]
    found["cohort"].append((7, 3, found["cohort"][0][2]))
    found["cohort"].append((7, persons + 1, DAY_0))  # nobody knows this person
    found["concept_ancestor"] = [
        (201826, 201826),  # most concepts are their own ancestors; one that a site has added is not
        (201826, 4193704),
        (201826, 40482801),
        (4193704, 40482801),
    ]
    return found


def fill(
    execute: Callable[[str], Any], tables: Rows, *, schema: str = "", results: str = "", cell: Any = None
) -> None:
    """Make the tables in a database; `cell` writes a value, as standard SQL does unless given."""
    for name, columns in COLUMNS.items():
        place = f"{results if name == 'cohort' else schema}{name}"
        kinds = [f"{column} {_kind(column)}" for column in columns.split()]
        execute(f"CREATE TABLE {place} ({', '.join(kinds)})")
        values = ["(" + ", ".join(map(cell or written, row)) + ")" for row in tables[name]]
        if values:
            execute(f"INSERT INTO {place} VALUES {', '.join(values)}")


def _kind(column: str) -> str:
    if column.endswith("datetime"):
        return "TIMESTAMP NULL"
    return "DATE" if column.endswith("date") else "NUMERIC(9, 3)" if "value" in column else "INTEGER"


def written(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, date) else str(value)


def expected(
    tables: Rows, names: Iterable[str] = NAMES, window: tuple[int, int] = (-365, 0), cohort: int = 7
) -> list[tuple[Any, ...]]:
    """The cells of these columns, entry by entry."""
    entries = sorted((person, day) for number, person, day in tables["cohort"] if number == cohort)
    return [tuple(_cell(tables, name, window, *entry) for name in names) for entry in entries]


def _cell(tables: Rows, name: str, window: tuple[int, int], person: int, index: date) -> Any:
    kind, _, concept = name.partition("_")
    first, last = (index + timedelta(days=day) for day in window)
    if kind in (*EVENTS, "measurement"):
        among = {int(concept), *(to for of, to in tables["concept_ancestor"] if of == int(concept))}
        if kind in EVENTS:
            events = [(what, day) for who, what, day in tables[EVENTS[kind]] if who == person]
            return int(any(what in among and first <= day <= last for what, day in events))
        values = [
            (day, time or datetime.min, number, value)
            for number, who, what, day, time, value in tables["measurement"]
            if who == person and what in among and first <= day <= last and value is not None
        ]
        return max(values)[-1] if values else None
    deaths = [(day - index).days for who, day in tables["death"] if who == person]
    followed = [
        (end - index).days
        for who, start, end in tables["observation_period"]
        if who == person and start <= index <= end
    ]
    known = [row[1:] for row in tables["person"] if row[0] == person]
    return {
        "person": person,
        "index_date": index,
        "age": _age(*known[0][1:], index) if known else None,
        "sex": SEXES.get(known[0][0]) if known else None,
        "died": len(deaths),
        "days_to_death": deaths[0] if deaths else None,
        "observation_days": max(followed, default=None),
    }[name]


def _age(year: int, month: int | None, day: int | None, index: date) -> int | None:
    birthday = (month, day or 1) if month else (1, 1)
    today = (index.year, index.month, index.day)
    birthdays = [(each, *birthday) <= today for each in range(year, index.year + 1)]
    return sum(birthdays) - 1 if any(birthdays) else None
