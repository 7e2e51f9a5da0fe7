"""The HTTP interface of a service: FastAPI routes, and the process that serves them over TLS."""

import asyncio
import base64
import ipaddress
import socket
import ssl
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from permea._text import safe_cell, safe_text
from permea._version import __version__
from permea.federation.errors import FederationError, QuorumError, RefusedError, SchemaError
from permea.federation.service.askers import Asker, DeniedError, RateError
from permea.federation.service.backends import Answered, plain
from permea.federation.service.database import StoreError, StoreFullError
from permea.federation.service.decode import ARROW, CSV, JSON, NPY, DecodeError
from permea.federation.service.server import Service, as_json
from permea.federation.service.store import Job, JobUnknownError, State

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

_THREADS = 4  # questions that are worked on at the same time; the others wait in their order
_MOST_CONNECTIONS = 1024
_ROWS: dict[str, Any] = {
    JSON: {"schema": {"type": "object", "properties": {
        "rows": {"type": "array", "items": {"type": "array", "items": {}}},
        "columns": {"type": "array", "items": {"type": "string"}}}, "required": ["rows"]}},
    **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in (CSV, ARROW, NPY)},
}  # fmt: skip
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (DeniedError, 401),
    (RateError, 429),
    (RefusedError, 403),
    (JobUnknownError, 404),
    (DecodeError, 400),
    (SchemaError, 400),
    (QuorumError, 503),
    (StoreFullError, 507),
    (StoreError, 503),
    (FederationError, 400),
)
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with "no-referrer" a form would not say where it is from
}


class TooLargeError(FederationError):
    """A body is larger than what is taken."""


def require_service() -> None:
    """Raise a helpful error unless the extra is installed."""
    try:
        import fastapi  # noqa: F401
        import jinja2  # noqa: F401
        import jwt  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"The service needs {error.name}, which is not installed: pip install 'permea[service]'"
        ) from None


def make_app(service: Service, *, secure: bool = True) -> "FastAPI":
    """The application of a service.

    Parameters
    ----------
    service : Service
        Started.
    secure : bool
        Whether it is served over TLS.
    """
    require_service()
    from fastapi import FastAPI

    from permea.federation.service.console import add_console

    app = FastAPI(
        title="permea",
        version=__version__,
        description="Labels of rows, from one private model, several, or a federation of parties.",
        docs_url=None,  # the page loads scripts from elsewhere
        redoc_url=None,
    )
    for kind, status in _STATUS:
        app.add_exception_handler(kind, _failure(status))
    threads = asyncio.Semaphore(_THREADS)

    async def work(action: Callable[..., Any], *values: Any, **named: Any) -> Any:
        async with threads:
            return await asyncio.to_thread(action, *values, **named)

    routes = _Routes(service, work)
    _add_open(app, service)
    _add_asking(app, routes)
    _add_jobs(app, routes)
    _add_keys(app, routes)
    _add_operator(app, routes)
    add_console(app, service, work, secure=secure)
    return app


def _failure(status: int) -> Callable[..., Awaitable[Any]]:
    """A handler that answers an error with its one line."""

    async def handle(request: Any, error: Exception) -> Any:
        from fastapi import Response

        headers = {}
        if isinstance(error, DeniedError):
            headers["www-authenticate"] = 'Bearer realm="permea"'
        if isinstance(error, RateError):
            headers["retry-after"] = str(int(error.wait) + 1)
        code = 413 if isinstance(error, TooLargeError) else status
        text = " ".join(safe_text(error).split())
        return Response(as_json({"error": text}), code, headers, media_type=JSON)

    return handle


