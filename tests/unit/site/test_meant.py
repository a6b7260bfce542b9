"""What looks like a hash is never a name, secrets stay hidden, and notices carry only what is meant."""

from __future__ import annotations

import tomllib
from email import message_from_bytes
from email.message import EmailMessage

import pytest

from cape.core.errors import InvalidInput
from cape.site.admin import Desk
from cape.site.admin.hidden import MARK, hide, restore, scrub
from cape.site.admin.notices import _plain
from cape.site.decide.held import is_meant
from tests.world import World

A, B = "a1" * 32, "b2" * 32


@pytest.mark.parametrize("text", [A, A[:12], A[:20].upper()])
def test_a_study_named_after_a_hash_is_not_the_one_that_is_meant(text):
    assert is_meant(text, "heart", A)
    assert not is_meant(text, text, B)


def test_names_and_short_starts_of_hashes_are_understood():
    assert is_meant("heart", "heart", B)
    assert is_meant("b2b2", "heart", B)
    assert not is_meant("", "", B)


OLD = '[site]\nname = "a"\ndata = "http://bob:hunter2@host/rows.parquet"\n'
CONNECTED = '[site]\nname = "a"\ndata = {query = "SELECT 1", connection = "postgresql://bob:hunter2@db/x"}\n'


ODD = [
    """data = "https://reader:hunter'2@host/rows.csv\"""",
    """data = "https://host/rows.parquet?token=hunter2\"""",
    """data = "https://bob:hunter%222@host/rows.csv\"""",
    'data = {query = "SELECT 1", "conn\\u0065ction" = "postgresql://bob:hunter2@db/x"}',
    '''data = {query = "SELECT 1", connection = """postgresql://bob:hunt\\"""er2@db/x"""}''',
    """data = "https://hunter2@host/rows.csv\"""",
    """data = "https://host/rows.parquet?sig=hunter2\"""",
    """data = "https://host/rows.parquet?X-Amz-Credential=K&X-Amz-Signature=hunter2\"""",
    """data = "https://host/rows.parquet?anything=hunter2\"""",
    """data = {path = "https://host/rows.parquet?hunter2", null_values = ["?"]}""",
    """data = {query = "SELECT * FROM dblink('host=h password=hunter2', 'q')", connection = "env:X"}""",
    """data = {"omop" = 'postgresql://bob:hunter2@db/x', cohort = 3}""",
    """data.query = "SELECT 1"\ndata."connection" = "postgresql://bob:hunter2@db/x\"""",
]


@pytest.mark.parametrize("old", [OLD, CONNECTED, *(f'[site]\nname = "a"\n{each}\n# end\n' for each in ODD)])
def test_an_unchanged_policy_gets_its_secrets_back(old):
    assert "hunt" not in hide(old)
    assert tomllib.loads(restore(hide(old), old)) == tomllib.loads(old)
    edited = hide(old).replace('name = "a"', 'name = "b"')
    assert tomllib.loads(restore(edited, old))["site"]["data"] == tomllib.loads(old)["site"]["data"]


@pytest.mark.parametrize(
    "address",
    [
        "https://bob:hunter2@host/x",
        "https://hunter2@host/x",
        "https://b.s3.amazonaws.com/x?X-Amz-Signature=hunter2",
        "az://c/x?se=1&sig=hunter2",
        "https://host/x?hunter2",
        "https://host/x#hunter2",
        "postgresql://h/d?sslpassword=hunter2",
    ],
)
def test_no_sentence_tells_a_secret(address):
    told = scrub(f"2026-11-17 site 'a': {address!r} could not be read ({address}), \"{address}\"; see it")
    assert "hunter2" not in told
    assert told.startswith("2026-11-17 site 'a': '")
    assert told.endswith("; see it")


