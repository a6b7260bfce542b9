"""The guarantee and its assumptions, in words for readers who do not compute."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

from cape.core.check import plain
from cape.data.files import NULLS
from cape.data.troubles import Trouble
from cape.engine.execute import Progress
from cape.engine.result import ReleaseGuarantee
from cape.engine.schemes import SCHEMES
from cape.engine.stages import Setting
from cape.privacy import Budget
from cape.show import bets
from cape.show.numbers import count
from cape.study.sites import SourceSpec

__all__ = [
    "adversary",
    "assumptions",
    "bet",
    "budget",
    "capital",
    "count",
    "guarantee",
    "listed",
    "loss",
    "missing_cells",
    "percent",
    "protected",
    "sentence",
    "step",
]

_LONGEST = 2000  # signs of one line


def percent(share: float) -> str:
    """Return a share in percent, without needless digits: 6.1%, 25%, 0.032%."""
    value = 100 * share
    digits = 1 if value >= 1 else 1 - math.floor(math.log10(value)) if value > 0 else 0
    if 99.9 < value < 100:
        digits = 3
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def capital(text: str) -> str:
    """Return a text that starts with a capital."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return a text that starts with a capital and ends with a full stop."""
    return f"{capital(text).rstrip('.')}."


def step(done: Progress) -> str:
    """Return the progress of a run in steps: 'step 12 of 100, epsilon so far 0.41, 0.05 s per step'."""
    spent = f", epsilon so far {done.epsilon:.2g}" if math.isfinite(done.epsilon) else ""
    note = f", {done.note}" if done.note else ""
    return f"step {done.done:,} of {done.of:,}{spent}, {done.seconds:.2g} s per step{note}"


def budget(budget: Budget) -> str:
    """Return a budget in a sentence."""
    if budget.pure:
        return f"Budget: epsilon = {budget.epsilon:g}, no delta."
    return f"Budget: epsilon = {budget.epsilon:g}, delta = {budget.delta:g} (mu = {budget.mu:.4g})."


def protected(guarantee: ReleaseGuarantee) -> str:
    """Return whose data the guarantee is about, and what may change in it."""
    mine = "row" if guarantee.person is None else "rows"
    if guarantee.neighbours == "replace-one":
        return f"each person's {mine}, replaced by anyone else's"
    return f"each person's {mine}, and whether they are in the data at all"


def loss(guarantee: ReleaseGuarantee) -> str:
    """Return the privacy loss in one line."""
    if guarantee.pure is not None:
        return f"epsilon = {guarantee.pure:.4g} with no delta"
    return f"epsilon = {guarantee.epsilon:.4g} at delta = {guarantee.delta:g} (mu = {guarantee.mu:.4g})"


def adversary(guarantee: ReleaseGuarantee) -> str:
    """Return whom the guarantee holds against."""
    return SCHEMES[guarantee.scheme]().adversary(guarantee.parties)


def guarantee(guarantee: ReleaseGuarantee, seen: str = "all the answers together") -> list[str]:
    """Return paragraphs on what is guaranteed to one person against anyone who has `seen` this."""
    if not math.isfinite(guarantee.mu):
        return ["No noise was added: these answers are exact, and nobody is protected."]
    mine = "row" if guarantee.person is None else "rows"
    other = (
        f"if that person's {mine} had been replaced by anyone else's"
        if guarantee.neighbours == "replace-one"
        else "if that person had not been in the data at all"
    )
    exactly = (
        "exactly accounted."
        if guarantee.pure is None
        else "whatever is released would have been released then with at least "
        f"1/{math.exp(guarantee.pure):.4g} of the probability, {guarantee.sure}."
    )
    comma = "," if guarantee.pure is None else ":"
    return [
        f"Whatever somebody concludes about a person from {seen}, they would have concluded nearly the same "
        f"{other}. How nearly is a number that holds for every person and every adversary, whatever else the "
        f"adversary knows: {loss(guarantee)}{comma} {exactly}",
        bet(guarantee, seen),
        f"This holds against {adversary(guarantee)}.",
    ]


def bet(guarantee: ReleaseGuarantee, seen: str = "all the answers together") -> str:
    """Return what the guarantee means for an adversary who has `seen` this and has to guess."""
    said = bets.bet(guarantee.bet, guarantee.neighbours, seen)
    return f"As a bet: {said[:1].lower()}{said[1:]}"


def missing_cells(sites: Mapping[str, SourceSpec]) -> str:
    """Return what stands for a missing cell in the files of a study."""
    said = f"In files an empty cell and the words {', '.join(NULLS)}, in any case, stand for a missing cell"
    own = [f"at {name} also {', '.join(site.nulls)}" for name, site in sites.items() if site.nulls]
    if any(site.elsewhere for site in sites.values()):
        own.append("sites on machines of their own may name more")
    return "; ".join([said, *own]) + ". A listed category is never taken for missing."


def assumptions(setting: Setting, scheme: str) -> list[str]:
    """Return the assumptions of the guarantee, one sentence each."""
    person = setting.schema.person
    said = [
        "One row is one person: nobody has several, at one site or at several. (A study whose persons do "
        "says so under [person].)"
        if person is None
        else f"{person.sentence} A person has one id at a site, which stays there."
    ]
    said.append("The bounds and categories of the columns were given by people, not computed from the data.")
    if setting.sizes_public:
        held = "rows" if person is None else "persons"
        said.append(f"How many {held} each site holds is public.")
    said.append("Every release draws fresh noise; running the study again is a new release and costs again.")
    said += SCHEMES[scheme]().assumptions(setting.parties)
    return said


def listed(found: Sequence[Trouble], width: int, prefix: str = "") -> str:
    """Return troubles as lines of at most `width` signs, with hanging indents."""
    each = (f"  {prefix}{trouble}" for trouble in found)
    return "\n".join(
        textwrap.fill(plain(line, _LONGEST), width, subsequent_indent="      ", break_on_hyphens=False)
        for line in each
    )
