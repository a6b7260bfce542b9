"""The picture of the demo: what each scheme released, with its interval, around the truth."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cape.cli.demo.hospitals import COLUMNS, GROUPS, Demo

__all__ = ["draw"]

_COLOURS = {"cape": "#0f6a73", "conventional": "#c2542d", "local": "#8a94a0"}
_INK = "#1b2733"


def draw(done: Demo, path: Path) -> None:
    """Save the mean of each column in each group, by scheme, as a PNG."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(COLUMNS))
    for axes, name in zip(panels, COLUMNS, strict=True):
        for i, group in enumerate(GROUPS):
            label = f"{name} mean | diagnosis={group}"
            y = [-(4 * i + k) for k in range(len(_COLOURS))]
            truth = done.truth[label].value
            axes.plot([truth, truth], [y[-1] - 0.5, y[0] + 0.5], color=_INK, lw=1, ls=(0, (3, 2)))
            axes.annotate("truth", (truth, y[0] + 0.5), color=_INK, fontsize=8, ha="center", va="bottom")
            for place, (scheme, colour) in zip(y, _COLOURS.items(), strict=True):
                e = done.released[scheme][label]
                axes.plot(e.interval(0.95), [place, place], color=colour, lw=2, solid_capstyle="butt")
                axes.plot(e.value, place, "o", color=colour, ms=6)
        axes.set_yticks([-1, -5], GROUPS if axes is panels[0] else ["", ""], color=_INK)
        axes.set_title(f"mean {name}", fontsize=11, color=_INK)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#e3e7eb", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
    handles = [panels[0].plot([], [], "o-", color=c, lw=2, label=s)[0] for s, c in _COLOURS.items()]
    handles += panels[0].plot([], [], color=_INK, lw=1, ls=(0, (3, 2)), label="the truth in all 569 rows")
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(
        f"The same table by three schemes, once each, at epsilon = {done.budget.epsilon:g}: means with 95% "
        "intervals",
        color=_INK,
    )
    figure.savefig(path, dpi=130)
