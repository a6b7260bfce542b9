"""A bet on one person, as a sentence: what a guarantee means for somebody who has to guess."""

from __future__ import annotations

from cape.show.numbers import at_most

__all__ = ["bet"]


def bet(won: float, neighbours: str, seen: str) -> str:
    """Return how often somebody who has `seen` this wins at most, of bets on what `neighbours` leaves open.

    `won` is that share (`cape.privacy.laplace.bet`): the same sentence for everybody who reads of a study.
    """
    what = (
        "whether a person is in the data"
        if neighbours == "add-remove"
        else "which of two things a person's record says, for instance ill or healthy"
    )
    return (
        f"Suppose that somebody knows the records of everybody else, and bets 1 to 1 on {what}. Tossing a "
        f"coin, they would be right 50% of the time. With {seen} they would be right at most {at_most(won)} "
        "of the time."
    )
