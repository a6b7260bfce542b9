"""Private training of any torch module (an extra): clipped per-record gradients, step by step, and which
modules are refused.

Not here: networks without torch (`learning`). No other package imports torch.

Inside this folder `import torch` is torch itself: imports are absolute here.
"""

from cape.core.errors import MissingExtra

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtra("torch", "cape.torch") from None

from cape.torch.clipped import ClippedSum, ClippedSums, clipped_sum
from cape.torch.rounding import rounding_slack
from cape.torch.train import Trained, train

__all__ = ["ClippedSum", "ClippedSums", "Trained", "clipped_sum", "rounding_slack", "train"]
