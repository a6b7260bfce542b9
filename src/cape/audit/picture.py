"""One picture: for every row the claim, the lower bound, and what the two tables attain by design."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cape.audit.run import Audit
from cape.core.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "require_matplotlib"]

_INK, _MUTED, _BROKEN, _FLOOR = "#1b2733", "#6b7683", "#b3261e", "#5b8c4a"
_COLOURS = {
    "cape": "#0f6a73",
    "cape-gaussian": "#2a9fb0",
    "conventional": "#c2542d",
    "local": "#8a94a0",
    "none": _INK,
    "pooled": "#5b8c3a",
}


def require_matplotlib() -> None:
    """Raise unless matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("plot", "the picture of an audit") from None


def draw(found: Audit, path: Path) -> list[Path]:
    """Draw bounds relative to their claims: a kept claim is left of 1, a broken one right of it."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = list(reversed(found.rows))
    picture = Figure(figsize=(9.0, 1.6 + 0.27 * len(rows)), layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    picture.suptitle("Lower bounds on the privacy loss, over the claim", color=_INK, fontsize=12)
    needed = max((row.needed for row in rows), default=0.0)
    if needed:
        axes.axvspan(needed, 1.0, color="#e6f0e2", lw=0, label="tight cases must end up here")
    axes.axvline(1.0, color=_INK, lw=1.4, label="claim")
    for place, row in enumerate(rows):
        colour = _COLOURS.get(row.scheme, _MUTED)
        broken = bool(row.flagged)
        bound = min(row.ratio, 2.0)
        if row.scale is not None:
            axes.plot(min(row.attained / row.claim_mu, 2.0), place, "|", color=_MUTED, ms=10, mew=1.6)
        axes.plot(row.needed, place, "|", color=_FLOOR, ms=6, mew=1.2)
        axes.plot([0, bound], [place, place], color=colour, lw=1.2, alpha=0.5)
        axes.plot(bound, place, "X" if broken else "o", color=_BROKEN if broken else colour, ms=6)
        if not row.ok:
            axes.plot(2.05, place, "*", color=_BROKEN, ms=11, clip_on=False)
    axes.plot([], [], "o", color=_COLOURS["cape"], label="bound, claim kept")
    axes.plot([], [], "X", color=_BROKEN, label="flagged")
    axes.plot([], [], "|", color=_FLOOR, ms=6, mew=1.2, label="its floor")
    axes.plot([], [], "|", color=_MUTED, ms=10, mew=1.6, label="attained by these tables")
    axes.set_xlim(0, 2.05)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    axes.set_xlabel("bound / claim (2 and more are drawn at 2)", color=_INK)
    axes.grid(visible=True, which="major", color="#e3e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK)
    handles, labels = axes.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return _save(picture, path)


def _save(picture: Figure, path: Path) -> list[Path]:
    """Save a picture as PNG and SVG; the same picture gives the same bytes."""
    from matplotlib import rc_context

    files = [path.with_name(f"{path.name}{ending}") for ending in (".png", ".svg")]
    try:
        with rc_context({"svg.hashsalt": "cape", "svg.fonttype": "path"}):
            picture.savefig(files[0], dpi=140)
            picture.savefig(files[1], metadata={"Date": None})
    except OSError as error:
        raise InvalidInput(f"--out: {path.parent} cannot be written: {error.strerror}") from None
    return files
