"""Intervals for what is computed from synthetic rows: they count people, privacy noise and synthesis.

Not here: the rows themselves and their model (`analyses/synthetic`).

`combine` repeats the whole study on the computer, m times: rows are drawn from the fitted model, the same
tables are measured with fresh noise of the same size, a model is fitted to them, and synthetic rows are drawn
from that. How what you compute varies among the repetitions is how it varies among studies like this one, and
how far their mean is from the model's own value is the bias that noise and fitting cause. Both are released
numbers' work: it costs no privacy. What it cannot count is what was never measured: an association that the
model does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as students

from cape.analyses.synthetic.model import SyntheticModel
from cape.core import check
from cape.core.errors import InvalidInput
from cape.stats.simulation import generator

if TYPE_CHECKING:
    import polars as pl

    from cape.core.arrays import Floats

__all__ = ["Combined", "combine"]

_LEAST, _MOST = 5, 1000


@dataclass(frozen=True)
class Combined:
    """A number computed from synthetic rows, with an error that counts people, noise and synthesis.

    Attributes:
        label: its name, where there are several.
        value: the mean over synthetic tables of the model, less the bias of repetitions.
        standard_error: of that.
        freedom: the degrees of freedom of the error.
    """

    label: str
    value: float
    standard_error: float
    freedom: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval that covers the population's value at this level."""
        reach = float(students.ppf((1 + check.probability("level", level)) / 2, self.freedom))
        return self.value - reach * self.standard_error, self.value + reach * self.standard_error


def combine(
    f: Callable[[pl.DataFrame], Any],
    release: Any,
    m: int = 20,
    *,
    rows: int | None = None,
    seed: int = 0,
) -> Combined | dict[str, Combined]:
    """Return what `f` computes from synthetic rows, with an interval that counts synthesis and noise.

    Args:
        f: from a polars DataFrame to a number, or to numbers by name.
        release: of `SyntheticData`, or its model.
        m: how often the study is repeated; each fits a model.
        rows: how many rows `f` is given each time; by default as many as there are.
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
    many = None if rows is None else check.integer("rows", rows, least=1)
    many = many or max(round(model.measured.rows), 1)
    random = generator(check.integer("seed", seed, least=0))
    seeds = random.integers(0, 2**63, (2, m)).tolist()
    names, own = _computed(f, [model.sample(many, each) for each in seeds[0]])
    repeated = (model.again(random).sample(many, each) for each in seeds[1])
    again_names, again = _computed(f, repeated)
    if again_names != names:
        raise InvalidInput("f must return the same names for every table")
    synthesis = own.var(axis=0, ddof=1)
    spread = again.var(axis=0, ddof=1)
    bias = again.mean(axis=0) - own.mean(axis=0)
    # A mean over m tables has 1/m of the variance of synthesis. The bias is known to within spread / m at
    # best, and at the model instead of at the truth: it counts as an error of its own size.
    doubt = np.maximum(bias**2, (spread + synthesis) / m)
    variance = np.maximum(spread - synthesis, 0.0) + synthesis / m + doubt
    found = {
        name: Combined(name, float(value), math.sqrt(float(square)), m - 1)
        for name, value, square in zip(names, own.mean(axis=0) - bias, variance, strict=True)
    }
    return found[""] if names == ("",) else found


def _computed(
    f: Callable[[pl.DataFrame], Any], tables: Iterable[pl.DataFrame]
) -> tuple[tuple[str, ...], Floats]:
    """Return the names of what `f` computes, and the numbers by table and name."""
    names: tuple[str, ...] | None = None
    found = []
    for table in tables:
        value = f(table)
        told = value if isinstance(value, Mapping) else {"": value}
        here = tuple(map(str, told))
        if not told or (names is not None and here != names):
            raise InvalidInput("f must return the same names for every table")
        names = here
        found.append([check.real(f"f's {name or 'value'}", each) for name, each in told.items()])
    return names or (), np.array(found, np.float64)
