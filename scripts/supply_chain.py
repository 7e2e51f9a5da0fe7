"""What the environment of requirements.lock is made of: licences, and a bill of materials.

    python scripts/supply_chain.py licences           # a table, Markdown
    python scripts/supply_chain.py sbom -o sbom.json  # CycloneDX 1.6, JSON

Names and versions come from the lock file, licences from the metadata of what is installed. `make
supply-chain` writes both, and asks pip-audit for known vulnerabilities.
"""

import argparse
import importlib.metadata
import json
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: licences that ask for more than a notice; whoever distributes permea with them must look
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|EUPL|CDDL|EPL)\b|GNU", re.IGNORECASE)


def locked() -> dict[str, str]:
    """Names and versions of the lock file; of several versions, the one that is installed."""
    found: dict[str, str] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        pin = re.match(r"([\w.-]+)(?:\[[\w,]+\])?==([^\s;]+)", line)
        if pin and (pin[1] not in found or installed(pin[1]) == pin[2]):
            found[pin[1]] = pin[2]
    return found


def installed(name: str) -> str | None:
    """The version that is installed, if any."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def licence(name: str) -> str:
    """The licence of an installed package, as short as its metadata allows."""
    if installed(name) is None:
        return "not installed here"
    metadata = importlib.metadata.metadata(name)
    stated = metadata.get("License-Expression") or metadata.get("License") or ""
    classified = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    short = stated.strip().splitlines()[0] if stated.strip() else ""
    if short and len(short) <= 60:
        return short
    return "; ".join(classified) or short[:57] + "…" * bool(short) or "not stated"


def core() -> set[str]:
    """Names of what `pip install permea` needs directly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.match(r"[\w.-]+", one)[0].lower() for one in project["dependencies"]}  # type: ignore[index]


def licences() -> str:
    """A table of all packages with their licences."""
    lines = ["| package | version | licence | |", "|---|---|---|---|"]
    for name, version in locked().items():
        text = licence(name)
        notes = ["core"] if name.lower() in core() else []
        notes += ["copyleft: look before you distribute it"] if COPYLEFT.search(text) else []
        lines.append(f"| {name} | {version} | {text} | {', '.join(notes)} |")
    return "\n".join(lines) + "\n"


def sbom() -> dict[str, object]:
    """A CycloneDX bill of materials."""
    version = (ROOT / "src/permea/_version.py").read_text().split('"')[-2]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {
                "type": "library",
                "bom-ref": "permea",
                "name": "permea",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name.lower()}@{number}",
                "name": name,
                "version": number,
                "purl": f"pkg:pypi/{name.lower()}@{number}",
                "scope": "required" if name.lower() in core() else "optional",
                "licenses": [{"license": {"name": licence(name)}}],
            }
            for name, number in locked().items()
        ],
    }


def main() -> None:
    """Print or write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["licences", "sbom"])
    parser.add_argument("-o", "--output")
    chosen = parser.parse_args()
    text = licences() if chosen.what == "licences" else json.dumps(sbom(), indent=2) + "\n"
    if chosen.output:
        Path(chosen.output).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
