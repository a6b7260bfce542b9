"""What a study would cost a person, and what would be left, in words for readers who do not compute."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from cape.desk.site.pictures import meter
from cape.show import bets
from cape.show.numbers import at_most, count
from cape.site.admin.data import Limit, People, Study

__all__ = [
    "Allowed",
    "allowances",
    "at_most",
    "bet",
    "delta",
    "epsilon",
    "short",
    "strength",
    "time",
    "touched",
]


def epsilon(value: float) -> str:
    """Return an epsilon to three digits."""
    return f"{value:.3g}" if math.isfinite(value) else "without limit"


def delta(value: float) -> str:
    """Return a delta as a number, and as how often it may happen."""
    return f"{value:g} (once in {round(1 / value):,})"


def strength(bet: float) -> str:
    """Return how well people are protected, in the words of docs/choosing-epsilon.md, by the bet.

    The bounds are those of epsilon 1, 3 and 10 at delta 1e-6. An epsilon without delta has another bet.
    """
    for most, told in ((0.55, "strong protection"), (0.63, "moderate protection"), (0.83, "weak protection")):
        if bet <= most:
            return told
    return "hardly any protection"


def time(at: str) -> str:
    """Return a time (UTC) without seconds."""
    return at[:16].replace("T", " ")


def bet(study: Study) -> str:
    """Return what a study costs each person, as a bet."""
    return bets.bet(study.bet, study.neighbours, "all answers of this study")


def short(study: Study) -> str:
    """Return what a study wants, and its price, in two sentences."""
    asked, read = count(len(study.analyses), "question"), count(len(study.columns), "column")
    if study.coordinator is None:
        price = "Whatever you decide, nothing is answered to somebody whose key your policy does not have."
        return f"Somebody asks {asked} about {read} of your table. {price}"
    price = (
        f"Approving it costs each person epsilon {epsilon(study.cost)}: somebody who bets on one of them "
        f"would be right at most {at_most(study.bet)} of the time, instead of 50%."
        if study.answered
        else "Approving it costs nobody anything, because your policy answers nothing of it."
    )
    return f"{study.who} asks {asked} about {read} of your table. {price}"


@dataclass(frozen=True)
class Allowed:
    """A limit of the policy: what is spent, what would be after a study, and what would be left."""

    name: str
    words: str
    picture: Markup
    exceeded: bool


def allowances(limits: tuple[Limit, ...]) -> list[Allowed]:
    """Return the policy's limits, each as a sentence and a picture."""
    found = []
    for each in limits:
        exceeded = not each.after <= each.epsilon
        left = max(each.epsilon - each.after, 0.0)
        words = f"epsilon {epsilon(each.spent)} of {each.epsilon:g} spent"
        if each.after > each.spent:
            words += f", {epsilon(each.after)} after it"
        words += ": more than allowed" if exceeded else f"; {epsilon(left)} left"
        about = f"{each.name}: {words}"
        found.append(Allowed(each.name, words, meter(each.spent, each.after, each.epsilon, about), exceeded))
    return found


def touched(study: Study, people: People) -> str:
    """Return whose records a study touches."""
    if people.count is None:
        return "Everybody in your table. It cannot be read now; see Data."
    told = "1 person" if people.count == 1 else f"{people.count:,} people"
    if study.where:
        return f"Of the {told} in your table, those with {study.where}. The others are not counted."
    return f"All {told} in your table."
