"""The ten main claims of the paper, each with the verdicts of the claims that test it.

A main claim names claims of figures by how their text begins. Its verdict is theirs together: it holds if all
of them hold and does not if none does; between the two, more or fewer than half of them hold. A claim of a
guarantee does not hold if it fails anywhere. What holds instead is written here in words; figures stand with
the single claims, which are measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["MAIN_CLAIMS", "Judged", "MainClaim", "table"]

_WORDS = {True: ("holds", "hold"), False: ("does not", "do not"), None: ("is open", "are open")}


@dataclass(frozen=True)
class Judged:
    """One claim of a figure: the figure's name, what the paper says, and whether it holds (None: open)."""

    figure: str
    says: str
    holds: bool | None


@dataclass(frozen=True)
class MainClaim:
    """What the paper says, what holds, and patterns of the claims that test it, each with a figure's name."""

    says: str
    instead: str
    tested: tuple[tuple[str, str], ...]
    everywhere: bool = False

    def parts(self, claims: Sequence[Judged]) -> list[Judged]:
        """Return the claims that test it."""
        return [
            claim
            for claim in claims
            if any(claim.figure == figure and re.match(begins, claim.says) for figure, begins in self.tested)
        ]


MAIN_CLAIMS = (
    MainClaim(
        "The sum over sites has the noise of pooled data, though no site trusts another.",
        "At the same noise tau_s at each site, yes. At the same true (epsilon, delta) it has S / (S - C) "
        "times the variance with ring masks, C of S sites colluding, which is the least possible, and "
        "more with the paper's variances.",
        (("figure-6", "CAPE leaves the same noise"), ("figure-6", "CAPE has the same error as the pooled")),
    ),
    MainClaim(
        "The variance is S times smaller than that of the conventional scheme.",
        "S times at the same tau_s. At the same true (epsilon, delta) it is S - C times with ring masks.",
        (("figure-6", "The gain"),),
    ),
    MainClaim(
        "Theorem 1: the algorithm is (epsilon, delta)-private with the printed delta, against S_C "
        "colluding sites.",
        "The loss is up to 2.5 times the printed one in mu². With few sites a loose tail bound hides "
        "that; with many the printed delta is too small. CAPE accounts exactly.",
        (
            ("figure-5", "The algorithm guarantees"),
            ("figure-6", "The printed delta is guaranteed"),
            ("figure-3", "capeFM with the paper's noise"),
            ("figure-4", "capeFM with the paper's noise"),
        ),
        everywhere=True,
    ),
    MainClaim(
        "Delta is always smaller than that of the conventional scheme, for every tau and number of "
        "colluding sites.",
        "Holds with the printed delta and with the exact one.",
        (("figure-5", "delta is always smaller"), ("figure-6", "delta is always smaller")),
        everywhere=True,
    ),
    MainClaim(
        "A network trained with CAPE is better than with the conventional scheme, converges faster, and "
        "reaches the accuracy without privacy at a moderate epsilon.",
        "Holds at the same epsilon per iteration. At the same total (epsilon, delta) the difference is "
        "within chance at most settings.",
        (
            ("figure-2", "Both private algorithms"),
            ("figure-2", "CAPE (performs|reaches|outperforms)"),
            ("figure-2", "Accuracy of the private algorithms"),
            ("figure-2", "Gradient descent converges"),
            ("figure-2", "The same versus N"),
            ("figure-2", "Trained for 500"),
        ),
    ),
    MainClaim(
        "capeFM is better than dp-fm, objective perturbation, the conventional scheme and one site alone.",
        "As published, and if each row has length 1, it is better than three of them from epsilon = 0.5 "
        "on. At the same true (epsilon, delta) it is not everywhere, and it is not better than objective "
        "perturbation as Chaudhuri et al. define it.",
        (
            ("figure-3", "(True loss|capeFM clearly)"),
            ("figure-7", "capeFM clearly"),
        ),
    ),
    MainClaim(
        "Errors fall as epsilon, N and delta grow, down to those without privacy.",
        "Holds on synthetic data where epsilon is large; many rows alone do not suffice.",
        (
            ("figure-3", "(As |Smaller|For sufficiently|With small)"),
            ("figure-7", "(err_w decreases|For data with fewer|The decrease with N)"),
        ),
    ),
    MainClaim(
        "On real data (Crime, Twitter) capeFM orders as on synthetic data and predicts usefully.",
        "It is often worse than predicting 0. CAPE's own regression predicts better than that from a "
        "small epsilon on Crime and a moderate one on Twitter.",
        (("figure-4", "(True loss|capeFM clearly|capeFM gives|For large N|As |The loss falls)"),),
    ),
    MainClaim(
        "The published errors and curves.",
        "Within a factor 2 on synthetic data if each row, not only the longest one, has length 1; dp-fm "
        "and the real data differ.",
        (
            ("figure-3", "The published quantity"),
            ("figure-4", "The published quantity"),
            ("figure-7", "(err_w at|err_w of|The err_w)"),
        ),
    ),
    MainClaim(
        "Communication has the order of secure aggregation: O(S + D) at a site.",
        "Holds. With ring masks it needs as many bytes as secure aggregation alone.",
        (("table-1", "."),),
    ),
)


def table(claims: Sequence[Judged]) -> Iterator[str]:
    """Yield the lines of the table; a main claim whose figures were not drawn says so."""
    yield "| | the paper claims | verdict | what holds | tested by |"
    yield "|---|---|---|---|---|"
    for number, main in enumerate(MAIN_CLAIMS, 1):
        parts = main.parts(claims)
        yield f"| {number} | {main.says} | {_verdict(main, parts)} | {main.instead} | {_tested(parts)} |"


def _verdict(main: MainClaim, parts: Sequence[Judged]) -> str:
    found = [part.holds for part in parts]
    if not found:
        return "Not drawn"
    if all(found):
        return "**Holds**"
    if (True not in found and None not in found) or (main.everywhere and False in found):
        return "**Does not hold**"
    more = 2 * found.count(True) - len(found)
    return "**Holds mostly**" if more > 0 else "**Mostly does not**" if more < 0 else "**In part**"


def _tested(parts: Sequence[Judged]) -> str:
    figures = list(dict.fromkeys(part.figure for part in parts))
    counted = [(sum(part.holds is holds for part in parts), words) for holds, words in _WORDS.items()]
    counts = ", ".join(f"{many} {words[many > 1]}" for many, words in counted if many)
    return f"{', '.join(f'[{name}](#{name})' for name in figures)}: {counts}" if parts else "–"
