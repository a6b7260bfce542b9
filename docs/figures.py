"""Draws the figures of these pages: `make docs` runs it. Every number comes from the library."""

from __future__ import annotations

import math
import re
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from cape import privacy
from cape.analyses import TableOne
from cape.cli.demo.data import at_sites
from cape.cli.demo.hospitals import COLUMNS, GROUPS, SHARE, SITES
from cape.data import Category, Schema
from cape.engine.consortium import Consortium
from cape.noise import SecureStream
from cape.privacy import correlated, paper
from cape.show import Intervals, Mark
from cape.show.svg import draw

HERE = Path(__file__).parent / "img"


def guarantee() -> None:
    """mu² and delta of the paper's calibration against the number of sites: as printed, and exact."""
    epsilon, nominal = 1.0, 1e-5
    tau = paper.classical_tau(epsilon, nominal, 1.0)
    sites = list(range(4, 101))
    colluding = [math.ceil(s / 3) - 1 for s in sites]
    printed = [paper.theorem1(epsilon, tau, s, c, s) for s, c in zip(sites, colluding, strict=True)]
    exact = [correlated.mu(1.0, tau / math.sqrt(s), tau, s, c) for s, c in zip(sites, colluding, strict=True)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    left.plot(sites, [p.sigma_z**2 * tau**2 for p in printed], label="Theorem 1 as printed", color="C1")
    left.plot(sites, [mu**2 * tau**2 for mu in exact], label="exact", color="C0")
    left.set(xlabel="sites S", ylabel="privacy loss  $\\mu^2 \\tau^2 / \\Delta^2$", ylim=(0, None))
    right.semilogy(sites, [p.delta for p in printed], color="C1", label="Theorem 1 as printed")
    right.semilogy(sites, [privacy.delta(epsilon, mu) for mu in exact], color="C0", label="exact (and tight)")
    right.axhline(nominal, color="0.6", lw=1, ls="--")
    right.text(
        sites[-1], nominal * 1.08, "nominal $\\delta$", ha="right", va="bottom", color="0.4", fontsize=9
    )
    right.set(xlabel="sites S", ylabel="$\\delta$ at $\\epsilon = 1$")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("The paper's noise with $\\lceil S/3 \\rceil - 1$ colluding sites", fontsize=11)
    figure.savefig(HERE / "guarantee.png", dpi=150)


def survival() -> None:
    """The curves of the first example of survival.md, with noise that is the same every time."""
    page = (HERE.parent / "survival.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    given = "budget=cape.Budget(epsilon=3.0, delta=1e-6),\n"
    assert given in example
    known: dict[str, Any] = {"stream": SecureStream(b"survival".rjust(32))}
    exec(compile(example.replace(given, f"{given}    stream=stream,\n"), "survival.md", "exec"), known)
    ((panel,),) = (figure.panels for figure in known["curves"].model.figures())
    _save(panel, "survival.svg")


def demo() -> None:
    """What `cape demo` releases of one column, by four schemes, with noise that is the same every time."""
    schema = Schema(COLUMNS, diagnosis=Category(GROUPS, missing=False))
    analysis = TableOne(*COLUMNS, by="diagnosis", bins=16)
    released: dict[str, dict[str, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the truth, which is public, and of much noise
        for scheme in ("none", "pooled", "cape", "conventional", "local"):
            consortium = Consortium(
                at_sites(SITES),
                schema,
                privacy.Budget(epsilon=2.0, delta=1e-6),
                colluding=1,
                sizes=SITES,
                scheme=scheme,
                stream=SecureStream(f"demo {scheme}".encode().rjust(32)),
            )
            found = consortium.release(analysis, share=SHARE).estimates
            released[scheme] = {estimate.label: estimate for estimate in found}
    names = {
        "pooled": "a trusted curator",
        "cape": "CAPE, nobody trusted",
        "conventional": "conventional",
        "local": "largest site alone",
    }
    marks = [
        Mark.of(released[scheme][label], f"{group}, {name}", released["none"][label].value)
        for group in GROUPS
        for label in [f"radius mean | diagnosis={group}"]
        for scheme, name in names.items()
    ]
    _save(Intervals(tuple(marks)), "demo.svg")


def _save(panel: Any, name: str) -> None:
    """Draw a panel as a file of its own, in the light colours: pages show pictures on white."""
    style = files("cape.show").joinpath("figures.css").read_text(encoding="utf-8")
    dark = style.index("@media (prefers-color-scheme: dark)")
    style = style[:dark] + style[style.index("\n}\n", dark) + 3 :]
    shapes = draw(panel).replace(
        "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1
    )
    start = shapes.index(">") + 1
    text = f"{shapes[:start]}<style>{style}</style>{shapes[start:]}\n"
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    guarantee()
    survival()
    demo()
