"""What a consortium asks of a site that holds something else than a table: tensors, say, or a simulation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cape.errors import DataError
from cape.noise import SecureStream

__all__ = ["Holder"]


class Holder(ABC):
    """Records at one site, in whatever form, and their exact integer sums."""

    name: str

    @abstractmethod
    def rows(self) -> int:
        """Return the number of records."""

    @abstractmethod
    def sums(
        self, blocks: Sequence[Any], stream: SecureStream | None = None
    ) -> list[tuple[NDArray[np.int64], ...]]:
        """Return the sums of every block; samples are drawn from the stream."""

    def require_rows(self) -> None:
        """Raise `DataError` if there are no records."""
        if self.rows() == 0:
            raise DataError(self.name, "there are no records")
