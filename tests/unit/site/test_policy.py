"""Errors of `site.toml` name the key and what would be right; keys on disk are for their owner only."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from cape.analyses import KINDS
from cape.core.errors import InvalidInput
from cape.secagg import Identity
from cape.site import Policy, Request, SiteFolder
from cape.site.decide.codes import Denied
from cape.site.decide.review import check_question, check_terms
from cape.site.keyring import Card, fingerprint, load_identity, make_identity, public_text, read_public
from cape.site.template import site_toml
from cape.study import Study
from cape.study.document import ParsedAnalysis, document, read
from tests.world import World

WRONG = {
    "2999-12-31": ('"soon"', "[site]: expires must be a day"),
    'approve = "auto"': ('approve = "never"', '[site]: approve must be "ask" or "auto", not \'never\''),
    'data = "rows.csv"': ('daat = "rows.csv"', "[site]: unknown key 'daat'; did you mean 'data'?"),
    "age = [18, 90]": ("age = [90, 18]", "[schema]: column 'age': bounds must rise"),
    '"count", "mean"': ('"count", "maen"', "[allow]: unknown analysis 'maen'; did you mean 'mean'?"),
    '"age", "weight", "sex", "ill"]': ('"agee"]', "[allow]: unknown column 'agee'; did you mean 'age'?"),
    '"cape", "conventional"]': (
        '"pooled"]',
        "[allow]: unknown scheme 'pooled'; choose from cape, conventional",
    ),
    "min_rows = 100": ("min_rows = 0", "[protect]: min_rows must be an integer at least 1, not 0"),
    "other_honest = 1": ("", "[protect]: the key 'other_honest' is missing"),
    "release = {epsilon = 1.0, delta": (
        "release = {epsilon = -1, delta",
        "[budget]: release: epsilon must be",
    ),
    "year = {epsilon = 3.0, delta = 1e-06}": ("year = 3", "[budget]: year must be a pair such as"),
    "total = {epsilon = 3.0, delta = 1e-06}": (
        "",
        "[budget]: the key 'total' is missing: it must be what may be spent ever",
    ),
    'adjacency = ["replace-one"]': ('adjacency = "both"', "[allow]: adjacency must be a list"),
    "[budget]": ("[budgets]", "unknown section [budgets]; did you mean 'budget'?"),
    'office = "ed25519:': ('office = "rsa:', "[coordinators]: office must be a public key"),
    "[peers]": ('[peers]\na = "ed25519:' + "00" * 32 + '"', "[peers] a: that is this site's own name"),
    "[site]": ("[site", "is not a TOML file"),
}


@pytest.mark.parametrize("old", WRONG)
def test_what_is_wrong_is_named(world: World, old: str):
    new, says = WRONG[old]
    world.edit(old, new)
    with pytest.raises(InvalidInput) as caught:
        _ = world.site.policy
    assert says in str(caught.value)
    assert str(world.site.path / "site.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path):
    with pytest.raises(InvalidInput, match="cape site init"):
        Policy.load(tmp_path / "site.toml")
    with pytest.raises(InvalidInput, match="not a site's folder"):
        SiteFolder(tmp_path)


def test_the_template_is_a_policy_that_asks_first(tmp_path: Path):
    text = site_toml('St "Mary"', date(2030, 1, 2), list(KINDS))
    policy = Policy.parse(text, tmp_path / "site.toml")
    assert (policy.name, policy.expires, policy.approve) == ('St "Mary"', date(2030, 1, 2), "ask")
    assert not policy.coordinators
    assert not policy.peers
    assert policy.analyses == set(KINDS), "no kind of a study file runs code that the study brings"
    assert (policy.adjacency, policy.sizes_public) == ("replace-one", True)
    assert (policy.total.epsilon, policy.total.delta) == (4.0, 1e-6)
    assert all(len(line) <= 110 for line in text.splitlines())


def test_a_folder_is_made_once_and_for_its_owner(tmp_path: Path):
    site = SiteFolder.create(tmp_path / "zurich")
    assert site.policy.name == "zurich"
    for name in ("identity.key", "ledger.sqlite", "site.toml"):
        assert (site.path / name).stat().st_mode & 0o777 == 0o600
    key = (site.path / "identity.key").read_bytes()
    with pytest.raises(InvalidInput, match="nothing is overwritten"):
        SiteFolder.create(tmp_path / "zurich")
    assert (site.path / "identity.key").read_bytes() == key


def test_a_key_that_others_could_read_is_refused(tmp_path: Path):
    path = tmp_path / "identity.key"
    made = make_identity(path)
    assert load_identity(path).public == made.public
    with pytest.raises(InvalidInput, match="never overwritten"):
        make_identity(path)
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match=r"mode 0640.*chmod 600"):
        load_identity(path)


@pytest.mark.parametrize(
    "text", ["", "cape-private-ed25519:12", "nonsense " * 9, "cape-private-ed25519:" + "zz" * 32]
)
def test_a_broken_key_is_not_shown(tmp_path: Path, text: str):
    path = tmp_path / "identity.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidInput) as caught:
        load_identity(path)
    assert str(caught.value) == f"{path} is not a private key of cape"


def test_a_private_key_in_the_wrong_place_is_not_shown():
    secret = "ab" * 32
    with pytest.raises(InvalidInput) as caught:
        read_public("office", f"cape-private-ed25519:{secret}")
    assert secret[:8] not in str(caught.value)


def test_cards_travel(tmp_path: Path):
    card = Card('St "Mary"', Identity().public)
    path = tmp_path / "mary.key"
    path.write_text(card.to_text())
    assert Card.load(path) == card
    assert fingerprint(card.key) in card.to_text()
    path.write_text("nonsense")
    with pytest.raises(InvalidInput, match="export-key"):
        Card.load(path)


def test_trust_keeps_remarks_and_refuses_another_key(world: World):
    site = world.site
    world.edit("[peers]", "# our friends\n[peers]  # by name")
    card = Card("new site", Identity().public)
    assert site.trust(card, coordinator=False)
    assert not site.trust(card, coordinator=False)
    assert site.policy.peers["new site"] == card.key
    assert "# our friends" in (site.path / "site.toml").read_text()
    assert "new site" not in site.policy.coordinators
    with pytest.raises(InvalidInput, match="another key"):
        site.trust(Card("new site", Identity().public), coordinator=False)
    assert site.trust(card, coordinator=True)
    with pytest.raises(InvalidInput, match="own key"):
        site.trust(Card("me", site.identity.public), coordinator=False)


def test_trust_makes_the_section_if_it_is_gone(world: World):
    path = world.site.path / "site.toml"
    path.write_text(path.read_text().split("[coordinators]")[0])
    card = Card("office", Identity().public)
    assert world.site.trust(card, coordinator=True)
    assert world.site.policy.coordinators == {"office": card.key}


@pytest.mark.parametrize("inline", [True, False])
def test_trust_says_which_line_to_write_where_it_finds_no_place(world: World, inline: bool):
    """The section is written inline, or what looks like its head stands in a text."""
    path = world.site.path / "site.toml"
    head, tail = path.read_text().split("[peers]")
    peers = ", ".join(line for line in tail.splitlines() if " = " in line and not line.startswith("#"))
    text = (
        f"peers = {{{peers}}}\n{head}"
        if inline
        else "# x\n"
        + head.replace("[site]", '[site]\ndata = """\n[peers]\nrows.csv"""', 1)
        + "[peers]"
        + tail
    )
    if not inline:
        text = "\n".join(line for line in text.splitlines() if not line.startswith('data = "r'))
    path.write_text(text)
    before = world.site.policy.peers
    card = Card("new site", Identity().public)
    with pytest.raises(
        InvalidInput, match=r"put the key into \[peers\] yourself, as the line \"new site\" = "
    ):
        world.site.trust(card, coordinator=False)
    assert world.site.policy.peers == before
    assert path.read_text() == text


def test_requests_travel(world: World):
    request = world.request()
    back = Request.open(request.pack(), lambda key: key == world.office.public)
    assert back == request
    assert back.study_hash == request.study_hash
    assert public_text(request.coordinator).startswith("ed25519:")
    with pytest.raises(InvalidInput, match="signed by the coordinator"):
        request.signed(Identity())
    with pytest.raises(Denied, match="signature"):
        Request.open(request.pack()[:-1], lambda key: True)


def test_a_number_of_thousands_of_digits_is_no_trace(world: World):
    world.edit("min_rows = 100", f"min_rows = {'1' * 5000}")
    with pytest.raises(InvalidInput, match="is not a TOML file"):
        _ = world.site.policy


@pytest.mark.filterwarnings("ignore:with 3 sites the rule:cape.PrivacyLeakWarning")
@pytest.mark.parametrize("sites", [3, 4, 5, 10])
def test_a_new_policy_accepts_a_study_that_leaves_colluding_and_min_sites_out(tmp_path: Path, sites: int):
    policy = Policy.parse(site_toml("s0", date(2999, 12, 31), list(KINDS)), tmp_path / "site.toml")

    def asked(terms: str = "") -> ParsedAnalysis:
        path = tmp_path / "study.toml"
        path.write_text(
            f'[study]\nname = "first"\n[privacy]\nepsilon = 1.0\ndelta = 1e-6\n{terms}\n'
            f"[schema]\nage = [18, 90]\n[sites]\n{''.join(f's{i} = {{}}{chr(10)}' for i in range(sites))}"
            '[[analysis]]\nkind = "mean"\ncolumns = ["age"]\nshare = 0.5\n'
        )
        return read(document(Study.load(path)), 1)

    if sites == 3:  # the paper's rule supposes that nobody colludes, and a site does not
        with pytest.raises(Denied, match="write colluding = 1 under"):
            check_terms(policy, asked())
        study = asked("colluding = 1")
    else:
        study = asked()
    check_terms(policy, study)
    check_question(policy, study)
    parties = study.setting.parties
    assert parties.lying
    assert parties.honest - 1 >= policy.other_honest
    if sites > 3:
        assert parties.min_sites < sites, "a lost site is tolerated"
