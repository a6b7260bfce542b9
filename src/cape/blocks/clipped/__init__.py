"""The sum over records of a network's gradients, each clipped: integers, without a gradient per record.

Not here: modules of torch (`torch`), and the steps of training (`learning`).

Claim. `clipped_sum` returns integers in units of clip 2^-40. When a record is added or removed, they change
by a vector of length at most 1 clip, certainly, whatever the records, the parameters, the order of the
rows, the chunks they come in, the BLAS and its threads. The count and the loss change by at most 1 and by
at most their bound.

Reason. (1) What a record adds depends on nothing but the record and the public parameters. Its inputs,
every layer's activations and signals, and the weights are rounded toward zero to grids that are chosen from
the parameters so that every weighted sum is a sum of whole multiples of one step of which fewer than 2^53
can ever come together: float64 does not round, so the order in which BLAS adds cannot matter. The same
holds for sums of squares. Everything else works on one number at a time with operations that IEEE 754
specifies exactly (exp and log are made of those here); none of them sees its neighbours. So there is no
last bit that another chunk or another place in it could change, and no slack is owed for it.
(2) It is not too long. The gradient of a layer is the outer product of its inputs (a, 1) and its signals d,
of length |d| sqrt(|a|² + 1). All signals are divided by the larger of the clip and that length over all
layers, times 1 - 2^-24, and rounded toward zero, which only shrinks; the length is computed from the very
numbers that are multiplied, with a relative error below 2^-40, which the factor covers.
(3) The sum is exact. On grids of 2^-b for the inputs and 2^-(40 - b) for the signals a product is a whole
number of 2^-40, by (2) at most 2^40 of them, so the sums of up to 8192 records fit float64's 2^53; such
chunks are added as int64.
(4) Nothing overflows: inputs lie in [-1, 1], so the parameters bound every sum, and activations that could
be too large for their grid are cut off at a public bound. A record with a cell that is not finite, or a
class that there is not, adds nothing.
(5) With one hidden layer of ReLUs and one output, signals are d_ik = q_i v_k or 0: one number per record
times a weight. Then the sums of x_ij q_i over the records with active unit k are exact as above, and v_k
multiplies the total, in integers and rounded down once. That moves each parameter by less than one unit:
together less than 2^-27 clips for 2^26 parameters, which the factor of (2) covers as well.

With several records of a person, what they add up to is clipped again: `cape.blocks.clipped.persons`.
Tested in tests/unit/blocks/test_gradient.py: against a loop over records; what a record changes, in Python
integers, also with huge weights; under permutations, chunks and threads; every sum that BLAS makes, for a bit
that it could lose. A norm without its bias term is caught, and so is a grid that is left out.
"""

from __future__ import annotations

from cape.blocks.clipped.adder import BITS, LOSS_BITS, GradientSum
from cape.blocks.clipped.chunks import clipped_sum
from cape.blocks.clipped.records import Records

__all__ = ["BITS", "LOSS_BITS", "GradientSum", "Records", "clipped_sum"]
