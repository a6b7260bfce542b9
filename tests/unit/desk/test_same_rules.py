"""Whatever the desk accepts the command line accepts, with the same effect: random policies and requests."""

from __future__ import annotations

import functools
import io
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cape.cli.commands import app as commands
from cape.core.errors import CapeError
from cape.desk.site import PAGES
from cape.secagg import Identity
from cape.site import Grant, SiteFolder
from cape.site.decide.approvals import State
from cape.site.keyring import Card, fingerprint, public_text
from cape.study.document import hash_of
from tests.unit.desk.visitor import Visitor, desk
from tests.world import World, ask, document

COMMAND = functools.cache(lambda: typer.main.get_command(commands))
WORDS = st.sampled_from(
    [
        *("no ethics vote", "why?", "ok", "because", ""),
        *("x" * 1999, "x" * 2001, "é \u202e", "-x", "--once", "a\nb", "[bold]", "%s"),
    ]
)
WHO = st.sampled_from([None, None, None, "office", "other", "nobody", "", "b"])

EDITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r'approve = "\w+"', ('approve = "ask"', 'approve = "ask"', 'approve = "auto"', 'approve = "never"')),
    (r"(approve = .*)", (r"\1", r"\1\napprovals = 2", r"\1\napprovals = 0")),
    (r"expires = .*", ("expires = 2999-12-31", "expires = 2020-01-01", 'expires = "soon"')),
    (r"columns = .*", ('columns = ["age"]', 'columns = ["age", "weight"]', 'columns = ["size"]')),
    (r"analyses = .*", ('analyses = ["mean", "count"]', 'analyses = ["count"]', 'analyses = ["steal"]')),
    (r"min_rows = .*", ("min_rows = 1", "min_rows = 500", "min_rows = -1", "min_rows = ")),
    (r"other_honest = .*", ("other_honest = 0", "other_honest = 2", "other_honest = 9")),
    (r"release = .*", ("release = {epsilon = 0.01, delta = 1e-6}", "release = 1", "release = {epsilon = 9}")),
    (r"total = .*", ("total = {epsilon = 0.1, delta = 1e-6}", "total = {epsilon = -1}")),
    (r"\[peers\]", ("[peers]", "[peers]\nnew = 'x'", "[peer]", "# none\n[peers]")),
)


@st.composite
def policies(draw: st.DrawFn) -> Callable[[str], str]:
    """A way to change the text of a policy; some results are invalid."""
    edits = draw(st.lists(st.sampled_from(EDITS), max_size=4))
    chosen = [(old, draw(st.sampled_from(new))) for old, new in edits]

    def change(text: str) -> str:
        for old, new in chosen:
            text = re.sub(old, new, text, count=1)
        return text

    return change


@dataclass(frozen=True)
class Act:
    """One thing that somebody does, at the desk as a form, and as a command."""

    path: str
    fields: dict[str, str]
    command: tuple[str, ...]


class Twins:
    """A site twice: at the one the desk decides, at the other the command line."""

    def __init__(self, world: World, folder: Path, change: Callable[[str], str]) -> None:
        self.world, self.folder = world, folder
        self.sites = {}
        for name in ("desk", "line"):
            shutil.copytree(world.site.path, folder / name)
            self.sites[name] = SiteFolder(folder / name)
            policy = folder / name / "site.toml"
            policy.write_text(change(policy.read_text()))
        self.app = desk(PAGES, folder, self.sites["desk"])
        self.ana = Visitor(self.app, "admin")

    def said(self, study: dict[str, Any], who: Identity) -> list[str]:
        """Return what the two sites say to a new request."""
        packed = ask(study, self.world.roster, who).pack()
        return [_said(site, packed) for site in self.sites.values()]

    def require_same_answer(self, study: dict[str, Any], who: Identity) -> str:
        """Fail unless both sites say the same; return the study's hash."""
        first, second = self.said(study, who)
        assert first == second, "the sites answer differently"
        return hash_of(study)

    def act(self, act: Act) -> bool:
        """Do something at the desk; if it is accepted, the command line must accept it, too."""
        accepted = self.ana.submit(act.path, **act.fields).status_code == 303
        if accepted:
            assert run(*act.command, site=self.folder / "line"), f"the desk alone accepts {act}"
        return accepted

    def require_same(self) -> None:
        """Fail unless both sites are in the same state."""
        texts = {(site.path / "site.toml").read_text() for site in self.sites.values()}
        assert len(texts) == 1, "the policies differ"
        first, second = (_states(site) for site in self.sites.values())
        assert first == second


def _states(site: SiteFolder) -> set[tuple[str, str]]:
    every: tuple[State, ...] = ("waiting", "approved", "refused")
    return {(held.study_hash, state) for state in every for held in site.approvals.studies(state)}


def _said(site: SiteFolder, request: bytes) -> str:
    found = site.decide(request)
    return "granted" if isinstance(found, Grant) else f"{found.code}: {found.sentence}"


def run(*arguments: str, site: Path) -> bool:
    """Run `cape site` in this process; return whether it succeeded."""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            name, *more = arguments
            left = COMMAND().main(["site", name, "--site", str(site), *more], standalone_mode=False)
        return not left
    except CapeError:
        return False


def decisions(hashes: list[str], draw: st.DrawFn) -> Act:
    """An approval, a refusal or a question."""
    study = draw(st.sampled_from([*hashes, *hashes, *hashes, "0" * 64, hashes[0][:12]]))
    who, reason = draw(WHO), draw(WORDS)
    kind = draw(st.sampled_from(["approve", "once", "refuse", "ask"]))
    asker = () if not who else (f"--coordinator={who}",)
    fields = {"study": study} | ({"coordinator": who} if who is not None else {})
    if kind == "ask":
        return Act("/inbox/ask", fields | {"question": reason}, ("ask", *asker, "--", study, reason))
    why = f"--reason={reason}"
    if kind == "refuse":
        return Act("/inbox/refuse", fields | {"reason": reason}, ("refuse", why, *asker, "--", study))
    once = kind == "once"
    return Act(
        "/inbox/approve",
        fields | {"reason": reason} | ({"how": "once"} if once else {}),
        ("approve", why, *(("--once",) if once else ()), *asker, "--", study),
    )