@dataclass(frozen=True)
class _Routes:
    """What several routes need."""

    service: Service
    work: Callable[..., Awaitable[Any]]  #: runs something in one of few threads

    async def enter(self, request: "Request", scope: str) -> Asker:
        """The asker of a request."""
        header = request.headers.get("authorization", "")
        found: Asker = await self.work(self.service.enter, header, scope)
        return found

    async def body(self, request: "Request", limit: int) -> bytes:
        """The body, which must be short enough, arrive in time, and not be compressed."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise DecodeError("Compressed bodies are not taken.")
        announced = request.headers.get("content-length", "0")
        parts, size = [], int(announced) if announced.isdecimal() else 0
        if size <= limit:
            size = 0
            try:
                async with asyncio.timeout(self.service.settings.body_timeout):
                    async for part in request.stream():
                        size += len(part)
                        if size > limit:
                            break
                        parts.append(part)
            except TimeoutError:
                raise DecodeError("The body did not arrive in time.") from None
        if size > limit:
            raise TooLargeError(f"The body is larger than {limit} bytes. Send several jobs.")
        return b"".join(parts)

    @staticmethod
    def kind(request: "Request") -> str:
        """Media type of the body."""
        return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _add_open(app: "FastAPI", service: Service) -> None:
    """What everybody may know: whether the service runs."""
    from fastapi import Response

    @app.get("/health", summary="Whether the process runs", tags=["state"])
    def health() -> Any:
        return {"status": "ok"}

    @app.get("/ready", summary="Whether questions can be answered now", tags=["state"])
    def ready() -> Response:
        reason = service.why_not_ready()
        values = {"ready": not reason, "reason": reason}
        return Response(as_json(values), 503 if reason else 200, media_type=JSON)


def _add_asking(app: "FastAPI", routes: _Routes) -> None:
    from fastapi import Request, Response

    service = routes.service

    @app.get("/v1/about", summary="Columns, classes, parties, and what you may use", tags=["ask"])
    async def about(request: Request) -> Response:
        asker = await routes.enter(request, "ask")
        takes = service.backend.takes
        values = {
            "version": __version__,
            "backend": service.backend.name,
            "encrypted": service.encrypted,
            "takes": None if takes is None else takes.to_dict(),
            "parties": dict(service.backend.parties),
            "you": _you(asker),
        }
        return Response(as_json(values), media_type=JSON)

    @app.post(
        "/v1/ask",
        summary="Labels of a few rows, at once",
        tags=["ask"],
        openapi_extra={"requestBody": {"content": _ROWS, "required": True}},
    )
    async def ask(request: Request) -> Response:
        asker = await routes.enter(request, "ask")
        body = await routes.body(request, service.settings.ask_bytes)
        kind = routes.kind(request)
        if service.answers_at_once:
            answered = await routes.work(service.ask, asker, body, kind)
            return _answer(answered, request.headers.get("accept", ""))
        settings = service.settings
        patience = settings.ask_timeout
        submit = service.submit
        job = await routes.work(submit, asker, body, kind, patience=patience, again=None)
        return await _wait(routes, job, request.headers.get("accept", ""))


async def _wait(routes: _Routes, job: Job, accept: str) -> "Response":
    """The answer of a job, when it comes in time; otherwise the job."""
    from fastapi import Response

    store, pause = routes.service.spool.store, 0.01
    deadline = time.monotonic() + routes.service.settings.ask_timeout
    while not job.state.has_ended and time.monotonic() < deadline:
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, 0.1)
        job = await asyncio.to_thread(store.job, job.id)
    if job.state is State.done:
        return _answer(await routes.work(routes.service.answer, job), accept)
    status = 503 if job.state is State.expired else 400 if job.state.has_ended else 202
    return Response(as_json(_job(job)), status, media_type=JSON)


def _add_jobs(app: "FastAPI", routes: _Routes) -> None:
    from fastapi import Request, Response

    service = routes.service

    @app.post(
        "/v1/jobs",
        summary="Submit rows; the header Idempotency-Key makes repeating harmless",
        tags=["jobs"],
        status_code=202,
        openapi_extra={"requestBody": {"content": _ROWS, "required": True}},
    )
    async def submit(request: Request, patience: float = 3600.0) -> Response:
        asker = await routes.enter(request, "jobs")
        again = request.headers.get("idempotency-key")
        if not 0 < patience < float("inf") or (again is not None and len(again) > 200):
            raise DecodeError("patience must be a number of seconds, and a key short.")
        kind, settings = routes.kind(request), service.settings
        is_text = kind in (JSON, CSV) and not service.encrypted
        limit = settings.text_bytes if is_text else settings.job_bytes
        body = await routes.body(request, limit)
        accept = service.submit
        job = await routes.work(accept, asker, body, kind, patience=patience, again=again)
        headers = {"location": f"/v1/jobs/{job.id}"}
        return Response(as_json(_job(job)), 202, headers, media_type=JSON)

    @app.get("/v1/jobs", summary="Your latest jobs", tags=["jobs"])
    async def jobs(request: Request) -> Response:
        asker = await routes.enter(request, "jobs")
        found = await routes.work(service.spool.store.jobs, asker.id)
        return Response(as_json({"jobs": [_job(job) for job in found]}), media_type=JSON)

    @app.get("/v1/jobs/{name}", summary="State of a job", tags=["jobs"])
    async def status(request: Request, name: str) -> Response:
        asker = await routes.enter(request, "jobs")
        job = await routes.work(service.spool.store.job, name, asker.id)
        return Response(as_json(_job(job)), media_type=JSON)

    @app.get("/v1/jobs/{name}/result", summary="Labels of a job", tags=["jobs"])
    async def result(request: Request, name: str) -> Response:
        asker = await routes.enter(request, "jobs")
        job = await routes.work(service.spool.store.job, name, asker.id)
        if not job.state.has_ended:
            return Response(as_json(_job(job)), 202, media_type=JSON)
        if job.state is not State.done:
            return Response(as_json(_job(job)), 410, media_type=JSON)
        answer = await routes.work(service.answer, job)
        return _answer(answer, request.headers.get("accept", ""), job.report)

    @app.delete("/v1/jobs/{name}", summary="Take a job back", tags=["jobs"])
    async def cancel(request: Request, name: str) -> Response:
        asker = await routes.enter(request, "jobs")
        job = await routes.work(service.cancel, asker, name)
        return Response(as_json(_job(job)), media_type=JSON)


def _add_keys(app: "FastAPI", routes: _Routes) -> None:
    """What encrypted questions need."""
    from fastapi import Request, Response

    service = routes.service

    @app.get("/v1/terms", summary="Terms of encrypted questions", tags=["encrypted"])
    async def terms(request: Request) -> Response:
        await routes.enter(request, "jobs")
        text = await routes.work(service.spool.store.database.fact, "terms")
        if text is None:
            why = "not enough parties" if service.encrypted else "questions are not encrypted here"
            return Response(as_json({"error": f"There are no terms: {why}."}), 404, media_type=JSON)
        return Response(text, media_type=JSON)

    @app.put(
        "/v1/keys",
        summary="Send your evaluation key",
        tags=["encrypted"],
        openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}},
    )
    async def keep_key(request: Request) -> Response:
        asker = await routes.enter(request, "jobs")
        body = await routes.body(request, service.settings.key_bytes)
        digest = await routes.work(service.keep_key, asker, body)
        return Response(as_json({"key": digest}), 201, media_type=JSON)


def _add_operator(app: "FastAPI", routes: _Routes) -> None:
    from fastapi import Request, Response

    service = routes.service

    @app.get("/metrics", summary="Metrics for Prometheus; needs the scope operate", tags=["state"])
    async def metrics(request: Request) -> Response:
        await routes.enter(request, "operate")
        gauges = await routes.work(service.gauges)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(service.metrics.text(gauges), headers={"content-type": kind})


# ---- what is sent back ---------------------------------------------------------------------------


def _job(job: Job) -> dict[str, Any]:
    """A job as its asker sees it."""
    return {
        "job": job.id,
        "state": job.state.value,
        "rows": job.rows,
        "submitted": job.submitted,
        "ended": job.ended,
        "reason": job.reason,
        "report": job.report,
    }


def _you(asker: Asker) -> dict[str, Any]:
    """What an asker may know about herself."""
    return {
        "id": asker.id,
        "name": asker.name,
        "scopes": sorted(asker.scopes),
        "used": asker.used,
        "budget": asker.budget,
        "per_minute": asker.per_minute,
        "expires": asker.expires,
    }


def _answer(
    answered: Answered | list[bytes], accept: str, report: dict[str, Any] | None = None
) -> "Response":
    """Labels in the format that is accepted, and who answered."""
    from fastapi import Response

    if isinstance(answered, list):
        sealed = [base64.b64encode(one).decode("ascii") for one in answered]
        return Response(as_json({"ciphertexts": sealed, **(report or {})}), media_type=JSON)
    labels = [plain(label) for label in np.asarray(answered.labels).tolist()]
    names = answered.report.get("who_answered", [])
    headers = {"permea-answered": ",".join(quote(name) for name in names)}
    if CSV in accept:
        lines = ["label", *(_cell(label) for label in labels)]
        return Response("\n".join(lines) + "\n", headers=headers, media_type=CSV)
    if ARROW in accept:
        return Response(_arrow(labels), headers=headers, media_type=ARROW)
    return Response(as_json({"labels": labels, **answered.report}), headers=headers,
                    media_type=JSON)  # fmt: skip


def _cell(label: Any) -> str:
    """A label as a cell of a CSV file."""
    text = safe_cell(label) if isinstance(label, str) else str(label)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n\r') else text


def _arrow(labels: list[Any]) -> bytes:
    import pyarrow as pa

    table = pa.table({"label": pa.array(labels)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


# ---- the process ---------------------------------------------------------------------------------


class Outermost:
    """Around the application: headers, metrics, and errors that show nothing.

    Parameters
    ----------
    app : FastAPI
        The application.
    service : Service
        Counts the requests.
    secure : bool
        Whether it is served over TLS.
    """

    def __init__(self, app: Any, service: Service, *, secure: bool) -> None:
        self._app, self._service = app, service
        self._headers = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
        if secure:
            self._headers.append((b"strict-transport-security", b"max-age=31536000"))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            _report_fault(error)  # where it happened, and no value
            if not status:
                await sending({"type": "http.response.start", "status": 500, "headers": []})
                await send({"type": "http.response.body", "body": b""})
        route = getattr(scope.get("route"), "path", "other")
        self._service.metrics.request(route, status, time.perf_counter() - start)


def _report_fault(error: BaseException) -> None:
    """Type and place of an unexpected error, on standard error; its text may hold values."""
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" at {Path(one.filename).name}:{one.lineno}" for one in where)
    print(f"unexpected {type(error).__name__}{place}", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where the service listens, and with which certificate.

    Parameters
    ----------
    host, port : str, int
        Where.
    certificate, key : Path or None
        TLS files in the PEM format. Without them `plain_http` must be given, and the host must be
        of the loopback interface.
    plain_http : bool
        Serve without TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8443
    certificate: Path | None = None
    key: Path | None = None
    plain_http: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("Give --certificate and --key together.")
        if self.certificate is not None and self.plain_http:
            raise ValueError("Give a certificate, or --plain-http, not both.")
        if self.certificate is None and not self.plain_http:
            raise ValueError(
                "HTTPS needs --certificate and --key. Without them the service is for this machine "
                "only: say so with --plain-http."
            )
        if self.plain_http and not _is_loopback(self.host):
            raise ValueError(
                f"--plain-http is for the loopback interface, not for {self.host}: tokens and rows "
                "would be readable on the network. Give --certificate and --key."
            )

    @property
    def url(self) -> str:
        """Where the service is found."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'' if self.plain_http else 's'}://{host}:{self.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(service: Service, listen: Listen, on_start: Callable[[str], None]) -> None:
    """Serve until a signal, in the main thread of a process.

    Parameters
    ----------
    service : Service
        Not started yet.
    listen : Listen
        Where.
    on_start : callable
        Gets the address once the port is open.
    """
    require_service()
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Any:  # ours are in place
            with nullcontext():
                yield

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                on_start(listen.url)

    sockets = [_open_port(listen)]
    service.start()
    try:
        secure = not listen.plain_http
        app = Outermost(make_app(service, secure=secure), service, secure=secure)
        config = uvicorn.Config(
            app, log_level="error", access_log=False,
            server_header=False, proxy_headers=False, ws="none", lifespan="off",
            ssl_certfile=listen.certificate, ssl_keyfile=listen.key,
            limit_concurrency=_MOST_CONNECTIONS, timeout_keep_alive=30,
            timeout_graceful_shutdown=10, h11_max_incomplete_event_size=1 << 16,
        )  # fmt: skip
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        server = Server(config)
        service.on_failure = lambda: setattr(server, "should_exit", True)
        with _signals(server):
            server.run(sockets)
    finally:
        service.stop()
    if service.failure:
        raise FederationError(service.failure)


def _open_port(listen: Listen) -> socket.socket:
    """A socket that listens, or an error that says where not."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=1024)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FederationError(f"{listen.url} cannot be listened on: {reason}.") from error


@contextmanager
def _signals(server: Any) -> Any:
    """Let SIGTERM and SIGINT end the server after the requests that it works on."""
    import signal

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
