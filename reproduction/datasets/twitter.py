"""Buzz in social media, Twitter (UCI 248): 583,250 windows of discussion on a topic, 77 features."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from cape.core import check
from cape.core.errors import InvalidInput
from reproduction.datasets.dataset import Dataset, Floats, Origin
from reproduction.datasets.fetch import Source, Unavailable, cache_folder, read
from reproduction.datasets.made_up import permutation, seeded
from reproduction.datasets.scaling import columns_scaled, rows_scaled

__all__ = ["load_twitter"]

_FILE = "Twitter.data"
_ROWS = 583_250  # of the published file, whose checksum is not known here
ORIGIN = Origin(
    "Buzz in social media (Twitter)",
    "UCI Machine Learning Repository, https://doi.org/10.24432/C56G6V",
    "CC BY 4.0",
    "Kawala, F., Douzal, A., Gaussier, E. and Diemert, E. (2013).",
)
_SOURCE = Source(
    "twitter",
    "https://archive.ics.uci.edu/static/public/248/buzz+in+social+media.zip",
    {_FILE: None},
    inner="regression.tar.gz",
    origin=ORIGIN,
)
_MEASURES = ("NCD", "AI", "AS(NA)", "BL", "NAC", "AS(NAC)", "CS", "AT", "NA", "ADL", "NAD")
_NAMES = tuple(f"{measure}_{time}" for measure in _MEASURES for time in range(7))
_TARGET = "mean_active_discussions"
_NOTE = (
    "Columns are divided by their largest value, rows by the largest norm, the target by its largest value, "
    "as in the paper: numbers computed from the rows, outside any guarantee."
)


# The authors' own sample, where it lies among fetched files.
_MATLAB_SHA256 = {
    "twitter_D_77_N_20000.mat": "b71b61f4ebe776f95dfbda54725cfe415e8af39039f0e4392bf78b0742bca09d",
}


def load_twitter(
    path: str | os.PathLike[str] | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Return how much a topic is discussed, and 77 measures of the week before, scaled as in the paper.

    Args:
        path: `Twitter.data`, a folder with it, UCI's zip, or a MATLAB file with X and y that are scaled
            already, as the paper's authors made them. By default fetched once, and kept.
        cache: where fetched files are kept; by default CAPE_DATA, else the user's cache folder.
        rows: how many, drawn without repetition; all by default. A MATLAB file gives its first ones.
        seed: which ones are drawn.

    The published file's checksum is not known: a download is checked for its 583,250 rows of 78 numbers, and
    its own checksum is kept beside it and compared from then on.
    """
    if rows is not None:
        rows = check.integer("rows", rows, least=1)
    matlab = _matlab_file(path, cache)
    if matlab is not None:
        X, y = _from_matlab(matlab, check_known=path is None)
        chosen = slice(_at_most(rows, len(y)))
        return _dataset(X[chosen], y[chosen])
    table = _numbers(read(_SOURCE, _FILE, path, cache))
    if path is None and len(table) != _ROWS:
        raise Unavailable(f"twitter: {_FILE} has {len(table):,} rows, and the published file {_ROWS:,}")
    X, y = columns_scaled(table[:, :-1]), table[:, -1]
    if rows is not None:
        places = permutation(seeded("twitter", seed), len(y))[: _at_most(rows, len(y))]
        X, y = X[places], y[places]
    return _dataset(*rows_scaled(X, y))


def _dataset(X: Floats, y: Floats) -> Dataset:
    bounds = dict.fromkeys((*_NAMES, _TARGET), (0.0, 1.0))
    return Dataset("twitter", _NAMES, X, y, _TARGET, bounds, ORIGIN, _NOTE)


def _at_most(rows: int | None, there: int) -> int:
    if rows is not None and rows > there:
        raise InvalidInput(f"rows must be at most {there:,}, as many as there are, not {rows:,}")
    return there if rows is None else rows


def _matlab_file(path: str | os.PathLike[str] | None, cache: str | os.PathLike[str] | None) -> Path | None:
    """Return a MATLAB file that was given, or the one with most rows that is there instead of UCI's file."""
    if path is not None and Path(path).suffix == ".mat":
        return Path(path)
    folder = Path(path) if path is not None else cache_folder(cache) / "twitter"
    if not folder.is_dir() or (folder / _FILE).is_file():
        return None
    found = sorted(folder.glob("twitter_D_77_N_*.mat"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return found[-1] if found else None


def _from_matlab(file: Path, check_known: bool) -> tuple[Floats, Floats]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        data = file.read_bytes()
        known = _MATLAB_SHA256.get(file.name) if check_known else None
        if known not in (None, hashlib.sha256(data).hexdigest()):
            raise Unavailable(f"twitter: {file} is not the file of that name that was expected; remove it")
        held: dict[str, Any] = loadmat(io.BytesIO(data), variable_names=("X", "y"))
        X, y = np.asarray(held["X"], np.float64), np.asarray(held["y"], np.float64).ravel()
    except OSError as error:
        raise InvalidInput(f"path: {file} cannot be read: {error.strerror or error}") from None
    except (MatReadError, ValueError, KeyError, TypeError, NotImplementedError):
        raise Unavailable(f"twitter: {file.name} must be a MATLAB 5 file with arrays X and y") from None
    if X.shape != (len(y), len(_NAMES)) or not (np.abs(X) <= 1).all() or not (np.abs(y) <= 1).all():
        raise Unavailable(
            f"twitter: X in {file.name} must have {len(_NAMES)} columns, all scaled to at most 1"
        )
    return X, y


def _numbers(data: bytes) -> Floats:
    import polars

    try:
        table = polars.read_csv(io.BytesIO(data), has_header=False, infer_schema_length=None).to_numpy()
        numbers = np.asarray(table, np.float64)
    except (polars.exceptions.PolarsError, ValueError, TypeError):
        numbers = np.empty((0, 0))
    if numbers.shape[1:] != (len(_NAMES) + 1,) or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise Unavailable(f"twitter: {_FILE} must have {len(_NAMES) + 1} numbers of at least 0 in each row")
    return numbers
