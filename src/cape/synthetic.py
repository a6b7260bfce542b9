"""Intervals for numbers that users compute from synthetic rows: they count sampling, noise, the error of
synthesis, and what no released table shows.

Not here: the rows themselves and their model (`analyses/synthetic`).

`combine` calls a user's function on rows of the model, and on rows with one of them changed: that shows which
columns its numbers depend on, and how. The released tables of these columns, which are unbiased, then take
the place of the model's (`cape.analyses.synthetic.one_step` has the method and why it holds). So a bad model
costs precision, not truth. It costs no privacy: all of it is released numbers' work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import ncx2, norm

from cape.analyses.synthetic.influence import Computed, Drawn, influence_of, used_columns
from cape.analyses.synthetic.one_step import Parts, noisy_rows, split
from cape.analyses.synthetic.synthetic_model import SyntheticModel
from cape.core import check
from cape.core.errors import InvalidInput
from cape.engine.arguments import joined
from cape.stats.simulation import generator

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Combined", "combine"]

_LEAST, _MOST = 5, 1000
_WAYS = 2  # columns of the largest tables that are released


@dataclass(frozen=True)
class Combined:
    """A number computed from synthetic rows, with an error that counts people, noise and synthesis.

    Attributes:
        label: its name, where there are several.
        value: what it is of synthetic rows, moved to what the released tables say.
        standard_error: of that, by having sampled people, by noise and by synthesis.
        unseen: how far the population's value may lie from that, at most, by what no released table shows:
            where in their bins numbers lie, and how two columns go together within groups of their values.
    """

    label: str
    value: float
    standard_error: float
    unseen: float = 0.0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval that covers the population's value at this level, whatever is unseen."""
        level = check.probability("level", level)
        if not math.isfinite(self.standard_error) or not math.isfinite(self.unseen):
            return -math.inf, math.inf
        reach = _reach(level, self.standard_error, self.unseen)
        return self.value - reach, self.value + reach


def _reach(level: float, error: float, bias: float) -> float:
    """Return the quantile of |x| for normal x with the mean `bias`."""
    if error <= 0 or bias / error > 1e3:  # then nearly all of |x| lies on one side
        return bias + float(norm.ppf(level)) * error
    return error * math.sqrt(float(ncx2.ppf(level, 1, (bias / error) ** 2)))


def combine(
    f: Callable[[pl.DataFrame], Any],
    release: Any,
    m: int = 20,
    *,
    rows: int | None = None,
    seed: int = 0,
) -> Combined | dict[str, Combined]:
    """Return what `f` computes from synthetic rows, with an interval for the population's value.

    A mean, a share, a difference, a correlation: any number that depends on one column or on two, and changes
    little when a few rows do. One that depends on three together is refused by name, as no released table has
    three.

    Args:
        f: from a polars DataFrame to a number, or to numbers by name. It is called some hundred times for
            each pair of columns that it uses, more often if it is no mean, share or correlation.
        release: of `SyntheticData`, or its model.
        m: how many synthetic tables are drawn, and as many with noise again.
        rows: how many rows `f` is given each time; by default as many as there are. Fewer are faster.
        seed: the same seed gives the same answer.

    >>> combine(lambda rows: rows["age"].mean(), release).interval()
    """
    model = release if isinstance(release, SyntheticModel) else getattr(release, "model", None)
    if not isinstance(model, SyntheticModel):
        raise InvalidInput("release must be one of SyntheticData, such as consortium.release(...) returns")
    if not callable(f):
        raise InvalidInput(
            "f must be a function of a polars DataFrame, as in lambda rows: rows['age'].mean()"
        )
    m = check.integer("m", m, least=_LEAST, most=_MOST)
    many = None if rows is None else check.integer("rows", rows, least=2)
    many = many or max(round(model.measured.rows), 2)
    random = generator(check.integer("seed", seed, least=0))
    computed = Computed(f)
    drawn = [Drawn.of(model, many, random) for _ in range(m)]
    values = np.array([computed(each.frame) for each in drawn])
    levels = model.measured.levels(model.schema)
    used = used_columns(computed, drawn[0], levels, random)
    names = computed.names or ()
    for name, columns in zip(names, used, strict=True):
        if len(columns) > _WAYS:
            raise InvalidInput(_too_many(name, [model.columns[i] for i in columns]))
    found: dict[str, Combined] = {}
    for columns in dict.fromkeys(used):
        numbers = [k for k, each in enumerate(used) if each == columns]
        if not columns:
            found |= {names[k]: Combined(names[k], float(values[0, k]), 0.0) for k in numbers}
            continue
        nodes = influence_of(computed, drawn[0], levels, columns, random)
        parts = split(model, drawn[0], columns, nodes)
        again = [noisy_rows(parts[0].seen, columns, each, random) for each in drawn]
        noisy = np.array([computed.tried(each.frame) for each in again])
        for k in numbers:
            found[names[k]] = _combined(
                names[k],
                parts[k],
                columns,
                model,
                list(zip(drawn, values[:, k].tolist(), strict=True)),
                list(zip(again, noisy[:, k].tolist(), strict=True)),
            )
    return found[""] if names == ("",) else {name: found[name] for name in names}


def _combined(
    name: str,
    parts: Parts,
    columns: tuple[int, ...],
    model: SyntheticModel,
    drawn: list[tuple[Drawn, float]],
    again: list[tuple[Drawn, float]],
) -> Combined:
    """Return a number from its values on tables of the model and on noisy ones, moved to what is released."""
    own, noisy = (
        np.array([value + parts.moved([rows.places[i] for i in columns]) for rows, value in each])
        for each in (drawn, again)
    )
    value = float(own.mean())
    people = parts.sampling / model.measured.rows * _rows_of_one(model)
    curved = float(((noisy - value) ** 2).mean())  # 0, but for synthesis, of a number that is a mean
    variance = people + parts.noise + float(own.var(ddof=1)) / len(own) + curved
    return Combined(name, value, math.sqrt(variance) if math.isfinite(variance) else math.inf, parts.unseen)


def _rows_of_one(model: SyntheticModel) -> int:
    """Return how many rows of one person may count: all alike, they say as much as one."""
    person = model.schema.person
    return 1 if person is None else person.rows * person.sites


def _too_many(name: str, columns: list[str]) -> str:
    return (
        f"f's {name or 'value'} depends on {len(columns)} columns together ({joined(columns)}), and no table "
        "of more than two was released: synthetic rows cannot say how far off it is. Compute it from two "
        "columns at a time, or release the analysis itself (docs/analyses.md)"
    )
