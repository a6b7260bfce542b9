from __future__ import annotations

import math

import numpy as np
import pytest

from cape.blocks.network import ACTIVATIONS, Network
from cape.core.errors import InvalidInput
from cape.noise import SecureStream

SEED = bytes(range(32))


def test_the_paper_s_network_has_as_many_parameters_as_it_says():
    network = Network(10, (5,))
    assert network.shapes == ((10, 5), (5, 1))
    assert network.size == 11 * 5 + 6
    assert Network(10).size == 11
    assert Network(784, (100, 50), 10).size == 785 * 100 + 101 * 50 + 51 * 10


def test_parameters_are_weights_then_biases_layer_by_layer():
    network = Network(2, (3,))
    first, second = network.matrices(np.arange(13.0))
    assert first.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert second.tolist() == [[9], [10], [11], [12]]


def test_forward_by_hand():
    network = Network(2, (2,))
    parameters = np.array([1.0, -1.0, 2.0, 0.5, 0.25, 0.0, 3.0, -2.0, 0.5])
    # units: relu(x0 + 2 x1 + 0.25) and relu(-x0 + 0.5 x1)
    x = [[0.5, 0.25], [-1.0, 0.5]]
    expected = [3 * 1.25 - 2 * 0.0 + 0.5, 3 * 0.25 - 2 * 1.25 + 0.5]
    assert network.forward(parameters, x)[:, 0].tolist() == expected
    assert network.predict(parameters, x) == pytest.approx([1 / (1 + math.exp(-e)) for e in expected])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_what_they_are_called(activation):
    network = Network(1, (1,), activation=activation, loss="squared")
    function = {
        "relu": lambda z: max(z, 0.0),
        "tanh": math.tanh,
        "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
        "identity": lambda z: z,
    }[activation]
    x = np.array([[-0.7], [0.0], [0.9]])
    got = network.predict(np.array([2.0, 0.1, 1.5, -0.2]), x)
    assert got == pytest.approx([1.5 * function(2 * v + 0.1) - 0.2 for v in x[:, 0]])


def test_classes_have_probabilities_that_sum_to_one_even_for_huge_scores():
    network = Network(2, outputs=3)
    x = np.array([[1.0, -1.0], [0.2, 0.1]])
    for scale in (1.0, 1e6):
        p = network.predict(network.initial(SEED) * scale, x)
        assert p.shape == (2, 3)
        assert p.sum(axis=1) == pytest.approx([1.0, 1.0])
        assert (
            np.argmax(p, axis=1).tolist() == np.argmax(network.forward(network.initial(SEED), x), 1).tolist()
        )


def test_a_huge_logit_is_a_probability_without_a_warning():
    network = Network(1)
    assert network.predict([1e6, 0.0], [[1.0], [-1.0]]).tolist() == [1.0, 0.0]


def test_several_targets_come_as_columns():
    assert Network(2, outputs=2, loss="squared").predict(np.zeros(6), np.zeros((4, 2))).shape == (4, 2)


def test_initial_weights_are_reproducible_and_spread_as_he_and_glorot_say():
    relu, tanh = Network(100, (200,)), Network(100, (200,), activation="tanh")
    assert np.array_equal(relu.initial(SEED), relu.initial(SEED))
    assert not np.array_equal(relu.initial(SEED), relu.initial(bytes(32)))
    for network, fans in ((relu, 100), (tanh, 300)):
        weights, biases = np.split(network.matrices(network.initial(SEED))[0], [100])
        limit = math.sqrt(6 / fans)
        assert not biases.any()
        assert 0.99 * limit < np.abs(weights).max() <= limit
        assert np.std(weights) == pytest.approx(limit / math.sqrt(3), rel=0.03)
        assert abs(weights.mean()) < 0.03 * limit


def test_initial_weights_can_come_from_a_stream(stream: SecureStream):
    network = Network(3, (2,))
    assert not np.array_equal(network.initial(stream), network.initial(stream))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": 0}, "inputs"),
        ({"inputs": 2, "hidden": (0,)}, "hidden"),
        ({"inputs": 2, "outputs": 0}, "outputs"),
        ({"inputs": 2, "activation": "gelu"}, "activation must be one of"),
        ({"inputs": 2, "loss": "hinge"}, "loss must be one of"),
        ({"inputs": 1 << 20, "hidden": (1 << 10,)}, "at most 2\\^24 parameters"),
    ],
)
def test_architectures_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Network(**arguments)


def test_shapes_that_do_not_fit_are_refused():
    network = Network(3)
    with pytest.raises(InvalidInput, match="x must have 3 columns"):
        network.forward(np.zeros(4), np.zeros((2, 4)))
    with pytest.raises(InvalidInput, match="parameters must be a vector of 4"):
        network.forward(np.zeros(5), np.zeros((2, 3)))


def test_a_network_is_plain_data():
    assert Network(3, [4, 5]) == Network(3, (4, 5))
    assert hash(Network(3, (4,))) == hash(Network(3, (4,)))
    with pytest.raises(AttributeError):
        Network(3).inputs = 4
