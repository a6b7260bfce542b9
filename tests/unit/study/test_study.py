from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path

import pytest

import cape
from cape.study.document import document, read
from cape.study.study import _share_out

STUDY = """
[study]
name = "heart"
[privacy]
epsilon = 1.0
delta = 1e-6
colluding = 1
min_sites = 3
[schema]
age = [18, 90]
chol = [100, 600]
sex = ["female", "male"]
disease = ["no", "yes"]
[sites]
cleveland = "data/cleveland.csv"
hungary = "data/hungary.csv"
zurich = "data/zurich.csv"
va = "data/va.csv"
[[analysis]]
kind = "mean"
columns = ["age", "chol"]
share = 0.2
[[analysis]]
kind = "histogram"
column = "sex"
share = 0.3
"""


@pytest.fixture
def write(tmp_path: Path):
    def write_(old: str = "", new: str = "") -> Path:
        assert old in STUDY
        path = tmp_path / "study.toml"
        path.write_text(STUDY.replace(old, new, 1) if old else STUDY)
        return path

    return write_


def test_the_contract_is_read(write):
    study = cape.Study.load(write())
    assert study.name == "heart"
    assert study.budget == cape.Budget(1.0, 1e-6)
    assert (study.setting.parties.colluding, study.setting.parties.min_sites) == (1, 3)
    assert [(e.number, e.analysis, e.share) for e in study.analyses] == [
        (1, cape.Mean("age", "chol"), 0.2),
        (2, cape.Histogram("sex"), 0.3),
    ]
    assert study.scheme == "cape"
    assert study.sizes is None
    assert study.total(study.analyses).remaining == Fraction(1, 2)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [("min_sites = 4", 4), ("", 3), ('scheme = "conventional"', 3), ('scheme = "cape-gaussian"', 4)],
)
def test_a_study_that_names_no_min_sites_states_the_default_of_its_scheme(write, terms, expected):
    study = cape.Study.load(write("min_sites = 3", terms))
    told = document(study)
    assert study.setting.parties.min_sites == told["min_sites"] == expected
    assert read(told, 1).setting.parties == study.setting.parties


def test_a_consortium_has_the_study_s_terms(write):
    study = cape.Study.load(write("min_sites = 3", 'min_sites = 3\nneighbours = "add-remove"'))
    consortium = study.consortium()
    assert consortium.parties == study.setting.parties
    assert "cleveland" in repr(consortium)
    assert consortium.budget == study.budget
    plan = consortium.plan(study.analyses[0].analysis, 0.2)
    assert plan.noise == study.plan(study.analyses[0]).noise


