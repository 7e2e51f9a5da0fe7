"""``permea serve``: labels over HTTPS from models or from a federation, and the tokens for it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from permea.cli import options, signatures
from permea.cli.app import TOGETHER, command
from permea.cli.console import (
    AuditError,
    Console,
    InputError,
    RefusedError,
    UsageError,
)

Folder = Annotated[
    Path, Option("--folder", help="State of the service; for a federation, its queue.")
]
DEFAULT_FOLDER = Path("permea-service")


class Scope(StrEnum):
    """What a token is for."""

    ask = "ask"
    jobs = "jobs"
    operate = "operate"


@command("serve", panel=TOGETHER)
def serve(
    console: Console,
    model: Annotated[Path | None, Option(help="One model file.")] = None,
    models: Annotated[
        list[Path] | None, Option(help="Model files that are combined here (repeat).")
    ] = None,
    federation: Annotated[
        Path | None, Option(help="federation.toml of parties on the network.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65535, help="Port to listen on.")] = 8443,
    certificate: Annotated[Path | None, Option(help="TLS certificate of the service.")] = None,
    key: Annotated[Path | None, Option(help="Private key of the certificate.")] = None,
    plain_http: Annotated[
        bool, Option("--plain-http", help="No TLS; on the loopback interface only.")
    ] = False,
    folder: Folder = DEFAULT_FOLDER,
    encrypted: Annotated[
        bool, Option("--encrypted", help="With --models: compute labels on ciphertexts.")
    ] = False,
    bits: Annotated[int, Option(min=2, max=16, help="Bits of an encrypted distance.")] = 12,
    disjoint: Annotated[
        bool, Option("--disjoint", help="No two parties hold the same record.")
    ] = False,
    allow_private_rows: Annotated[
        bool,
        Option("--allow-private-rows", help="Serve models that promise nothing about their rows."),
    ] = False,
    retention: Annotated[float, Option(min=0, help="Days that answers are kept.")] = 7.0,
    oidc_issuer: Annotated[str | None, Option(help="Issuer of an identity provider.")] = None,
    oidc_audience: Annotated[str | None, Option(help="Audience that its tokens name.")] = None,
    oidc_keys: Annotated[Path | None, Option(help="Its public keys, a JWKS file.")] = None,
    oidc_budget: Annotated[
        int | None, Option(min=1, help="Answers in all of each asker that comes this way.")
    ] = None,
    trusted: options.Trusted = None,
) -> None:
    """Answer questions over HTTPS: labels out, and who answered.

    The same interface serves one model, private models that were brought here, and a federation of
    parties on the network, whose aggregator is run as well. Who asks needs a token of permea serve
    token create. The console for the operator is at /console. Stop with Ctrl-C.

    Example:
        permea serve --model model.permea --certificate server.crt --key server.key
        permea serve --federation federation.toml --host 0.0.0.0 --certificate s.crt --key s.key
    """
    from permea.federation.errors import FederationError
    from permea.federation.service.http import Listen, require_service, run
    from permea.federation.service.server import Service, Settings

    require_service()
    if sum((model is not None, bool(models), federation is not None)) != 1:
        raise UsageError("Give --model FILE, --models FILE (repeat), or --federation CONFIG.")
    try:
        listen = Listen(
            host=host, port=port, certificate=certificate, key=key, plain_http=plain_http
        )
    except ValueError as error:
        raise UsageError(error) from error
    for path in (certificate, key, federation, oidc_keys):
        _check_exists(path)
    provider = _provider(oidc_issuer, oidc_audience, oidc_keys, oidc_budget)
    if federation is not None:
        from permea.federation.service.network import NetworkBackend

        backend: Any = NetworkBackend(federation)
        folder = backend.spool.folder
    else:
        backend = _models(
            [model] if model is not None else models or [], trusted, allow_private_rows,
            records="disjoint" if disjoint else "unknown", encrypted=encrypted, bits=bits,
        )  # fmt: skip
    settings = Settings(retention=86400 * retention)
    service = Service(backend, folder, settings=settings, provider=provider)
    console.say(f"starting to serve {backend.name}; its state is in {folder}")
    try:
        run(service, listen, lambda url: console.say(f"serving on {url}; stop with Ctrl-C"))
    except FederationError as error:
        raise InputError(error) from error
    console.result("stopped", {"stopped": True})


def _models(paths: list[Path], trusted: Any, allow_private_rows: bool, **settings: Any) -> Any:
    from permea.federation.service.backends import BackendError, load_models

    if len(paths) == 1 and not settings["encrypted"]:
        settings = {}
    try:
        return load_models(
            paths,
            trusted=signatures.trusted_keys(trusted),
            allow_private_rows=allow_private_rows,
            **settings,
        )
    except BackendError as error:
        raise RefusedError(error) from error


def _provider(issuer: str | None, audience: str | None, keys: Path | None, budget: Any) -> Any:
    from permea.federation.service.oidc import Provider

    if issuer is None and audience is None and keys is None:
        return None
    if issuer is None or audience is None or keys is None:
        raise UsageError("Give --oidc-issuer, --oidc-audience and --oidc-keys together.")
    provider = Provider(issuer=issuer, audience=audience, keys=keys, limits={"budget": budget})
    provider.check()
    return provider


def _check_exists(path: Path | None) -> None:
    if path is not None and not path.is_file():
        raise InputError(f"{path} does not exist. Check the path.")


@command("serve token create", panel=TOGETHER)
def create(
    console: Console,
    name: Annotated[str, Argument(help="Whose token it is; parties log this name.")],
    folder: Folder = DEFAULT_FOLDER,
    scope: Annotated[
        list[Scope] | None, Option(help="ask, jobs, operate (repeat); ask and jobs by default.")
    ] = None,
    budget: Annotated[int | None, Option(min=1, help="Answers in all.")] = None,
    per_minute: Annotated[int | None, Option(min=1, help="Rows in any 60 seconds.")] = None,
    days: Annotated[float, Option(min=0, help="Until it expires; 0 for never.")] = 90.0,
) -> None:
    """Create a token and print it, once: only its hash is kept.

    A budget limits how far the model can be copied by asking: a few hundred labels are enough for a
    small one.

    Example:
        permea serve token create "ward 3" --budget 10000 --per-minute 600
    """
    askers = _askers(folder)
    scopes = [one.value for one in scope or [Scope.ask, Scope.jobs]]
    token = askers.create(
        name, scopes=scopes, budget=budget, per_minute=per_minute, days=days or None
    )
    identity = token.split("_")[1]
    _note(folder, askers, "token created", identity)
    if not console.as_json:
        print(token)
    console.say(f"the token of {name}, id {identity}: it is shown this once")
    if console.as_json:
        console.result("", {"token": token, "id": identity, "name": name, "scopes": scopes})


@command("serve token list", panel=TOGETHER)
def list_(console: Console, folder: Folder = DEFAULT_FOLDER) -> None:
    """List who may ask, what for, and what they used.

    Example:
        permea serve token list
    """
    found = _askers(folder).all()
    lines = [
        f"{one.id:<30}{one.name:<24}{one.state:<9}{','.join(sorted(one.scopes)):<18}"
        f"{one.used} of {'no limit' if one.budget is None else one.budget}"
        for one in found
    ]
    values = [
        {"id": one.id, "name": one.name, "state": one.state, "scopes": sorted(one.scopes),
         "used": one.used, "budget": one.budget, "per_minute": one.per_minute,
         "expires": one.expires}
        for one in found
    ]  # fmt: skip
    console.result("\n".join(lines) or "no tokens", {"tokens": values})


@command("serve token revoke", panel=TOGETHER)
def revoke(
    console: Console,
    identity: Annotated[str, Argument(metavar="ID", help="Id of the token, from the list.")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """End a token at once; a running service notices with the next question.

    Example:
        permea serve token revoke 3f1c0a9b2d4e
    """
    from permea.federation.service.askers import DeniedError

    askers = _askers(folder)
    try:
        asker = askers.revoke(identity)
    except DeniedError as error:
        raise InputError(f"There is no token {identity}. See permea serve token list.") from error
    _note(folder, askers, "token revoked", identity)
    console.result(f"the token of {asker.name} is revoked", {"id": identity, "state": "revoked"})


@command("serve verify", panel=TOGETHER)
def verify(console: Console, folder: Folder = DEFAULT_FOLDER) -> None:
    """Check that no line of the audit log was changed, removed or cut off.

    The exit code is 7 when one was.

    Example:
        permea serve verify
    """
    from permea.federation.service.journal import JournalError
    from permea.federation.service.journal import verify as check

    try:
        head = check(folder, _askers(folder).database)
    except JournalError as error:
        raise AuditError(error) from error
    console.result(
        f"{folder}/audit.jsonl is whole: {head.number} lines", {"whole": True, "lines": head.number}
    )


def _askers(folder: Path) -> Any:
    from permea.federation.service.askers import Askers

    return Askers(folder)


def _note(folder: Path, askers: Any, event: str, identity: str) -> None:
    """Write into the audit log of the service."""
    from permea.federation.service.journal import Journal, JournalError

    try:
        Journal(folder, askers.database).add(event, asker=identity)
    except JournalError as error:
        raise AuditError(error) from error
