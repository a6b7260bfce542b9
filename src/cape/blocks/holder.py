"""Sites that hold something other than a table, such as tensors or a simulation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from cape.blocks.block import Block, Sums
from cape.blocks.parts import Pass, Summer
from cape.core.errors import DataError, InvalidInput
from cape.data.schema import Schema
from cape.noise import SecureStream

__all__ = ["Held", "Holder"]


class Held(Block):
    """A block that only a `Holder` of its own kind can add up. Each record adds at most 1 to any entry."""

    brings_code: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def summer(self, run: Pass) -> Summer:
        raise InvalidInput(f"{type(self).__name__} is added up by its own holder of records, not by a table")


class Holder(ABC):
    """Records at one site, in whatever form, and their exact integer sums."""

    name: str

    @abstractmethod
    def rows(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def sums(self, blocks: Sequence[Any], stream: SecureStream | None = None) -> list[Sums]:
        """Return the sums of every block; samples are drawn from the stream."""

    def of(self, schema: Schema) -> Holder:
        """Return what these records are to a study with this schema: themselves, because none is filtered."""
        if schema.open or schema.person is not None:
            raise InvalidInput(
                "where and [person] are for tables with columns, which these sites do not hold"
            )
        return self

    def require_rows(self) -> None:
        """Raise `DataError` if there are no records."""
        if self.rows() == 0:
            raise DataError(self.name, "there are no records")
