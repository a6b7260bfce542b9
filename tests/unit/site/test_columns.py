"""A column that a policy does not allow cannot be asked about, wherever in a request it is named.

What is asked is made from the analyses themselves: every kind of the registry, with every argument that
names columns given at once, in each way in which the analysis takes it. Of each such question every column is
forbidden in turn. A new kind is covered by itself; a new argument has to be listed here, as one that names
columns or as one that does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from cape.analyses import KINDS
from cape.analyses.registry import build, keys_of
from cape.blocks import Block
from cape.blocks.table import Table
from cape.core.errors import CapeError
from cape.data import Schema
from cape.site import wire
from cape.site.decide.review import columns_of
from cape.site.endpoint import SiteEndpoint
from cape.site.template import plain_policy
from tests.world import World, document

NUMBERS = [f"number_{index}" for index in range(6)]
CATEGORIES = [f"category_{index}" for index in range(6)]
SCHEMA: dict[str, Any] = {name: {"low": 0.0, "high": 1.0, "missing": True} for name in NUMBERS} | {
    name: {"categories": ["no", "yes"], "missing": True} for name in CATEGORIES
}

ONE, SOME, CONDITIONS = "one column", "a list of columns", "columns with a value each"
MODEL = "a target and a coefficient for each feature"
ANALYSIS = "an analysis of columns"
NAMES_COLUMNS = {
    "column": ONE,
    "target": ONE,
    "time": ONE,
    "event": ONE,
    "by": ONE,
    "strata": SOME,
    "entry": ONE,
    "offset": ONE,
    "weights": ONE,
    "columns": SOME,
    "features": SOME,
    "where": CONDITIONS,
    "model": MODEL,
    "of": ANALYSIS,
}
GIVEN: dict[str, Any] = {  # arguments that name no column, and must be given or make questions small
    "clusters": 2,
    "coefficients": {"1": [0, -2], "2": [1]},
    "bins": 4,
    "epochs": 2,
    "hidden": [2],
    "rows": 400,
}
LEFT = {  # and those that stay as they are
    "activation",
    "cap",  # its keys name columns
    "center",
    "checkpoint",
    "clip",
    "components",
    "contrasts",
    "cut",
    "distribution",
    "edges",
    "errors",
    "family",
    "intercept",
    "link",
    "method",
    "norm",
    "optimiser",
    "probs",
    "proportional",
    "radius",
    "random",  # "intercept", or some of the features
    "rate",
    "ridge",
    "rounds",
    "sampling",
    "seed",
    "steps",
    "threshold",
    "trend",
    "watch",
    "impossible",  # facts about columns that `columns` names
    "determines",
    "ways",
    "workload",  # weights of columns that `columns` names, or tables of them
    "formula",  # no request may have one: it is expanded to target and features before
    "quantiles",
    "horizon",
    "at_edges",
    "weighting",
    "p",
    "q",
}


TERMS: dict[str, list[dict[str, Any]]] = {  # features that are made of several columns
    kind: [{"kind": kind, "target": target, "features": ["number_1:category_1", "spline(number_2, 3)"]}]
    for kind, target in (("linear-regression", "number_0"), ("logistic-regression", "category_0"))
}


def test_every_argument_is_listed_as_one_that_names_columns_or_as_one_that_does_not():
    known = {key for kind in KINDS for key in keys_of(kind)}
    assert known == NAMES_COLUMNS.keys() | GIVEN.keys() | LEFT


def shapes(kind: str) -> Iterator[dict[str, Any]]:
    """Yield descriptions of a kind: one column, several numbers, categories, or both, in each place."""
    keys = keys_of(kind)
    given = {key: GIVEN[key] for key in keys if key in GIVEN}
    places = [key for key in keys if key in NAMES_COLUMNS]
    picks: list[tuple[tuple[int, int], ...]] = []
    for key in places:
        if NAMES_COLUMNS[key] == CONDITIONS and kind != "count":
            picks.append(((1, 1),))
            continue
        if NAMES_COLUMNS[key] == ANALYSIS:
            picks.append(((2, 0), (0, 2), (1, 1), (3, 0)))
            continue
        if NAMES_COLUMNS[key] == MODEL:
            picks.append(((1, 2), (2, 1), (2, 0)))
            continue
        several = ((3, 0), (0, 3), (2, 2), (0, 2), (2, 0), (1, 0), (0, 1))
        picks.append(((1, 0), (0, 1), (0, 0)) if NAMES_COLUMNS[key] == ONE else (*several, (0, 0)))
    for beside, *chosen in itertools.product((given, {}), *picks):
        numbers, categories = iter(NUMBERS), iter(CATEGORIES)
        described: dict[str, Any] = {"kind": kind} | beside
        for key, (some, others) in zip(places, chosen, strict=True):
            names = [*itertools.islice(numbers, some), *itertools.islice(categories, others)]
            if not names:
                continue
            where: Any = dict.fromkeys(names, "yes") if kind == "count" else condition(names)
            shaped = {
                ONE: names[0],
                SOME: names,
                CONDITIONS: where,
                MODEL: model(names),
                ANALYSIS: analysis(names),
            }
            described[key] = shaped[NAMES_COLUMNS[key]]
        yield described


def condition(names: list[str]) -> str:
    """An expression that reads these columns."""
    return " and ".join(f"{name} = 'yes'" if name in CATEGORIES else f"{name} > 0.25" for name in names)


def model(names: list[str]) -> dict[str, Any]:
    """The coefficients of a public model of the last of these columns."""
    *features, target = names
    link = "logit" if target in CATEGORIES else "identity"
    coefficients = {f"{name}=yes" if name in CATEGORIES else name: 0.5 for name in features}
    return {"target": target, "link": link, "coefficients": coefficients}


def analysis(names: list[str]) -> dict[str, Any]:
    """An analysis that reads these columns, and can be compared between groups."""
    first, *others = names
    if first in CATEGORIES:
        return {"kind": "association", "columns": names}
    if len(others) == 1 and others[0] in CATEGORIES:
        return {"kind": "difference", "columns": [first], "by": others[0]}
    if len(others) == 1:
        return {"kind": "mean", "columns": names}
    return {"kind": "linear-regression", "target": first, "features": others}


def named(described: dict[str, Any]) -> list[str]:
    """Every column that a description names."""
    found: list[str] = []
    for key in described.keys() & NAMES_COLUMNS.keys():
        found += _listed(described[key])
    return sorted(found)


def understood(kind: str) -> list[dict[str, Any]]:
    """The shapes that the analysis itself takes, and that ask something of rows."""
    found = []
    for described in shapes(kind):
        try:
            query = build(described).query(Schema(SCHEMA), "replace-one")
        except (CapeError, TypeError):
            continue
        if query.blocks:
            found.append(described)
    return found


def widest(kind: str) -> list[dict[str, Any]]:
    """Of those that are understood, what is needed so that nothing is left untried.

    Every argument, with as many numbers and as many categories as it can have, each beside the most others.
    """
    known = sorted(understood(kind), key=lambda described: -len(named(described)))
    seen: set[tuple[str, int, str]] = set()
    chosen = []
    for described in known:
        mine = {
            (key, position, name.split("_")[0])
            for key in described.keys() & NAMES_COLUMNS.keys()
            for position, name in enumerate(_listed(described[key]))
        }
        if not mine <= seen:
            seen |= mine
            chosen.append(described)
    return chosen


def _listed(value: Any) -> list[str]:
    if isinstance(value, dict) and "coefficients" in value:
        return [value["target"], *(name.partition("=")[0] for name in value["coefficients"])]
    if isinstance(value, dict) and "kind" in value:
        found = [value.get("columns", []), value.get("features", []), [value.get("target"), value.get("by")]]
        return [name for names in found for name in names if name is not None]
    text = value if isinstance(value, str) else " ".join(value)  # a term names several
    return list(dict.fromkeys(re.findall(r"(?:number|category)_\d", text)))


def allow(world: World, columns: list[str]) -> None:
    peers = {name: key.public for name, key in world.identities.items() if name != "a"}
    text = plain_policy(
        "a",
        SCHEMA,
        list(KINDS),
        columns=columns,
        epsilon=(1.0, 2.0, 3.0),
        coordinators={"office": world.office.public},
        peers=peers,
    )
    (world.site.path / "site.toml").write_text(text)


@pytest.mark.one_in(8, seconds=0.3)
@pytest.mark.parametrize("kind", KINDS)
def test_each_column_that_a_request_names_can_be_forbidden(world: World, kind: str):
    asked = widest(kind) + TERMS.get(kind, [])
    assert asked, "no question of this kind could be made"
    every = {key for described in asked for key in described.keys() & NAMES_COLUMNS.keys()}
    assert every == set(keys_of(kind)) & NAMES_COLUMNS.keys(), "an argument was never given"
    header, cells = ",".join(SCHEMA), ",".join([*("0.5" for _ in NUMBERS), *("no" for _ in CATEGORIES)])
    (world.site.path / "rows.csv").write_text("\n".join([header, *[cells] * 200]) + "\n")
    member = SiteEndpoint(world.site)

    def code(described: dict[str, Any]) -> str | None:
        study = document(scheme="conventional", schema=SCHEMA, analyses=[{**described, "share": 0.25}])
        request = replace(world.request(study), trial=True).signed(world.office)
        found = wire.unpack_from_site(member.handle(wire.pack(wire.Review(1, (request.pack(),)))))
        assert isinstance(found, wire.Reviewed), found
        (refused,) = found.refusals
        return refused and refused.code

    for described in asked:
        columns = named(described)
        allow(world, columns)
        assert code(described) is None, described
        for forbidden in columns:
            allow(world, [name for name in SCHEMA if name != forbidden])
            assert code(described) == "column", f"{forbidden} is not allowed, and read by {described}"


def blocks(kind: str) -> list[Block]:
    """Every sum that the questions of a kind are made of, each alone."""
    asked = [build(described).query(Schema(SCHEMA), "replace-one") for described in widest(kind)]
    return [block for query in asked for block in query.blocks]


def table(empty: str | None = None) -> Table:
    """Rows at random; or the same, with no cell in the column of this name."""
    draw = np.random.default_rng(3)
    cells: dict[str, Any] = {name: draw.random(60) for name in NUMBERS}
    cells |= {name: draw.choice(["no", "yes"], 60) for name in CATEGORIES}
    frame = pl.DataFrame(cells)
    if empty is not None:
        frame = frame.with_columns(pl.lit(None, frame[empty].dtype).alias(empty))
    return Table("a", frame, Schema(SCHEMA))


@pytest.mark.one_in(4, seconds=0.1)
@pytest.mark.parametrize("kind", KINDS)
def test_every_column_that_a_sum_depends_on_is_found(kind: str):
    tables = {name: table(name) for name in SCHEMA}
    for block in blocks(kind):
        true = table().sums([block])
        reads = {name for name in SCHEMA if not same(true, tables[name].sums([block]))}
        assert reads == set(columns_of([block])), block


def same(one: list[tuple[Any, ...]], two: list[tuple[Any, ...]]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one[0], two[0], strict=True))


@pytest.mark.parametrize(
    "described",
    [
        {"kind": "heterogeneity", "of": {"kind": "mean", "columns": ["number_1"]}},
        {"kind": "mixed-model", "target": "number_1", "features": ["number_2"]},
    ],
    ids=lambda described: described["kind"],
)
def test_a_site_that_does_not_want_to_be_told_apart_refuses(world: World, described: dict[str, Any]):
    header, cells = ",".join(SCHEMA), ",".join([*("0.5" for _ in NUMBERS), *("no" for _ in CATEGORIES)])
    (world.site.path / "rows.csv").write_text("\n".join([header, *[cells] * 200]) + "\n")
    study = document(scheme="conventional", schema=SCHEMA, analyses=[{**described, "share": 0.25}])
    request = replace(world.request(study), trial=True).signed(world.office)
    policy, codes = world.site.path / "site.toml", []
    for by_site in ("true", "false"):
        allow(world, list(SCHEMA))
        policy.write_text(policy.read_text().replace("[allow]\n", f"[allow]\nby_site = {by_site}\n"))
        asked = wire.pack(wire.Review(1, (request.pack(),)))
        found = wire.unpack_from_site(SiteEndpoint(world.site).handle(asked))
        assert isinstance(found, wire.Reviewed), found
        codes += [refused and refused.code for refused in found.refusals]
    assert codes == [None, "column"]
