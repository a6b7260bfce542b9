"""The privacy certificate of a study: one page for an ethics board, made from this very run."""

from __future__ import annotations

import math
from html import escape

from cape import __version__
from cape.app import words
from cape.app.results import Results
from cape.show import Table, html
from cape.study.document import document, hash_of

__all__ = ["certificate"]


def certificate(results: Results) -> str:
    """Return the promise to each person, what was done and what it rests on, as a section of one page."""
    study, guarantee = results.study, results.guarantee
    if not results.answered or not math.isfinite(guarantee.mu):
        return ""
    sites = ", ".join(dict.fromkeys(name for each in results.answered for name in each.release.participants))
    facts: list[tuple[str, str]] = [
        ("Study", study.name),
        ("Sites that took part", sites),
        ("Questions answered", "; ".join(each.release.describe() for each in results.answered)),
        ("Columns read", ", ".join(study.setting.schema)),
        ("What is protected", words.protected(guarantee)),
        ("Privacy loss of all answers together", words.loss(guarantee)),
        ("Budget of the study", f"{results.budget}"),
        ("Holds against", words.adversary(guarantee)),
        ("Fingerprint of the study file", hash_of(document(study) | {"scheme": results.scheme})[:32]),
        ("Made", f"{results.finished:%Y-%m-%d %H:%M UTC}, by cape {__version__}"),
    ]
    assumed = words.assumptions(study.setting, results.scheme)
    return (
        '<section class="certificate" id="certificate"><h2>Privacy certificate</h2>'
        f"<p>{escape(words.bet(guarantee))}</p>"
        f"{html.table(Table(('fact', 'in this study'), tuple(facts)), 'words')}"
        f"<h3>It rests on</h3><ul>{''.join(f'<li>{escape(text)}</li>' for text in assumed)}</ul>"
        '<p class="note">No site sent a row. Each sent sums with noise of its own, masked so that '
        "only the total could be read. A release cannot be taken back, and a second run adds to the "
        "loss.</p></section>"
    )
