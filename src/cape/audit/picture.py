"""One picture: for every row the claim, the lower bound, and what the two tables attain by the design."""

from __future__ import annotations

from pathlib import Path

from cape.audit.run import Audit
from cape.paper import style

__all__ = ["draw"]


def draw(found: Audit, path: Path) -> list[Path]:
    """Draw bounds in units of their claims: what keeps its claim lies left of 1, what breaks it right."""
    rows = list(reversed(found.rows))
    picture, grid = style.new(
        1, 1, (9.0, 1.6 + 0.27 * len(rows)), "Lower bounds on the privacy loss, over the claim"
    )
    axes = grid[0][0]
    needed = max((row.needed for row in rows), default=0.0)
    if needed:
        axes.axvspan(needed, 1.0, color="#e6f0e2", lw=0, label="tight cases must end up here")
    axes.axvline(1.0, color=style.INK, lw=1.4, label="claim")
    for place, row in enumerate(rows):
        colour = style.COLOURS.get(row.scheme, style.MUTED)
        broken = bool(row.flagged)
        bound = min(row.ratio, 2.0)
        if row.scale is not None:
            axes.plot(min(row.attained / row.claim_mu, 2.0), place, "|", color=style.MUTED, ms=10, mew=1.6)
        axes.plot(row.needed, place, "|", color="#5b8c4a", ms=6, mew=1.2)
        axes.plot([0, bound], [place, place], color=colour, lw=1.2, alpha=0.5)
        axes.plot(bound, place, "X" if broken else "o", color="#b3261e" if broken else colour, ms=6)
        if not row.ok:
            axes.plot(2.05, place, "*", color="#b3261e", ms=11, clip_on=False)
    axes.plot([], [], "o", color=style.COLOURS["cape"], label="bound, claim kept")
    axes.plot([], [], "X", color="#b3261e", label="flagged")
    axes.plot([], [], "|", color="#5b8c4a", ms=6, mew=1.2, label="its floor")
    axes.plot([], [], "|", color=style.MUTED, ms=10, mew=1.6, label="attained by these tables")
    axes.set_xlim(0, 2.05)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=8)
    style.tidy(axes, "", "bound / claim (2 and more are drawn at 2)", "")
    style.legend(picture, axes, 3)
    return style.save(picture, path)
