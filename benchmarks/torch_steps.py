"""One private step of a torch module: beside Opacus on a CPU, and beside the plain step on a GPU."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Result, Skip, bench, paired_seconds
from benchmarks.learning import private_step

CLIP = 1.0
_ROW = 10


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise Skip("torch is not installed: pip install 'cape-dp[torch]'") from None
    return torch


def _perceptron(torch: Any) -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(50, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))


def _cape_step(torch: Any, model: Any, x: Any, y: Any) -> Callable[[], Any]:
    from cape.torch import ClippedSums

    sums = ClippedSums(model, torch.nn.MSELoss(reduction="none"))
    return lambda: sums(x, y, CLIP)


def our_steps(torch: Any, x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """Return our clipped step, on a table of its own of the same shape, and the sum alone by `cape.torch`.

    The former counts: like Opacus's, it moves the parameters.
    """
    return {
        "cape.torch, clipped sum only": _cape_step(torch, _perceptron(torch), x, y),
        "numpy": private_step(len(x)),
    }


def _plain_step(torch: Any, model: Any, loss: Any, x: Any, y: Any) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def _opacus_step(torch: Any, x: Any, y: Any, noise: float = 0.0) -> Callable[[], Any]:
    """Return a step with Opacus's default hooks: clipped sum, noise if it is asked for, and update."""
    try:
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
    except ImportError:
        raise Skip("Opacus is not installed: pip install --no-deps 'opacus==1.6.*' opt_einsum") from None
    model = GradSampleModule(_perceptron(torch))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=noise,
        max_grad_norm=CLIP,
        expected_batch_size=len(x),
    )
    loss = torch.nn.MSELoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


def _in_a_row(step: Callable[[], Any]) -> Callable[[], None]:
    """Return some steps, one after the other as in training: caches hold what the last step left."""

    def steps() -> None:
        for _ in range(_ROW):
            step()

    return steps


@bench("learning.opacus")
def learning_opacus() -> Result:
    """Time of Opacus's clipped step over ours (50-64-1, batches of 1,000, one thread), without noise.

    Opacus's time swings by a factor of two between runs: one figure that holds says little. With noise on
    both sides, ours exact and from a cipher, the ratio is lower; it is in the detail.
    """
    torch = _torch()
    torch.set_num_threads(1)
    x, y = torch.randn(1000, 50), torch.randn(1000, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus's, about hooks
        theirs = _opacus_step(torch, x, y)
        detail: dict[str, Any] = {}
        faster = {}
        for name, step in our_steps(torch, x, y).items():
            row, their_row = _in_a_row(step), _in_a_row(theirs)
            row(), their_row()
            ours, reference = (seconds / _ROW for seconds in paired_seconds(row, their_row, repeat=100))
            faster[name] = reference / ours
            detail[name] = {
                "ms": round(ours * 1e3, 3),
                "opacus_ms": round(reference * 1e3, 3),
                "times_faster": round(reference / ours, 2),
            }
        noisy, their_noisy = _in_a_row(private_step(len(x), 1.0)), _in_a_row(_opacus_step(torch, x, y, 1.0))
        noisy(), their_noisy()
        ours, reference = paired_seconds(noisy, their_noisy, repeat=50)
        detail["with noise, times_faster"] = round(reference / ours, 2)
    for rows in (1000, 10_000):
        x, y = torch.randn(rows, 50), torch.randn(rows, 1)
        model = _perceptron(torch)
        plain = _plain_step(torch, model, torch.nn.MSELoss(), x, y)
        private = _cape_step(torch, model, x, y)
        private(), plain()
        ours, bare = paired_seconds(private, plain, repeat=50)
        detail[f"to_plain_{rows}"] = round(ours / bare, 2)
    return Result(faster["numpy"], 8.0, "higher", detail=detail)


def _convolutions(torch: Any) -> Any:
    """Return the small network for 32 x 32 images that Opacus's own example trains."""
    nn = torch.nn
    torch.manual_seed(1)
    layers = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)]
    layers[-1] = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


@bench("learning.gpu")
def learning_gpu() -> Result:
    """Time of a private step as a multiple of the plain one: a small CNN, batches of 1,024, on a GPU."""
    torch = _torch()
    if not torch.cuda.is_available():
        raise Skip("there is no CUDA device")
    from cape.torch import ClippedSums

    x = torch.randn(1024, 3, 32, 32, device="cuda")
    y = torch.randint(0, 10, (1024,), device="cuda")
    model = _convolutions(torch).cuda()
    sums = ClippedSums(model, torch.nn.CrossEntropyLoss(reduction="none"))
    plain = _plain_step(torch, model, torch.nn.CrossEntropyLoss(), x, y)

    def private() -> None:
        sums(x, y, CLIP).total.cpu()

    ours, bare = _in_turns(torch, private, plain)
    detail = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "private_ms": round(ours * 1e3, 3),
        "plain_ms": round(bare * 1e3, 3),
    }
    return Result(ours / bare, 2.0, "lower", detail=detail)


def _in_turns(torch: Any, one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """Return median times of a step, each made of ten that are waited for together."""

    def seconds(step: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / 10

    for _ in range(3):
        seconds(one), seconds(other)
    pairs = [(seconds(one), seconds(other)) for _ in range(15)]
    return sorted(a for a, _ in pairs)[7], sorted(b for _, b in pairs)[7]
