"""Labels of classes as a public column of a schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from cape.core.errors import InvalidInput
from cape.data import Category

__all__ = ["classes_of", "labels_of", "target_of"]


def classes_of(y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the classes, and the index of each row's class."""
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InvalidInput("a classifier needs at least 2 classes, and y has only one class")
    return classes, codes


def labels_of(classes: NDArray[Any]) -> list[str]:
    """Return a name for each class: its own as text, if these are distinct."""
    labels = [str(value) for value in classes.tolist()]
    return labels if all(labels) and len(set(labels)) == len(labels) else [str(i) for i in range(len(labels))]


def target_of(labels: Sequence[str], codes: NDArray[np.int64]) -> tuple[Category, pl.Series]:
    """Return the column and its cells."""
    return Category(tuple(labels), missing=False), pl.Series(list(labels)).gather(codes)
