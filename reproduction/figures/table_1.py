"""Table 1: communication per site and at the aggregator, measured, and how it grows with S and D."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from cape.core.errors import PrivacyLeakWarning
from reproduction import style
from reproduction.figure import Cell, Claim, Figure, Row
from reproduction.overhead import PROTOCOLS, Power, grows, measure
from reproduction.reference import Reference
from reproduction.seeds import FIRST_SEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

__all__ = ["FIGURE", "Table1"]

_SITES, _ENTRIES = (5, 10, 20, 50, 100), (100, 1_000, 10_000, 100_000)
_FAST_SITES, _FAST_ENTRIES = (5, 10, 20, 50), (100, 1_000, 10_000)
_WHERE = "Appendix A, Table 1"
_CLOSE = 0.1  # of a power; smaller grids tell powers apart less well
_LABELS = {
    "cape-gaussian": "CAPE, the paper's (noise, then message)",
    "cape": "CAPE, ring masks",
    "secure-aggregation": "Bonawitz et al.",
    "conventional": "conventional (own noise, one message)",
    "compute-nodes-3": "Heikkilä et al., M = 3",
    "compute-nodes-10": "Heikkilä et al., M = 10",
}
_LOOKS: dict[str, tuple[str, str]] = {
    "cape-gaussian": (style.COLOURS["cape-gaussian"], "o-"),
    "cape": (style.COLOURS["cape"], "s-"),
    "secure-aggregation": (style.COLOURS["printed"], "x--"),
    "conventional": (style.COLOURS["local"], ".:"),
    "compute-nodes-3": (style.COLOURS["dp-fm"], "^-"),
    "compute-nodes-10": (style.COLOURS["conventional"], "v-"),
}
_HOW = """\
All protocols ran, gave the right sum, and every message was counted, without what a transport adds.
Numbers have 64 bits, and nobody is lost. *Bonawitz et al.* is this library's secure aggregation with all
sites as neighbours, in the variant that withstands an aggregator that lies; CAPE takes fewer neighbours
above 50 sites, which is why its power in S is below 1 here and is no law. For Heikkilä et al. "the
aggregator" is the M nodes and the one who adds up their sums: what the nodes pass on is counted where it
leaves and where it arrives."""
_PRINTED = {
    "cape-gaussian": ("O(S + D)", "O(S² + SD)"),
    "cape": ("O(S + D)", "O(S² + SD)"),
    "secure-aggregation": ("O(S + D)", "O(S² + SD)"),
    "conventional": ("Θ(D)", "Θ(SD)"),
    "compute-nodes-3": ("Θ(DM)", "Θ(SDM)"),
    "compute-nodes-10": ("Θ(DM)", "Θ(SDM)"),
}


class Table1(Figure):
    """Communication per site and at the aggregator."""

    name = "table-1"
    title = "Communication of one sum of D numbers over S sites, in bytes that were sent"
    random = False  # how many bytes there are does not depend on what they say

    def cells(self, fast: bool, seed: int = FIRST_SEED) -> Sequence[Cell]:
        """Return a cell for each protocol, S and D; `fast` leaves out the largest of both."""
        sites, entries = (_FAST_SITES, _FAST_ENTRIES) if fast else (_SITES, _ENTRIES)
        return [
            Cell.of(self.name, seed, _guess(s, d), protocol=protocol, sites=s, entries=d)
            for protocol in PROTOCOLS
            for s in sites
            for d in entries
        ]

    def compute(self, cell: Cell) -> list[Row]:
        """Play one sum and count."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # bytes are counted, nobody is protected
            found = measure(
                cell.text("protocol"), cell.integer("sites"), cell.integer("entries"), cell.stream("run")
            )
        return [dict(cell.settings) | asdict(found) | {"site": found.site, "aggregator": found.aggregator}]

    def draw(self, rows: Sequence[Row], reference: Reference | None) -> Mapping[str, Picture]:
        """Return bytes against S and D; they do not depend on a calibration, so there is one picture."""
        return {"bytes": _picture(rows)}

    def claims(self, rows: Sequence[Row], reference: Reference | None) -> list[Claim]:
        """Compare fitted powers with the printed ones, and the schemes with each other."""
        return [*(_claim(rows, protocol) for protocol in _PRINTED), *_totals(rows)]

    def notes(self, rows: Sequence[Row]) -> str:
        """Return the fitted powers and the bytes as tables."""
        return f"{_powers(rows)}\n\n{_HOW}\n\n{_bytes(rows)}"


def _guess(sites: int, entries: int) -> float:
    return 0.02 * sites + sites * entries * 3e-7


def _values(rows: Sequence[Row], protocol: str, **at: int) -> list[Row]:
    return [row for row in rows if row["protocol"] == protocol and all(row[k] == v for k, v in at.items())]


def _column(rows: Sequence[Row], name: str) -> list[float]:
    return [float(v) for row in rows if isinstance(v := row[name], (int, float))]


