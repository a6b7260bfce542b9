"""Arguments that are not what they should be are refused by CAPE's own errors."""

from __future__ import annotations

import numpy as np
import pytest

from cape.analyses.describe.pca import PCA
from cape.analyses.describe.pca_model import PCAModel
from cape.analyses.regression.linear import LinearRegression
from cape.blocks.design import Design
from cape.core.errors import InvalidInput
from cape.data import Number, Schema
from cape.engine.arguments import features_of, names
from cape.learning.kmeans import KMeans


@pytest.mark.parametrize("given", [5, None, {"a": 1}, "ab", b"ab", 1.5])
def test_what_is_no_list_of_names_is_refused(given):
    with pytest.raises(InvalidInput, match="columns must be"):
        names(given)


@pytest.mark.parametrize("given", [5, None, {"a": 1}, [1], [["a"]]])
def test_columns_of_analyses_are_names(given):
    with pytest.raises(InvalidInput, match=r"columns must be|must have features"):
        LinearRegression("y", given)
    with pytest.raises(InvalidInput, match="columns must be"):
        KMeans(given, 2)
    with pytest.raises(InvalidInput, match="columns must be"):
        PCA(given, "b")


def test_the_name_intercept_is_kept_for_the_intercept():
    with pytest.raises(InvalidInput, match="called 'intercept'"):
        LinearRegression("y", ["a", "intercept"])
    assert features_of("intercept", False) == ("intercept",)
    assert LinearRegression("y", "intercept", intercept=False).features == ("intercept",)


@pytest.mark.parametrize("scores", [[["a"]], [[1.0], [2.0, 3.0]], "a", None, [1.0]])
def test_scores_of_components_are_numbers(scores):
    model = PCAModel(
        Design(("a",)),
        Schema(a=Number(0, 1)),
        np.ones((1, 1)),
        np.ones(1),
        np.ones(1),
        np.zeros(1),
        (),
        (True,),
        9.0,
    )
    with pytest.raises(InvalidInput, match="scores"):
        model.inverse_transform(scores)
