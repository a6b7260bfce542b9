"""Heart Disease (UCI 45): 920 patients at four hospitals, where they were examined."""

from __future__ import annotations

import csv
import io
import os
from typing import Any

from cape.data import Category, Number, Schema
from reproduction.datasets.dataset import MultiSite, Origin
from reproduction.datasets.fetch import Source, Unavailable, read

__all__ = ["load_heart"]

_SITES = {"cleveland": "cleveland", "hungary": "hungarian", "zurich": "switzerland", "va": "va"}
_FILES = {site: f"processed.{file}.data" for site, file in _SITES.items()}
ORIGIN = Origin(
    "Heart Disease",
    "UCI Machine Learning Repository, https://doi.org/10.24432/C52P4X",
    "CC BY 4.0",
    "Janosi, A., Steinbrunn, W., Pfisterer, M. and Detrano, R. (1989).",
)
_SOURCE = Source(
    "heart",
    "https://archive.ics.uci.edu/static/public/45/heart+disease.zip",
    {
        "processed.cleveland.data": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
        "processed.hungarian.data": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
        "processed.switzerland.data": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
        "processed.va.data": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
    },
    origin=ORIGIN,
)
_RAW: tuple[str, ...] = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
)
_RAW += ("slope", "ca", "thal", "num")
_PAIN = {1: "typical angina", 2: "atypical angina", 3: "non-anginal", 4: "asymptomatic"}
_SEX = {0: "female", 1: "male"}
_YES = {0: "no", 1: "yes"}
# Chosen by hand from what is possible in adults; beyond a bound counts as the bound.
_SCHEMA: dict[str, Any] = {
    "age": Number(20, 80, missing=False),
    "sex": Category(("female", "male"), missing=False),
    "pain": Category(tuple(_PAIN.values()), missing=False),
    "pressure": Number(80, 200),
    "chol": Number(100, 400),
    "rate": Number(60, 210),
    "exercise_angina": Category(("no", "yes")),
    "depression": Number(-3, 7),
    "disease": Category(("no", "yes"), missing=False),
}


def load_heart(
    path: str | os.PathLike[str] | None = None, *, cache: str | os.PathLike[str] | None = None
) -> MultiSite:
    """Return the patients of four hospitals in words, a frame each, with bounds chosen by hand.

    Args:
        path: a folder with `processed.cleveland.data` and the other three, or UCI's zip. By default fetched
            once, and kept.
        cache: where fetched files are kept; by default CAPE_DATA, else the user's cache folder.

    An empty cell is one that was not measured; a blood pressure or a cholesterol of 0 is that too. Disease is
    a vessel narrowed by more than half.
    """
    import polars

    sites = {}
    for site, file in _FILES.items():
        text = read(_SOURCE, file, path, cache).decode("latin-1")
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
        try:
            people = [
                _in_words([None if cell.strip() == "?" else float(cell) for cell in row]) for row in rows
            ]
        except (ValueError, KeyError):
            raise Unavailable(f"heart: {file} must have {len(_RAW)} numbers or '?' in each row") from None
        kinds = {n: polars.Float64 if isinstance(c, Number) else polars.String for n, c in _SCHEMA.items()}
        sites[site] = polars.DataFrame(people, schema=kinds, orient="row")
    return MultiSite("heart", sites, Schema(_SCHEMA), ORIGIN)


def _in_words(cells: list[float | None]) -> dict[str, Any]:
    raw = dict(zip(_RAW, cells, strict=True))

    def word(name: str, words: dict[int, str]) -> str | None:
        code = raw[name]
        return None if code is None else words[int(code)]

    return {
        "age": raw["age"],
        "sex": word("sex", _SEX),
        "pain": word("cp", _PAIN),
        "pressure": raw["trestbps"] or None,
        "chol": raw["chol"] or None,
        "rate": raw["thalach"],
        "exercise_angina": word("exang", _YES),
        "depression": raw["oldpeak"],
        "disease": None if raw["num"] is None else _YES[int(raw["num"] > 0)],
    }
