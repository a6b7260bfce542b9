"""What somebody gets who speaks to a site's NVFLARE process directly, past `cape`."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from cape.flare.job import write_job
from cape.flare.kits import ADMIN
from cape.flare.link import connect
from tests_deploy.conftest import SITES, World, until


def test_a_site_cannot_read_a_file_at_another_site(world: World) -> None:
    """Without the guard it can: NVFLARE's client runs `head` for whoever does not ask it to check rights."""
    folder = world.here.site("b").path
    (folder / "got").unlink(missing_ok=True)
    (folder / "lie").write_text(f"a head -n 3 {world.tables['a']}")
    until(lambda: (folder / "got").is_file())
    assert (folder / "got").read_text() == "invalid_request"


def test_the_maker_of_certificates_cannot_send_code_or_commands(world: World, tmp_path: Path) -> None:
    """It makes itself an administrator with the role that NVFLARE allows everything."""
    kit = tmp_path / "kit"
    shutil.copytree(world.here.coordinator, kit)
    _forge(world.here.folder / "kits" / "authority" / "cert.json", kit / "startup")
    job = write_job(tmp_path / "job", "job", SITES)
    (job / "cape" / "custom").mkdir()
    stolen = tmp_path / "stolen"
    (job / "cape" / "custom" / "mine.py").write_text(f"open({str(stolen)!r}, 'w').write('here')\n")
    config = job / "cape" / "config" / "config_fed_client.json"
    config.write_text(config.read_text().replace("cape.flare.executor.Site", "mine.Mine"))
    session = connect(kit)
    try:
        told = session._do_command("ls a local", enforce_meta=False)
        assert "invalid_request" in str(told["data"])
        number = session.submit_job(str(job))
        until(lambda: session.get_job_meta(number)["status"].startswith("FINISHED"))
        meta = session.get_job_meta(number)
    finally:
        session.close()
    assert meta["submitter_role"] == "super"
    for site in SITES:
        assert f"{site}: NVFLARE_ERROR: BYOC not permitted" in meta["job_deploy_detail"]
    assert not stolen.exists()


def _forge(authority: Path, startup: Path) -> None:
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
    (startup / "client.crt").write_bytes(made.public_bytes(pem))
    plain = serialization.NoEncryption()
    (startup / "client.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    )
