from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

from cape import NeuralNetwork
from cape.errors import InvalidInput, PrivacyLeakWarning
from tests.learning.tables import COLUMNS, consortium


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


def test_a_checkpoint_in_a_folder_that_is_not_there(tmp_path):
    together = consortium()
    with pytest.raises(InvalidInput, match="folder"):
        together.release(network(tmp_path / "none" / "a"), 0.8)
    assert together.budget.spent == 0
