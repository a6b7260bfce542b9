"""Where files come from: a path, what was kept, the network; and that a wrong file is never used."""

from __future__ import annotations

import hashlib
import io
import tarfile
import urllib.error
import zipfile
from dataclasses import replace

import pytest

from cape import CapeError, InvalidInput
from reproduction.datasets import (
    Unavailable,
    cache_folder,
    crime,
    heart,
    load_crime,
    load_heart,
    load_twitter,
    twitter,
)
from reproduction.datasets.dataset import Origin
from reproduction.datasets.fetch import Source, read

CONTENT = b"1,2,3\n"


def zipped(**files: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in files.items():
            archive.writestr(f"folder/{name.replace('_', '.')}", data)
    return held.getvalue()


def source(sha256: str | None = hashlib.sha256(CONTENT).hexdigest(), inner: str | None = None) -> Source:
    return Source("made-up", "https://example.invalid/made-up.zip", {"table.data": sha256}, inner)


@pytest.fixture
def network(monkeypatch):
    """A network on which the archive is what the test says; `asked` counts downloads."""

    class Network:
        archive: bytes | None = None
        asked = 0

        def urlopen(self, url, timeout):
            self.asked += 1
            if self.archive is None:
                raise urllib.error.URLError("no network")
            return io.BytesIO(self.archive)

    there = Network()
    monkeypatch.setattr("urllib.request.urlopen", there.urlopen)
    return there


def test_a_file_is_fetched_once_and_kept(network, tmp_path, capsys):
    network.archive = zipped(table_data=CONTENT)
    assert read(source(), "table.data", cache=tmp_path) == CONTENT
    assert read(source(), "table.data", cache=tmp_path) == CONTENT
    assert network.asked == 1
    assert capsys.readouterr().err == "Fetched https://example.invalid/made-up.zip\n"
    assert [file.name for file in (tmp_path / "made-up").iterdir()] == ["table.data"]


def test_the_licence_is_printed_when_data_is_fetched(network, tmp_path, capsys):
    network.archive = zipped(table_data=CONTENT)
    told = replace(source(), origin=Origin("Made-up", "nowhere", "CC BY 4.0"))
    read(told, "table.data", cache=tmp_path)
    assert capsys.readouterr().err == "Fetched Made-up. Source: nowhere. Licence: CC BY 4.0.\n"
    for loader in (crime, twitter, heart):
        assert loader._SOURCE.origin.licence == "CC BY 4.0"


def test_a_wrong_download_is_neither_kept_nor_used(network, tmp_path):
    network.archive = zipped(table_data=b"something else")
    with pytest.raises(Unavailable, match="not the file that was expected"):
        read(source(), "table.data", cache=tmp_path)
    assert not (tmp_path / "made-up").exists()


def test_a_kept_file_that_changed_is_refused(network, tmp_path):
    (tmp_path / "made-up").mkdir()
    (tmp_path / "made-up" / "table.data").write_bytes(CONTENT + b"4")
    with pytest.raises(Unavailable, match="not the file that was expected"):
        read(source(), "table.data", cache=tmp_path)
    assert network.asked == 0


def test_without_a_known_checksum_the_first_download_sets_it(network, tmp_path):
    network.archive = zipped(table_data=CONTENT)
    assert read(source(None), "table.data", cache=tmp_path) == CONTENT
    (tmp_path / "made-up" / "table.data").write_bytes(b"changed")
    with pytest.raises(Unavailable, match="not the file that was expected"):
        read(source(None), "table.data", cache=tmp_path)


def test_an_archive_inside_the_archive_is_opened(network, tmp_path):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        member = tarfile.TarInfo("./regression/table.data")
        member.size = len(CONTENT)
        archive.addfile(member, io.BytesIO(CONTENT))
    network.archive = zipped(inner_gz=held.getvalue())
    assert read(source(inner="inner.gz"), "table.data", cache=tmp_path) == CONTENT


@pytest.mark.parametrize("archive", [b"<html>moved</html>", zipped(other_data=b"")])
def test_what_is_no_such_archive_is_said(network, tmp_path, archive):
    network.archive = archive
    with pytest.raises(Unavailable, match=r"not an archive with table\.data"):
        read(source(), "table.data", cache=tmp_path)


@pytest.mark.parametrize("load", [load_crime, load_twitter, load_heart])
def test_without_a_network_one_line_says_what_to_do(network, tmp_path, load):
    with pytest.raises(CapeError) as caught:
        load(cache=tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    for part in (str(tmp_path), "https://archive.ics.uci.edu/static/public/", "no network", "`path`"):
        assert part in text
    assert not any(tmp_path.iterdir())


def test_a_path_may_be_a_file_a_folder_or_the_archive(network, tmp_path):
    (tmp_path / "table.data").write_bytes(b"mine")
    (tmp_path / "made.zip").write_bytes(zipped(table_data=CONTENT))
    assert read(source(), "table.data", tmp_path) == b"mine"
    assert read(source(), "table.data", tmp_path / "table.data") == b"mine"
    assert read(source(), "table.data", tmp_path / "made.zip") == CONTENT
    for wrong in (tmp_path / "nowhere", tmp_path / "made-up"):
        with pytest.raises(InvalidInput, match="path"):
            read(source(), "table.data", wrong)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"no table\.data in"):
        read(source(), "table.data", tmp_path / "empty")
    assert network.asked == 0


def test_the_folder_is_as_asked_then_as_set_then_the_users(monkeypatch, tmp_path):
    monkeypatch.delenv("CAPE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "cape" / "datasets"
    monkeypatch.setenv("CAPE_DATA", str(tmp_path / "set"))
    assert cache_folder() == tmp_path / "set"
    assert cache_folder(tmp_path) == tmp_path
