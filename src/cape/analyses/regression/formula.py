"""A formula such as "sbp ~ age * sex + spline(bmi, 4) + site", expanded to a target and terms.

Formulaic's parser (an extra, imported when a formula is given) says which terms a formula has. Nothing of it
looks at rows: what a term is made of follows from public bounds and categories (`cape.blocks.design`), and a
formula that would depend on data is refused. Only who asks needs it: studies and requests hold the terms.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from cape.analyses.parse_analysis import SELECTION
from cape.blocks.terms import parse, quoted
from cape.core import check
from cape.core.errors import InvalidInput, MissingExtra

__all__ = ["expand", "target_and_features"]

_LONGEST = 10_000
_MOST_TERMS = 500
_EXAMPLE = "as in 'sbp ~ age * sex + spline(bmi, 4) + site'"
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_PLACE = re.compile("⧛(.*?)⧚", re.DOTALL)
_PUBLIC = "the categories of a column are public and stand in the schema"
_ASKS_DATA = {  # functions of formulaic and patsy whose values depend on all rows
    **dict.fromkeys(
        ("bs", "cr", "cc", "cs", "ns", "te", "cubic_spline", "basis_spline"),
        "its knots would depend on the data; write spline(column, 4), whose knots divide the public bounds",
    ),
    "poly": "its polynomials would depend on the data; write spline(column, 4), or derive powers in [derive]",
    **dict.fromkeys(
        ("scale", "center", "standardize"),
        "a mean or a standard deviation of the data would be used; bounds do that here, for every column",
    ),
    **dict.fromkeys(("step", "stepwise", "select"), SELECTION),
    **dict.fromkeys(("C", "contr", "hashed", "lag"), f"{_PUBLIC}; write the column's name alone"),
}


def target_and_features(target: Any, features: Any, formula: Any) -> tuple[Any, Any]:
    """Return the target and the features of a regression, which a formula may say instead.

    What is not a formula's is returned as it was given: the analysis checks it.
    """
    if formula is None:
        for name, given in (("a target", target), ("features, a list of names,", features)):
            if given is None:
                raise InvalidInput(f"a regression must have {name} or a formula, {_EXAMPLE}")
        return target, features
    if target is not None or features is not None:
        raise InvalidInput("a formula says target and features: give either the formula or these")
    found, terms = expand(formula)
    if found is None:
        raise InvalidInput(f"formula {check.show(formula)} must have a target and '~', {_EXAMPLE}")
    return found, terms


def expand(formula: Any) -> tuple[str | None, tuple[str, ...]]:
    """Return the target of a formula, None if it has none, and its terms, those of fewer factors first."""
    if not isinstance(formula, str) or not formula.strip():
        raise InvalidInput(f"formula must be text, {_EXAMPLE}, not {check.show(formula)}")
    if len(formula) > _LONGEST:
        raise InvalidInput(f"formula must have at most {_LONGEST} characters, not {len(formula)}")
    if "|" in re.sub("`[^`]*`", "", formula):
        raise InvalidInput(
            f"formula {check.show(formula)} must have no '|': random effects are given by random = "
            "['intercept'] of a mixed model, as in MixedModel(formula='rate ~ age', random=['intercept'])"
        )
    left, right = _sides(formula)
    target = None
    if left is not None:
        if len(left) != 1 or len(left[0]) != 1 or _kind(left[0][0]) != "lookup":
            raise InvalidInput(
                f"formula {check.show(formula)}: the target must be one column; derive one in [derive] where "
                "it is to be computed"
            )
        target = str(left[0][0].expr)
    if () not in right:
        raise InvalidInput(
            f"formula {check.show(formula)} leaves out the intercept; leave out '- 1' or '0 +', and set "
            "intercept = false if the middle of all bounds is to predict the middle of the target's"
        )
    terms = [":".join(_text(factor, formula) for factor in term) for term in right if term]
    if not terms:
        raise InvalidInput(f"formula {check.show(formula)} must have a term on its right side, {_EXAMPLE}")
    ordered = sorted(dict.fromkeys(terms), key=lambda each: len(parse(each).factors))
    return target, tuple(str(parse(term)) for term in ordered)


def _sides(formula: str) -> tuple[list[tuple[Any, ...]] | None, list[tuple[Any, ...]]]:
    """Return the terms of both sides, each a tuple of factors; that of the intercept is empty."""
    try:
        from formulaic.errors import FormulaicError
        from formulaic.parser import DefaultFormulaParser
    except ImportError:
        raise MissingExtra("formula", "a formula") from None
    parser = DefaultFormulaParser()
    try:
        tree = parser.get_ast(formula)
        if tree is None or _size(tree, formula) > _MOST_TERMS:
            raise InvalidInput(f"formula {check.show(formula)} must expand to 1 to {_MOST_TERMS} terms")
        found = parser.get_terms(formula)
    except FormulaicError as error:
        raise InvalidInput(f"formula {check.show(formula)}: {_reason(str(error), formula)}") from None
    except RecursionError:
        raise InvalidInput(f"formula {check.show(formula)} is nested too deeply") from None
    sides = found._to_dict() if hasattr(found, "_to_dict") else {"root": found}
    left, right = sides.get("lhs"), sides.get("rhs", sides.get("root"))
    if isinstance(right, (tuple, list, dict)) or isinstance(left, (tuple, list, dict)) or right is None:
        raise InvalidInput(f"formula {check.show(formula)} must have one '~' and no '|', {_EXAMPLE}")
    return None if left is None else _factors(left), _factors(right)


def _factors(terms: Any) -> list[tuple[Any, ...]]:
    found = []
    for term in terms:
        factors = tuple(factor for factor in term.factors if str(factor.expr) != "1")
        found.append(factors)
    return found


def _kind(factor: Any) -> str:
    return str(factor.eval_method.value)


def _size(node: Any, formula: str) -> int:
    """Return how many terms a tree has at most, before anything is multiplied out."""
    if not hasattr(node, "operator"):
        return 1
    sign = str(node.operator)
    if sign == ".":
        raise InvalidInput(
            f"formula {check.show(formula)}: '.' stands for all columns of a table, which are not the same "
            "at every site; name the columns"
        )
    sizes = [_size(arg, formula) for arg in node.args]
    if sign in ("**", "^"):
        power = str(node.args[1])
        if not power.isdigit():  # the parser says what is wrong
            return sizes[0]
        return min(int((sizes[0] + 1) ** int(power[:3])), _MOST_TERMS + 1)
    if sign in ("*", ":", "/", "in", "%in%") and len(sizes) == 2:
        return min(sizes[0] * sizes[1] + sum(sizes) * (sign != ":"), _MOST_TERMS + 1)
    return min(sum(sizes), _MOST_TERMS + 1)


def _text(factor: Any, formula: str) -> str:
    """Return a factor of formulaic's as one of ours."""
    expression = str(factor.expr)
    if _kind(factor) == "lookup":
        return quoted(expression)
    if re.fullmatch(r"spline\s*\(.*\)", expression, re.DOTALL):
        return str(parse(expression))
    try:
        called = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        called = None
    name = called.func.id if isinstance(called, ast.Call) and isinstance(called.func, ast.Name) else None
    where = f"formula {check.show(formula)}: {expression!r} is refused"
    if name in _ASKS_DATA:
        raise InvalidInput(f"{where}: {_ASKS_DATA[name]}")
    raise InvalidInput(
        f"{where}: a term is a column, an interaction such as age:sex, or spline(column, 4); what is "
        "computed from columns is a column of its own, under [derive] in the study file or in Schema.deriving"
    )


def _reason(text: str, formula: str) -> str:
    """Return what formulaic says, in one line, and the place in the formula that it marks."""
    plain = _COLOURS.sub("", text)
    said, _, marked = plain.partition("\n\n")
    found = _PLACE.search(marked or plain)
    said = " ".join(_PLACE.sub(r"\1", said).replace("insuffient", "insufficient").split())
    if found is None:
        return said
    return f"{said.rstrip('.')}, at {found[1]!r} (character {marked.find('⧛') + 1})"
