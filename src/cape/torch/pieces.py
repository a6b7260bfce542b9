"""Per-record gradients of one layer's parameters, in the shortest form that gives norms and a weighted sum.

Claim. For each form, `squares` is an upper bound of every record's squared norm, tight but for rounding,
and `add` adds the sum over records of factor times gradient: both of the same gradients.
Reason. With inputs x_t and output gradients g_t at T positions, a record's gradient is the sum of g_t x_t'.
`Product` (T = 1): its norm is |g| |x|. `Gram`: its squared norm is the sum over s, t of (x_s'x_t)(g_s'g_t),
which needs no gradient at all. `Kept`: the gradients themselves, as numbers, are both measured and added.
`Lookup`: the same for the rows of an embedding that a record uses, one row for each that it uses.
`cape.torch.rounding` counts the effect of rounding. Tested in tests/torch/test_layers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from cape.torch.rounding import GRAM_FLOOR, ROWS, squares_of

__all__ = ["TEMPORARY", "Gram", "Kept", "Lookup", "Piece", "Product", "joined"]

TEMPORARY = 1 << 25
"""How many float64 numbers one operation may hold at once, beyond its result."""

_SHORT = 1024


class Piece(Protocol):
    """The gradients of some parameters, of every record."""

    def squares(self) -> Any:
        """Return the records' squared norms, in float64."""
        ...

    def add(self, totals: dict[Any, Any], factors: Any) -> None:
        """Add the records' gradients, each times its factor, to the parameters' totals."""
        ...

    def select(self, which: Any) -> Piece:
        """Return the piece of some of the records."""
        ...


@dataclass
class Kept:
    """Gradients as rows: records by the entries of some parameters, one after the other."""

    parameters: tuple[Any, ...]
    rows: Any

    def squares(self) -> Any:
        return squares_of(self.rows)

    def add(self, totals: dict[Any, Any], factors: Any) -> None:
        total = self.rows.new_zeros(self.rows.shape[1], dtype=torch.float64)
        for some in _parts(len(self.rows), self.rows.shape[1]):
            total.addmv_(self.rows[some].double().t(), factors[some])
        widths = [parameter.numel() for parameter in self.parameters]
        for parameter, part in zip(self.parameters, total.split(widths), strict=True):
            totals[parameter].view(-1).add_(part)

    def select(self, which: Any) -> Kept:
        return Kept(self.parameters, self.rows[which])


def joined(found: list[Piece]) -> list[Piece]:
    """Return the pieces with all short rows joined into one: a kernel launch costs more than copying them.

    What counts as short is a matter of speed only. A GPU copies some hundred megabytes in the time of a few
    launches, so nearly all rows are short there.
    """
    kept = [piece for piece in found if isinstance(piece, Kept)]
    short = [
        piece for piece in kept if piece.rows.shape[1] <= (_SHORT << 7 if piece.rows.is_cuda else _SHORT)
    ]
    if len(short) < 2:
        return found
    others = [piece for piece in found if not any(piece is one for one in short)]
    parameters = tuple(parameter for piece in short for parameter in piece.parameters)
    return [*others, Kept(parameters, torch.cat([piece.rows for piece in short], 1))]


@dataclass
class Product:
    """The gradient g x' of a weight, and g of a bias, from one x and one g for each record."""

    weight: Any | None
    bias: Any | None
    x: Any
    g: Any

    def squares(self) -> Any:
        """Return |g|^2 |x|^2, and |g|^2 more where there is a bias."""
        of_g = squares_of(self.g)
        if self.weight is None:
            return of_g
        of_x = squares_of(self.x)
        return of_g.mul_(of_x if self.bias is None else of_x.add_(1.0))

    def add(self, totals: dict[Any, Any], factors: Any) -> None:
        """Add the products: some records become one matrix product."""
        for some in _blocks(len(self.g), _rows(self.g)):
            g = self.g[some] * factors[some, None]  # in float64, as the factors are
            if self.weight is not None:
                totals[self.weight].view(g.shape[1], -1).addmm_(g.t(), self.x[some].double())
            if self.bias is not None:
                totals[self.bias].add_(g.sum(0))

    def select(self, which: Any) -> Product:
        return Product(self.weight, self.bias, self.x[which], self.g[which])


@dataclass
class Gram:
    """The gradient of a weight, from groups of T inputs and T output gradients, never formed.

    `inputs` makes (records, groups, I, T) of some of x; `g` is (records, groups, O, T).
    """

    weight: Any
    inputs: Callable[[Any], Any]
    x: Any
    g: Any
    wide: int

    def squares(self) -> Any:
        """Return the sum of the product of the two Gram matrices, and what its rounding may hide."""
        positions = self.g.shape[-1]
        held = self.g.shape[1] * positions * (self.wide + self.g.shape[2] + 2 * positions)
        return torch.cat([self._squares(some) for some in _parts(len(self.g), held)])

    def _squares(self, some: slice) -> Any:
        x, g = self.inputs(self.x[some].double()), self.g[some].double()
        of_x, of_g = x.mT @ x, g.mT @ g
        sizes = of_x.diagonal(0, 2, 3).sum(2) * of_g.diagonal(0, 2, 3).sum(2)
        whole = of_x.mul_(of_g).sum((1, 2, 3)).clamp_(min=0.0)
        return whole.add_(sizes.sum(1), alpha=GRAM_FLOOR)

    def add(self, totals: dict[Any, Any], factors: Any) -> None:
        """Add the products of at most 2^13 positions at a time."""
        groups, outputs, positions = self.g.shape[1:]
        total = totals[self.weight].view(groups, outputs, self.wide)
        for some in _blocks(len(self.g), max(1, _rows(self.g) // positions)):
            x = self.inputs(self.x[some].double()).permute(1, 0, 3, 2).reshape(groups, -1, self.wide)
            g = self.g[some] * factors[some, None, None, None]
            total.baddbmm_(g.permute(1, 2, 0, 3).reshape(groups, outputs, -1), x)

    def select(self, which: Any) -> Gram:
        return Gram(self.weight, self.inputs, self.x[which], self.g[which], self.wide)


@dataclass
class Lookup:
    """Gradients of an embedding: for each record and each row that it uses, that row's gradient."""

    weight: Any
    records: int
    record: Any
    index: Any
    rows: Any

    def squares(self) -> Any:
        """Return the squared norms, added up over the rows that a record uses."""
        squares = self.rows.new_zeros(self.records, dtype=torch.float64)
        return squares.index_add_(0, self.record, squares_of(self.rows))

    def add(self, totals: dict[Any, Any], factors: Any) -> None:
        for some in _parts(len(self.rows), self.rows.shape[1]):
            rows = self.rows[some] * factors[self.record[some], None]
            totals[self.weight].index_add_(0, self.index[some], rows)

    def select(self, which: Any) -> Lookup:
        new = torch.full((self.records,), -1, device=which.device)
        new[which] = torch.arange(len(which), device=which.device)
        record = new[self.record]
        there = record >= 0
        return Lookup(self.weight, len(which), record[there], self.index[there], self.rows[there])


def _rows(g: Any) -> int:
    """Return how many terms to add at a time: at most `ROWS`; fewer on a CPU, whose cache then holds them."""
    return ROWS if g.is_cuda else ROWS // 4


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]


def _parts(records: int, each: int) -> list[slice]:
    """Return parts of the records that hold no more than `TEMPORARY` numbers, `each` a record."""
    return _blocks(records, max(1, TEMPORARY // max(1, each)))
