"""Keys and certificates for a trial: an authority, a server certificate, one key for each party.

For a trial only. In production the server certificate comes from the organisation's own authority,
and each party makes its own key with ``ssh-keygen -t ecdsa -b 384`` and sends the public half.
"""

import argparse
import datetime
import ipaddress
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as serial
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from permea._files import write_atomically

_AUTHORITY = "permea trial authority"


def make_trial_certificates(
    folder: str | Path,
    parties: Sequence[str],
    *,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    days: int = 30,
) -> Path:
    """Write ``ca.crt``, ``server.crt``, ``server.key`` and ``NAME.key``, ``NAME.pub`` per party.

    The key of the authority is discarded, so that no second server can be signed with it.
    Private keys are readable by their owner alone. Existing files are never overwritten.

    Parameters
    ----------
    folder : str or Path
        Where to write; created when missing. Keep it out of any repository.
    parties : sequence of str
        Names of the parties.
    hosts : sequence of str
        Names and addresses under which the parties reach the server.
    days : int
        How long the certificates are valid.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = make_trial_certificates(Path(place) / "keys", ["clinic-a"])
    ...     sorted(path.name for path in made.iterdir())
    ['ca.crt', 'clinic-a.key', 'clinic-a.pub', 'server.crt', 'server.key']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    authority_key = ec.generate_private_key(ec.SECP384R1())
    server_key = ec.generate_private_key(ec.SECP384R1())
    public = authority_key.public_key()
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority: dict[x509.ExtensionType, bool] = {
        x509.BasicConstraints(ca=True, path_length=0): True,
        usage: True,
        x509.SubjectKeyIdentifier.from_public_key(public): False,
    }
    server: dict[x509.ExtensionType, bool] = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        x509.SubjectAlternativeName([_host(host) for host in hosts]): False,
        x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]): False,
        x509.AuthorityKeyIdentifier.from_issuer_public_key(public): False,
    }
    signed_by = (_AUTHORITY, authority_key, days)
    _write(folder / "ca.crt", _certificate(_AUTHORITY, authority_key, *signed_by, authority))
    _write(folder / "server.crt", _certificate(hosts[0], server_key, *signed_by, server))
    _write(folder / "server.key", _private(server_key, serial.PrivateFormat.PKCS8), private=True)
    for name in parties:
        make_party_key(folder, name)
    return folder


def make_party_key(folder: str | Path, name: str) -> tuple[Path, Path]:
    """Write the private and the public key of one party; give both paths."""
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = Path(folder) / f"{name}.key", Path(folder) / f"{name}.pub"
    _write(private, _private(key, serial.PrivateFormat.OpenSSH), private=True)
    line = key.public_key().public_bytes(serial.Encoding.OpenSSH, serial.PublicFormat.OpenSSH)
    _write(public, line + b"\n")
    return private, public


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
    extensions: Mapping[x509.ExtensionType, bool],
) -> bytes:
    """A signed certificate with these extensions, each critical or not."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    for extension, critical in extensions.items():
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA384()).public_bytes(serial.Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _private(key: ec.EllipticCurvePrivateKey, layout: serial.PrivateFormat) -> bytes:
    return key.private_bytes(serial.Encoding.PEM, layout, serial.NoEncryption())


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a new file that has its permissions from the first byte on."""
    if os.path.lexists(path):
        raise FileExistsError(
            f"{path} exists and is not overwritten: keys that parties already trust would be lost. "
            "Choose another folder, or remove it yourself."
        )
    write_atomically(path, content, private=private)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of ``scripts/make_trial_certificates.sh``."""
    parser = argparse.ArgumentParser(description="Keys and certificates for a trial federation.")
    parser.add_argument("folder", help="where to write; keep it out of any repository")
    parser.add_argument("parties", nargs="+", help="names of the parties")
    parser.add_argument("--host", action="append", help="name or address of the server; repeatable")
    parser.add_argument("--days", type=int, default=30, help="validity in days")
    chosen = parser.parse_args(arguments)
    hosts = ("localhost", "127.0.0.1", *(chosen.host or ()))
    folder = make_trial_certificates(chosen.folder, chosen.parties, hosts=hosts, days=chosen.days)
    print(f"Wrote {', '.join(sorted(path.name for path in folder.iterdir()))} to {folder}")
    print("Server: ca.crt, server.crt, server.key, *.pub. Each party: ca.crt and its own .key.")


if __name__ == "__main__":
    main()
