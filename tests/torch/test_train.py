"""Training across sites: what leaves a site, what it costs, and that it learns."""

from __future__ import annotations

import math
import re
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from cape import Budget
from cape.core.errors import BudgetExceeded, DataError, InvalidInput, PrivacyLeakWarning, TooFewSites
from cape.data import Schema
from cape.engine.consortium import Consortium
from cape.learning import Diverged
from cape.noise import SecureStream
from cape.torch import ClippedSums, train
from cape.torch.batch import Batch
from cape.torch.capture import catch, layers_of
from cape.torch.rounding import rounding_slack
from tests.checkout import ROOT
from tests.torch.one_by_one import clipped, gradients

module_of_train = sys.modules["cape.torch.train"]  # `cape.torch.train` is the function
slots, load = module_of_train.slots, module_of_train.load
_Tensors, _ModuleGradient = module_of_train._Tensors, module_of_train._ModuleGradient
_ModuleDescent, _batch = module_of_train._ModuleDescent, module_of_train._batch

SCHEMA = Schema(record=(0, 1))
LARGE = Budget(1e4, 1e-6)
CROSS = nn.CrossEntropyLoss(reduction="none")
SQUARED = nn.MSELoss(reduction="none")


def records(rows, seed, width=5):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (rows,), generator=generator)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return x + (2.0 * y - 1)[:, None], y


SITES = {name: records(rows, i) for i, (name, rows) in enumerate([("a", 80), ("b", 50), ("c", 60)])}
TEST = records(500, 99)


