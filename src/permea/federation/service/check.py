"""What is wrong with files, certificates, clocks and ports of a node, before the first query."""

import email.utils
import importlib.metadata
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from permea._version import __version__
from permea.federation.flower import launch
from permea.federation.service.config import (
    FederationConfig,
    PartyConfig,
    ReaderConfig,
    node_config,
)

_SOON = 30  # days before the end of a certificate that are worth a warning
_CLOCKS = 5.0  # seconds that two clocks may differ: requests are signed with their time
_TIMEOUT = 5.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok   ' if self.good else 'WRONG'} {self.what}: {self.text}"


def check(path: Path, *, is_node: bool) -> list[Finding]:
    """Everything that can be checked from one machine.

    Parameters
    ----------
    path : Path
        ``federation.toml``, or with ``is_node`` the file of a party or of a reader.
    is_node : bool
        Whose file it is.
    """
    found = [Finding("version", True, f"permea {__version__}, Flower {_flower()}")]
    if is_node:
        return [*found, *_node(node_config(path))]
    return [*found, *_aggregator(FederationConfig.from_file(path))]


def _flower() -> str:
    try:
        return importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        return "is not installed: pip install 'permea[federated]'"


def _looked(what: str, look: Callable[[], str]) -> Finding:
    """A finding; whatever a look raises is what is wrong."""
    try:
        return Finding(what, True, look())
    except Exception as error:  # files, certificates and machines can be wrong in many ways
        return Finding(what, False, f"{type(error).__name__}: {error}")


def _aggregator(config: FederationConfig) -> Iterator[Finding]:
    yield _looked("server certificate", lambda: _certificate(config.certificate))
    yield _looked("authority", lambda: _certificate(config.ca))
    yield _looked("server key", lambda: _server_key(config))
    yield _looked("server name", lambda: _handshake_in_memory(config))
    for name, key in config.node_keys.items():
        yield _looked(f"key of {name}", lambda key=key: _public_key(key))  # type: ignore[misc]
    yield _looked("port", lambda: _port(config))
    yield _looked("folder", lambda: _folder(config.folder))
    if config.training is not None:
        yield _looked("training", lambda: _training(config))


def _node(config: PartyConfig | ReaderConfig) -> Iterator[Finding]:
    yield _looked("authority", lambda: _certificate(config.ca))
    yield _looked("key", lambda: _private_key(config.key))
    yield _looked("aggregator", lambda: _reach(config))
    if isinstance(config, ReaderConfig):
        yield _looked("reader", lambda: _reader(config))
        return
    if config.model is not None:
        yield _looked("model", lambda: _model(config))
    if config.moments is not None:
        yield _looked("rows", lambda: _rows(config))


# ---- certificates and keys -------------------------------------------------------------------


def _certificate(path: Path) -> str:
    from cryptography import x509

    found = x509.load_pem_x509_certificate(path.read_bytes())
    now = datetime.now(UTC)
    first, last = found.not_valid_before_utc, found.not_valid_after_utc
    if now < first:
        raise ValueError(f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC: check the clock.")
    if now > last:
        raise ValueError(f"{path} ended on {last:%Y-%m-%d}: get a new one.")
    days = (last - now).days
    return f"valid until {last:%Y-%m-%d}{', SOON' if days < _SOON else ''}"


def _server_key(config: FederationConfig) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config.certificate, config.key)  # raises when they do not belong
    return f"belongs to the certificate; {_owner_only(config.key)}"


def _private_key(path: Path) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    if not isinstance(load_ssh_private_key(path.read_bytes(), None), ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is no elliptic-curve key: ssh-keygen -t ecdsa -b 384.")
    return _owner_only(path)


def _public_key(path: Path) -> str:
    launch.public_key_bytes(path)
    return "can be registered"


def _owner_only(path: Path) -> str:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise PermissionError(f"{path} can be read by others: chmod 600 {path}")
    return "for its owner alone"


def _handshake_in_memory(config: FederationConfig) -> str:
    """Whether a party on this machine would accept the server's certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(config.certificate, config.key)
    client = ssl.create_default_context(cafile=str(config.ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    host = config.local_address.rpartition(":")[0]
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return f"{ends[0].version()} as {host}; parties need the name that they connect to in it too"


# ---- machines --------------------------------------------------------------------------------


def _port(config: FederationConfig) -> str:
    from permea.federation.service.direct import listens

    if listens(config):
        return f"{config.port} is in use: by this federation's SuperLink, or by something else"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((config.host, config.port))
    return f"{config.port} is free"


def _folder(path: Path) -> str:
    if not path.exists():
        return f"{path} will be made, for its owner alone"
    return _owner_only(path)


def _reach(config: PartyConfig | ReaderConfig) -> str:
    """Connect, check the certificate, and compare clocks."""
    host, _, port = config.address.rpartition(":")
    context = ssl.create_default_context(cafile=str(config.ca))
    with (
        socket.create_connection((host, int(port)), _TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname=host) as link,
    ):
        link.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = link.recv(65536).decode("latin-1", "replace")
        version = link.version()
    dates = [line[5:].strip() for line in head.splitlines() if line.lower().startswith("date:")]
    if not dates:
        return f"reached, {version}; it does not tell its time"
    ahead = time.time() - email.utils.parsedate_to_datetime(dates[0]).timestamp()
    if abs(ahead) > _CLOCKS:
        raise ValueError(
            f"the clock here is {ahead:+.0f} s off the aggregator's: requests are refused. "
            "Synchronise both clocks (NTP)."
        )
    return f"reached, {version}, clocks agree"


# ---- what is served --------------------------------------------------------------------------


def _model(config: PartyConfig) -> str:
    assert config.model is not None
    if not config.model.exists() and config.training is not None:
        return f"{config.model} will be trained from {config.training.data}"
    party = config.party()
    schema = party.schema
    return (
        f"{party.status}; {schema.n_features} features, {len(schema.classes)} classes, schema "
        f"{schema.fingerprint[:16]}"
    )


def _rows(config: PartyConfig) -> str:
    from permea.federation.service.training import moment_party

    assert config.moments is not None
    party = moment_party(config.name, config.moments)
    return f"match the agreement {party.agreement.digest[:16]}"


def _reader(config: ReaderConfig) -> str:
    from permea.federation.service.training import reader_of

    reader_of(config)
    return f"signs with {config.sign}; {_owner_only(config.sign)}"


def _training(config: FederationConfig) -> str:
    from permea.federation.flower.moments import check_agreed
    from permea.federation.service.training import Wanted, read_agreement

    assert config.training is not None
    agreement = read_agreement(config.training.agreement)
    check_agreed(agreement, Wanted.from_file(config.training.training).estimator)
    return f"agreement {agreement.digest[:16]} of {len(agreement.parties)} parties"
