"""Learning in many iterations, each of which is one release: networks, any gradient, k-means, optimisers,
checkpoints.

Not here: how gradients are clipped (`blocks/clipped`, `torch`), and regressions, whose steps are few
(`analyses/regression`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cape.core.lazy import exports

if TYPE_CHECKING:
    from cape.learning.descent import Descent, Diverged, Training
    from cape.learning.gradient_descent import GradientDescent
    from cape.learning.kmeans import KMeans
    from cape.learning.neural_network import NeuralNetwork
    from cape.learning.optimisers import SGD, Adam, Momentum, Optimiser
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "cape.learning.descent": ["Descent", "Diverged", "Training"],
            "cape.learning.gradient_descent": ["GradientDescent"],
            "cape.learning.kmeans": ["KMeans"],
            "cape.learning.neural_network": ["NeuralNetwork"],
            "cape.learning.optimisers": ["SGD", "Adam", "Momentum", "Optimiser"],
        },
    )

__all__ = [
    "SGD",
    "Adam",
    "Descent",
    "Diverged",
    "GradientDescent",
    "KMeans",
    "Momentum",
    "NeuralNetwork",
    "Optimiser",
    "Training",
]