def perceptron(hidden=6, outputs=2):
    return nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def go(module=None, sites=SITES, loss=CROSS, **options):
    options.setdefault("budget", LARGE)
    options.setdefault("stream", SecureStream(b"training".ljust(32, b"-")))
    options.setdefault("colluding", 1)
    options.setdefault("epochs", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return train(perceptron() if module is None else module, sites, loss, **options)


def right(module):
    with torch.no_grad():
        return float((module(TEST[0]).argmax(1) == TEST[1]).double().mean())


def flat(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).double().numpy()


def site(module, inputs, targets, loss=CROSS):
    return _Tensors("a", module, loss, _batch("a", (inputs, targets)))


def sums(module, inputs, targets, clip, loss=CROSS, rate=1.0, key=b"s", rows=None):
    """Return the integers that leave a site."""
    block = _ModuleGradient(flat(module), clip, rate, rows)
    ((found,),) = site(module, inputs, targets, loss).sums([block], SecureStream(key.ljust(32, b"-")))
    assert found.dtype == np.int64
    return found


def question(module, most, clip=1.0, neighbours="replace-one", **training):
    how = module_of_train.Training(**training)
    asked = _ModuleDescent(how, "m", flat(module), (), neighbours, most)
    return asked.question(SCHEMA, neighbours, flat(module), clip)


@pytest.fixture
def answers(monkeypatch):
    """What each step was told, and at which parameters."""
    told, move = [], _ModuleDescent._move

    def listen(self, state, optimiser, answer):
        told.append((state.parameters.copy(), state.clip, answer))
        return move(self, state, optimiser, answer)

    monkeypatch.setattr(_ModuleDescent, "_move", listen)
    return told


@pytest.mark.parametrize("scheme", ["cape", "conventional", "none"])
@pytest.mark.parametrize("sampling", [1.0, 0.4])
def test_every_scheme_learns_with_a_large_budget(scheme, sampling):
    module = perceptron()
    weights, before = list(module.parameters()), flat(module)
    found = go(module, scheme=scheme, sampling=sampling, epochs=20 * sampling, rate=0.1)
    assert right(module) > 0.95
    assert found.module is module
    assert all(a is b for a, b in zip(weights, module.parameters(), strict=True))  # in place
    assert not np.allclose(before, flat(module))
    assert np.array_equal(flat(module), found.release.model.parameters)
    assert len(found.learning_curve) == 20
    assert found.budget.spent == (0 if scheme == "none" else 1)
    assert "after 20 steps" in found.release.summary()
    assert "Sequential of 50 parameters" in found.release.analysis.describe()
    assert found.release.to_dict()["analysis"]["shapes"] == [[6, 5], [6], [2, 6], [2]]
    if scheme != "none":
        assert found.release.guarantee.mu == pytest.approx(LARGE.mu)


@pytest.mark.parametrize("clip", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_leaves_a_site_is_the_clipped_sum(clip, dtype):
    """One record at a time, by autograd, in units of the clip times 2^-40."""
    module, (inputs, targets) = perceptron().to(dtype), SITES["a"]
    inputs = inputs.to(dtype)
    total, _ = clipped(gradients(module, CROSS, inputs, targets), clip)
    error = np.abs(sums(module, inputs, targets, clip) - total.numpy() / clip * 2.0**40)
    assert error.max() <= (2.0 if dtype == torch.float64 else 80 * 2.0**20)


def test_batches_add_up(monkeypatch):
    """A large site goes through the module in parts, each truncated once."""
    module, (inputs, targets) = perceptron(), SITES["a"]
    whole = sums(module, inputs, targets, 0.1)
    monkeypatch.setattr(module_of_train, "_PART", 16)
    assert np.abs(sums(module, inputs, targets, 0.1) - whole).max() <= 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_one_record_moves_the_integers_by_no_more_than_the_sensitivity(dtype, rate):
    """A search over scales of inputs, parameters and clips, with records that are as bad as can be."""
    worst = alone = 0.0
    for seed in range(60):
        torch.manual_seed(seed)
        clip, scale = 10.0 ** (seed % 5 - 3), 10.0 ** (seed % 7 - 3)
        module = perceptron().to(dtype)
        load(module, flat(module) * scale)
        inputs, targets = records(20, seed)
        inputs = (inputs * 10.0 ** (seed % 3)).to(dtype)
        other, changed = inputs.clone(), targets.clone()
        place = seed % 20
        other[place], changed[place] = (-inputs[place] if seed % 2 else inputs[place]), 1 - targets[place]
        query = question(module, 20, clip, sampling=rate)
        key = bytes([seed])
        pair = [
            sums(module, x, y, clip, rate=rate, key=key) for x, y in ((inputs, targets), (other, changed))
        ]
        moved = np.linalg.norm((pair[0] - pair[1]) / 2.0**40)
        assert moved <= query.sensitivity
        one = sums(module, inputs[place : place + 1], targets[place : place + 1], clip)
        assert np.linalg.norm(one / 2.0**40) <= query.norm
        worst, alone = max(worst, moved), max(alone, np.linalg.norm(one / 2.0**40))
    assert alone > 0.998
    assert worst > 1.9 or rate < 1  # half of it would be wrong


def test_the_sensitivity_is_reached():
    """By two records with opposite gradients."""
    module = nn.Linear(5, 1)
    load(module, np.zeros(6))
    x = torch.ones(1, 5)
    pair = [sums(module, x, torch.full((1, 1), y), 0.01, SQUARED) for y in (3.0, -3.0)]
    moved = np.linalg.norm(pair[0] - pair[1]) / 2.0**40
    query = question(module, 1, 0.01)
    assert 0.998 * query.sensitivity < moved <= query.sensitivity
    assert query.norm == pytest.approx(1 + rounding_slack(1) + math.sqrt(6) * 2.0**-39, rel=1e-15)
    assert query.sensitivity == pytest.approx(2, abs=1e-6)
    assert question(module, 1, neighbours="add-remove", rows=1).sensitivity == query.norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_record_that_is_drawn_besides_leaves_the_others_where_they_are(dtype):
    """Slots: the others' places, the batch's shape and so their bits are the same with and without it."""
    inputs, targets = records(200, 7)
    room = slots(200, 0.2)
    for seed in range(20):
        stream = SecureStream(bytes([seed]) * 32)
        chosen = np.arange(0, 200, 5) + seed % 5
        index, keep = module_of_train._places(chosen, room, stream)
        assert len(index) == len(keep) == room
        assert sorted(index[keep].tolist()) == chosen.tolist()
        hole = int((~keep).nonzero()[seed])
        module = perceptron().to(dtype)
        clip = ClippedSums(module, CROSS)
        with_, there = index.clone(), keep.clone()
        with_[hole], there[hole] = 199 - seed % 5, True
        a = clip(inputs[index].to(dtype), targets[index], 0.1, keep).total
        b = clip(inputs[with_].to(dtype), targets[with_], 0.1, there).total
        assert float((b - a).norm()) / 0.1 <= 1 + rounding_slack(room)
        one = clip(inputs[with_].to(dtype), targets[with_], 0.1, there & ~keep).total
        assert float((b - a - one).norm()) / 0.1 <= rounding_slack(room)  # the others did not move


@pytest.mark.parametrize("rows", [2, 7, 33, 128])
@pytest.mark.parametrize("kind", ["perceptron", "convolutions"])
def test_what_a_record_holds_does_not_change_the_bits_of_others(kind, rows):
    """What is assumed of kernels: in a batch of the same shape, one record is another."""
    model = perceptron(64, 10) if kind == "perceptron" else nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(1))
    model = model.float()
    x = torch.randn(rows, *((5,) if kind == "perceptron" else (3, 6, 6))).float()
    y = torch.randint(0, 10, (rows,))
    other, changed = x.clone(), y.clone()
    other[1], changed[1] = 1e6 * torch.randn(x.shape[1:]).float(), (y[1] + 1) % 10
    apart = torch.arange(rows) != 1
    for a, b in zip(seen(model, x, y), seen(model, other, changed), strict=True):
        assert torch.equal(a[apart], b[apart])
        assert not torch.equal(a, b)


def seen(model, x, y):
    """Return all that gradients are made of: each layer's output gradient, and what goes into the last."""
    caught = catch(model, layers_of(model), CROSS, Batch((x,), y))
    return [g for _, _, g in caught.inputs] + [caught.inputs[-1][1]]


def test_places_are_drawn_evenly():
    """Each slot as often as any other, and as a pair: what the proof of a fixed batch rests on."""
    stream, counts = SecureStream(b"p" * 32), np.zeros((6, 6))
    for _ in range(6000):
        index, keep = module_of_train._places(np.array([3, 8]), 6, stream)
        places = {int(index[i]): int(i) for i in keep.nonzero()[:, 0]}
        counts[places[3], places[8]] += 1
    assert np.all(counts.diagonal() == 0)
    pairs = counts[~np.eye(6, dtype=bool)]
    assert ((pairs - 200) ** 2 / 200).sum() < 60  # chi-square with 29 degrees of freedom: 0.06%
    index, keep = module_of_train._places(np.arange(10), 4, stream)  # more than there is room for
    assert len(index) == 16
    assert sorted(index[keep].tolist()) == list(range(10))


@pytest.mark.parametrize(("rows", "rate"), [(1, 0.5), (80, 0.4), (1000, 0.01), (10_000, 0.1), (500, 0.999)])
def test_slots_do_not_run_out(rows, rate):
    from scipy.stats import binom

    room = slots(rows, rate)
    assert rows * rate <= room <= rows
    assert binom.sf(room, rows, rate) <= 2.0**-50
    assert room <= rows * rate + 9 * math.sqrt(rows * rate) + 40
    assert slots(rows, 1.0) == rows


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
def test_a_record_that_does_not_count_adds_nothing(method):
    module, (inputs, targets) = perceptron(), SITES["b"]
    keep = torch.rand(50) < 0.6
    inputs = inputs.clone()
    inputs[int((~keep).nonzero()[0])] = math.inf  # whatever it holds
    part = ClippedSums(module, CROSS, method=method, at_once=16)(inputs, targets, 0.2, keep)
    only = ClippedSums(module, CROSS, method=method)(inputs[keep], targets[keep], 0.2)
    torch.testing.assert_close(part.total, only.total)
    assert int(part.finite) == int(only.finite) == int(keep.sum())
    nobody = ClippedSums(module, CROSS)(inputs, targets, 0.2, torch.zeros(50, dtype=torch.bool))
    assert not nobody.total.any()


def fits(errors, std):
    """Whether numbers have this standard deviation, within four of its own standard errors."""
    return abs(np.sqrt(np.mean(np.square(errors))) / std - 1) < 4 / math.sqrt(2 * len(errors))


def test_a_step_s_noise_is_what_the_accountant_says(answers):
    budget, module = Budget(3.0, 1e-6), perceptron(hidden=300)
    go(module, budget=budget, epochs=6, clip=0.2)
    assert len(answers) == 6
    errors = []
    for parameters, clip, answer in answers:
        load(module, parameters)
        exact = sum(sums(module, x, y, clip) for x, y in SITES.values())
        errors.append(answer.sums[0][0] - exact * 2.0**-40)
        said = 2.0 * math.sqrt(3 / 2) / (budget.mu / math.sqrt(6))
        assert answer.noise[0][0] == pytest.approx(said, rel=2e-3)
    errors = np.concatenate(errors)  # 14,412 numbers
    assert fits(errors, answers[0][2].noise[0][0])
    assert not fits(1.1 * errors, answers[0][2].noise[0][0])
    assert not fits(errors / 1.1, answers[0][2].noise[0][0])


def test_a_sample_needs_less_noise(answers):
    pytest.importorskip("dp_accounting")
    budget = Budget(3.0, 1e-6)
    go(budget=budget, epochs=2.4, sampling=0.4, clip=0.2)
    assert len(answers) == 6
    assert answers[0][2].noise[0][0] < 2.0 * math.sqrt(3 / 2) / (budget.mu / math.sqrt(6))


def test_a_sample_is_about_its_share():
    module = nn.Linear(1, 1, bias=False)
    load(module, np.zeros(1))
    x, y = torch.ones(80, 1), torch.full((80, 1), -9.0)
    each = [sums(module, x, y, 1.0, SQUARED, 0.4, bytes([key])) / 2.0**40 for key in range(60)]
    counts = np.round(np.ravel(each) / (1 - 2.0**-10))
    assert abs(counts.mean() - 32) < 4 * math.sqrt(80 * 0.4 * 0.6 / 60)
    assert len(set(counts)) > 8  # and no two steps are alike
    with pytest.raises(InvalidInput, match="stream"):
        site(module, x, y, SQUARED).sums([_ModuleGradient(np.zeros(1), 1.0, 0.4, None)])


def test_a_sample_may_be_empty():
    module = perceptron()
    before = flat(module)
    go(module, epochs=3e-5, sampling=1e-5, scheme="none", optimiser="sgd")
    assert np.array_equal(flat(module), before)


def test_a_site_that_drops_at_a_step_is_back_at_the_next():
    module = perceptron()
    drop = {3: {"b": "mask"}, 4: {"b": "unmask"}, 5: {"a": "consistency"}}
    found = go(module, min_sites=2, drop=drop, rate=0.1)
    assert found.release.participants == ("a", "b", "c")
    assert right(module) > 0.95
    before = flat(module)
    with pytest.raises(TooFewSites) as caught:
        go(module, share=0.6, drop={3: {"b": "mask"}})
    assert "of 20 stages" in caught.value.__notes__[0]
    assert np.array_equal(flat(module), before)  # a run that fails leaves the module as it was


class Stop(Exception):
    pass


def stop_after(steps):
    def progress(told):
        if told.done == steps:
            raise Stop

    return progress


@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_a_run_that_goes_on_is_paid_for_once(tmp_path, sampling):
    options = {
        "checkpoint": str(tmp_path / "run"),
        "epochs": 8 * sampling,
        "sampling": sampling,
        "share": 0.8,
    }
    with pytest.raises(Stop) as caught:
        go(progress=stop_after(3), **options)
    assert ("30% spent" if sampling == 1 else "80% spent") in caught.value.__notes__[-1]
    told = []
    found = go(progress=told.append, **options)
    assert [each.done for each in told] == [4, 5, 6, 7, 8]
    assert found.budget.spent == Fraction("0.8")
    assert len(found.learning_curve) == 7  # the answer that was lost stays lost
    with pytest.raises(InvalidInput, match="another analysis"):
        go(perceptron(hidden=7), **options)


def test_going_on_is_the_same_run(tmp_path):
    whole, again = perceptron(), perceptron()
    load(again, flat(whole))
    go(whole, epochs=7, scheme="none")
    options = {"checkpoint": str(tmp_path / "run"), "epochs": 8, "scheme": "none"}
    with pytest.raises(Stop):
        go(again, progress=stop_after(3), **options)
    go(again, **options)
    assert np.array_equal(flat(whole), flat(again))


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_targets_in_either_shape(shape):
    module = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)) if shape == (-1,) else nn.Linear(5, 1)
    sites = {name: (x, x.sum(1).reshape(shape)) for name, (x, _) in SITES.items()}
    go(module, sites, SQUARED, epochs=80, rate=0.05, clip=5.0)
    assert flat(module) == pytest.approx([1] * 5 + [0], abs=0.1)


