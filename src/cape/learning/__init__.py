"""Iterative learning: every training step is one release, and the next query depends on its answer."""

from cape.learning.descent import Descent, Diverged, Training
from cape.learning.gradient_descent import GradientDescent
from cape.learning.kmeans import KMeans
from cape.learning.neural_network import NeuralNetwork
from cape.learning.optimisers import SGD, Adam, Momentum, Optimiser

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
