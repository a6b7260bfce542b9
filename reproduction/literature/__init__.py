"""Methods of the literature for the same regressions, for comparison: a trusted curator, the whole budget.

Claim. Each is epsilon-differentially private (delta is not used) when one row is replaced, on paper. The
functional mechanism is so in integers too; the others minimise and draw in floats, so that theirs is what
the literature claims, not what the rest of this package proves of itself: a comparison, not a product.
Reason. `functional` and `erm` have the sensitivities, `noise` the samplers.
Tested in tests/unit/reproduction/literature/test_methods.py.
"""

from reproduction.literature.curator import Curator, methods_of
from reproduction.literature.methods import linear_methods, logistic_methods

__all__ = ["Curator", "linear_methods", "logistic_methods", "methods_of"]