def _corners(rows: Sequence[Row]) -> tuple[int, int, int, int]:
    sites, entries = ({int(v) for v in _column(rows, name)} for name in ("sites", "entries"))
    return min(sites), max(sites), min(entries), max(entries)


def _fits(rows: Sequence[Row], protocol: str) -> dict[str, Power]:
    """Return four powers: in S where D is smallest, in D where S is smallest, at a site and the aggregator.

    The aggregator's bytes are those of all sites, so they are divided by S before the fit in S. Whoever
    shows the power adds 1 again.
    """
    few, _, short, _ = _corners(rows)
    by_sites, by_entries = _values(rows, protocol, entries=short), _values(rows, protocol, sites=few)
    s, d = _column(by_sites, "sites"), _column(by_entries, "entries")
    each = [a / n for a, n in zip(_column(by_sites, "aggregator"), s, strict=True)]
    flat = max(each) < 1.5 * min(each)  # hardly grows: a power would be a guess
    site = _column(by_sites, "site")
    return {
        "site, S": Power(0, 0, 0, 0) if max(site) < 1.5 * min(site) else grows(s, site),
        "site, D": grows(d, _column(by_entries, "site")),
        "aggregator, S": Power(0, 0, 0, 0) if flat else grows(s, each),
        "aggregator, D": grows(d, _column(by_entries, "aggregator")),
    }


def _claim(rows: Sequence[Row], protocol: str) -> Claim:
    site, aggregator = _PRINTED[protocol]
    fits = _fits(rows, protocol)
    s, d = fits["site, S"].exponent, fits["site, D"].exponent
    ss, dd = 1 + fits["aggregator, S"].exponent, fits["aggregator, D"].exponent
    least = 0 if protocol.startswith("compute") or protocol == "conventional" else 1
    holds = s <= least + _CLOSE and ss <= 1 + least + _CLOSE and abs(d - 1) < _CLOSE and abs(dd - 1) < _CLOSE
    _, many, short, long = _corners(rows)
    largest = _values(rows, protocol, sites=many, entries=long)[0]
    why = {
        "cape-gaussian": "Two vectors up and one down for each site: noise, its announced sum, message.",
        "cape": "Secure aggregation of the noisy vector itself: one vector up. Above 50 sites a site has "
        "fewer neighbours than there are sites, so the part in S grows more slowly.",
        "secure-aggregation": "One vector up; keys and shares of every other site: S at a site, S² in all.",
        "conventional": "One vector up and nothing else, as short as it can be; but sqrt(S) times the noise.",
    }.get(protocol, "M shares of the vector up from each site; nothing grows with S at a site.")
    return Claim(
        _WHERE,
        f"{_LABELS[protocol]}: {site} at a site, {aggregator} at the aggregator.",
        f"At a site S^{s:.2f} (D = {short:,}) and D^{d:.2f}; at the aggregator S^{ss:.2f} and D^{dd:.2f}. At "
        f"S = {many}, D = {long:,}: {_size(largest['site'])} and {_size(largest['aggregator'])}.",
        holds,
        why,
    )


def _totals(rows: Sequence[Row]) -> list[Claim]:
    few, many, short, long = _corners(rows)

    def site(protocol: str, sites: int, entries: int) -> float:
        return _number(_values(rows, protocol, sites=sites, entries=entries)[0]["site"])

    paper, ring = (
        site(name, many, long) / site("secure-aggregation", many, long) for name in ("cape-gaussian", "cape")
    )
    rest = {
        (s, d): (site("cape-gaussian", s, d) - site("secure-aggregation", s, d)) / (8 * d)
        for s, d in ((few, short), (few, long), (_same_graph(rows), long))
    }
    exact = all(
        _number(row["aggregator_received"]) == 8 * (s + 1) * d * _number(row["neighbours"])
        for row in rows
        if str(row["protocol"]).startswith("compute")
        for s, d in [(_number(row["sites"]), _number(row["entries"]))]
    )
    return [
        Claim(
            _WHERE,
            "CAPE has the same order of communication as secure aggregation by Bonawitz et al.",
            f"The same powers; at S = {many}, D = {long:,} a site handles {paper:.2f} times the bytes with "
            f"the paper's algorithm, and {ring:.2f} times with ring masks.",
            all(_same_powers(rows, name, "secure-aggregation") for name in ("cape-gaussian", "cape")),
            "Zero-sum noise can be made ahead, for many releases in one run; then a release is one message.",
        ),
        Claim(
            "Appendix A",
            "Beside secure aggregation CAPE requires Θ(D) at a site.",
            "The paper's algorithm less secure aggregation, in vectors of 8 D bytes: "
            + ", ".join(f"{vectors:.3f} at S = {s}, D = {d:,}" for (s, d), vectors in rest.items())
            + ".",
            all(abs(vectors - 2) < _CLOSE for vectors in rest.values()),
            "The announced sum of the noise comes down, and the message goes up.",
        ),
        Claim(
            "Appendix A",
            "The scheme of Heikkilä et al. costs (S + 1) D M.",
            f"{'Exactly' if exact else 'Not exactly'} 8 (S + 1) D M bytes on the wire. A site handles "
            f"{_size(site('compute-nodes-3', few, long))} with M = 3 at S = {few}, D = {long:,}, against "
            f"{_size(site('cape-gaussian', few, long))} with the paper's algorithm and "
            f"{_size(site('cape', few, long))} with ring masks; at S = {many}, D = {short:,} it is "
            f"{_size(site('compute-nodes-3', many, short))} against "
            f"{_size(site('cape-gaussian', many, short))} and {_size(site('cape', many, short))}.",
            exact,
            "For short vectors compute nodes send less: no keys, no shares, no answer when a site is lost.",
        ),
    ]


