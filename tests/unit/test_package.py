"""The shape of the package: what it loads, what it exports, which way imports point."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import cape
from cape.core.moved import MOVED, now_called
from tests import layout
from tests.layout import LAYERS

SOURCE = Path(cape.__file__).parent
PROJECT = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
OF_DOCUMENTS = {"great_tables": "great-tables", "docx": "python-docx"}
DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "dp_accounting": "dp-accounting",
    **OF_DOCUMENTS,
}  # where names differ
OF_DATABASES = ("duckdb", "postgres", "mariadb", "spark")
OF_USERS = (
    *OF_DATABASES,
    "plot",
    "sklearn",
    "excel",
    "formula",
    "export",
    "synthetic",
    "stats",
    "torch",
    "accounting",
    "flare",
    "desk",
)  # what it can do
HOMES = {
    "scikit-learn": "sklearn",
    "torch": "torch",
    "nvflare": "flare",
    "aiohttp": "flare",
    "psutil": "flare",
    "h11": "desk",
    "starlette": "desk",
    "anyio": "desk",
    "markupsafe": "desk",
    "jinja2": "desk",
    "uvicorn": "desk",
    "authlib": "desk",
    "httpx2": "desk",
    "joserfc": "desk",
    "tomlkit": "desk",
}
UPWARDS = {
    "core/moved.py": {*MOVED, *MOVED.values()},  # modules of any layer
    "show/shown.py": {"cape.sklearn.exports"},  # `to_sklearn`, for whoever has the extra
}  # modules that are named as strings, and imported only for who asks
OF_OTHERS = {"pandas"}  # who asks for a data frame of another library has that library


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_importing_cape_loads_nothing_heavy():
    code = "import sys, cape; print(' '.join(sorted(m.split('.')[0] for m in sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "scipy", "sklearn", "polars", "narwhals", "cryptography", "matplotlib", "typer", "rich"}
    assert not heavy & set(loaded.stdout.split())


def test_every_exported_name_is_there():
    for name in cape.__all__:
        assert getattr(cape, name) is not None
    assert set(cape.__all__) <= set(dir(cape))
    with pytest.raises(AttributeError, match="no attribute 'Bugdet'"):
        cape.Bugdet  # noqa: B018


def test_every_analysis_of_study_files_is_exported():
    from cape.analyses import KINDS

    for kind, analysis in KINDS.items():
        assert getattr(cape, analysis.__name__, None) is analysis, f"{kind} is missing in cape/__init__.py"
        assert analysis.__name__ in cape.__all__


def test_an_analysis_is_listed_under_its_kind():
    from cape.analyses import KINDS

    ours = {kind: made for kind, made in KINDS.items() if made.__module__.startswith("cape.")}
    assert [made.kind for made in ours.values()] == list(ours)
    assert "means" not in KINDS
    with pytest.raises(KeyError, match="means"):
        KINDS["means"]


@pytest.mark.parametrize("package", ["analyses", "blocks", "data", "learning"])
def test_names_that_are_imported_when_used_are_there(package):
    module = importlib.import_module(f"cape.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module 'cape.{package}' has no attribute 'Maen'"):
        module.Maen  # noqa: B018


def loaded_by(code: str) -> set[str]:
    """The modules that a process has after this code."""
    code = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_an_analysis_loads_only_what_it_needs():
    loaded = loaded_by("import cape; cape.Mean")
    assert not loaded & {"polars", "narwhals", "sqlglot", "scipy.optimize", "scipy.stats", "typer"}
    of_analyses = {name for name in loaded if name.startswith(("cape.analyses.", "cape.learning."))}
    assert "cape.analyses.describe.mean" in of_analyses
    assert not of_analyses & {"cape.analyses.registry", "cape.analyses.tables", "cape.learning.kmeans"}


def test_a_module_that_moved_is_found_under_its_former_name():
    code = (
        "import importlib, warnings\n"
        f"for former in {list(MOVED)}:\n"
        "    with warnings.catch_warnings(record=True) as seen:\n"
        "        warnings.simplefilter('always')\n"
        "        found = importlib.import_module(former)\n"
        "    print(former, found.__name__, *{each.category.__name__ for each in seen})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{former} {now} DeprecationWarning" for former, now in MOVED.items()]


def run(code: str) -> list[str]:
    """The lines that a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_module_below_one_that_moved_is_the_same_module_and_not_a_copy():
    code = (
        "import sys, warnings\n"
        "warnings.simplefilter('always')\n"
        "import cape.steward\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    import cape.steward.folder, cape.steward.decide.policy\n"
        "    from cape.steward.folder import SiteFolder\n"
        "    import cape.steward.folder\n"
        "for each in seen: print(each.message, each.category.__name__, each.filename)\n"
        "from cape import site\n"
        "import cape.site.folder, cape.site.decide.policy\n"
        "for name in ('', '.folder', '.decide', '.decide.policy'):\n"
        "    assert sys.modules['cape.steward' + name] is sys.modules['cape.site' + name], name\n"
        "assert SiteFolder is site.SiteFolder\n"
        "assert cape.site.folder.__name__ == cape.site.folder.__spec__.name == 'cape.site.folder'"
    )
    assert run(code) == [
        f"cape.steward.{name} is called cape.site.{name} now DeprecationWarning <string>"
        for name in ("folder", "decide", "decide.policy")
    ]


