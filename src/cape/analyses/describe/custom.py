"""The sum over rows of any function of a row: what the paper's section 3.4 calls a separable function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cape.blocks import Custom
from cape.core import check
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import Schema
from cape.engine.arguments import joined, names
from cape.engine.query import Analysis, Answer, Neighbours, Query
from cape.stats.estimates import Estimates, Labels

__all__ = ["CustomSum"]

Function = Callable[[dict[str, NDArray[Any]]], Floats]


@dataclass(frozen=True, init=False)
class CustomSum(Analysis):
    """The sum over the people in the tables of a function of their row, each row clipped to an L2 norm.

    >>> Sum.of(lambda batch: batch["weight"] / batch["height"] ** 2, columns=["weight", "height"], bound=60)

    Args:
        function: takes a batch, a dict of column name -> array (float64 with NaN for missing, or int64
            codes of a category, -1 for missing), and returns (rows,) or (rows, *shape), finite numbers.
        columns: what it reads.
        bound: the largest L2 norm of one row's contribution; longer ones are scaled down to it.
        shape: of one row's contribution; () is a single number.
        name: the label of the numbers.

    **Sensitivity** 2 under replace-one and 1 under add-remove, in units of the bound. The site scales every
    row down to the bound and rounds it toward zero in units of bound 2^-20, so in units of the bound a row
    is a vector v with ||v|| <= 1 (checked in integers, see `cape.blocks.clip`). Adding or removing moves the
    sum by
    ||v|| <= 1, replacing by ||v - v'|| <= 2, attained at v' = -v.
    """

    kind: ClassVar[str] = "custom-sum"
    function: Function
    columns: tuple[str, ...]
    bound: float
    shape: tuple[int, ...]
    name: str

    def __init__(
        self,
        function: Function,
        *,
        columns: Sequence[str],
        bound: float,
        shape: int | tuple[int, ...] = (),
        name: str = "sum",
    ) -> None:
        if not callable(function):
            raise InvalidInput(f"function must take a batch of rows, not be {type(function).__name__}")
        sizes = check.shape("shape", shape)
        if 0 in sizes:
            raise InvalidInput(f"shape must hold at least one number, not {sizes!r}")
        given = names((columns,) if isinstance(columns, str) else columns)
        bound = check.real("bound", bound, above=0.0)
        self._set(function=function, columns=given, bound=bound, shape=sizes, name=name)

    def query(self, schema: Schema, neighbours: Neighbours) -> Query:

        def flat(batch: dict[str, NDArray[Any]]) -> Floats:
            result = np.asarray(self.function(batch), np.float64)
            return result.reshape(len(result), -1) if result.ndim > 2 else result

        block = Custom(flat, self.columns, math.prod(self.shape), self.bound)
        block.arrays(schema)
        return Query((block,), ((1.0,),), 2.0 if neighbours == "replace-one" else 1.0)

    def finish(self, answer: Answer) -> Estimates:
        ((sums,),), ((noise,),) = answer.sums, answer.noise
        values = np.asarray(sums, np.float64).reshape(-1) * self.bound
        return Estimates(_Places(self.name, self.shape), values, 0.0, noise * self.bound)

    def describe(self) -> str:
        return (
            f"{self.name}: the sum of a function of {joined(self.columns)}, "
            f"each row clipped to a norm of {self.bound:g}"
        )

    def keys(self) -> dict[str, Any]:
        plain = {"columns": list(self.columns), "bound": self.bound, "shape": list(self.shape)}
        function = getattr(self.function, "__qualname__", type(self.function).__name__)
        return {"name": self.name, "function": function, **plain}


@dataclass(frozen=True, eq=False)
class _Places(Labels):
    """'sum', or 'sum[2, 0]' where a row contributes more than one number."""

    name: str
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return math.prod(self.shape)

    def write(self, place: int) -> str:
        if not self.shape:
            return self.name
        return f"{self.name}[{', '.join(map(str, np.unravel_index(place, self.shape)))}]"
