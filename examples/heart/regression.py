"""Regressions over the four hospitals: what each scheme gives at each epsilon, as figures and tables.

    python examples/heart/regression.py FOLDER_WITH_RAW_FILES --out FOLDER_FOR_FIGURES

Reads processed.cleveland.data and the like (README.md beside this file says where to get them) and writes
heart-logistic.png, heart-linear.png and heart-epsilon.png. What it prints is on docs/heart-regression.md.
Its noise comes from a key that stands here, so that a run can be repeated: the data are public, and nothing
is protected. With other rows leave `stream=` out.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from prepare import HOSPITALS, translate

import cape
from cape.noise import SecureStream

DELTA = 1e-6
SCHEMES = {"pooled": "C2", "cape": "C0", "conventional": "C1", "local": "C3"}
EPSILONS = (0.3, 1.0, 3.0, 10.0, 30.0)
SHOWN = (1.0, 10.0)  # in the forest plots
TIMES = (3, 10, 30, 100)  # as many rows
ROWS = 920
LEVEL = 0.95

SCHEMA = cape.Schema(  # by hand, from what is possible in adults
    age=cape.Number(20, 80, missing=False),
    sex=cape.Category(("female", "male"), missing=False),
    silent=cape.Category(("no", "yes"), missing=False),  # no chest pain at all
    rate=(60, 210),  # highest heart rate reached, per minute
    exercise_angina=["no", "yes"],
    depression=(0, 4),  # of ST by exercise, mm
    disease=cape.Category(("no", "yes"), missing=False),
)
LOGISTIC = cape.LogisticRegression(
    "disease", ["age", "sex", "silent", "rate", "exercise_angina", "depression"]
)
LINEAR = cape.LinearRegression("rate", ["age", "sex", "exercise_angina"], method="moments")
UNITS = {"age": 10.0, "rate": 10.0}  # what coefficients are shown for
NAMES = {
    "age": "age, 10 years",
    "rate": "heart rate, 10 beats",
    "depression": "ST depression, 1 mm",
    "sex=male": "male",
    "silent=yes": "no chest pain",
    "exercise_angina=yes": "angina in exercise",
}
Tables = dict[str, pl.DataFrame]


def read(folder: Path) -> Tables:
    """Return each hospital's rows."""
    tables = {}
    for hospital, name in HOSPITALS.items():
        source = folder / f"processed.{name}.data"
        if not source.is_file():
            sys.exit(f"no file {source}; see examples/heart/README.md for where to get it")
        with source.open(newline="") as lines:
            people = [translate(cells) for cells in csv.reader(lines) if cells]
        rows = pl.DataFrame(people, infer_schema_length=None)
        silent = pl.when(pl.col("pain") == "asymptomatic").then(pl.lit("yes")).otherwise(pl.lit("no"))
        tables[hospital] = rows.with_columns(silent.alias("silent")).select(*SCHEMA)
    return tables


def release(tables: Tables, analysis: Any, scheme: str, epsilon: float, seed: int = 0) -> Any:
    """Return one release that spends a whole budget."""
    key = hashlib.sha256(f"{analysis.kind} {scheme} {epsilon} {seed}".encode()).digest()
    consortium = cape.Consortium(
        tables,
        SCHEMA,
        cape.Budget(epsilon, DELTA),
        colluding=min(1, len(tables) - 1),
        scheme=scheme,
        stream=SecureStream(key),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cape.TooNoisyWarning)
        warnings.simplefilter("ignore", cape.PrivacyLeakWarning)  # of "none", which is here to compare with
        return consortium.release(analysis, share=1.0)


def slopes(released: Any) -> dict[str, tuple[float, float, float]]:
    """Return value, low and high of each coefficient but the intercept, in the units of the plots."""
    found = {}
    for each in released.estimates:
        if each.label != "intercept":
            unit = UNITS.get(each.label, 1.0)
            low, high = each.interval(LEVEL)
            found[each.label] = unit * each.value, unit * low, unit * high
    return found


