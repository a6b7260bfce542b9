"""Small wrong edits of the code that guards privacy, each with the suite that must fail when it is made.

Claim. What is reported as killed was killed by its suite: the edit was made in the very code that the tests
imported, and the same suite passes without it.
Reason. An edit is made in a copy of `src` that stands first on the path of the tests. It must apply exactly
once, compile, and change the syntax tree; a suite that fails without an edit kills nothing, and is an error.
Tested in tests/unit/assured/test_mutants.py, with a package of its own.

An edit names a function by its qualified name (`Site._reveal`), searched over the whole package, and not by
a path: files move. The lists are TOML, one file for each package; what cannot be told from the right code by
any test is no mutant, and is not listed. If one survives, a test is missing.
"""

from __future__ import annotations

from assurance.mutants.edits import Mutant, load, names
from assurance.mutants.harness import Outcome, mutants, sample

__all__ = ["Mutant", "Outcome", "load", "mutants", "names", "sample"]
