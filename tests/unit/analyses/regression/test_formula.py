from __future__ import annotations

from typing import Any

import pytest

import cape
from cape.analyses.registry import build
from cape.analyses.regression.formula import expand, target_and_features
from cape.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("formula", "target", "terms"),
    [
        (
            "sbp ~ age * sex + spline(bmi, 4) + site",
            "sbp",
            ("age", "sex", "spline(bmi, 4)", "site", "age:sex"),
        ),
        ("y ~ (a + b + c)**2", "y", ("a", "b", "c", "a:b", "a:c", "b:c")),
        ("y ~ a:b + a:b:c", "y", ("a:b", "a:b:c")),
        ("y ~ b:a + a:b + a + a", "y", ("a", "b:a")),
        ("y ~ a / b", "y", ("a", "a:b")),
        ("y ~ a * b - a:b", "y", ("a", "b")),
        ("`my y` ~ `a:b` + `c d`", "my y", ("`a:b`", "c d")),
        ("y ~ spline( bmi ,4):sex", "y", ("spline(bmi, 4):sex",)),
        (
            "y ~ spline(`a, b`, knots=[20, 25.5])",
            "y",
            ("spline(`a, b`, knots=[20, 25.5])",),
        ),
        ("~ age + sex", None, ("age", "sex")),
    ],
)
def test_a_formula_is_a_target_and_terms(formula: str, target: str | None, terms: tuple[str, ...]) -> None:
    assert expand(formula) == (target, terms)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("y ~ a +", "at '+' (character 7)"),
        ("y ~ (a", "at '(' (character 5)"),
        ("y ~ a $ b", "'$' (character 7)"),
        ("y ~ a ~ b", "at '~' (character 7)"),
        ("y ~ a | b", "no '|'"),
        ("y ~ a + (1|site)", "random effects are given by random = ['intercept'] of a mixed model"),
        ("y ~ step(a + b)", "features are not selected by the data here"),
        ("y ~ .", "name the columns"),
        ("y ~ 0 + a", "intercept = false"),
        ("y ~ a - 1", "intercept = false"),
        ("y ~ 1", "a term on its right side"),
        ("log(y) ~ a", "the target must be one column"),
        ("y + z ~ a", "the target must be one column"),
        ("y ~ C(a)", "write the column's name alone"),
        ("y ~ bs(a, 3)", "knots would depend on the data"),
        ("y ~ cr(a, df=3)", "knots would depend on the data"),
        ("y ~ poly(a, 2)", "would depend on the data"),
        ("y ~ scale(a)", "standard deviation of the data"),
        ("y ~ log(a)", "under [derive]"),
        ("y ~ {a + b}", "under [derive]"),
        ("y ~ 3:a", "under [derive]"),
        ("y ~ spline(a)", "write spline(column, 4)"),
        ("y ~ spline(a, 1)", "from 2 to 30 degrees of freedom"),
        ("y ~ spline(a, knots=[3, 2])", "rising"),
        ("y ~ " + "*".join("abcdefghijklmnop"), "to 500 terms"),
        ("y ~ (a + b)**999999999", "to 500 terms"),
        ("y ~ a**2.5", "positive integer"),
        ("", "must be text"),
        (["y", "a"], "must be text"),
        ("y ~ " + "a" * 20_000, "at most 10000 characters"),
    ],
)
def test_what_is_wrong_with_a_formula_is_said_with_its_place_and_what_to_write(
    formula: Any, said: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        expand(formula)
    assert said in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", [cape.LinearRegression, cape.LogisticRegression])
def test_a_formula_is_nothing_but_another_way_to_give_target_and_features(kind: Any) -> None:
    by_formula = kind(formula="y ~ age + sex", where="age > 3")
    assert by_formula == kind("y", ["age", "sex"], where="age > 3")
    said = by_formula.to_dict()
    assert "formula" not in said
    assert build(said) == by_formula


def test_a_formula_and_a_target_or_neither_are_refused() -> None:
    for given in (("y", None), (None, ["a"])):
        with pytest.raises(InvalidInput, match="either the formula or these"):
            target_and_features(*given, "y ~ a")
        with pytest.raises(InvalidInput, match="a regression must have"):
            target_and_features(*given, None)
    with pytest.raises(InvalidInput, match="must have a target"):
        target_and_features(None, None, "~ a")


def test_a_selection_of_features_is_refused_with_the_reason():
    said = "stepwise is refused: features are not selected by the data here, because each step would cost"
    with pytest.raises(InvalidInput, match=said):
        build({"kind": "linear-regression", "target": "y", "features": ["a"], "stepwise": True})