def forest(tables: Tables, analysis: Any, title: str, ends: tuple[float, float], path: Path) -> None:
    """Draw coefficients with intervals, a panel for each scheme and epsilon; in grey those without noise."""
    exact = slopes(release(tables, analysis, "none", 1.0))
    figure, panels = plt.subplots(
        len(SHOWN),
        len(SCHEMES),
        figsize=(8.2, 0.8 + len(SHOWN) * (0.7 + 0.3 * len(exact))),
        layout="constrained",
        sharex=True,
        sharey=True,
    )
    places = np.arange(len(exact))[::-1]
    for row, epsilon in zip(panels, SHOWN, strict=True):
        for axes, (scheme, colour) in zip(row, SCHEMES.items(), strict=True):
            axes.axvline(0, color="0.75", lw=0.8, zorder=0)
            _intervals(axes, places + 0.17, exact, "0.65", "o", ends)
            _intervals(
                axes, places - 0.17, slopes(release(tables, analysis, scheme, epsilon)), colour, "s", ends
            )
            axes.set(xlim=ends, ylim=(-0.6, len(exact) - 0.4))
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.tick_params(labelsize=9)
        row[0].set_ylabel(f"$\\epsilon$ = {epsilon:g}", fontsize=11)
        row[0].set_yticks(places, [NAMES[label] for label in exact])
    for axes, scheme in zip(panels[0], SCHEMES, strict=True):
        axes.set_title(scheme, fontsize=11, color=SCHEMES[scheme], fontweight="bold")
    figure.supxlabel(title, fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _intervals(
    axes: Any,
    places: Sequence[float],
    found: dict[str, tuple[float, float, float]],
    colour: str,
    marker: str,
    ends: tuple[float, float],
) -> None:
    """Draw dots and lines; an arrow where a line leaves the panel."""
    least, most = ends
    room = 0.01 * (most - least)
    for y, (value, low, high) in zip(places, found.values(), strict=True):
        axes.plot([max(low, least), min(high, most)], [y, y], color=colour, lw=1.6, solid_capstyle="butt")
        if least <= value <= most:
            axes.plot(value, y, marker, color=colour, ms=4)
        if low < least:
            axes.plot(least + room, y, "<", color=colour, ms=5)
        if high > most:
            axes.plot(most - room, y, ">", color=colour, ms=5)


def split(tables: Tables, seed: int) -> tuple[Tables, pl.DataFrame]:
    """Return three quarters of each hospital's rows, and the others together."""
    draw = np.random.default_rng(seed)
    kept, held = {}, []
    for hospital, rows in tables.items():
        there = draw.random(len(rows)) < 0.75
        kept[hospital] = rows.filter(pl.Series(there))
        held.append(rows.filter(pl.Series(~there)))
    return kept, pl.concat(held).drop_nulls()


def errors(tables: Tables, scheme: str, epsilon: float, seed: int) -> tuple[float, float, float]:
    """Return accuracy and log-loss for disease, and the error of the heart rate, on rows held out."""
    kept, held = split(tables, seed)
    columns = held.to_dict(as_series=False)
    ill = np.array(columns["disease"]) == "yes"
    odds = release(kept, LOGISTIC, scheme, epsilon, seed).model.predict_proba(columns)[:, 1]
    said = np.clip(odds, 1e-6, 1 - 1e-6)
    loss = -float(np.mean(np.where(ill, np.log(said), np.log(1 - said))))
    rate = release(kept, LINEAR, scheme, epsilon, seed).model.predict(columns)
    off = float(np.sqrt(np.mean((rate - np.array(columns["rate"])) ** 2)))
    return 100 * float(np.mean((said >= 0.5) == ill)), loss, off


def constant(tables: Tables, seeds: Iterable[int]) -> tuple[float, float, float]:
    """Return the same for a prediction that knows no features."""
    found = []
    for seed in seeds:
        kept, held = split(tables, seed)
        everyone = pl.concat(kept.values())
        share, rate = (everyone["disease"] == "yes").mean(), everyone["rate"].mean()
        ill = (held["disease"] == "yes").to_numpy()
        loss = -float(np.mean(np.where(ill, np.log(share), np.log(1 - share))))
        off = float(np.sqrt(np.mean((held["rate"].to_numpy() - rate) ** 2)))
        found.append((100 * float(np.mean(ill == (share >= 0.5))), loss, off))
    return tuple(np.median(found, axis=0))  # type: ignore[return-value]


def told(tables: Tables, analysis: Any, scheme: str, times: int, epsilon: float, seeds: int) -> str:
    """Return how many intervals leave 0 out, on average, and how many hold the estimate without noise.

    For so many times the rows, which are drawn from those that there are, hospital by hospital.
    """
    apart, held = [], []
    for seed in range(seeds):
        many = tables
        if times > 1:
            many = {
                name: rows.sample(len(rows) * times, with_replacement=True, seed=seed)
                for name, rows in tables.items()
            }
        largest = max(many, key=lambda name: len(many[name]))
        asked = {largest: many[largest]} if scheme == "local" else many
        exact = slopes(release(asked, analysis, "none", 1.0))
        noisy = slopes(release(many, analysis, scheme, epsilon, seed))
        apart.append(sum(low > 0 or high < 0 for _, low, high in noisy.values()))
        held += [noisy[each][1] <= exact[each][0] <= noisy[each][2] for each in exact]
    return f"{np.mean(apart):.1f} ({100 * np.mean(held):.0f}%)"


def curves(tables: Tables, seeds: int, path: Path) -> None:
    """Draw errors on rows held out against epsilon, and print them."""
    titles = ("disease: % right", "disease: log-loss", "heart rate: error, beats")
    everything = {
        scheme: np.array([[errors(tables, scheme, e, seed) for seed in range(seeds)] for e in EPSILONS])
        for scheme in SCHEMES
    }
    exact = np.median([errors(tables, "none", 1.0, seed) for seed in range(seeds)], axis=0)
    nothing = constant(tables, range(seeds))
    figure, panels = plt.subplots(1, 3, figsize=(8.2, 3.3), layout="constrained")
    for i, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        for j, (scheme, colour) in enumerate(SCHEMES.items()):
            low, middle, high = np.quantile(everything[scheme][:, :, i], (0.1, 0.5, 0.9), axis=1)
            beside = np.array(EPSILONS) * 1.1 ** (j - 1.5)  # so that no line hides another
            axes.plot(beside, middle, "o-", color=colour, ms=4, lw=1.2, label=scheme)
            axes.vlines(beside, low, high, color=colour, lw=1.6, alpha=0.55)
        axes.axhline(exact[i], color="0.3", lw=1, ls="--", label="no noise")
        axes.axhline(nothing[i], color="0.3", lw=1, ls=":", label="no features")
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axes.minorticks_off()
        axes.set(xlabel="$\\epsilon$")
        axes.set_title(title, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    for i, title in enumerate(titles):
        print(f"\n{title}; median (10% to 90%) of {seeds} splits\n")
        print("| epsilon | " + " | ".join(SCHEMES) + " |\n|---|" + "---|" * len(SCHEMES))
        for j, epsilon in enumerate(EPSILONS):
            cells = [_spread(everything[scheme][j, :, i]) for scheme in SCHEMES]
            print(f"| {epsilon:g} | " + " | ".join(cells) + " |")
        print(f"\nNo noise: {_short(exact[i])}; no features: {_short(nothing[i])}.")


def _spread(values: Any) -> str:
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    return f"{_short(middle)} ({_short(low)} to {_short(high)})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def found(tables: Tables, seeds: int, more: Sequence[int]) -> None:
    """Print how many coefficients can be told from 0, by epsilon, and by rows at epsilon 1."""
    for name, analysis in (("logistic", LOGISTIC), ("linear", LINEAR)):
        many = len(slopes(release(tables, analysis, "none", 1.0)))
        print(
            f"\n{name}: intervals of {many} without 0, on average (and how many hold what is without noise)\n"
        )
        print("| rows, epsilon | " + " | ".join(SCHEMES) + " |\n|---|" + "---|" * len(SCHEMES))
        for epsilon in EPSILONS:
            cells = [told(tables, analysis, scheme, 1, epsilon, seeds) for scheme in SCHEMES]
            print(f"| {ROWS}, {epsilon:g} | " + " | ".join(cells) + " |")
        for times in more:
            cells = [told(tables, analysis, scheme, times, 1.0, seeds) for scheme in SCHEMES]
            print(f"| {ROWS * times:,}, 1 | " + " | ".join(cells) + " |")


def main() -> None:
    """Draw and print everything."""
    parser = argparse.ArgumentParser(description="Regressions over the four hospitals, scheme by scheme.")
    parser.add_argument("folder", type=Path, help="the folder with processed.cleveland.data and the like")
    parser.add_argument("--out", type=Path, default=Path("heart-figures"), help="where figures go")
    parser.add_argument("--seeds", type=int, default=20, help="how many splits of the rows")
    parser.add_argument("--times", type=int, nargs="*", default=TIMES, help="as many rows, drawn again")
    given = parser.parse_args()
    tables = read(given.folder)
    given.out.mkdir(parents=True, exist_ok=True)
    for hospital, rows in tables.items():
        print(f"{hospital}: {len(rows)} rows, {len(rows.drop_nulls())} complete")
    title = "log-odds of disease, 95% intervals (grey: without noise)"
    forest(tables, LOGISTIC, title, (-2.5, 5.0), given.out / "heart-logistic.png")
    title = "highest heart rate in beats a minute, 95% intervals (grey: without noise)"
    forest(tables, LINEAR, title, (-60.0, 60.0), given.out / "heart-linear.png")
    curves(tables, given.seeds, given.out / "heart-epsilon.png")
    found(tables, given.seeds, given.times)
    for scheme in ("none", "cape"):
        print(f"\nscheme {scheme!r}, epsilon 1\n\n{release(tables, LOGISTIC, scheme, 1.0).summary()}")


if __name__ == "__main__":
    main()
