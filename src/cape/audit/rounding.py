"""Floating point and rounding: sums do not depend on the order of rows, and no edge case exceeds the claim.

Everything is checked in integers. Neighbouring tables share the rows of `rest` and differ in one; their
encoded sums may differ by at most R / k steps, where R steps are a site's noise and k is the accountant's
noise per unit of sensitivity. Cells are at the public bounds, one float inside and outside of them, zeros
of both signs, subnormals and the largest floats; bounds are huge, tiny, and far from 0. Every kind of
analysis that reads a number is tested, of those in steps the first query. `_MAY_REFUSE` says which kinds
may refuse which bounds; any other refusal is a failure.
Tested in tests/unit/audit/test_rounding.py, which also breaks the clamping and finds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.analyses import CustomSum
from cape.analyses.registry import build
from cape.audit.world import ANALYSES, OWN, SCHEMA, Batch, analysis_of, frame, random_rows, stream_of
from cape.blocks.block import Block
from cape.blocks.table import Table
from cape.core.errors import CapeError
from cape.data import Schema
from cape.data.schema import Category, Number
from cape.engine.calibration import RESOLUTION
from cape.engine.query import Analysis, Neighbours
from cape.engine.schemes import SCHEMES, Parties
from cape.engine.stages import Setting, Stages
from cape.learning import GradientDescent
from cape.noise import SecureStream
from cape.privacy import Budget

__all__ = ["Check", "EdgeRows", "Rounding", "checks", "excess", "order_matters", "parts"]

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]
Edge = tuple[float, float, str, str]
Parts = list[Int64]

BOUNDS = (
    (18.0, 90.0),
    (0.0, 1.0),
    (-1e300, 1e300),
    (-1.7e308, 1.7e308),
    (1e15, 1e15 + 1),
    (-1e-290, 1e-290),
    (0.1, 0.30000000000000004),
)
EPSILONS = (0.01, 1.0, 30.0)
_COLUMNS = {"age": "x", "chol": "y", "disease": "z", "sex": "w"}  # of examples, and here


def _renamed(said: Any) -> Any:
    if isinstance(said, Mapping):
        return {_renamed(key): _renamed(value) for key, value in said.items()}
    if isinstance(said, (list, tuple)):
        return [_renamed(each) for each in said]
    return _COLUMNS.get(said, said) if isinstance(said, str) else said


def _words(said: Any) -> Iterator[str]:
    """Yield every text in a description."""
    if isinstance(said, str):
        yield said
    elif isinstance(said, (Mapping, list)):
        for each in (*said, *(said.values() if isinstance(said, Mapping) else ())):
            yield from _words(each)


_ASKED = {kind: _renamed(said) for kind, said in ANALYSES.items()}
NO_NUMBERS = tuple(kind for kind, said in _ASKED.items() if not {"x", "y"} & {*_words(said)})
"""Kinds whose example reads no number: they have no such edges."""

_CUT = ("variance", "standard-deviation", "ecdf", "quantiles", "table-one")
_TIMES = ("kaplan-meier", "log-rank", "cox", "survival-regression")  # of columns that are not negative
_MAY_REFUSE: dict[tuple[float, float], tuple[str, ...]] = {
    # a coefficient times the bounds is beyond what a site computes with; a Poisson variable is not below 0
    (-1e300, 1e300): (*_TIMES, "evaluate", "glm"),
    (-1e-290, 1e-290): (*_TIMES, "glm"),
    # a bin's edge would be infinite
    (-1.7e308, 1.7e308): (
        *_CUT,
        *_TIMES,
        "histogram",
        "tables",
        "synthetic-data",
        "rank-test",
        "evaluate",
        "glm",
    ),
    (1e15, 1e15 + 1): _CUT,  # more bins than there are floats
}


@dataclass(frozen=True)
class Check:
    """What was checked, whether it holds, and on how many pairs or tables."""

    name: str
    holds: bool
    found: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Rounding:
    """Some of the checks: of the edges of these bounds, or of the order of rows if there are none."""

    seed: int
    bounds: tuple[float, float] | None = None

    def __call__(self) -> list[Check]:
        """Make them."""
        if self.bounds is None:
            return [_order(self.seed), _float_order(self.seed)]
        return [_edges(*self.bounds, self.seed)]


def parts(seed: int) -> list[Rounding]:
    """Return all checks, in parts that can be made apart."""
    return [Rounding(seed), *(Rounding(seed, bounds) for bounds in BOUNDS)]


def checks(seed: int) -> list[Check]:
    """Make all checks."""
    return [check for part in parts(seed) for check in part()]


def _order(seed: int) -> Check:
    """Check that rows in another order, or in two tables, add up to the same bits."""
    stream = stream_of("order", seed)
    rows = random_rows(101, stream)
    turned = shuffled(rows, stream)
    names = (*ANALYSES, *OWN)
    wrong = [name for name in names if order_matters(analysis_of(name), rows, turned)]
    found = f"{len(names)} analyses, 101 rows" + (f"; differs: {', '.join(wrong)}" if wrong else "")
    return Check("sums in another order, and in two parts, give the same bits", not wrong, found)


def order_matters(analysis: Analysis, rows: list[Any], turned: list[Any]) -> bool:
    """Return whether the sums of these rows depend on their order, or on how they are parted.

    The gradients of a network and the residuals of tables may differ by one unit in parts: their total is
    rounded once, at each table (`cape.blocks.clipped`, number 5; `cape.blocks.residuals`).
    """
    parting = 1 if analysis.kind in ("neural-network", "tables", "synthetic-data") else 0
    blocks = analysis.query(SCHEMA, "replace-one").blocks
    parts = [rows, turned, rows[:37], rows[37:]]
    one, two, left, right = (flat(Table("a", frame(part), SCHEMA).sums(blocks)) for part in parts)
    return not np.array_equal(one, two) or int(np.abs(one - left - right).max()) > parting


def _float_order(seed: int) -> Check:
    """Check that a plain float sum fails the same test, or that test would show nothing."""
    stream = stream_of("order", seed)
    rows = random_rows(101, stream)
    orders = [rows, *(shuffled(rows, stream) for _ in range(9))]
    columns = [np.array([row[0] for row in part], np.float64) for part in orders]
    differs = len({float(np.cumsum(column)[-1]) for column in columns}) > 1  # one cell after the other
    return Check("a float64 sum of the same rows depends on their order", differs, "the check can fail")


def _edges(low: float, high: float, seed: int) -> Check:
    pairs, worst = 0, 0.0
    bad: list[str] = []
    refused: list[str] = []
    kinds: list[str] = []
    rows = EdgeRows(low, high, seed)
    for analysis, neighbours, epsilon in _questions(low, high):
        kinds.append(analysis.kind)
        try:
            with np.errstate(all="ignore"):
                ratio, count = excess(analysis, rows, neighbours, epsilon)
        except CapeError:  # refused before anything is released
            refused.append(analysis.kind)
            continue
        worst, pairs = max(worst, ratio), pairs + count
        bad += [analysis.kind] if not ratio <= 1 else []
    missed = [kind for kind in refused if kind not in _MAY_REFUSE.get((low, high), ())]
    played = len({*kinds} - {*refused})
    found = f"{played} kinds, {pairs:,} pairs; the largest has {worst:.6f} of the claimed sensitivity"
    for word, which in (("exceeded by", bad), ("refused:", refused), ("must be answered:", missed)):
        found += f"; {word} {', '.join(dict.fromkeys(which))}" if which else ""
    return Check(f"cells at the edges of [{low!r}, {high!r}]", not bad and not missed and played > 0, found)


def _questions(low: float, high: float) -> Iterator[tuple[Analysis, Neighbours, float]]:
    relations: tuple[Neighbours, ...] = ("replace-one", "add-remove")
    for analysis in asked(low, high):
        for epsilon in EPSILONS if analysis.kind == "mean" else EPSILONS[1:2]:
            for neighbours in relations:
                yield analysis, neighbours, epsilon


def asked(low: float, high: float) -> list[Analysis]:
    """Return the analyses of columns x and y with these bounds, and of the categories z and w."""
    middle, half = low / 2 + high / 2, high / 2 - low / 2

    def scaled(batch: Batch) -> Floats:
        return np.column_stack([(batch[name] - middle) / half for name in ("x", "y")])

    def pull(batch: Batch, parameters: Floats) -> Floats:
        return np.asarray(parameters - scaled(batch))

    own: list[Analysis] = [
        CustomSum(scaled, columns=["x", "y"], bound=1.0, shape=2),
        GradientDescent(pull, columns=["x", "y"], start=[0.0, 0.0], epochs=1, rows=8),
    ]
    return [*(build(said) for kind, said in _ASKED.items() if kind not in NO_NUMBERS), *own]


class EdgeRows:
    """The rows with cells at the edges of bounds, and what each of them adds, computed once for a query."""

    def __init__(self, low: float, high: float, seed: int) -> None:
        number = Number(low, high)
        self.schema = Schema(x=number, y=number, z=Category(("no", "yes")), w=Category(("female", "male")))
        self._rows = edge_rows(low, high, stream_of("edges", seed))
        self._known: tuple[tuple[Block, ...], list[Parts]] | None = None

    def sums(self, blocks: tuple[Block, ...]) -> tuple[Parts, list[Parts]]:
        """Return the sums of the rows that all tables share, and of each row by itself."""
        if self._known is None or not _same(blocks, self._known[0]):
            self._known = blocks, [self._sums(rows, blocks) for rows in (self._rows[:7], *self._alone)]
        rest, *alone = self._known[1]
        return rest, alone

    @property
    def _alone(self) -> list[list[Edge]]:
        return [[row] for row in self._rows]

    def _sums(self, rows: list[Edge], blocks: tuple[Block, ...]) -> Parts:
        sums = Table("edges", frame(rows, self.schema), self.schema).sums(blocks)
        return [part for parts in sums for part in parts]


def _same(one: tuple[Block, ...], two: tuple[Block, ...]) -> bool:
    try:
        return one == two
    except ValueError:  # arrays among their parameters: they are computed again
        return False


def excess(analysis: Analysis, rows: EdgeRows, neighbours: Neighbours, epsilon: float) -> tuple[float, int]:
    """Return the largest distance of neighbouring tables over the claimed one, and how many were compared.

    Above 1 exactly when the integers say so.
    """
    stages = Stages.of(
        analysis,
        Setting(rows.schema, Budget(epsilon, 1e-6), Parties(3, 1, 3), neighbours),
        SCHEMES["conventional"](),
        1.0,
    )
    query = analysis.query(rows.schema, neighbours)
    calibration, local_std = stages.calibrate(0, query)
    claimed = Fraction(RESOLUTION) ** 2 / Fraction(local_std) ** 2
    rest, alone = rows.sums(query.blocks)
    vectors = np.array([calibration.encode(tuple(map(np.add, rest, own))) for own in alone])
    if neighbours == "add-remove":
        apart = vectors - calibration.encode(tuple(rest))
    else:
        apart = np.concatenate([vectors[i] - vectors[:i] for i in range(1, len(vectors))])
    over = Fraction(_furthest(apart)) / claimed
    ratio = math.sqrt(over)
    return (max(ratio, math.nextafter(1.0, 2.0)) if over > 1 else min(ratio, 1.0)), len(apart)


def _furthest(apart: Int64) -> int:
    """Return the largest square of a length: floats leave out what is far below it, integers decide."""
    squares = (apart.astype(np.float64) ** 2).sum(axis=1)
    near = apart[squares >= (1 - 1e-9) * squares.max()]
    return max(sum(int(step) ** 2 for step in each) for each in np.unique(near, axis=0))


def edge_rows(low: float, high: float, stream: SecureStream) -> list[Edge]:
    """Return rows whose cells stand at edges: each cell with itself, its opposite, and two at random.

    The last two cells are categories, each in half of the rows.
    """
    column = Number(low, high)
    cells = [
        *(math.nextafter(at, to) for at in (low, high, column.middle) for to in (-math.inf, math.inf)),
        *(low, high, column.middle, 0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308),
        *(1.7976931348623157e308, -1.7976931348623157e308),
    ]
    rows = []
    for place, cell in enumerate(cells):
        others = [cell, cells[-1 - place], *(cells[stream.integer(len(cells))] for _ in range(2))]
        for turn, other in enumerate(others):
            which = (place + turn) % 2
            rows.append((cell, other, ("no", "yes")[which], ("female", "male")[which]))
    return rows


def flat(sums: Iterable[tuple[Int64, ...]]) -> Int64:
    """Return all integers of some sums in a row."""
    return np.concatenate([part.reshape(-1) for parts in sums for part in parts])


def shuffled(rows: list[Any], stream: SecureStream) -> list[Any]:
    """Return rows in another order."""
    left, out = list(rows), []
    while left:
        out.append(left.pop(stream.integer(len(left))))
    return out