@pytest.mark.parametrize(
    ("old", "data"),
    [
        (OLD, f'"http://bob:{MARK}@elsewhere/rows.parquet"'),
        (OLD, f'{{path = "http://bob:{MARK}@elsewhere/rows.parquet"}}'),
        (CONNECTED, f"{{path = 'connection=\"{MARK}\".parquet'}}"),
        (CONNECTED, f"{{path = 'http://host/connection=\"{MARK}\".parquet'}}"),
        (CONNECTED, f"'connection=\"{MARK}\"'"),
    ],
)
def test_a_mark_elsewhere_sends_no_secret(old, data):
    with pytest.raises(InvalidInput, match="stands for a secret"):
        restore(f'[site]\nname = "a"\ndata = {data}\n', old)


def test_an_encoded_name_is_no_header_of_a_mail():
    name = "=?utf-8?q?x=0d=0aReply-To:_evil@x.org=0d=0a=0d=0aRun?="
    message = EmailMessage()
    message["Subject"] = _plain(f"study {name} waits")
    message.set_content("text")
    read = message_from_bytes(message.as_bytes())
    assert read["Reply-To"] is None
    assert read.get_payload().strip() == "text"


NOTED = '# connection = "postgresql://example"\n' + CONNECTED


@pytest.mark.parametrize(
    "edited",
    [
        hide(NOTED).partition("\n")[2],  # a comment with a mark is removed
        '# connection = "(hidden)"\n' + hide(NOTED),
        hide(NOTED)
        .replace('connection = "(hidden)"}', 'connection = "(hidden)", timeout = 5}', 1)
        .replace("# c", "c"),
    ],
)
def test_a_secret_does_not_go_elsewhere_if_marks_are_moved(edited):
    with pytest.raises(InvalidInput):
        restore(edited, NOTED)
    assert restore(hide(NOTED), NOTED) == NOTED


@pytest.mark.parametrize("change", [("\n# end", "  # rows\n# end"), ("(hidden)", "(hidden) ")])
def test_a_mark_for_all_of_the_data_is_put_back_or_refused(change):
    old = f'[site]\nname = "a"\n{ODD[0]}\n# end\n# connection = "postgresql://bob:hunter2@db"\n'
    assert "hunter" not in hide(old)
    assert restore(hide(old), old) == old
    with pytest.raises(InvalidInput):
        restore(hide(old).replace(*change, 1), old)
    assert restore(hide(old).replace("\n", "\r\n"), old).replace("\r", "") == old


HIDDEN = '"d\\u0061ta" = {"conn\\u0065ction" = "hunter2"}\n'
SLOW = [
    'x = """\n' + "data =\n" * 2000 + '"""\n' + HIDDEN,
    "".join(f"data.x{number} = 1\n" for number in range(2000)) + 'data."conn\\u0065ction" = "hunter2"\n',
    'data = """\n' * 2000,
]


@pytest.mark.parametrize("lines", SLOW)
def test_few_places_are_tried_whatever_the_text(lines: str, monkeypatch: pytest.MonkeyPatch):
    """A text that the desk sends must not keep the daemon busy."""
    loads, read = tomllib.loads, list[int]()

    def counted(text: str) -> dict[str, object]:
        read.append(len(text))
        return loads(text)

    monkeypatch.setattr("cape.site.admin.hidden.tomllib.loads", counted)
    text = f'[site]\nname = "a"\n{lines}'
    assert "hunter2" not in hide(text)
    assert sum(read) < 400 * len(text)


ADDRESSES = (
    "https://bob:hunter2@127.0.0.1:1/rows.parquet",
    "https://hunter2@127.0.0.1:1/rows.parquet",
)


def test_no_check_and_no_line_of_the_log_holds_the_secret(world: World, monkeypatch: pytest.MonkeyPatch):
    def away(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr("cape.data.sources.pl.scan_parquet", away)
    for address in ADDRESSES:
        world.edit('data = "rows.csv"', f'data = "{address}"')
        assert world.code(world.request()) == "data"
        checked = Desk(world.site).check()
        assert "hunter2" not in str(checked.survey)
        assert "hunter2" not in str(checked)
        assert "hunter2" not in (world.site.path / "site.log").read_text()
        world.edit(f'data = "{address}"', 'data = "rows.csv"')