def test_a_loss_that_broadcasts_is_found_out_and_its_stage_is_paid_for():
    """It ran on the records: that it fails could tell something of them."""
    sites = {name: (x, x.sum(1)) for name, (x, _) in SITES.items()}
    with pytest.raises(InvalidInput, match="same shape") as caught:
        go(nn.Linear(5, 1), sites, SQUARED)
    assert "5% spent" in caught.value.__notes__[-1]


def batch_norm():
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"module": batch_norm()}, "GroupNorm"),
        ({"module": lambda x: x}, "torch.nn.Module"),
        ({"module": nn.ReLU()}, "trainable"),
        ({"loss": nn.CrossEntropyLoss()}, "reduction='none'"),
        ({"sites": {**SITES, "b": (torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))}}, "no records"),
        ({"sites": {**SITES, "b": (SITES["b"][0], SITES["b"][1][:-1])}}, "site 'b'.*each record"),
        ({"sites": {**SITES, "b": SITES["b"][0]}}, "site 'b' must be a pair"),
        ({"sites": {**SITES, "b": (SITES["b"][0].numpy(), SITES["b"][1])}}, "site 'b'.*tensor"),
        ({"sites": {}}, "at least one"),
        ({"watch": True}, "NeuralNetwork only"),
        ({"clip": "adaptive"}, "NeuralNetwork only"),
        ({"learning_rate": 1}, "learning_rate"),
        ({"clip": 0.0}, "clip"),
        ({"checkpoint": "no/such/folder/run"}, "folder"),
        ({"neighbours": "add-remove"}, "rows ="),
        ({"budget": 1.0}, "must be a Budget"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_paid(change, said, monkeypatch):
    made = []
    monkeypatch.setattr(
        module_of_train, "Consortium", lambda *a, **k: made.append(Consortium(*a, **k)) or made[-1]
    )
    options = {"module": perceptron(), **change}
    with pytest.raises((InvalidInput, DataError), match=said):
        go(**options)
    assert all(each.budget.spent == 0 for each in made)


def test_a_budget_that_is_spent():
    found = go(share=0.7, epochs=2)
    assert found.budget.spent == Fraction("0.7")
    with pytest.raises(BudgetExceeded):
        go(share=0.7, epochs=2, budget=found.budget)


@pytest.mark.parametrize("some", [True, False])
def test_a_loss_that_is_not_a_number_adds_nothing(some):
    def loss(output, target):
        bad = target > 0 if some else target == target
        return torch.where(bad, math.nan, 1.0) * CROSS(output, target)

    module, (inputs, targets) = perceptron(), SITES["a"]
    good = targets == 0
    only = sums(module, inputs[good], targets[good], 0.5)
    found = sums(module, inputs, targets, 0.5, loss)
    assert np.abs(found - only).max() <= 2 if some else not found.any()
    before = flat(module)
    go(module, loss=loss, epochs=3, scheme="none", optimiser="sgd")
    assert np.array_equal(flat(module), before) != some


def test_parameters_that_explode_stop_the_run_and_keep_what_is_left():
    module = perceptron()
    before = flat(module)
    with pytest.raises(Diverged, match="smaller rate") as caught:
        go(module, epochs=10, rate=1e9, optimiser="sgd")
    assert "1 of 10 stages" in caught.value.__notes__[0]
    assert "10% spent, 90% left" in caught.value.__notes__[-1]
    assert np.array_equal(flat(module), before)


def test_several_inputs():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(3, 4), nn.Embedding(2, 4)
            self.out = nn.Linear(4, 2)

        def forward(self, x, kind):
            return self.out(torch.tanh(self.left(x) + self.right(kind)))

    sites = {n: ((x[:, :3], (x[:, 4] > 0).long()), y) for n, (x, y) in SITES.items()}
    module = Both()
    go(module, sites, sampling=0.5, epochs=20, rate=0.1)
    with torch.no_grad():
        said = module(TEST[0][:, :3], (TEST[0][:, 4] > 0).long()).argmax(1)
    assert float((said == TEST[1]).double().mean()) > 0.9
    lengths = {**sites, "a": ((sites["a"][0][0], sites["a"][0][1][1:]), sites["a"][1])}
    with pytest.raises(InvalidInput, match="site 'a'"):
        go(module, lengths)


@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_a_convolutional_network_end_to_end(sampling):
    torch.set_default_dtype(torch.float32)

    def images(rows, seed):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 2, (rows,), generator=generator)
        x = torch.randn(rows, 1, 8, 8, generator=generator)
        x[:, :, :4] += (4.0 * y - 2)[:, None, None, None]
        return x, y

    module = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.GroupNorm(1, 3),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.AvgPool2d(3),
        nn.Flatten(),
        nn.Linear(12, 2),
    )
    sites = {name: images(40, i) for i, name in enumerate("abc")}
    found = go(module, sites, epochs=12 * sampling, sampling=sampling, rate=0.1)
    x, y = images(200, 9)
    assert (found.module.eval()(x).argmax(1) == y).float().mean() > 0.9


def test_sizes_that_are_private():
    module = perceptron()
    sites = {**SITES, "d": (torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))}
    found = go(module, sites, neighbours="add-remove", rows=190, rate=0.1)
    assert right(module) > 0.95
    assert found.release.rows is None
    x, y = SITES["a"]
    apart = sums(module, x, y, 0.1, rows=190) - sums(module, x, y, 0.1)
    assert np.abs(apart).max() <= 2  # padded or not, the sum is the same


def test_a_seed_of_torch_is_not_where_noise_comes_from():
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        module = perceptron()
        go(module, stream=None, budget=Budget(1.0, 1e-6), epochs=2)
        found.append(flat(module))
    assert not np.array_equal(*found)


def test_the_page_runs(capsys):
    """What docs/learning.md shows of torch."""
    torch.set_default_dtype(torch.float32)
    page = (ROOT / "docs/learning.md").read_text()
    (shown,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    exec(compile(shown, "docs/learning.md", "exec"), {})
    assert "100% spent" in capsys.readouterr().out