def keys(twins: Twins, draw: st.DrawFn) -> Act:
    """A key that is trusted, or no longer."""
    role = draw(st.sampled_from(["coordinator", "site"]))
    if draw(st.booleans()):
        name = draw(st.sampled_from(["office", "other", "b", "c", "nobody", ""]))
        flag = "--coordinator" if role == "coordinator" else "--peer"
        return Act("/peers/revoke", {"name": name, "as": role}, ("revoke", flag, "--", name))
    key = draw(st.sampled_from([Identity().public, twins.world.office.public]))
    name = draw(st.sampled_from(["b", "new", "office", "a", "x" * 200, "'\"", "a b"]))
    card = Card(name, key, draw(st.sampled_from(["coordinator", "site"])))
    file = twins.folder / "their.card"
    file.write_text(card.to_text())
    print_ = draw(st.sampled_from([fingerprint(key), fingerprint(key).upper(), "0000-0000"]))
    fields = {"name": name, "key": public_text(key), "role": card.role, "as": role, "fingerprint": print_}
    flag = ("--coordinator",) if role == "coordinator" else ()
    return Act("/peers/trust", fields, ("trust", *flag, str(file)))


def text(twins: Twins, draw: st.DrawFn) -> Act:
    """Another policy."""
    now = twins.app.state.site("ana").policy()
    changed = draw(policies())(now.text)
    file = twins.folder / "new.toml"
    file.write_text(changed)
    return Act("/policy/save", {"text": changed, "hash": now.hash}, ("policy", "--set", str(file)))


@st.composite
def studies(draw: st.DrawFn) -> dict[str, Any]:
    """A study as a request carries it; some are against the policy."""
    analysis = draw(
        st.sampled_from(
            [
                {"kind": "mean", "columns": ["age"]},
                {"kind": "mean", "columns": ["age", "weight"]},
                {"kind": "histogram", "column": "age", "bins": 4},
                {"kind": "count"},
            ]
        )
    )
    return document(
        name=draw(st.sampled_from(["lungs", "hearts", "é", "-x", "x" * 100])),
        epsilon=draw(st.sampled_from([0.1, 0.5, 1.0, 4.0])),
        analyses=[analysis | {"share": draw(st.sampled_from([0.25, 1.0]))}],
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"))
    world.edit('approve = "auto"', 'approve = "ask"')
    return world


def play(world: World, data: st.DataObject) -> int:
    """Play some requests and decisions at both sites; return how many decisions were accepted."""
    draw = data.draw
    with TemporaryDirectory() as folder:
        twins = Twins(world, Path(folder), draw(st.one_of(st.just(str), policies())))
        asked = [
            (
                study,
                draw(st.sampled_from([world.office, world.office, world.office, world.other, Identity()])),
            )
            for study in draw(st.lists(studies(), min_size=1, max_size=2))
        ]
        hashes = [twins.require_same_answer(*each) for each in asked]
        accepted = 0
        for _ in range(draw(st.integers(1, 4))):
            kind = draw(st.sampled_from(["decide", "decide", "decide", "key", "text"]))
            if kind == "decide":
                accepted += twins.act(decisions(hashes, draw))
            else:
                accepted += twins.act((keys if kind == "key" else text)(twins, draw))
            twins.require_same()
        for each in asked:
            twins.require_same_answer(*each)
        return accepted


@settings(max_examples=4, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_whatever_the_desk_accepts_the_command_line_accepts(world: World, data: st.DataObject):
    play(world, data)


@pytest.mark.slow(60)
@settings(max_examples=200, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_whatever_the_desk_accepts_the_command_line_accepts_often(world: World, data: st.DataObject):
    play(world, data)


def test_desk_and_command_line_accept_what_is_right(world: World, tmp_path: Path):
    """The property is not empty: each kind of decision is accepted somewhere."""
    twins = Twins(world, tmp_path, lambda text: text)
    study, key = twins.require_same_answer(document(), world.office), Identity().public
    (tmp_path / "new.card").write_text(Card("new", key, "site").to_text())
    trust = {"name": "new", "key": public_text(key), "role": "site", "as": "site"}
    now = twins.app.state.site("ana").policy()
    (tmp_path / "new.toml").write_text(now.text.replace("min_rows = 100", "min_rows = 99"))
    for act in (
        Act("/inbox/ask", {"study": study, "question": "why"}, ("ask", study, "why")),
        Act("/inbox/approve", {"study": study}, ("approve", study)),
        Act("/inbox/refuse", {"study": study, "reason": "x"}, ("refuse", study)),
        Act("/inbox/approve", {"study": study, "how": "once"}, ("approve", "--once", study)),
        Act(
            "/policy/save",
            {"text": (tmp_path / "new.toml").read_text(), "hash": now.hash},
            ("policy", "--set", str(tmp_path / "new.toml")),
        ),
        Act(
            "/peers/trust",
            trust | {"fingerprint": fingerprint(key)},
            ("trust", str(tmp_path / "new.card")),
        ),
        Act("/peers/revoke", {"name": "new", "as": "site"}, ("revoke", "--peer", "new")),
    ):
        assert twins.act(act), act
        twins.require_same()
    assert twins.said(document(), world.office) == ["granted", "granted"]
