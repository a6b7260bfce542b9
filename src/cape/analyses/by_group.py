"""Any descriptive analysis by group: `by=` for all of them, in one place.

An analysis by group is the same analysis of each group's rows, asked of all groups in one release. How many
rows a group has is private, so that each group is asked what "add-remove" asks.

Claim. If one row holds at most D of the sums of a group, each divided by its scale, and two rows of one group
are at most A apart, then one row moves the sums of all groups by D under add-remove, and by max(A, sqrt(2) D)
under replace-one, however many groups there are. In the L1 norm, in which a row holds at most D1, it is D1
and 2 D1.
Reason. A row counts in one group, or in none where its group is missing (`Grouped`).

- *Added or removed, or replaced by a row that counts in no group*: D.
- *Replaced, in the same group*: A.
- *Replaced, into another group*: groups share no number, so the squares of the two rows add: 2 D². Two rows
  that hold D each attain it.

D is the sensitivity of the query under add-remove. Where no entry of a row is negative, the square of the
distance of two rows is D² + D'² less twice a product that is not negative, so A <= sqrt(2) D; the analyses
for which that does not hold say what A is (`ByGroup.apart`). In later stages groups may be asked different
things: D² is then the largest, and 2 D² the sum of the two largest. In the L1 norm two rows are never further
apart than the sum of what they hold, 2 D1, which rows of different groups attain.
Tested in tests/unit/analyses/test_sensitivity.py and tests/unit/analyses/test_by_group.py.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cape.analyses.empty import unknown_groups
from cape.blocks import Grouped
from cape.core.errors import InvalidInput, TooNoisyWarning
from cape.data import Schema
from cape.engine.arguments import names
from cape.engine.query import Analysis, AnalysisResult, Answer, Conversation, Neighbours, Query
from cape.engine.result import Release
from cape.show import Figure, Intervals, Mark
from cape.show.figures import DOTS, Panel
from cape.stats.estimates import Estimate, Estimates, warn_of_unknown

__all__ = ["ByGroup"]

_BETWEEN = " | "
_MOST_ARRAYS = 1 << 18  # of all groups


@dataclass(frozen=True, init=False)
class ByGroup(Analysis):
    """An analysis that can be asked by group: its constructor takes `by`, a column with categories.

    What a subclass says (its query, estimates, labels, figures) is of one table. With `by` it is asked of
    each group in place of that: estimates are those of each group in turn, labelled "age | sex=female".
    """

    by: str | None = field(default=None, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "by" not in inspect.signature(cls.__init__).parameters:
            cls.__init__ = _taking_by(cls.__init__)  # type: ignore[method-assign]
        for name, grouped in _GROUPED.items():  # of a base class, too
            if not hasattr(own := getattr(cls, name), "grouped"):
                setattr(cls, name, _either(own, grouped))

    def apart(self, query: Query) -> float:
        """Return the most that two rows of one table differ in the sums of its query under add-remove.

        This is right where no entry that a row adds is negative; see the head of the module.
        """
        return math.sqrt(2) * query.sensitivity

    def adding_up(self, schema: Schema) -> Sequence[int]:
        """Return the blocks, by place, whose counts in all groups add up to a public number of rows."""
        return ()

    @property
    def of_one(self) -> ByGroup:
        """The same analysis of one table."""
        return self.changed(by=None)


def _taking_by(made: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of an analysis with the keyword `by` besides."""

    @functools.wraps(made)
    def construct(self: ByGroup, *args: Any, by: str | None = None, **options: Any) -> None:
        made(self, *args, **options)
        if by is not None:
            one = getattr(self, "column", None)
            own = getattr(self, "columns", ()) if one is None else (one,)
            names((*own, *(name for name, _ in getattr(self, "categories", ())), by))
            self._set(by=by)

    signature = inspect.signature(made)
    parameters = list(signature.parameters.values())
    at = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_KEYWORD), len(parameters))
    parameters.insert(at, inspect.Parameter("by", inspect.Parameter.KEYWORD_ONLY, default=None))
    construct.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return construct


