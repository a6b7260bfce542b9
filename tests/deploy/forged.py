"""What an attacker makes: an administrator's certificate, apps that it signs, and orders to a site it has."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.utils import load_private_key_file, sign_folders

from cape.flare.job import write_job
from cape.flare.kits import ADMIN
from tests.deploy.conftest import SITES, World, until


def attack(world: World, who: str, name: str, *, within: float = 60.0, **told: Any) -> Any:
    """Let a site's client, or the aggregator, do one of crash/attacks.py; return what came of it."""
    kit = world.here.aggregator if who == "aggregator" else world.here.kit(who)
    (kit / "got").unlink(missing_ok=True)
    (kit / "lie.part").write_text(json.dumps({"attack": name, "with": told}))
    (kit / "lie.part").rename(kit / "lie")
    until(lambda: (kit / "got").is_file(), within)
    got = json.loads((kit / "got").read_text())
    assert not str(got).startswith("failed: "), got
    return got


def signed_app(world: World, folder: Path, *, code: str = "", junk: int = 0) -> Path:
    """Return the zip of an app, signed by an administrator with the role that NVFLARE allows everything."""
    certificate(world, folder)
    app = write_job(folder / "job", "job", SITES) / "cape"
    if code:
        (app / "custom").mkdir()
        (app / "custom" / "sitecustomize.py").write_text(code)
    if junk:
        (app / "custom" / "junk").mkdir(parents=True)
    for number in range(junk):
        (app / "custom" / "junk" / f"{number}.txt").write_text("x")
    sign_folders(str(app), load_private_key_file(folder / "client.key"), str(folder / "client.crt"))
    path = folder / "app.zip"
    path.write_bytes(zip_directory_to_bytes(str(app), ""))
    return path


def certificate(world: World, folder: Path) -> None:
    """Make an administrator's certificate and key in a folder, as whoever made the kits can."""
    authority = world.here.folder / "kits" / "authority" / "cert.json"
    told = msgspec.json.decode(authority.read_bytes())
    root = x509.load_pem_x509_certificate(told["root_cert"].encode())
    signer = serialization.load_pem_private_key(told["root_pri_key"].encode(), None)
    key = rsa.generate_private_key(65537, 2048)
    parts = {
        NameOID.COMMON_NAME: ADMIN,
        NameOID.ORGANIZATION_NAME: "cape",
        NameOID.UNSTRUCTURED_NAME: "super",
    }
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(False, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "client.crt").write_bytes(made.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "client.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )


def files(folder: Path) -> dict[str, int]:
    """Return every file below a folder with its size, to see what is gone."""
    return {
        os.path.join(place, name): os.lstat(os.path.join(place, name)).st_size
        for place, _, names in os.walk(folder)
        for name in names
    }
