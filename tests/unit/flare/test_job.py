"""An app that a site takes is the one that `write_job` writes, whatever else the bytes could be."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from cape.core.errors import InvalidInput
from cape.flare.job import APP, require_ours, write_job

CLIENT, SERVER = "config/config_fed_client.json", "config/config_fed_server.json"


@pytest.fixture
def app(tmp_path: Path) -> dict[str, bytes]:
    folder = write_job(tmp_path / "job", "job", ["a", "b"]) / APP
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _packed(files: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", how) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return data.getvalue()


def test_our_own_app_is_taken_with_and_without_signatures(app):
    require_ours(_packed(app))
    require_ours(_packed(app, zipfile.ZIP_STORED))
    signed = {".__nvfl_sig.json": b"{}", "config/": b"", "config/.__nvfl_submitter.crt": b"x"}
    require_ours(_packed({**app, **signed}))


@pytest.mark.parametrize(
    "name",
    ["custom/sitecustomize.py", "custom/", "config/config_fed_client.conf", "../x", "/x", "config/x.json"],
)
def test_an_app_with_one_more_file_is_refused(app, name):
    with pytest.raises(InvalidInput, match="other files"):
        require_ours(_packed({**app, name: b""}))


@pytest.mark.parametrize("name", [CLIENT, SERVER])
def test_an_app_with_one_file_less_or_another_content_is_refused(app, name):
    with pytest.raises(InvalidInput, match="other files"):
        require_ours(_packed({key: value for key, value in app.items() if key != name}))
    told = json.loads(app[name])
    told["components"] = [{"id": "x", "path": "cape.flare.executor.Site", "args": {}}]
    with pytest.raises(InvalidInput, match="not configured as a job"):
        require_ours(_packed({**app, name: json.dumps(told).encode()}))


def test_two_files_of_one_name_are_refused(app):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, content in app.items():
            packed.writestr(name, content)
        with pytest.warns(UserWarning, match="Duplicate"):
            packed.writestr(CLIENT, app[CLIENT])
    with pytest.raises(InvalidInput, match="two files of one name"):
        require_ours(data.getvalue())


def test_a_bomb_is_refused_before_it_is_inflated(app):
    with pytest.raises(InvalidInput, match="more than 262144 bytes"):
        require_ours(_packed({**app, CLIENT: bytes(1 << 24)}))
    with pytest.raises(InvalidInput, match="at most 262144 bytes"):
        require_ours(bytes((1 << 18) + 1))


def test_what_is_no_zip_is_refused(app):
    whole = _packed(app)
    for data in (None, "text", b"", b"PK", whole[:-1], whole[: len(whole) // 2]):
        with pytest.raises(InvalidInput, match="the app"):
            require_ours(data)
    with pytest.raises(InvalidInput, match="packed in a way"):
        require_ours(_packed(app, zipfile.ZIP_LZMA))
    with pytest.raises(InvalidInput, match="readable"):
        require_ours(_packed({**app, CLIENT: b"[" * 100_000}))


def test_bent_bytes_are_refused_or_say_the_same(app):
    """Every byte of the zip, one after the other: what still passes has our files with our content."""
    whole = _packed(app)
    for place in range(len(whole)):
        bent = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        try:
            require_ours(bent)
        except InvalidInput:
            continue
        with zipfile.ZipFile(io.BytesIO(bent)) as packed:
            for name, content in app.items():
                assert json.loads(packed.read(name)) == json.loads(content)
