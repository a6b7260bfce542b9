"""One site's rows and what can be asked of them: exact sums, whatever holds the rows.

`Table` opens a source (see `cape.data.sources`) and computes blocks over it, in batches on this machine
(`cape.blocks.batches`) or inside the database that holds it (`cape.blocks.sql`). Both give the same
integers: why, stands at the head of `steps`, `parts` and `sql.pushdown`.

A table is taken to stay as it is while a study runs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

from cape.blocks.batches import Batches
from cape.blocks.block import Block, Sums
from cape.blocks.design import Design
from cape.blocks.kept import Kept
from cape.blocks.sql.pushdown import Pushdown
from cape.core.arrays import Floats
from cape.core.errors import InvalidInput
from cape.data import faults
from cape.data.databases import SqlReader
from cape.data.databases.whole import WholeReader
from cape.data.readers import Reader
from cape.data.schema import Schema
from cape.data.sources import open_source
from cape.noise import SecureStream
from cape.noise.stream import KEY_BYTES

__all__ = ["Table"]

_KEPT_CELLS = 1 << 26  # 512 MB of float64
_MOST_VIEWS = 4


class Table:
    """A site's name, its rows, and the schema that they are read by.

    >>> import polars
    >>> table = Table("cleveland", polars.DataFrame({"age": [54.0, 90.0, None]}), Schema(age=(18, 90)))
    >>> table.sums([Moments(("age",))])
    [(array([2]), array([1048576]), array([1099511627776]))]

    Args:
        name: how errors call the site.
        source: a pandas or polars DataFrame; an Arrow table; a polars LazyFrame; a relation of DuckDB or a
            DataFrame of Spark, which compute their sums themselves; a lazy table of another engine that
            narwhals knows (Dask, Ibis); a path or glob of CSV or Parquet; `Csv` or `Database`.
        schema: the study's columns. The table may have others; they are not read.
        unreadable: what a cell is that does not fit the schema. "error" raises `DataError`, for people who
            hold the rows. "missing" counts it as missing and, in a column that is never missing, as the
            middle of the bounds or the first category: whether an answer comes then says nothing about a
            row. A line of a text file is then a row, and one that falls apart is a row of such cells.
        key: the secret by which rows of a person are chosen, for a site that is to choose the same again
            after a restart; by default a new one.

    Raises:
        DataError: when the source cannot be read or does not fit the schema. Its text is for people at
            the site, `public` for everyone else.
    """

    def __init__(
        self,
        name: str,
        source: Any,
        schema: Schema,
        *,
        unreadable: Literal["error", "missing"] = "error",
        key: bytes | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"a site's name must be text, not {name!r}")
        if not isinstance(schema, Schema):
            raise InvalidInput(f"schema must be a Schema, not {type(schema).__name__}")
        if unreadable not in ("error", "missing"):
            raise InvalidInput(f"unreadable must be 'error' or 'missing', not {unreadable!r}")
        self._lenient = unreadable == "missing"
        self._views: OrderedDict[str, Table] = OrderedDict()
        self._key = SecureStream().bytes(KEY_BYTES) if key is None else key
        self._open(name, open_source(name, source, schema, lenient=self._lenient), schema)

    def _open(self, name: str, opened: Reader, schema: Schema) -> None:
        self.name, self.schema, self._opened = name, schema, opened
        self._engine: Batches | Pushdown
        person = schema.person
        if isinstance(opened, SqlReader) and person is None:
            self._engine = Pushdown(name, schema, opened, lenient=self._lenient)
        else:
            rows = opened
            if isinstance(opened, SqlReader) and person is not None:  # whose rows count is decided here
                rows = WholeReader(opened, [*schema.sources(schema), person.id])
            self._engine = Batches(name, schema, rows, lenient=self._lenient, key=self._key)
        self._lock = threading.Lock()  # what is kept, and the space it is added up in, serve one at a time
        self._asked: Design | None = None  # the design of the last sums over vectors
        self._kept: Kept | None = None
        self._too_large: Design | None = None

    def of(self, schema: Schema) -> Table:
        """Return the same rows as a study reads them, by other derived columns and `where`.

        The last few are kept, with the vectors that they hold.
        """
        if schema.key == self.schema.key:
            return self
        with self._lock:
            view = self._views.pop(schema.key, None)
            if view is None:
                view = object.__new__(Table)
                view._lenient, view._views, view._key = self._lenient, OrderedDict(), self._key
                view._open(self.name, self._opened, schema)
            self._views[schema.key] = view
            while len(self._views) > _MOST_VIEWS:
                self._views.popitem(last=False)
            return view

    def rows(self) -> int:
        """Return the number of rows, or of persons, before any `where`; the study's adjacency says whether it
        is public.
        """
        return self._engine.rows()

    def sums(self, blocks: Sequence[Block], stream: SecureStream | None = None) -> list[Sums]:
        """Return the exact sums of every block, in the shapes of `block.arrays(schema)`.

        Blocks that take a sample of the rows draw it from the stream, which nobody else may know. Without a
        sample, rows in another order, in other batches or held by another engine give the same integers.
        These are the site's secrets: nothing but their noisy, masked form may leave.
        """
        blocks = list(blocks)
        for block in blocks:
            if not isinstance(block, Block):
                raise InvalidInput(f"a block must be one of cape.blocks, such as Moments, not {block!r}")
            block.arrays(self.schema)
        with self._lock:
            return self._add_up(blocks, stream)

    def _add_up(self, blocks: list[Block], stream: SecureStream | None) -> list[Sums]:
        found: dict[int, Sums] = {}
        for i, block in enumerate(blocks):
            if block.at_once and block.vectors is not None:
                found[i] = block.over(self._vectors(block.vectors), stream)
        kept = self._asked_again([block for block in blocks if not block.at_once])
        if kept is not None:
            among = [i for i, block in enumerate(blocks) if i not in found and block.vectors == kept.design]
            found.update(zip(among, kept.sums([blocks[i] for i in among], stream), strict=True))
        others = [i for i in range(len(blocks)) if i not in found]
        if others or not blocks:
            found.update(zip(others, self._engine.sums([blocks[i] for i in others], stream), strict=True))
        return [found[i] for i in range(len(blocks))]

    def vectors(self, design: Design) -> tuple[Floats, Floats | None]:
        """Return x (rows, width) and, if the design has a target, y (rows,), in whole steps of 2^-20.

        The rows are the complete ones, in their order; every x has a sum of squares of at most 2^40. The
        arrays are kept for further calls and for `sums`, and cannot be written to. These are the site's
        secrets, cell by cell: nothing of them may leave.

        Raises:
            DataError: for a table whose vectors exceed 512 MB.
        """
        with self._lock:
            kept = self._vectors(design)
        return kept.x, kept.y

    def _vectors(self, design: Design) -> Kept:
        design.check(self.schema)
        kept = self._keep(design)
        if kept is None:
            raise faults.too_large(self.name)
        return kept

    def _asked_again(self, blocks: Sequence[Block]) -> Kept | None:
        """Return the vectors of a design among these blocks, if it is not the first time that it is asked.

        A single pass stays a stream; where one is repeated, as in learning, rows are read once more.
        """
        designs = {block.vectors for block in blocks if block.vectors is not None}
        if self._kept is not None and self._kept.design in designs:
            return self._kept
        if len(designs) != 1 or self._engine.pushes(blocks):
            return None
        (design,) = designs
        if design == self._asked:
            return self._keep(design)
        self._asked = design
        return None

    def _keep(self, design: Design) -> Kept | None:
        """Return the vectors of a design, None if they are too large to keep."""
        if (self._kept is None or self._kept.design != design) and self._too_large != design:
            self._kept = None  # so that there are never two in memory
            self._kept = self._engine.keep(design, _KEPT_CELLS)
            self._too_large = design if self._kept is None else None
        return self._kept if self._too_large != design else None

    def clamped(self) -> dict[str, int]:
        """Return how many cells of each numeric column lie outside its bounds.

        For the site's own eyes: it is computed from the rows without noise, and never sent.
        """
        return self._engine.clamped()

    @property
    def counted_as_missing(self) -> dict[str, int]:
        """How many cells of each column did not fit, as last read; for the site's own eyes."""
        return dict(self._engine.unreadable)

    def check(self) -> None:
        """Read every cell that the schema names, and raise `DataError` at the first that does not fit.

        Opened with "missing", a table has no such cell. A table without rows is refused too; in a study whose
        sizes are private it is added up as it is.
        """
        self._engine.check()
        self.require_rows()

    def require_rows(self) -> None:
        """Raise `DataError` if the table is empty: where sizes are public, that is more likely a mistake."""
        if self.rows() == 0:
            raise faults.empty(self.name)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.schema!r})"
