"""Modules without closed forms: found out, and clipped all the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from cape.core.errors import InvalidInput
from cape.torch import ClippedSums, clipped_sum
from cape.torch.batch import Batch
from cape.torch.capture import Unfit, catch, layers_of
from tests.torch.one_by_one import clipped, gradients

LOSS = nn.MSELoss(reduction="none")
RECORDS = 6


class By(nn.Module):
    """A first and a second layer, used as `use` says."""

    def __init__(self, use):
        super().__init__()
        self.first, self.second, self.use = nn.Linear(3, 3), nn.Linear(3, 2), use

    def forward(self, x):
        return self.use(self, x)


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    return model


def hooked():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_forward_pre_hook(lambda layer, args: (2 * args[0],))
    return model


class Overwriting(nn.Module):
    """Adds a layer's output onto its input, in place."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        x = x.clone()
        y = self.first(x).detach()
        z = self.second(x)
        x.add_(y)
        return z


class Subclass(nn.Linear):
    """A layer with the name of another."""

    def forward(self, x):
        return super().forward(3 * x)


class Alone(nn.Module):
    """A parameter that belongs to no layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.randn(3)), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(x * self.scale)


MODELS = {
    "used twice": lambda: By(lambda m, x: m.second(m.first(m.first(x)))),
    "used by hand": lambda: By(lambda m, x: m.second(functional.linear(x, m.first.weight))),
    "used by hand as well": lambda: By(lambda m, x: m.second(m.first(x)) + x @ m.second.weight.mT),
    "called by name": lambda: By(lambda m, x: m.second(m.first(input=x))),
    "flattened": lambda: By(lambda m, x: m.second(m.first(x.reshape(-1, 3)).reshape(x.shape))),
    "tied": tied,
    "hooked": hooked,
    "subclass": lambda: nn.Sequential(Subclass(3, 2)),
    "weight norm": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 2))),
    "a parameter alone": Alone,
    "another layer": lambda: nn.Sequential(nn.Linear(3, 3), nn.PReLU(3), nn.Linear(3, 2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_other_modules_are_clipped_one_record_at_a_time(name):
    model = MODELS[name]()
    shape = (RECORDS, 4, 3) if name == "flattened" else (RECORDS, 3)
    inputs, targets = torch.randn(shape), torch.randn(*shape[:-1], 2)
    rows = gradients(model, LOSS, inputs, targets)
    clip = float(rows.norm(dim=1).median())
    total, norms = clipped(rows, clip)
    sums = ClippedSums(model, LOSS)
    found = sums(inputs, targets, clip)
    assert list(sums._chosen.values()) == ["vmap"]
    torch.testing.assert_close(found.norms, norms)
    torch.testing.assert_close(found.total, total)
    with pytest.raises(InvalidInput, match="'ghost' does not fit"):
        clipped_sum(model, LOSS, inputs, targets, clip, method="ghost")


def test_an_input_that_is_overwritten_is_seen():
    model, inputs, targets = Overwriting(), torch.randn(RECORDS, 3), torch.randn(RECORDS, 2)
    with pytest.raises(Unfit, match="overwritten"):
        catch(model, layers_of(model), LOSS, Batch.of(inputs, targets))


def test_a_layer_that_the_loss_does_not_reach_has_no_gradient():
    for use in (lambda m, x: m.second(x), lambda m, x: m.second(m.first(x).detach())):
        model, inputs, targets = By(use), torch.randn(RECORDS, 3), torch.randn(RECORDS, 2)
        total, norms = clipped(gradients(model, LOSS, inputs, targets), 1.0)
        for method in ("ghost", "vmap", "loop"):
            found = clipped_sum(model, LOSS, inputs, targets, 1.0, method=method)
            torch.testing.assert_close(found.total, total)
            torch.testing.assert_close(found.norms, norms)


class Last(nn.Module):
    """A recurrent layer's last output."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    """Torch's own attention, which uses its parameters by hand."""

    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(self.layer(x, x, x, need_weights=False)[0].mean(1))


@pytest.mark.parametrize(
    ("make", "wide"), [(lambda: Last(nn.LSTM), 3), (lambda: Last(nn.GRU), 3), (Attention, 4)]
)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_recurrent_layers_and_attention_fall_back(make, wide):
    model, inputs, targets = make(), torch.randn(RECORDS, 5, wide), torch.randn(RECORDS, 2)
    total, norms = clipped(gradients(model, LOSS, inputs, targets), 0.1)
    sums = ClippedSums(model, LOSS)
    found = sums(inputs, targets, 0.1)
    assert set(sums._chosen.values()) <= {"vmap", "loop"}
    torch.testing.assert_close(found.total, total)
    torch.testing.assert_close(found.norms, norms)


def test_a_module_with_branches_is_clipped_by_a_loop():
    def use(module, x):
        return module.second(x if float(x.sum()) > 0 else module.first(x))

    class Branches(By):
        def forward(self, x):
            return torch.stack([self.use(self, one) for one in x])

    model, inputs, targets = Branches(use), torch.randn(RECORDS, 3), torch.randn(RECORDS, 2)
    total, _ = clipped(gradients(model, LOSS, inputs, targets), 0.3)
    sums = ClippedSums(model, LOSS)
    torch.testing.assert_close(sums(inputs, targets, 0.3).total, total)
    assert list(sums._chosen.values()) == ["loop"]
    with pytest.raises(InvalidInput, match="'vmap' does not fit"):
        clipped_sum(model, LOSS, inputs, targets, 0.3, method="vmap")


def test_a_batch_that_goes_another_way_is_clipped_too():
    """Closed forms fit the first batch and not the second."""
    model = By(lambda m, x: m.second(m.first(x) if m.once else m.first(m.first(x))))
    inputs, targets = torch.randn(RECORDS, 3), torch.randn(RECORDS, 2)
    auto, ghost = ClippedSums(model, LOSS), ClippedSums(model, LOSS, method="ghost")
    model.once = True
    auto(inputs, targets, 1.0), ghost(inputs, targets, 1.0)
    model.once = False
    total, _ = clipped(gradients(model, LOSS, inputs, targets), 1.0)
    torch.testing.assert_close(auto(inputs, targets, 1.0).total, total)
    with pytest.raises(InvalidInput, match="more than once"):
        ghost(inputs, targets, 1.0)
