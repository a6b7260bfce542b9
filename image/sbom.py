"""The image's bill of materials, as CycloneDX JSON: Python's packages by cyclonedx-py, Debian's from dpkg.

python image/sbom.py VENV DEBIAN.TSV OUT
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

DISTRO = "debian-12"


def python_packages(venv: Path) -> dict[str, Any]:
    """Return the bill of an environment."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--of", "JSON", "--sv", "1.6", "--output-reproducible"]
    command = [tool, "environment", *options, venv / "bin" / "python"]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    bill: dict[str, Any] = json.loads(made.stdout)
    return bill


def debian_package(line: str) -> dict[str, Any]:
    """Return the component of a line of dpkg's list: package, version, architecture, source package."""
    name, version, architecture, source = line.split("\t")
    where = f"arch={architecture}&distro={DISTRO}" + (f"&upstream={quote(source)}" if source != name else "")
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?{where}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main(venv: Path, packages: Path, out: Path) -> None:
    """Write the bill of both."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    bill = python_packages(venv)
    debian = [debian_package(line) for line in packages.read_text().splitlines()]
    (ours,) = (each for each in bill["components"] if each["name"] == "cape-dp")
    image = {"type": "container", "bom-ref": "image", "name": "cape-dp", "version": ours["version"]}
    bill["metadata"]["component"] = image
    bill["components"] = [*bill["components"], *debian]
    bill["dependencies"] = [*bill["dependencies"], *({"ref": each["bom-ref"]} for each in debian)]
    text = json.dumps(bill, indent=1)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        sys.exit(f"the bill of materials is not CycloneDX 1.6: {problem}")
    out.write_text(text + "\n")
    print(f"{out}: {len(bill['components'])} components, {len(debian)} of them Debian's")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
