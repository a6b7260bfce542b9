"""Cells of the benchmarks `truth.*`: what runs of a cell say, which of it counts, and what is known so far.

A cell is a model, a population that it does not fit, a number of rows and a budget. It counts where the 95%
interval of the same model without privacy covers, of the same rows, at least .93.

Whole measurements take hours. `main` measures for so many minutes and goes on the next time: each cell that
is done is a line of `benchmarks/measured/`, which belongs to the repository, with a digest of the code that
it rests on. Lines of other code are measured again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

import cape

LEVEL, PROMISED, LEAST, MEAN = 1.96, 0.93, 0.90, 0.94
_MEASURED = Path(__file__).with_name("measured")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Summary:
    """What runs of a cell say of each coefficient.

    Attributes:
        hits: in how many runs the interval covers what the model without privacy gives for the population.
        without: the same for the interval of the model without privacy.
        plain, oracle: the median width over that without privacy, and over the oracle's.
    """

    runs: int
    hits: tuple[int, ...]
    without: tuple[int, ...]
    plain: tuple[float, ...]
    oracle: tuple[float, ...]

    @classmethod
    def of(cls, z: Floats, plain: Floats, oracle: Floats, without: Floats) -> Summary:
        """Return the summary of a row for each run; z is the estimate less the truth, in standard errors."""

        def hits(each: Floats) -> tuple[int, ...]:
            return tuple(map(int, (np.abs(each) <= LEVEL).sum(axis=0)))

        def middle(each: Floats) -> tuple[float, ...]:
            return tuple(round(float(value), 4) for value in np.median(each, axis=0))

        return cls(len(z), hits(z), hits(without), middle(plain), middle(oracle))

    @property
    def covers(self) -> Floats:
        return np.array(self.hits) / self.runs

    @property
    def counts(self) -> NDArray[np.bool_]:
        """Which coefficients count.

        Few runs do not say so exactly: it must not be clear, at a level of 1%, that the interval without
        privacy covers fewer.
        """
        return np.asarray(binom.cdf(self.without, self.runs, PROMISED) >= 0.01)


class Cell(Protocol):
    """One model, population, size and budget; it can be hashed, pickled and compared."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def reported(self) -> bool:
        """Whether no constant was chosen on its population."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """The code that its figures rest on: patterns within the package `cape` and within `benchmarks`."""
        ...

    def run(self, seeds: Sequence[int]) -> Summary: ...


C = TypeVar("C", bound=Cell)


@cache
def digest(sources: tuple[str, ...]) -> str:
    """Return a digest of this code."""
    folders = Path(cape.__file__).parent, Path(__file__).parent
    files = sorted({path for folder in folders for pattern in sources for path in folder.glob(pattern)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _run(cell: Cell, runs: int) -> Summary:
    return cell.run(range(runs))


def measured(cells: Sequence[C], runs: int) -> dict[C, Summary]:
    """Measure all cells, on all cores; those that this process has measured before are known."""
    new = [cell for cell in cells if (cell, runs) not in _KNOWN]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for cell, found in zip(new, pool.map(partial(_run, runs=runs), new), strict=True):
            _KNOWN[cell, runs] = found
    return {cell: _KNOWN[cell, runs] for cell in cells}


_KNOWN: dict[tuple[Cell, int], Summary] = {}


def broken(found: Mapping[Cell, Summary]) -> list[str]:
    """Return the cells that do not cover .90: where that makes so few covered runs with a chance below 5%
    over all of them."""
    level = 0.05 / max(sum(int(each.counts.sum()) for each in found.values()), 1)
    return [
        f"{cell.name}, coefficient {i + 1}: {hits / each.runs:.2f}"
        for cell, each in found.items()
        for i, hits in enumerate(each.hits)
        if each.counts[i] and binom.cdf(hits, each.runs, LEAST) < level
    ]


def below(found: Mapping[Cell, Summary]) -> int:
    """Return how many coefficients that count were covered in fewer than .90 of the runs."""
    return sum(int((each.covers[each.counts] < LEAST).sum()) for each in found.values())


def by_family(found: Mapping[Cell, Summary]) -> dict[str, float]:
    """Return the mean coverage of each family, of what counts."""
    shares: dict[str, list[Floats]] = {}
    for cell, each in found.items():
        shares.setdefault(cell.family, []).append(each.covers[each.counts])
    return {family: round(float(np.concatenate(each).mean()), 3) for family, each in shares.items()}


def some_of(cells: Sequence[C], many: int) -> list[C]:
    """Return so many cells of each family, from end to end of the list, the same every time."""
    families = dict.fromkeys(cell.family for cell in cells)
    chosen: list[C] = []
    for family in families:
        of = [cell for cell in cells if cell.family == family]
        chosen += [of[place] for place in np.linspace(0, len(of) - 1, max(many, 1)).round().astype(int)]
    return list(dict.fromkeys(chosen))


def known(name: str, cells: Iterable[Cell], runs: int) -> dict[Cell, Summary]:
    """Return what whole measurements of this code have said so far, by the file of this name."""
    path = _MEASURED / f"{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    at = {(line.pop("cell"), line.pop("code")): line for line in lines}
    found: dict[Cell, Summary] = {}
    for cell in cells:
        line = at.get((cell.name, digest(cell.sources)))
        if line is not None and line["runs"] >= runs:
            found[cell] = Summary(**{key: tuple(v) if isinstance(v, list) else v for key, v in line.items()})
    return found


def _save(name: str, found: Mapping[Cell, Summary]) -> None:
    lines = [
        json.dumps({"cell": cell.name, "code": digest(cell.sources), **asdict(each)})
        for cell, each in found.items()
    ]
    _MEASURED.mkdir(exist_ok=True)
    (_MEASURED / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in sorted(lines)))


def main(name: str, cells: Sequence[Cell], about: str | None) -> None:
    """Measure for so many minutes the cells that have not been, and print what is known of all."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("runs", type=int, help="how often each cell is run, as in 400")
    parser.add_argument("pattern", nargs="?", default="", help="only cells whose names hold this")
    parser.add_argument("--minutes", type=float, default=math.inf)
    arguments = parser.parse_args()
    found, end = known(name, cells, arguments.runs), time.monotonic() + 60 * arguments.minutes
    # in an order in which any part of them is a sample of all
    order = [cells[place] for place in np.random.default_rng(1).permutation(len(cells))]
    wanted = [cell for cell in order if arguments.pattern in cell.name]
    new = [cell for cell in wanted if cell not in found]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for cell, each in zip(new, pool.map(partial(_until, runs=arguments.runs, end=end), new), strict=True):
            if each is not None:
                found[cell] = each
                _save(name, found)
                print(_line(cell, each), flush=True)
    of = {cell: found[cell] for cell in wanted if cell in found}
    print(f"{len(of)} of {len(wanted)} cells, {arguments.runs} runs each: {by_family(of)}")
    print(f"covered in less than {LEAST:.2f} of the runs: {below(of)} coefficients; certainly:")
    print(*broken(of), sep="\n")


def _until(cell: Cell, runs: int, end: float) -> Summary | None:
    return None if time.monotonic() > end else cell.run(range(runs))


def _line(cell: Cell, found: Summary) -> str:
    return " ".join(
        [
            f"{cell.name} ({'reported' if cell.reported else 'chosen on'}): covers",
            *(f"{share:.3f}" for share in found.covers),
            "without privacy",
            *(f"{hits / found.runs:.3f}" for hits in found.without),
            "width over that",
            *(f"{w:.2f}" for w in found.plain),
            "over the oracle's",
            *(f"{w:.2f}" for w in found.oracle),
        ]
    )