def test_paths_are_seen_from_the_study_file(write, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    described = '{query = "SELECT 1", connection = "sqlite:///data/x.db"}'
    study = cape.Study.load(write('"data/hungary.csv"', described))
    assert study.sites["cleveland"].source() == str(tmp_path / "data" / "cleveland.csv")
    assert study.sites["hungary"].source().connection == f"sqlite:///{tmp_path}/data/x.db"


@pytest.mark.parametrize(
    ("described", "source"),
    [
        ('"/abs/a.csv"', "/abs/a.csv"),
        ('"s3://bucket/*.parquet"', "s3://bucket/*.parquet"),
        ('{path = "/a.data", columns = ["x"]}', cape.Csv("/a.data", columns=("x",))),
        ('{path = "/a.tsv", null_values = ["?"]}', cape.Csv("/a.tsv", null_values=("?",), separator="\t")),
        ('{path = "/a.csv", separator = ";"}', cape.Csv("/a.csv", separator=";")),
        (
            '{path = "/a.csv", encoding = "latin-1", decimal = ",", thousands = ".", true = "ja"}',
            cape.Csv("/a.csv", separator=";", encoding="latin-1", decimal=",", thousands=".", true=("ja",)),
        ),
        (
            '{path = "/a.csv", false = ["nein"], recode = {sex = {m = "M"}, f = "F"}}',
            cape.Csv("/a.csv", false=("nein",), recode={"sex": {"m": "M"}, "f": "F"}),
        ),
        ('{path = "/a.xlsx", sheet = "rows"}', cape.Excel("/a.xlsx", sheet="rows")),
        ('{path = "/a.sav", null_values = ["-9"]}', cape.File("/a.sav", null_values=("-9",))),
        (
            '{query = "SELECT 1", connection = "sqlite:////abs.db"}',
            cape.Database("SELECT 1", "sqlite:////abs.db"),
        ),
    ],
)
def test_sources(write, described, source):
    assert cape.Study.load(write('"data/va.csv"', described)).sites["va"].source() == source


MISTAKES = [
    ("[privacy]", "[privcy]", "unknown section [privcy]; did you mean 'privacy'?"),
    ("[[analysis]]\nkind", "[[analyses]]\nkind", "unknown section [analyses]; did you mean 'analysis'?"),
    ('name = "heart"', 'nmae = "heart"', "[study]: unknown key 'nmae'; did you mean 'name'?"),
    ('name = "heart"', "name = 3", "[study]: name must be a text, not 3"),
    ("epsilon = 1.0", "epsillon = 1.0", "[privacy]: unknown key 'epsillon'; did you mean 'epsilon'?"),
    ("epsilon = 1.0\n", "", "[privacy]: the key 'epsilon' is missing"),
    ("epsilon = 1.0", "epsilon = 0", "[privacy]: epsilon must be a finite number above 0, not 0"),
    ("delta = 1e-6", "delta = 1", "[privacy]: delta must lie between 0 and 1"),
    ("colluding = 1", "colluding = 4", "[privacy]: colluding must be an integer at least 0 and at most 3"),
    ("min_sites = 3", "min_sites = 5", "[privacy]: min_sites is 5, but there are only 4 sites"),
    ("min_sites = 3", 'scheme = "capes"', "[privacy]: unknown scheme 'capes'; did you mean 'cape'?"),
    ("min_sites = 3", 'neighbours = "replace"', '[privacy]: neighbours must be "add-remove" or "replace-'),
    ("age = [18, 90]", "age = [90, 18]", "[schema]: column 'age': bounds must rise"),
    ("age = [18, 90]", "age = {low = 1, hihg = 2}", "[schema]: column 'age': keys must be"),
    ('"data/va.csv"', '{pth = "x"}', "[sites] va: unknown key 'pth'; did you mean 'path'?"),
    ('"data/va.csv"', "3", "[sites] va: must be a path, or a table"),
    ('"data/va.csv"', '{query = "SELECT 1"}', "[sites] va: the key 'connection' is missing"),
    ('"data/va.csv"', '{path = "x.csv", rows = 0}', "[sites] va: rows must be an integer at least 1"),
    ('"data/va.csv"', '{path = "x.csv", rows = 9}', "gives rows, but not for cleveland, hungary, zurich"),
    ('"data/va.csv"', '{path = "x.csv", has_header = false}', "[sites] va: columns must be given"),
    ('"data/va.csv"', '{path = "x.csv", has_header = 1}', "[sites] va: has_header must be true or false"),
    ('"data/va.csv"', '{path = "x.csv", separator = "ab"}', "[sites] va: separator must be one character"),
    ('"data/va.csv"', '{path = "x.csv", encoding = 8}', "[sites] va: encoding must be a text, not 8"),
    ('"data/va.csv"', '{path = "x.csv", encoding = "utf-7"}', "[sites] va: encoding must be that of a text"),
    ('"data/va.csv"', '{path = "x.csv", decimal = ";"}', "[sites] va: decimal must be '.' or ','"),
    ('"data/va.csv"', '{path = "x.csv", thousands = "."}', "[sites] va: thousands must be a dot"),
    ('"data/va.csv"', '{path = "x.csv", true = 1}', "[sites] va: true must be a text or a list of texts"),
    ('"data/va.csv"', '{path = "x.csv", null_values = [9]}', "[sites] va: entry 1 of null_values must be a"),
    ('"data/va.csv"', '{path = "x.csv", recode = "f"}', "[sites] va: recode must be a table with keys"),
    ('"data/va.csv"', '{path = "x.csv", recode = {f = []}}', "[sites] va: recode must give texts or numbers"),
    ('"data/va.csv"', '{path = "x.csv", sheet = 1}', "[sites] va: sheet is a key of a spreadsheet"),
    ('"data/va.csv"', '{path = "x.xlsx", sheet = 0}', "[sites] va: sheet must be the name of a sheet"),
    ('"data/va.csv"', '{path = "x.sav", decimal = ","}', "[sites] va: decimal is a key of a text file"),
    ('kind = "mean"', 'kind = "maen"', "[[analysis]] 1: no analysis of kind 'maen'; did you mean 'mean'?"),
    ('columns = ["age"', 'colums = ["age"', "[[analysis]] 1: an analysis of kind 'mean' has no key 'colums'"),
    ("share = 0.2", "shares = 0.2", "kind 'mean' has no key 'shares'; did you mean 'share'?"),
    ("share = 0.2", "x = 0.2", "kind 'mean' has no key 'x'; choose from kind, columns, where, by, share"),
    ('"data/va.csv"', '"data/../data/zurich.csv"', "[sites] zurich and va read the same file; a person's"),
    ('["age", "chol"]', '["agee", "chol"]', "[[analysis]] 1: no column 'agee' in the schema; did you mean"),
    ('["age", "chol"]', '["age", "sex"]', "[[analysis]] 1: column 'sex' must have numeric bounds here"),
    ('column = "sex"', 'column = "age"', "[[analysis]] 2: column 'age' has bounds in the schema"),
    ("share = 0.3", "share = 0.9", "the shares add up to 1.1; they must add up to at most 1"),
    ("share = 0.3", "share = -1", "[[analysis]] 2: share must be a finite number above 0"),
    ("share = 0.3", 'share = "a lot"', "[[analysis]] 2: share must be a finite number"),
    ("[schema]", "[schema", "is not a TOML file: "),
    ('[study]\nname = "heart"', "[study]", "[study]: the key 'name' is missing"),
]


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES, ids=lambda text: str(text)[:24])
def test_a_mistake_is_one_line_with_its_place(write, old, new, said):
    path = write(old, new)
    with pytest.raises(cape.InvalidInput) as caught:
        cape.Study.load(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_site_on_a_machine_of_its_own_needs_no_path(write) -> None:
    study = cape.Study.load(write('"data/va.csv"', "{}"))
    assert study.sites["va"].elsewhere
    assert not study.sites["cleveland"].elsewhere
    assert study.plan(study.analyses[0]).scheme == "cape"
    with pytest.raises(cape.InvalidInput, match="`cape submit` asks the site itself"):
        study.consortium()


@pytest.mark.parametrize("name", ["study", "privacy", "schema", "sites"])
def test_a_missing_section(write, tmp_path, name):
    sections = STUDY.split("\n[")
    path = tmp_path / "study.toml"
    path.write_text("\n[".join(part for part in sections if not part.lstrip("[").startswith(f"{name}]")))
    with pytest.raises(cape.InvalidInput, match=rf"the section \[{name}\] is missing"):
        cape.Study.load(path)


def test_no_analysis_or_one_in_single_brackets(write, tmp_path):
    path = tmp_path / "study.toml"
    start = STUDY[: STUDY.index("[[analysis]]")]
    for end in ("", '[analysis]\nkind = "mean"\n'):
        path.write_text(start + end)
        with pytest.raises(cape.InvalidInput, match="at least one"):
            cape.Study.load(path)


def test_one_site_is_not_a_consortium(write, tmp_path):
    path = tmp_path / "study.toml"
    lines = [line for line in STUDY.splitlines() if not line.startswith(("hungary", "zurich", "va"))]
    path.write_text("\n".join(lines))
    with pytest.raises(cape.InvalidInput, match="at least two sites"):
        cape.Study.load(path)


def test_no_site_at_all(write, tmp_path):
    path = tmp_path / "study.toml"
    lines = [line for line in STUDY.splitlines() if "data/" not in line]
    path.write_text("\n".join(lines))
    with pytest.raises(cape.InvalidInput, match=r"\[sites\] must name at least two sites"):
        cape.Study.load(path)


def test_two_sites_with_the_same_rows_are_refused(write, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "zurich.csv").write_text("age\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "zurich.csv")
    for described in ('"link.csv"', '{path = "link.csv", separator = ";"}'):
        with pytest.raises(cape.InvalidInput, match="zurich and va read the same file"):
            cape.Study.load(write('"data/va.csv"', described))
    same = '{query = "SELECT 1", connection = "sqlite:///x.db"}'
    with pytest.raises(cape.InvalidInput, match="zurich and va ask the same query"):
        cape.Study.load(write('"data/zurich.csv"\nva = "data/va.csv"', f"{same}\nva = {same}"))
    other = same.replace("SELECT 1", "SELECT 2")
    cape.Study.load(write('"data/zurich.csv"\nva = "data/va.csv"', f"{same}\nva = {other}"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("delta = 1e-6", "delta = 1e-3", ["delta = 0.001 is not below 0.001"]),
        ("delta = 1e-6", "delta = 9e-4", []),
        ("epsilon = 1.0", "epsilon = 10", []),
        ("epsilon = 1.0", "epsilon = 10.5", ["epsilon = 10.5 is above 10"]),
        ("epsilon = 1.0\ndelta = 1e-6", "epsilon = 99\ndelta = 0.1", ["delta = 0.1", "epsilon = 99"]),
    ],
)
def test_a_budget_that_promises_little_is_warned_of(write, old, new, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = cape.Study.load(write(old, new))
    assert [str(warning.message) for warning in caught] == list(study.warnings)
    assert all(warning.category is cape.PrivacyLeakWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    assert len(said) == len(study.warnings)
    assert all(text.startswith(start) for text, start in zip(study.warnings, said, strict=True))


def test_delta_is_held_against_the_rows_if_they_are_given(write, tmp_path):
    path = write("delta = 1e-6", "delta = 1e-4")
    text = path.read_text()
    for rows, warned in ((2499, False), (2500, True)):
        lines = [
            f"{line.split(' = ')[0]} = {{path = {line.split(' = ')[1]}, rows = {rows}}}"
            if "data/" in line
            else line
            for line in text.splitlines()
        ]
        path.write_text("\n".join(lines))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert bool(cape.Study.load(path).warnings) == warned


@pytest.mark.parametrize("path", [3, None, b"study.toml", True])
def test_a_path_that_is_none(path):
    with pytest.raises(cape.InvalidInput, match="path must be that of a TOML file"):
        cape.Study.load(path)


def test_no_file(tmp_path):
    with pytest.raises(cape.InvalidInput, match="no study file"):
        cape.Study.load(tmp_path / "nothing.toml")
    with pytest.raises(cape.InvalidInput, match="cannot be read"):
        cape.Study.load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"\xe9")
    with pytest.raises(cape.InvalidInput, match="not a TOML file"):
        cape.Study.load(tmp_path / "latin.toml")


@pytest.mark.parametrize("given", [[None] * 3, [0.5, None, None, None], [None] * 7, [0.1, 0.2, None]])
def test_shares_left_out_are_even_and_add_up_to_one_exactly(given):
    shares = _share_out(given)
    assert sum(Fraction(repr(share)) for share in shares) == 1
    free = [share for share, before in zip(shares, given, strict=True) if before is None]
    assert max(free) - min(free) < 1e-8


def test_ten_tenths_are_one_and_no_more():
    assert _share_out([0.1] * 10) == [0.1] * 10
    with pytest.raises(cape.InvalidInput, match=r"add up to 1\.1"):
        _share_out([0.1] * 11)
    with pytest.raises(cape.InvalidInput, match="nothing is left of the budget for 1 "):
        _share_out([1.0, None])


def test_what_is_published_of_a_study_has_no_path(write):
    study = cape.Study.load(write('"data/va.csv"', '{query = "SELECT 1", connection = "sqlite:///pw.db"}'))
    assert "pw.db" not in str(study.to_dict())
    assert "data/" not in str(study.to_dict())


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ('kind = "logistic-regresion"', "did you mean 'logistic-regression'?"),
        ('kind = "kmeans"', "did you mean 'k-means'?"),
        ('kind = "logistic-regression"\ntarget = "disease"\nfeatures = ["aeg"]', "did you mean 'age'?"),
        ('kind = "logistic-regression"\ntarget = "diseas"\nfeatures = ["age"]', "did you mean 'disease'?"),
        ('kind = "linear-regression"\ntarget = "age"\nfeature = ["chol"]', "did you mean 'features'?"),
        ('kind = "linear-regression"\ntarget = "age"', "must have features, a list of names, or a formula"),
        ('kind = "linear-regression"\ntarget = "age"\nfeatures = ["age"]', "must not be one of the features"),
        ('kind = "linear-regression"\ntarget = "sex"\nfeatures = ["age"]', "must have bounds"),
        ('kind = "logistic-regression"\ntarget = "age"\nfeatures = ["chol"]', "must have two categories"),
        ('kind = "linear-regression"\nformula = "age ~ chol * sx"', "did you mean 'sex'?"),
        ('kind = "linear-regression"\nformula = "age ~ chol +"', "at '+' (character 12)"),
        ('kind = "linear-regression"\nformula = "age ~ ."', "name the columns"),
        ('kind = "linear-regression"\nformula = "age ~ chol"\ntarget = "age"', "either the formula or"),
        ('kind = "pca"\ncolumns = ["age", "chol:sex"]', "no column 'chol:sex'"),
        ('kind = "pca"\ncolumns = ["age", "col"]', "did you mean 'chol'?"),
        ('kind = "pca"\ncolumns = ["age"]\ncentre = false', "did you mean 'center'?"),
        ('kind = "k-means"\ncolumns = ["age"]', "must have the key 'clusters'"),
        ('kind = "k-means"\ncolumns = ["age"]\nclusters = 0', "clusters must be an integer at least 1"),
        (
            'kind = "neural-network"\ntarget = "sex"\nfeatures = ["age"]\nhiden = [5]',
            "did you mean 'hidden'?",
        ),
    ],
)
def test_a_mistake_in_a_model_is_one_line_with_a_hint(write, described, said):
    path = write('kind = "mean"\ncolumns = ["age", "chol"]', described)
    with pytest.raises(cape.InvalidInput) as raised:
        cape.Study.load(path)
    assert "[[analysis]] 1: " in str(raised.value)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_network_takes_the_keys_of_training(write):
    described = 'kind = "neural-network"\ntarget = "sex"\nfeatures = ["age"]\nepochs = 20\nwatch = true'
    study = cape.Study.load(write('kind = "mean"\ncolumns = ["age", "chol"]', described))
    assert len(study.analyses[0].analysis.stages()) == 20


def test_a_formula_in_a_study_file_is_a_target_and_features(write):
    described = 'kind = "linear-regression"\nformula = "age ~ spline(chol, 4) * sex + site"'
    study = cape.Study.load(write('kind = "mean"\ncolumns = ["age", "chol"]', described))
    said = study.analyses[0].analysis.to_dict()
    assert said["target"] == "age"
    assert list(said["features"]) == ["spline(chol, 4)", "sex", "site", "spline(chol, 4):sex"]
    assert "formula" not in said


LAPLACE = """
[study]
name = "lungs"
[privacy]
epsilon = 1.0
{privacy}
[schema]
age = [18, 90]
weight = [40, 140]
sex = ["female", "male"]
[sites]
a = "a.csv"
b = "b.csv"
c = "c.csv"
{analyses}
"""
FEW = '[[analysis]]\nkind = "histogram"\ncolumn = "sex"\n'
MANY = '[[analysis]]\nkind = "covariance"\ncolumns = ["age", "weight"]\n'


def noise_of(privacy: str, *analyses: str) -> cape.Study:
    return cape.Study.parse(LAPLACE.format(privacy=privacy, analyses="\n".join(analyses)), Path("study.toml"))


def test_a_study_without_delta_has_laplace_noise():
    study = noise_of("", FEW)
    assert study.budget.pure
    assert study.setting.noise == "laplace"
    assert study.guarantee(Fraction(1, 2)).pure == 0.5
    assert study.to_dict()["noise"] == "laplace"
    assert study.to_dict()["delta"] == 0


def test_the_kind_of_noise_is_chosen_for_the_whole_study():
    auto = 'delta = 1e-6\nnoise = "auto"'
    few, many = noise_of(auto, FEW), noise_of(auto, FEW, MANY)
    assert few.setting.noise == "laplace"
    assert "Laplace noise, chosen for the whole study: its error is 0." in few.chosen
    assert many.setting.noise == "gaussian"
    assert "Covariance needs Gaussian noise" in many.chosen
    assert noise_of("delta = 1e-6", FEW).setting.noise == "gaussian"
    assert noise_of('delta = 1e-6\nnoise = "laplace"', FEW).setting.noise == "laplace"
    strict = noise_of('delta = 0.01\nnoise = "auto"', FEW)
    assert (strict.setting.noise == "gaussian") == ("Gaussian noise, chosen" in strict.chosen)


def test_the_other_kind_of_noise_is_proposed_where_it_is_clearly_better_for_the_whole_study():
    few = noise_of("delta = 1e-6", FEW)
    assert few.better_noise is not None
    assert few.better_noise.kind == "laplace"
    (entry,) = few.analyses
    there = noise_of('delta = 1e-6\nnoise = "laplace"', FEW)
    planned = [study.plan(study.analyses[0]).expected_error for study in (few, there)]
    times = [planned[1][label] / planned[0][label] for label in planned[0]]
    assert few.better_noise.times == pytest.approx(few.plan(entry).ratio)
    assert few.better_noise.times == pytest.approx(min(times), rel=0.2), "of SDs; the mean |error| is near"
    assert there.better_noise is None, "it has the better one"
    assert noise_of("", FEW).better_noise is None, "without delta there is one kind"
    assert noise_of('delta = 1e-6\nnoise = "auto"', FEW).better_noise is None, "it was chosen"
    assert noise_of("delta = 1e-6", FEW, MANY).better_noise is None, "Covariance has no Laplace noise"
    text = str(few.better_noise)
    assert 'write noise = "laplace" under [privacy]' in text
    assert f"would be {few.better_noise.times:.2g} times that with Gaussian noise" in text


def test_gaussian_noise_is_proposed_to_a_study_of_many_numbers_with_laplace_noise():
    columns = "\n".join(f"x{i} = [0, 1]" for i in range(40))
    named = ", ".join(f'"x{i}"' for i in range(40))
    text = LAPLACE.format(
        privacy='delta = 1e-6\nnoise = "laplace"',
        analyses=f'[[analysis]]\nkind = "mean"\ncolumns = [{named}]\n',
    ).replace("[schema]", f"[schema]\n{columns}")
    study = cape.Study.parse(text, Path("study.toml"))
    assert study.better_noise is not None
    assert study.better_noise.kind == "gaussian"
    assert study.better_noise.times < 1 / 1.1


@pytest.mark.parametrize(
    ("privacy", "analysis", "message"),
    [
        ("", MANY, r"\[\[analysis\]\] 1: Covariance needs delta: write delta = 1e-6 beside epsilon"),
        ('noise = "gaussian"', FEW, 'noise = "gaussian" needs a delta'),
        ('scheme = "cape-gaussian"', FEW, "makes Gaussian noise, which needs a delta"),
        ('noise = "uniform"', FEW, "noise"),
    ],
)
def test_what_laplace_noise_cannot_do_is_said_before_anything_runs(privacy, analysis, message):
    with pytest.raises(cape.InvalidInput, match=message):
        noise_of(privacy, analysis)


def test_what_follows_the_expected_rows_is_decided_in_the_document_that_all_sites_get(tmp_path):
    text = """
[study]
name = "steps"
[privacy]
epsilon = 1.0
delta = 1e-6
colluding = 1
[schema]
age = [18, 90]
ill = ["no", "yes"]
[sites]
{sites}
[[analysis]]
kind = "logistic-regression"
target = "ill"
features = ["age"]
"""
    found = []
    for rows in (100, 100_000):
        sites = "\n".join(f'{name} = {{ path = "{name}.csv", rows = {rows} }}' for name in "abc")
        study = cape.Study.parse(text.format(sites=sites), tmp_path / "study.toml")
        assert study.analyses[0].analysis.rounds == "auto"  # which without noise is as many as it takes
        found.append(document(study)["analyses"][0]["rounds"])
    assert found == [2, "auto"]