def test_a_former_module_of_cape_itself_is_an_attribute():
    former = [name for name in MOVED if name.count(".") == 1]
    assert {"cape.check", "cape.errors"} <= set(former)
    code = (
        "import cape, sys, warnings\n"
        f"for former in {former}:\n"
        "    with warnings.catch_warnings(record=True) as seen:\n"
        "        warnings.simplefilter('always')\n"
        "        found = eval(former), eval(former)\n"
        "    assert found[0] is found[1] is sys.modules[found[0].__name__]\n"
        "    print(*(f'{each.message}, {each.filename}' for each in seen))\n"
        "assert 'check' not in dir(cape)"
    )
    assert run(code) == [f"{name} is called {MOVED[name]} now, <string>" for name in former]


def test_a_former_name_of_nothing_says_where_it_was_looked_for():
    code = "try: import cape.steward.nothing\nexcept ModuleNotFoundError as error: print(error.name, error)"
    assert run(code) == [
        "cape.steward.nothing No module named 'cape.steward.nothing': "
        "it would be called cape.site.nothing now, which does not exist"
    ]
    assert now_called("cape.steward.amount.a") == "cape.privacy.accounting.a"
    assert now_called("cape.site.folder") is None
    assert now_called("cape.stewards") is None
    assert now_called("cape") is None


def test_every_exception_is_in_one_tree():
    from cape.core import errors

    for kind in map(vars(errors).get, errors.__all__):
        if not isinstance(kind, type):  # a function
            continue
        assert issubclass(kind, (cape.CapeError, Warning)), kind


def test_imports_point_downwards():
    order = list(LAYERS)
    for path in sorted(SOURCE.rglob("*.py")):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own not in LAYERS:
            assert own in {"__init__", "__main__"}, f"{own} has no place among the layers"
            continue
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "cape" and parts[1] in LAYERS:
                if name in UPWARDS.get(str(path.relative_to(SOURCE)), ()):
                    continue
                assert order.index(parts[1]) <= order.index(own), f"{path} imports {name}"


def test_what_may_name_a_module_above_it_still_does():
    for file, names in UPWARDS.items():
        assert names <= set(imported(SOURCE / file)), file


