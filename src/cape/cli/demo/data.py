"""The data of the demos: 569 patients with a breast tumour. tumours.md says where the file comes from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

__all__ = ["at_sites"]


def at_sites(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return a frame for each site, with so many of the rows, in their order."""
    import polars

    table = polars.read_csv(files("cape.cli.demo").joinpath("tumours.csv").read_bytes())
    start, sites = 0, {}
    for name, rows in sizes.items():
        sites[name] = table[start : start + rows]
        start += rows
    return sites