def _either(own: Callable[..., Any], grouped: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that is a subclass's own for one table, and the common one for groups."""

    @functools.wraps(own)
    def method(self: ByGroup, *args: Any) -> Any:
        return own(self, *args) if self.by is None else grouped(self, *args)

    method.grouped = grouped  # type: ignore[attr-defined]
    return method


def _groups(asked: ByGroup, schema: Schema) -> list[str]:
    """Return what stands behind a label of each group."""
    assert asked.by is not None
    return [f"{_BETWEEN}{asked.by}={value}" for value in schema.category(asked.by).values]


def _effort(asked: ByGroup, schema: Schema, results: Sequence[int]) -> float:
    """Return the time that all groups take, of which each asks for itself."""
    one, groups = asked.of_one, len(schema.category(asked.by or "").values)
    columns = len(getattr(one, "columns", ())) + len(getattr(one, "categories", ()))
    each = one.effort(schema, [size // groups for size in results])
    return groups * (each + (1 + len(results)) * (4e-5 + 1.5e-6 * columns))


def _query(asked: ByGroup, schema: Schema, neighbours: Neighbours) -> Query:
    each, groups = asked.of_one.query(schema, "add-remove"), len(_groups(asked, schema))
    if groups * len(each.flat_scales) > _MOST_ARRAYS:
        raise InvalidInput(
            f"{groups:,} groups by {asked.by!r} with {len(each.flat_scales):,} tables or sums each are more "
            f"than {_MOST_ARRAYS:,}; ask for fewer columns, or merge categories under [derive]"
        )
    return _together(asked, [each] * groups, neighbours)


def _together(asked: ByGroup, queries: Sequence[Query | None], neighbours: Neighbours) -> Query:
    """Return the query of all groups, given each group's own; None for one that is asked nothing."""
    assert asked.by is not None
    blocks: list[Grouped] = []
    scales: list[tuple[float, ...]] = []
    for place in range(max(len(query.blocks) for query in queries if query is not None)):
        there = [None if query is None or place >= len(query.blocks) else query for query in queries]
        blocks.append(
            Grouped(asked.by, tuple(None if each is None else each.blocks[place] for each in there))
        )
        scales.append(tuple(scale for each in there if each is not None for scale in each.scales[place]))
    known = [query for query in queries if query is not None]
    held = sorted(query.sensitivity for query in known)
    moved = held[-1]
    if neighbours == "replace-one":
        apart = max(asked.of_one.apart(query) for query in known)
        moved = max(apart, math.hypot(*held[-2:]) if len(queries) > 1 else moved)
    alone = [query.l1 for query in known if query.l1 is not None]
    l1 = max(alone) * (2.0 if neighbours == "replace-one" else 1.0) if len(alone) == len(known) else None
    return Query(tuple(blocks), tuple(scales), moved, l1=l1)


def _apart(answer: Answer, queries: Sequence[Query | None]) -> Iterator[Answer | None]:
    """Yield each group's own answer."""
    taken = [0] * len(answer.sums)
    for query in queries:
        if query is None:
            yield None
            continue
        sums, noise = [], []
        for place, scales in enumerate(query.scales):
            here = slice(taken[place], taken[place] + len(scales))
            sums.append(answer.sums[place][here])
            noise.append(answer.noise[place][here])
            taken[place] += len(scales)
        yield Answer(tuple(sums), tuple(noise), None, answer.schema, answer.law)


def _added_up(asked: ByGroup, answer: Answer) -> Answer:
    """Return counts that add up to the public number of rows, where it is known that they do.

    The nearest counts that do have 1 - 1/cells of the variance.
    """
    assert asked.by is not None
    if answer.rows is None or answer.schema[asked.by].missing:
        return answer
    sums, noise = list(answer.sums), list(answer.noise)
    for place in asked.of_one.adding_up(answer.schema):
        cells = sum(int(np.size(array)) for array in sums[place])
        short = answer.rows - sum(float(np.sum(array)) for array in sums[place])
        sums[place] = tuple(np.asarray(array + short / cells) for array in sums[place])
        noise[place] = tuple(each * math.sqrt(1 - 1 / cells) for each in noise[place])
    return replace(answer, sums=tuple(sums), noise=tuple(noise))


def _labelled(asked: ByGroup, schema: Schema, found: Sequence[Sequence[Estimate]]) -> Estimates:
    """Return the estimates of all groups, and warn, once, of those that noise hides."""
    each = list(map(Estimates.of, found))
    starts = np.cumsum([0, *map(len, each)]).tolist()
    values, sampling, privacy, low, high = (
        np.concatenate(column)
        for column in zip(*((e.values, e.sampling, e.privacy, *e.within) for e in each), strict=True)
    )
    labels = [label + end for end, e in zip(_groups(asked, schema), each, strict=True) for label in e.labels]
    at = {i + start: at for e, start in zip(each, starts, strict=False) for i, at in e.at.items()}
    together = Estimates(labels, values, sampling, privacy, (low, high), at)
    warn_of_unknown([together[place] for place in together.at])
    return together


def _estimates(found: AnalysisResult | Sequence[Estimate]) -> Sequence[Estimate]:
    return found.estimates if isinstance(found, AnalysisResult) else found


def _finish(asked: ByGroup, answer: Answer) -> Estimates:
    one, schema = asked.of_one, answer.schema
    queries = [one.query(schema, "add-remove")] * len(_groups(asked, schema))
    with warnings.catch_warnings():  # of all groups together, below
        warnings.simplefilter("ignore", TooNoisyWarning)
        found = [
            _estimates(one.finish(each))
            for each in _apart(_added_up(asked, answer), queries)
            if each is not None
        ]
    return _labelled(asked, schema, found)


def _conduct(asked: ByGroup, schema: Schema, neighbours: Neighbours) -> Conversation:
    one = asked.of_one
    talks = [one.conduct(schema, "add-remove") for _ in _groups(asked, schema)]
    found: list[Sequence[Estimate]] = [()] * len(talks)
    queries: list[Query | None] = [next(talk) for talk in talks]
    for stage in itertools.count():
        answer = yield _together(asked, queries, neighbours)
        answer = answer if stage else _added_up(asked, answer)
        told = list(_apart(answer, queries))
        queries = [None] * len(talks)
        for place, (talk, each) in enumerate(zip(talks, told, strict=True)):
            if each is None:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TooNoisyWarning)
                    queries[place] = talk.send(each)
            except StopIteration as stop:
                found[place] = _estimates(stop.value)
        if all(query is None for query in queries):
            break
    return _labelled(asked, schema, found)


def _title(asked: ByGroup, label: str, schema: Schema) -> str:
    head, between, group = label.rpartition(_BETWEEN)
    return f"{asked.of_one.title(head, schema)}{between}{schema.title(group)}"


def _describe(asked: ByGroup) -> str:
    return f"{asked.of_one.describe()}, by {asked.by}"


def _units(asked: ByGroup, schema: Schema) -> Sequence[float] | None:
    each = asked.of_one.units(schema)
    return None if each is None else list(each) * len(_groups(asked, schema))


def _keys(asked: ByGroup) -> dict[str, Any]:
    return asked.of_one.keys() | {"by": asked.by}


def _notes(asked: ByGroup, release: Release) -> Sequence[str]:
    """Return what the analysis says itself, and of which groups nothing is known."""
    assert asked.by is not None
    own: Sequence[str] = inspect.unwrap(type(asked).notes)(asked, release)
    private = math.isfinite(release.guarantee.mu)
    return [*own, *unknown_groups(asked.by, list(release.estimates), release.schema, private=private)]


def _figures(asked: ByGroup, release: Release) -> Sequence[Figure]:
    """Return each number of all groups below each other; or what the analysis draws, of each group."""
    one, schema = asked.of_one, release.schema
    ends = _groups(asked, schema)
    many = len(release.estimates) // len(ends)
    of_groups = [release.estimates[i * many : (i + 1) * many] for i in range(len(ends))]
    names = [schema.title(end.removeprefix(_BETWEEN)) for end in ends]
    if inspect.unwrap(type(one).figures) is Analysis.figures:
        panels: list[Panel] = []
        for place in range(many):
            marks = [Mark.of(each[place], name) for each, name in zip(of_groups, names, strict=True)]
            label = of_groups[0].labels[place].removesuffix(ends[0])
            panels.append(Intervals(tuple(marks), one.title(label, schema)))
        return [Figure(tuple(panels), DOTS)]
    figures: list[Figure] = []
    for end, name, each in zip(ends, names, of_groups, strict=True):
        shorter = Estimates.of(replace(e, label=e.label.removesuffix(end)) for e in each)
        for figure in one.figures(replace(release, analysis=one, estimates=shorter)):
            figures.append(replace(figure, panels=tuple(_of_group(panel, name) for panel in figure.panels)))
    return [Figure(tuple(p for figure in figures for p in figure.panels), figures[0].caption)]


def _of_group(panel: Panel, name: str) -> Panel:
    if isinstance(panel, Intervals):
        return replace(panel, title=f"{panel.title}{_BETWEEN}{name}" if panel.title else name)
    return replace(panel, axis=f"{panel.axis}{_BETWEEN}{name}")


_GROUPED: dict[str, Callable[..., Any]] = {
    "effort": _effort,
    "query": _query,
    "finish": _finish,
    "conduct": _conduct,
    "title": _title,
    "describe": _describe,
    "units": _units,
    "keys": _keys,
    "figures": _figures,
    "notes": _notes,
}
