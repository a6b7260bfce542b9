"""Of a release without noise nothing says that there was some; of one with noise everything does."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import cape
from cape.analyses.registry import KINDS, build
from cape.show.noiseless import noiseless, noiseless_table
from cape.show.tables import Table

SCHEMA = cape.Schema(age=(18, 90), chol=(100, 400), sex=["female", "male"], disease=["no", "yes"])


def released(kind, scheme):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "age": rng.uniform(20, 80, 600),
            "chol": rng.normal(220, 40, 600).clip(100, 400),
            "sex": rng.choice(["female", "male"], 600),
            "disease": rng.choice(["no", "yes"], 600),
        }
    )
    parts = {name: frame[i::3] for i, name in enumerate("abc")}
    asked = build({"kind": kind, **KINDS[kind].example})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cape.Consortium(parts, SCHEMA, cape.Budget(3.0, 1e-6)).release(asked, share=1.0, scheme=scheme)


def said(release):
    """Return all that is said: notes, findings, heads, titles and captions."""
    texts = [*release.notes(), *release.findings()]
    for table in release.tables():
        texts += [*table.columns, table.title, table.caption]
    return [*texts, *(figure.caption for figure in release.figures())]


@pytest.mark.parametrize("kind", [kind for kind, of in KINDS.items() if of.__module__.startswith("cape.")])
def test_without_noise_nothing_speaks_of_it(kind):
    texts = said(released(kind, "none"))
    assert not [text for text in texts if "noise" in text.lower() or "privacy" in text.lower()]
    for text in texts:  # what is left are sentences
        assert not any(wrong in text for wrong in ("  ", " .", " ,", ",.", ", ,", "[key]"))


@pytest.mark.parametrize("kind", ["glm", "cox", "log-rank", "mean", "contingency-table"])
def test_with_noise_it_is_spoken_of(kind):
    assert any("noise" in text.lower() or "privacy" in text.lower() for text in said(released(kind, "cape")))


def test_the_rest_of_a_text_stays():
    assert noiseless("Standard errors are robust, and count the noise.") == "Standard errors are robust."
    assert noiseless("Log-rank test, privacy noise counted: P = 0.2.") == "Log-rank test: P = 0.2."
    assert noiseless(
        "Lines are intervals; [key] marks the part of an interval that comes from privacy noise. More."
    ) == ("Lines are intervals. More.")
    assert noiseless("noisy knees") == "noisy knees"
    table = Table(("", "value", "from privacy"), (("a", "1", "0.1"), ("head",)), "t", drop=(2, 1), drawn=2)
    assert noiseless_table(table) == Table(("", "value"), (("a", "1"), ("head",)), "t", drop=(1,))
