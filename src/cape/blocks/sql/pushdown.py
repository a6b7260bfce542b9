"""Sums that a database computes itself, and a pass over its rows for those that it cannot.

Claim. A database gives the same integers as the same rows in memory.
Reason. What is added up of a row is the same integer (`columns`), and sums of integers are exact: they have
128 bits or are decimals, or are added in halves that stay below 2^63 up to 2^43 rows. Python integers put
them together. All statements of one call see one state of the database, where it offers that.
A block that does not say how it is computed there, a sample of rows, a column that the database reads
otherwise than the site, and columns derived from derived ones that would become too long (most databases
write each out where the next one mentions it) make it one pass over the rows at the site, for all blocks of
the call.
Tested in tests/unit/data/databases/test_same.py and tests/unit/blocks/test_backends.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from cape.blocks.batches import Batches
from cape.blocks.block import Block, Sums
from cape.blocks.design import Design
from cape.blocks.kept import Kept
from cape.blocks.made import Maker
from cape.blocks.sql.columns import SqlColumns, fits
from cape.blocks.sql.statements import Plan
from cape.blocks.sql.values import Ask, Several
from cape.data import faults
from cape.data.databases import SqlReader
from cape.data.databases.dialects import Kind
from cape.data.schema import Number, Schema
from cape.noise import SecureStream

__all__ = ["Pushdown"]

_MENTIONS = 4  # of a column, each time that an expression reads it: `SqlColumns.lookup`
_LONGEST = 20_000  # nodes of a derived column once all that it reads is written out
_MOST_DERIVED = 50  # each is a query around the one before


class Pushdown:
    """Computes blocks inside the database that holds the rows, or over its rows in batches."""

    def __init__(self, site: str, schema: Schema, reader: SqlReader, *, lenient: bool = False) -> None:
        self._site, self._schema, self._reader, self._lenient = site, schema, reader, lenient
        self._batches = Batches(site, schema, reader, lenient=lenient)

    @property
    def unreadable(self) -> dict[str, int]:
        return self._batches.unreadable

    def rows(self) -> int:
        return self._batches.rows()

    def pushes(self, blocks: Sequence[Block]) -> bool:
        """Return whether the database computes all of these blocks."""
        return self._asks(blocks) is not None

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        asks = self._asks(blocks)
        if asks is not None:
            columns, wanted = asks
            reads = [name for block in blocks for name in block.reads]
            each = [ask for one in wanted for ask in (one.asks if isinstance(one, Several) else (one,))]
            plan = Plan(columns, each, self._schema.sources(reads))
            if self._answered(plan):
                found = iter(plan.sums())
                return [
                    one.finish([next(found) for _ in one.asks]) if isinstance(one, Several) else next(found)
                    for one in wanted
                ]
        return self._batches.sums(blocks, stream)

    def keep(self, design: Design, most_cells: int) -> Kept | None:
        return self._batches.keep(design, most_cells)

    def clamped(self) -> dict[str, int]:
        stated = self._schema.stated
        bounds = [name for name in self._schema.sources(self._schema) if isinstance(stated[name], Number)]
        columns = self._columns(bounds)
        if columns is None:
            return self._batches.clamped()
        plan = Plan(columns, [], bounds)
        for name in bounds:
            plan.flag(name, "outside", columns.outside(name))
        if not self._answered(plan):
            return self._batches.clamped()
        found = plan.flagged()
        return {name: found[name, "outside"] for name in bounds}

    def check(self) -> None:
        names = self._schema.sources(self._schema)
        columns = self._columns(names)
        if columns is None or not self._answered(Plan(columns, [], names)):
            self._batches.check()

    def _asks(self, blocks: Sequence[Block]) -> tuple[SqlColumns, list[Ask | Several]] | None:
        if any(block.rate < 1 or block.at_once for block in blocks):
            return None
        columns = self._columns([name for block in blocks for name in block.reads])
        if columns is None:
            return None
        asks: list[Ask | Several] = []
        for block in blocks:
            ask = block.pushed(columns)
            if ask is None:
                return None
            asks.append(ask)
        return columns, asks

    def _columns(self, wanted: Sequence[str]) -> SqlColumns | None:
        """Return the columns as SQL, or None if the site must read or derive one of them itself."""
        reader, site, schema = self._reader, self._site, self._schema
        maker = Maker(site, schema, wanted)
        described = faults.guarded(site, reader.what, reader.advice, lambda: reader.kinds)
        names = [name for name, _ in described]
        kinds: dict[str, Kind] = dict(described)
        pushed = all(expression.pushable for expression in maker.expressions) and not self._too_long(maker)
        for name in maker.reads:
            if name not in kinds:
                raise faults.no_column(site, name, names)
            if names.count(name) > 1:
                raise faults.twice(site, name)
            if not fits(schema.stated[name], kinds[name]):
                pushed = False
        return SqlColumns(site, schema, reader.dialect, kinds, fill=self._lenient) if pushed else None

    def _too_long(self, maker: Maker) -> bool:
        """Return whether expressions that read one another would grow too long for a database."""
        if len(maker.expressions) > _MOST_DERIVED:
            return True
        names = {id(each): name for name, each in self._schema.derived.items()}
        sizes: dict[str, int] = {}
        for expression in maker.expressions:  # what one reads stands before it
            read = max((sizes.get(column, 1) for column in expression.columns), default=1)
            size = expression.root.size * _MENTIONS * read
            if size > _LONGEST:
                return True
            sizes[names.get(id(expression), "")] = size
        return False

    def _answered(self, plan: Plan) -> bool:
        """Have the database answer; return False if a cell must be looked at by the site itself."""
        reader = self._reader
        asked = plan.statements(reader)
        plan.tell(faults.guarded(self._site, reader.what, reader.advice, lambda: reader.ask(asked)))
        wrong = {key: often for key, often in plan.flagged().items() if key[1] != "outside"}
        if any(often for (_, what), often in wrong.items() if what == "odd"):
            return False
        if self._lenient:
            read = dict.fromkeys((name for name, _ in wrong), 0)
            for (name, _), often in wrong.items():
                read[name] += often
            self._batches.unreadable.update(read)
            return True
        for (name, what), often in wrong.items():
            if often and reader.dialect.ordered:
                return False  # the site finds the row
            if often and what == "unknown":
                raise faults.unknown_category(self._site, name, self._schema.category(name))
            if often:
                raise faults.missing_cell(self._site, name)
        return True