def test_an_import_by_name_would_be_seen(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""cape.audit."""\nimport_module("cape.show.plot")\n__import__("torch.nn")\nimportlib.import_module(b)\n'
        'exports(__name__, {"cape.data.files": ["Csv"]})\nRow("cape.data, a")\nrun("-m", "cape.desk.child")\n'
    )
    assert set(imported(path)) == {"cape.show.plot", "torch.nn", "cape.data.files", "cape.desk.child"}


def test_statistics_import_the_core_alone():
    for path in sorted((SOURCE / "stats").glob("*.py")):
        for name in imported(path):
            top = name.split(".")[0]
            assert top in {"cape", "numpy", "scipy"} | sys.stdlib_module_names, f"{path} imports {name}"
            assert top != "cape" or name.startswith(("cape.core.", "cape.stats.")), f"{path} imports {name}"


FAMILIES = list(LAYERS["analyses"])
"""Each family of analyses may import those before it, and what they share beside them."""
OF_ALL = {"__init__.py", "registry.py"}  # list what all families have


def test_families_of_analyses_import_those_before_them():
    root = SOURCE / "analyses"
    assert sorted(FAMILIES) == sorted(path.parent.name for path in root.glob("*/__init__.py"))
    for path in sorted(root.rglob("*.py")):
        own = path.relative_to(root).parts[0]
        before = FAMILIES[: FAMILIES.index(own) + 1] if own in FAMILIES else []
        taken = {name.split(".")[2] for name in imported(path) if name.startswith("cape.analyses.")}
        assert own in OF_ALL or not taken & set(FAMILIES) - set(before), path


def test_statistics_are_tested_alone():
    for path in sorted((SOURCE.parents[1] / "tests/unit/stats").glob("*.py")):
        ours = {name for name in imported(path) if name.split(".")[0] in ("cape", "tests", "benchmarks")}
        assert all(name.startswith(("cape.core.", "cape.stats.", "tests.slices.")) for name in ours), path


def test_every_module_of_statistics_has_tests_of_its_own():
    tests = SOURCE.parents[1] / "tests/unit/stats"
    tested = {name for path in tests.glob("test_*.py") for name in imported(path)}
    for path in set((SOURCE / "stats").glob("*.py")) - {SOURCE / "stats/__init__.py"}:
        assert any(name.startswith(f"cape.stats.{path.stem}.") for name in tested), path


def test_nothing_imports_the_command_line():
    for path in set(SOURCE.rglob("*.py")) - set((SOURCE / "cli").rglob("*.py")) - {SOURCE / "__main__.py"}:
        assert not [name for name in imported(path) if name.startswith("cape.cli")], path


def test_a_command_loads_the_desk_only_to_start_it():
    code = "import sys, cape.cli.desk_action; print([m for m in sys.modules if m.startswith('cape.desk')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def imported(path: Path) -> Iterator[str]:
    """The qualified names that a module imports.

    A string that is the name of a module of ours counts: lists of commands, analyses and exports hold such
    names, which are imported when they are used.
    """
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and re.fullmatch(r"cape(\.\w+)+", str(node.value)):
            yield str(node.value)
        elif (name := by_name(node)) is not None:
            yield name
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def by_name(node: ast.AST) -> str | None:
    """The module that a call of `import_module` or `__import__` names, if it is written there."""
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return None
    function = ast.unparse(node.func).rpartition(".")[2]
    return str(node.args[0].value) if function in ("import_module", "__import__") else None


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(tree: ast.AST) -> set[str]:
    """The names that a module gives to functions, classes, variables and attributes of its objects."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_itself(node):
            found.add(node.attr)
    return found


def of_itself(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def reached(tree: ast.AST) -> Iterator[str]:
    """The private names that a module uses of something else than itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "cape":
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute) and private(node.attr) and not of_itself(node):
            yield node.attr


def test_no_module_reaches_into_another_ones_private_names():
    trees = {path: parsed(path) for path in SOURCE.rglob("*.py")}
    ours = {name for tree in trees.values() for name in defined(tree) if private(name)}
    ours -= {"_parameters", "_version"}  # torch has attributes of these names, too
    for path, tree in trees.items():
        taken = {name for name in reached(tree) if name in ours} - defined(tree)
        assert not taken, f"{path.relative_to(SOURCE)} uses {', '.join(sorted(taken))} of another module"


def test_a_private_name_of_another_module_would_be_seen():
    tree = ast.parse(
        "from cape.a import _b\nself._c = 1\nx._c\nx._d = 1\nx.e._f\nx.__g__\nclass _H: pass\ny._H"
    )
    assert set(reached(tree)) - defined(tree) == {"_b", "_d", "_f"}


def test_every_package_has_its_place_in_the_map():
    folders = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")} - {"."}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(layout.packages()) == sorted(folders | modules)
    for name in layout.BESIDE:
        assert list(layout.ROOT.glob(f"{name}*")), f"there is no {name}"


def test_the_map_in_contributing_is_printed_from_docstrings():
    page = (layout.ROOT / "CONTRIBUTING.md").read_text()
    assert page == layout.renewed(page), "renew it: python -m tests.layout --write"


def test_a_map_of_other_docstrings_would_be_seen(tmp_path, monkeypatch):
    page = (layout.ROOT / "CONTRIBUTING.md").read_text()
    monkeypatch.setattr(layout, "SOURCE", tmp_path)
    monkeypatch.setattr(layout, "ROOT", tmp_path)
    for package in layout.packages():
        file = tmp_path / package / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'"""What {package} is.\n\nNot here: the rest.\n"""')
    assert "  core/           What core is.\n                  Not here: the rest.\n" in layout.renewed(page)
    (tmp_path / "site" / "decide" / "__init__.py").write_text('"""Decisions."""')
    with pytest.raises(ValueError, match=r"site/decide/__init__.py: .* 'Not here: ...'"):
        layout.renewed(page)
    with pytest.raises(ValueError, match="no map"):
        layout.renewed("# Working on CAPE")


def test_modules_that_the_page_on_architecture_names_are_there():
    docs = layout.ROOT / "docs"
    for file in (docs / "architecture.md", docs / "img" / "architecture.svg"):
        names = set(re.findall(r"\bcape(?:\.[a-z_]+)+", file.read_text()))
        assert len(names) > 5
        for name in names:
            assert importlib.util.find_spec(name), f"{file.name} names {name}"


def test_only_simulation_has_a_predictable_generator():
    simulation = SOURCE / "stats" / "simulation.py"
    for path in set(SOURCE.rglob("*.py")) - {simulation}:
        tree = parsed(path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert "random" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert node.module != "random", path
            if isinstance(node, ast.Attribute) and node.attr == "random":
                assert not (isinstance(node.value, ast.Name) and node.value.id in {"np", "numpy"}), path


def test_nothing_is_patched_in_the_package():
    """Whoever watches a run is its observer, and bugs are planted in tests."""
    for path in SOURCE.rglob("*.py"):
        assert "unittest" not in {name for name, _ in imports(parsed(path))}, path


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ;]", each)[0] for each in requirements}


def imports(node: ast.AST, at_start: bool = True) -> Iterator[tuple[str, bool]]:
    """Yield (top-level name, whether it is imported as soon as the module is)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name.split(".")[0], at_start) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").split(".")[0], at_start
        else:
            typing_only = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            if (name := by_name(child)) is not None:
                yield name.split(".")[0], at_start
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from imports(child, at_start and not inside and not typing_only)


def third_party() -> Iterator[tuple[Path, str, bool]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for name, at_start in imports(parsed(path)):
            if name not in {"cape"} | OF_OTHERS | sys.stdlib_module_names:
                yield path.relative_to(SOURCE), DISTRIBUTIONS.get(name, name), at_start


def test_every_import_is_a_declared_dependency_or_an_extra():
    core = distributions(PROJECT["dependencies"])
    extras = {each for name in OF_USERS for each in distributions(PROJECT["optional-dependencies"][name])}
    for path, name, at_start in third_party():
        assert name in core | extras, f"{path} imports {name}, which pyproject.toml does not declare"
        own = HOMES.get(name)
        if name not in core and not (own and path.parts[0] == own):
            assert not at_start, f"{path} imports {name}, an extra, before anyone asks for what needs it"
    assert not core & extras
    assert core == {name for _, name, _ in third_party()} & core, "a dependency that nothing imports"


def test_an_undeclared_import_would_be_seen():
    tree = ast.parse(
        "import a.b\nfrom c import d\nif TYPE_CHECKING:\n    import e\ntry:\n    import f\nexcept: pass\n"
        "def g():\n    from h import i\n    class J:\n        import k\nclass L:\n    import m\n"
        "importlib.import_module('n.o')\ndef p(): return __import__('q')"
    )
    assert dict(imports(tree)) == {
        "a": True, "c": True, "e": False, "f": True, "h": False, "k": False, "m": True, "n": True, "q": False,
    }  # fmt: skip


BLOCKED = """
import importlib, pkgutil, sys
extras = {"matplotlib", "sklearn", "torch", "dp_accounting", "nvflare", "aiohttp", "psutil"}
extras |= {"starlette", "anyio", "uvicorn", "h11", "jinja2", "authlib", "httpx2", "joserfc", "tomlkit"}
extras |= {"fastexcel", "formulaic", "pyreadstat", "duckdb", "psycopg", "pymysql", "pyspark"}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in extras:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import cape
for module in pkgutil.walk_packages(cape.__path__, "cape.", onerror=lambda name: None):
    if module.name.split(".")[1] not in {"sklearn", "torch", "flare", "desk", "__main__"}:
        importlib.import_module(module.name)
for name in ("sklearn", "torch"):
    try:
        getattr(cape, name)
    except cape.MissingExtra as error:
        print(error)
from cape.audit.picture import require_matplotlib
try:
    require_matplotlib()
except cape.MissingExtra as error:
    print(error)
try:
    cape.LinearRegression(formula="chol ~ age")
except cape.MissingExtra as error:
    print(error)
"""


def test_without_extras_everything_else_is_there_and_a_sentence_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "cape.sklearn needs an optional dependency: pip install 'cape-dp[sklearn]'",
        "cape.torch needs an optional dependency: pip install 'cape-dp[torch]'",
        "the picture of an audit needs an optional dependency: pip install 'cape-dp[plot]'",
        "a formula needs an optional dependency: pip install 'cape-dp[formula]'",
    ]
