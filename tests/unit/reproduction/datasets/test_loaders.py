"""Each loader, on rows made on the spot in the format of the published file."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.io import savemat

import cape
from reproduction.datasets import Unavailable, as_in_the_paper, load_crime, load_heart, load_twitter
from reproduction.datasets.crime import _COLUMNS

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


@pytest.fixture
def crime(tmp_path):
    """Six rows of 128 cells: the police survey is empty but once, OtherPerCap is empty once."""
    draw = np.random.default_rng(3)
    lines = []
    for i in range(6):
        cells = [f"{value:.2f}" for value in draw.random(128)]
        cells[:5] = [str(1 + i), "?", "?", f"Town{i}", str(1 + i % 10)]
        for name in ("LemasSwornFT", "PolicBudgPerPop") if i else ("OtherPerCap",):
            cells[_COLUMNS.index(name)] = "?"
        lines.append(",".join(cells))
    path = tmp_path / "communities.data"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_crime_has_99_features_or_the_papers_101(crime):
    data = load_crime(crime)
    assert data.X.shape == (6, 99)
    assert data.target == "ViolentCrimesPerPop"
    assert not {"state", "fold", "OtherPerCap", "LemasSwornFT", "communityname"} & set(data.names)
    paper = load_crime(crime, columns="paper")
    assert paper.names == ("state", "fold", *data.names)
    assert paper.X[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(paper.X[:, 2:], data.X)
    row = crime.read_text().splitlines()[2].split(",")
    assert data.X[2, data.names.index("PopDens")] == float(row[_COLUMNS.index("PopDens")])
    assert data.y[2] == float(row[127])


def test_crime_says_where_it_is_from(crime):
    data = load_crime(crime)
    assert data.licence == "CC BY 4.0"
    assert "Redmond" in str(data.origin)
    assert "UCI" in data.origin.source


def test_crime_goes_into_a_consortium(crime):
    data = load_crime(crime)
    sites = data.split(4)
    assert [len(frame) for frame in sites.values()] == [2, 2, 1, 1]
    consortium = cape.Consortium(sites, data.schema(), cape.Budget(1.0, 1e-6), colluding=1)
    assert consortium.plan(cape.Mean("population"), share=0.5) is not None


@pytest.mark.parametrize("change", [lambda t: t[:-6], lambda t: t.replace("0.", "zero.", 40)])
def test_a_crime_file_of_another_shape_is_refused(crime, change):
    crime.write_text(change(crime.read_text()))
    with pytest.raises(Unavailable, match=r"crime: communities\.data"):
        load_crime(crime)
    with pytest.raises(cape.InvalidInput, match="predictive"):
        load_crime(crime, columns="all")


@pytest.fixture
def counts():
    draw = np.random.default_rng(4)
    return draw.integers(0, 400, (50, 78)).astype(float)


def test_twitter_is_scaled_as_in_the_paper(tmp_path, counts):
    np.savetxt(tmp_path / "Twitter.data", counts, delimiter=",", fmt="%g")
    data = load_twitter(tmp_path)
    X, y = as_in_the_paper(counts[:, :-1], counts[:, -1])
    np.testing.assert_allclose(data.X, X, rtol=1e-12)
    np.testing.assert_allclose(data.y, y, rtol=1e-12)
    assert data.names[0] == "NCD_0"
    assert data.names[-1] == "NAD_6"
    assert "not" in data.note or "outside" in data.note
    assert np.linalg.norm(data.X, axis=1).max() <= 1.0


def test_twitter_draws_rows_by_seed(tmp_path, counts):
    np.savetxt(tmp_path / "Twitter.data", counts, delimiter=",", fmt="%g")
    one, same, other = (load_twitter(tmp_path, rows=10, seed=seed) for seed in (1, 1, 2))
    assert one.X.shape == (10, 77)
    np.testing.assert_array_equal(one.X, same.X)
    assert not np.array_equal(one.X, other.X)
    assert len(np.unique(one.X, axis=0)) == 10
    with pytest.raises(cape.InvalidInput, match="at most 50"):
        load_twitter(tmp_path, rows=51)


def test_twitter_takes_the_authors_matlab_file(tmp_path, counts):
    X, y = as_in_the_paper(counts[:, :-1], counts[:, -1])
    savemat(tmp_path / "twitter_D_77_N_50.mat", {"X": X, "y": y[:, None], "D": 77, "N": 50})
    for path in (tmp_path, tmp_path / "twitter_D_77_N_50.mat"):
        data = load_twitter(path, rows=20)
        np.testing.assert_array_equal(data.X, X[:20])
        np.testing.assert_array_equal(data.y, y[:20])
    savemat(tmp_path / "wrong.mat", {"X": 9 * X, "y": y})
    with pytest.raises(Unavailable, match="scaled"):
        load_twitter(tmp_path / "wrong.mat")
    (tmp_path / "text.mat").write_text("no such file format")
    with pytest.raises(Unavailable, match="MATLAB"):
        load_twitter(tmp_path / "text.mat")


def test_a_kept_twitter_file_must_have_all_rows(tmp_path, counts):
    (tmp_path / "twitter").mkdir()
    np.savetxt(tmp_path / "twitter" / "Twitter.data", counts, delimiter=",", fmt="%g")
    with pytest.raises(Unavailable, match="583,250"):
        load_twitter(cache=tmp_path)
    (tmp_path / "twitter" / "Twitter.data").write_text("1,2,x\n")
    with pytest.raises(Unavailable, match="78 numbers"):
        load_twitter(cache=tmp_path)


def test_the_authors_matlab_file_is_checked_where_it_was_kept(tmp_path, counts):
    X, y = as_in_the_paper(counts[:, :-1], counts[:, -1])
    (tmp_path / "twitter").mkdir()
    savemat(tmp_path / "twitter" / "twitter_D_77_N_20000.mat", {"X": X, "y": y})
    with pytest.raises(Unavailable, match="expected"):
        load_twitter(cache=tmp_path)


@pytest.fixture
def hospitals(tmp_path):
    for i, name in enumerate(HOSPITALS):
        lines = [
            "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0",
            "35,0,4,?,0,?,0,130,1,.7,?,?,7,3",
        ]
        (tmp_path / f"processed.{name}.data").write_text("\n".join(lines[: 1 + i % 2]) + "\n")
    return tmp_path


def test_heart_is_four_sites_in_words(hospitals):
    data = load_heart(hospitals)
    assert {name: len(frame) for name, frame in data.sites.items()} == {
        "cleveland": 1,
        "hungary": 2,
        "zurich": 1,
        "va": 2,
    }
    first, second = data.sites["va"].rows(named=True)
    assert (first["sex"], first["pain"], first["chol"], first["disease"]) == (
        "male",
        "typical angina",
        233.0,
        "no",
    )
    assert (second["sex"], second["pressure"], second["chol"], second["disease"]) == (
        "female",
        None,
        None,
        "yes",
    )
    assert second["exercise_angina"] == "yes"
    assert data.licence == "CC BY 4.0"
    assert cape.Consortium(dict(data.sites), data.schema(), cape.Budget(1.0, 1e-6), colluding=1)


def test_heart_needs_all_four_files(hospitals):
    with pytest.raises(cape.InvalidInput, match="folder or a zip"):
        load_heart(hospitals / "processed.va.data")
    (hospitals / "processed.va.data").write_text("63,1,1\n")
    with pytest.raises(Unavailable, match=r"processed\.va\.data"):
        load_heart(hospitals)