def _same_graph(rows: Sequence[Row]) -> int:
    """Return the most sites for which all are neighbours in both protocols."""
    return max(
        int(_number(row["sites"]))
        for row in _values(rows, "cape-gaussian")
        if _number(row["neighbours"]) >= _number(row["sites"]) - 1
    )


def _same_powers(rows: Sequence[Row], ours: str, theirs: str) -> bool:
    """Return whether no power of ours is larger."""
    a, b = _fits(rows, ours), _fits(rows, theirs)
    return all(a[name].exponent <= b[name].exponent + _CLOSE for name in a)


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _size(value: object) -> str:
    size = _number(value)
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.0f} B"


def _powers(rows: Sequence[Row]) -> str:
    few, _, short, _ = _corners(rows)
    lines = [
        f"Fitted powers (a + b x^p): in S at D = {short:,}, in D at S = {few}; 0 where nothing grows.\n",
        "| protocol | site, printed | in S | in D | aggregator, printed | in S | in D |",
        "|---|---|---|---|---|---|---|",
    ]
    for protocol, (site, aggregator) in _PRINTED.items():
        p = {name: fit.exponent for name, fit in _fits(rows, protocol).items()}
        lines.append(
            f"| {_LABELS[protocol]} | {site} | {p['site, S']:.2f} | {p['site, D']:.2f} | {aggregator} "
            f"| {1 + p['aggregator, S']:.2f} | {p['aggregator, D']:.2f} |"
        )
    return "\n".join(lines)


def _bytes(rows: Sequence[Row]) -> str:
    entries = sorted({int(d) for d in _column(rows, "entries")})
    lines = ["Bytes that a site / the aggregator sends and receives:\n"]
    lines += [
        "| protocol | S | " + " | ".join(f"D = {d:,}" for d in entries) + " |",
        "|---" * (2 + len(entries)) + "|",
    ]
    for protocol in _PRINTED:
        for sites in sorted({int(s) for s in _column(rows, "sites")}):
            found = [_values(rows, protocol, sites=sites, entries=d)[0] for d in entries]
            cells = " | ".join(f"{_size(row['site'])} / {_size(row['aggregator'])}" for row in found)
            lines.append(f"| {_LABELS[protocol]} | {sites} | {cells} |")
    return "\n".join(lines)


def _picture(rows: Sequence[Row]) -> Picture:
    _, many, short, _ = _corners(rows)
    picture, grid = style.new(
        2, 2, (10, 8), "Table 1: bytes sent and received for one sum of D numbers over S sites"
    )
    for line, who in zip(grid, ("site", "aggregator"), strict=True):
        panels = (
            ("sites", {"entries": short}, f"D = {short:,}"),
            ("entries", {"sites": many}, f"S = {many}"),
        )
        for axes, (x, at, title) in zip(line, panels, strict=True):
            for protocol, (colour, look) in _LOOKS.items():
                found = _values(rows, protocol, **at)
                axes.loglog(
                    _column(found, x),
                    _column(found, who),
                    look,
                    color=colour,
                    ms=5,
                    lw=1.6,
                    label=_LABELS[protocol],
                )
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            axes.yaxis.set_major_formatter(lambda value, _: _size(value))
            axes.yaxis.set_minor_formatter(lambda value, _: "")
            seen = [size for protocol in _LOOKS for size in _column(_values(rows, protocol, **at), who)]
            axes.set_ylim(10 ** math.floor(math.log10(min(seen))), 10 ** math.ceil(math.log10(max(seen))))
            if x == "sites":
                axes.set_xticks(sorted({int(s) for s in _column(rows, "sites")}))
                axes.minorticks_off()
            words = "sites S" if x == "sites" else "entries D"
            style.tidy(
                axes,
                f"{'one site' if who == 'site' else 'the aggregator'}, {title}",
                words,
                "sent and received",
            )
    style.legend(picture, grid[0][0], 3)
    return picture


FIGURE = Table1()
