from __future__ import annotations

import io
import shutil
import threading
import warnings
import zipfile
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from cape import Budget, GradientDescent, NeuralNetwork
from cape.core.errors import BudgetExceeded, InvalidInput, PrivacyLeakWarning
from cape.engine.execute import Execution
from cape.learning.checkpoint import Checkpoint, State
from tests.unit.learning.tables import COLUMNS, consortium


class Stop(Exception):
    pass


def stop_after(steps):
    def progress(told):
        if told.done == steps:
            raise Stop

    return progress


def network(path, **options):
    options.setdefault("epochs", 8)
    return NeuralNetwork("label", COLUMNS, checkpoint=str(path), **options)


def exactly(asked, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return consortium(scheme="none").release(asked, 1.0, **options)


def test_a_run_goes_on_where_it_was_cut_off(tmp_path):
    """The step whose answer was lost stays lost; together there are as many as were planned."""
    together, path = consortium(), tmp_path / "run.npz"
    with pytest.raises(Stop):
        together.release(network(path), 0.8, progress=stop_after(3))
    assert together.budget.spent == Fraction("0.8") * 3 / 8
    told = []
    release = together.release(network(path), 0.8, progress=told.append)
    assert [p.done for p in told] == [4, 5, 6, 7, 8]
    assert together.budget.spent == Fraction("0.8")
    assert len(release.model.history) == 7
    assert release.share == 0.8


def test_going_on_is_the_same_run(tmp_path):
    """Without noise, a run that loses a step is the run of one step less, Adam's memory included."""
    whole = exactly(NeuralNetwork("label", COLUMNS, epochs=7))
    with pytest.raises(Stop):
        exactly(network(tmp_path / "a"), progress=stop_after(3))
    again = exactly(network(tmp_path / "a"))
    assert np.array_equal(whole.model.parameters, again.model.parameters)


def test_another_process_pays_for_the_steps_of_the_first(tmp_path):
    with pytest.raises(Stop):
        consortium().release(network(tmp_path / "a"), 0.8, progress=stop_after(3))
    together = consortium()
    together.release(network(tmp_path / "a"), 0.8)
    assert together.budget.spent == Fraction("0.8")


def test_a_run_that_is_over_is_not_run_again(tmp_path):
    together = consortium()
    first = together.release(network(tmp_path / "a"), 0.8)
    second = together.release(network(tmp_path / "a"), 0.8)
    assert np.array_equal(first.model.parameters, second.model.parameters)
    assert together.budget.spent == Fraction("0.8")
    elsewhere = consortium()
    third = elsewhere.release(network(tmp_path / "a"), 0.8)
    assert elsewhere.budget.spent == Fraction("0.8")
    assert third.guarantee.mu == pytest.approx(first.guarantee.mu)


def test_a_sampled_run_is_paid_for_once(tmp_path):
    asked = network(tmp_path / "a", epochs=2, sampling=0.25)
    together = consortium()
    with pytest.raises(Stop):
        together.release(asked, 0.8, progress=stop_after(3))
    assert together.budget.spent == Fraction("0.8")
    together.release(asked, 0.8)
    assert together.budget.spent == Fraction("0.8")


def test_a_file_that_is_something_else(tmp_path):
    together = consortium()
    (tmp_path / "a").write_text("not a checkpoint")
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        together.release(network(tmp_path / "a"), 0.8)
    together.release(network(tmp_path / "b"), 0.1)
    for other in (network(tmp_path / "b", rate=0.3), network(tmp_path / "b", hidden=(7,))):
        with pytest.raises(InvalidInput, match="another analysis"):
            together.release(other, 0.1)
    assert together.budget.spent == Fraction("0.1")


def test_a_run_goes_on_under_its_own_budget_share_scheme_and_parties_only(tmp_path):
    """Else what it promises would not be what its first steps had."""
    with pytest.raises(Stop):
        exactly(network(tmp_path / "a"), progress=stop_after(7))
    with pytest.raises(InvalidInput, match="budget or share"):
        consortium().release(network(tmp_path / "a"), 1.0)
    with pytest.raises(Stop):
        consortium().release(network(tmp_path / "b"), 1.0, progress=stop_after(5))
    for options, share in (
        ({"budget": Budget(0.1, 1e-6)}, 1.0),
        ({"colluding": 0}, 1.0),
        ({"min_sites": 2}, 1.0),
        ({}, 0.5),
    ):
        other = consortium(**options)
        with pytest.raises(InvalidInput, match="budget or share"):
            other.release(network(tmp_path / "b"), share)
        assert other.budget.spent == 0


def test_a_copy_of_a_checkpoint_is_paid_for_again(tmp_path):
    together = consortium()
    with pytest.raises(Stop):
        together.release(network(tmp_path / "a"), 0.4, progress=stop_after(4))
    shutil.copy(tmp_path / "a", tmp_path / "b")
    together.release(network(tmp_path / "a"), 0.4)
    assert together.budget.spent == Fraction("0.4")
    together.release(network(tmp_path / "b"), 0.4)
    assert together.budget.spent == Fraction("0.6")


def test_failing_before_anything_is_asked_leaves_the_run_as_it_was(tmp_path):
    together = consortium()
    together.release(NeuralNetwork("label", COLUMNS, epochs=1), 0.9)
    for _ in range(3):
        with pytest.raises(BudgetExceeded):
            together.release(network(tmp_path / "a"), 0.8)
    fresh = consortium()
    release = fresh.release(network(tmp_path / "a"), 0.8)
    assert len(release.model.history) == 8


def test_two_functions_of_one_name_are_two_runs(tmp_path):
    def asked(factor):
        return GradientDescent(
            (lambda batch, w: w - batch["x0"][:, None])
            if factor
            else (lambda batch, w: w + batch["x0"][:, None]),
            columns=["x0"],
            start=[0.0],
            epochs=4,
            checkpoint=str(tmp_path / "a"),
        )

    together = consortium()
    together.release(asked(True), 0.4)
    with pytest.raises(InvalidInput, match="another analysis"):
        together.release(asked(False), 0.4)


def test_runs_in_two_threads_do_not_disturb_each_other():
    """The space that gradients are added up in is one for a table."""
    exact = {seed: exactly(NeuralNetwork("label", COLUMNS, epochs=30, seed=seed)) for seed in (0, 1)}
    together, found = consortium(scheme="none"), {}

    def run(seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            found[seed] = together.release(NeuralNetwork("label", COLUMNS, epochs=30, seed=seed), 0.5)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (0, 1):
        assert np.array_equal(found[seed].model.parameters, exact[seed].model.parameters)


def test_a_checkpoint_in_a_folder_that_is_not_there(tmp_path):
    together = consortium()
    with pytest.raises(InvalidInput, match="folder"):
        together.release(network(tmp_path / "none" / "a"), 0.8)
    assert together.budget.spent == 0


def cut_off(path, **options):
    with pytest.raises(Stop):
        consortium().release(network(path, **options), 0.8, progress=stop_after(3))
    with np.load(path) as held:
        return dict(held)


def asked_by(together, *given):
    """Release, and return what is certain to have been asked: stages of an eighth of 0.8 each."""
    with mock.patch.object(Execution, "_task", autospec=True, side_effect=Execution._task) as task:
        try:
            together.release(*given)
        except InvalidInput as error:
            return task.call_count, str(error)
    return task.call_count, ""


@pytest.mark.parametrize(
    "bent",
    [
        {"steps": np.array([0, -2])},
        {"steps": np.array([-1, 3])},
        {"steps": np.array([3, 2])},
        {"steps": np.array([9, 9])},
        {"steps": np.array([2, 3, 3])},
        {"steps": np.array([2.0, 3.0])},
        {"steps": np.array([2, 3], dtype=np.int32)},
        {"steps": np.array(3)},
        {"parameters": np.zeros(3)},
        {"parameters": np.zeros((2, 2))},
        {"clip": np.zeros(3)},
        {"clip": np.array(-1.0)},
        {"clip": np.array(np.nan)},
        {"history": np.array(3.0)},
        {"history": np.zeros((2, 5))},
        {"history": np.zeros((4, 4))},
        {"history": np.full((1, 4), np.inf)},
        {"memory first": np.zeros(1), "memory second": np.zeros(1)},
        {"memory steps": np.array([0.0])},
        {"memory steps": np.array([np.inf])},
        {"memory velocity": np.zeros(1)},
        {"run": np.array("../../x")},
        {"terms": np.array(["a", "b"])},
        {"more": np.zeros(1)},
    ],
)
def test_what_cannot_be_so_is_refused_before_anything_is_asked(tmp_path, bent):
    path = tmp_path / "a"
    held = cut_off(path)
    with open(path, "wb") as file:
        np.savez(file, **(held | bent))
    together = consortium()
    asked, problem = asked_by(together, network(path), 0.8)
    assert (asked, together.budget.spent) == (0, 0)
    assert str(path) in problem


@pytest.mark.parametrize("name", ["parameters", "memory first", "memory second"])
def test_numbers_that_are_none_are_refused(tmp_path, name):
    held = cut_off(tmp_path / "a")
    held[name] = np.full_like(held[name], np.nan)
    with open(tmp_path / "a", "wb") as file:
        np.savez(file, **held)
    with pytest.raises(InvalidInput, match="is damaged"):
        consortium().release(network(tmp_path / "a"), 0.8)


@pytest.mark.parametrize("begun", [-2, 9])
def test_what_is_asked_is_what_is_paid_for_whatever_an_analysis_says_of_itself(tmp_path, monkeypatch, begun):
    """The run counts by itself; it does not rest on the reader of checkpoints."""
    cut_off(tmp_path / "a")

    def lie(self, *_):
        state = State("0" * 32, np.zeros(0), 1.0)
        state.done = state.begun = begun
        return state

    monkeypatch.setattr(Checkpoint, "read", lie)
    together = consortium()
    asked, problem = asked_by(together, network(tmp_path / "a", optimiser="sgd"), 0.8)
    assert (asked, together.budget.spent) == (0, 0)
    assert "stages begun" in problem


def test_bent_bytes_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "a"
    cut_off(path)
    right, random, refused = path.read_bytes(), np.random.default_rng(1), []
    fresh = State("0" * 32, NeuralNetwork("label", COLUMNS).start(consortium().schema), 1.0)
    with np.load(path) as held:
        checkpoint = Checkpoint(path, str(held["terms"]))
    assert checkpoint.read(fresh, 8).begun == 3
    for _ in range(1500):
        bent = bytearray(right)
        for at in random.integers(len(bent), size=3):
            bent[at] = random.integers(256)
        path.write_bytes(bent)
        try:
            state = checkpoint.read(fresh, 8)
            assert 0 <= state.done <= state.begun <= 8
        except InvalidInput as error:
            refused.append(str(error))
    assert len(refused) > 1000
    assert all(str(path) in problem for problem in refused)


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "a"
    held = cut_off(path)
    with open(path, "wb") as file:
        np.savez_compressed(file, **held)
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        consortium().release(network(path), 0.8)
    path.write_bytes(bytes(1 << 20))
    with pytest.raises(InvalidInput, match="bytes, and"):
        consortium().release(network(path), 0.8)


def test_a_header_that_says_more_than_there_is_allocates_nothing(tmp_path):
    path = tmp_path / "a"
    held, out = cut_off(path), io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in held.items():
            with archive.open(f"{name}.npy", "w") as file:
                if name == "parameters":
                    file.write(out.getvalue())
                else:
                    np.lib.format.write_array(file, array)
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        consortium().release(network(path), 0.8)


def test_a_checkpoint_that_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / ("x" * 300), tmp_path / ("x" * 300) / "a"):
        together = consortium()
        with pytest.raises(InvalidInput):
            together.release(network(path), 0.8)
        assert together.budget.spent == 0
