"""The console: one read-only page in the browser for the operator.

It is rendered on the server, loads nothing from anywhere and runs no script. Whoever has a token
with the scope ``operate`` pastes it into a form and gets a cookie, which is kept for an hour and
holds nothing but a random number.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from permea._text import safe_text
from permea._version import __version__
from permea.federation.errors import RefusedError
from permea.federation.service.askers import Asker, DeniedError
from permea.federation.service.network import NetworkBackend
from permea.federation.service.server import Service

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response
    from jinja2 import Environment

_HOURS = 1.0
_MOST_SESSIONS = 1000
_LONGEST_FORM = 16384
_COOKIE = "permea-console"
_JOBS = 50


class Sessions:
    """Who is logged in: random numbers, by their hash, and the asker behind each.

    Parameters
    ----------
    clock : callable, default=time.monotonic
        Seconds; another clock is for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[bytes, tuple[str, float]] = {}

    def open(self, asker: Asker) -> str:
        """A new session."""
        now = self._clock()
        self._known = {key: one for key, one in self._known.items() if one[1] > now}
        while len(self._known) >= _MOST_SESSIONS:
            self._known.pop(next(iter(self._known)))
        number = secrets.token_urlsafe(32)
        self._known[_digest(number)] = (asker.id, now + 3600 * _HOURS)
        return number

    def find(self, number: str) -> str:
        """The id of the asker of a session; raises `DeniedError` when there is none."""
        wanted = _digest(number)
        for key, (identity, end) in self._known.items():
            if hmac.compare_digest(key, wanted) and end > self._clock():
                return identity
        raise DeniedError("Log in first.")

    def close(self, number: str) -> None:
        """End a session."""
        self._known.pop(_digest(number), None)


def _digest(number: str) -> bytes:
    return hashlib.sha256(number.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True)
class Row:
    """A party on the page."""

    name: str
    status: str
    connected: str
    suspicion: str
    certificate: str


def add_console(
    app: "FastAPI", service: Service, work: Callable[..., Awaitable[Any]], *, secure: bool
) -> None:
    """Add the pages of the console to the application."""
    from fastapi import Request, Response

    sessions = Sessions()

    def operator(request: Request) -> Asker:
        identity = sessions.find(request.cookies.get(_COOKIE, ""))
        asker = service.askers.get(identity)
        if asker.state != "valid":
            raise DeniedError("Log in first.")
        return asker

    @app.get("/console", include_in_schema=False)
    async def console(request: Request) -> Response:
        try:
            asker = await work(operator, request)
        except DeniedError:
            return _page("login.html", 401, reason="")
        return _page("console.html", 200, **await work(_content, service, asker))

    @app.post("/console/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        _same_origin(request)
        form = parse_qs((await _form(request)).decode("utf-8", "replace"), max_num_fields=4)
        try:
            asker = await work(service.find, form.get("token", [""])[0].strip())
            asker.require("operate")
        except (DeniedError, RefusedError):
            return _page("login.html", 401, reason="This token is not valid for the console.")
        response = Response(status_code=303, headers={"location": "/console"})
        response.set_cookie(
            _COOKIE, sessions.open(asker), path="/console", httponly=True, samesite="strict",
            secure=secure, max_age=int(3600 * _HOURS),
        )  # fmt: skip
        return response

    @app.post("/console/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        _same_origin(request)
        sessions.close(request.cookies.get(_COOKIE, ""))
        response = Response(status_code=303, headers={"location": "/console"})
        response.delete_cookie(_COOKIE, path="/console")
        return response


def _same_origin(request: "Request") -> None:
    """Refuse a form that another site sent."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise DeniedError("This form was sent from another site.")


async def _form(request: "Request") -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            raise DeniedError("This is not a token.")
    return body


def _content(service: Service, asker: Asker) -> dict[str, Any]:
    """What the page shows."""
    store, backend = service.spool.store, service.backend
    jobs = store.jobs(limit=_JOBS)
    suspicions: dict[str, str] = {}
    for job in jobs:
        for text in job.report.get("suspicions", []):
            name, _, reason = str(text).partition(": ")
            suspicions.setdefault(name, reason)
    connected = backend.connected() if isinstance(backend, NetworkBackend) else None
    parties = [
        Row(name, status, _connected(connected, name), suspicions.get(name, ""),
            backend.certificates.get(name, ""))
        for name, status in backend.parties.items()
    ]  # fmt: skip
    return {
        "operator": asker.name,
        "backend": backend.name,
        "encrypted": service.encrypted,
        "reason": service.why_not_ready(),
        "parties": parties,
        "training": backend.training() if isinstance(backend, NetworkBackend) else None,
        "jobs": jobs,
        "counts": store.counts(),
        "askers": service.askers.all(),
    }


def _connected(names: frozenset[str] | None, name: str) -> str:
    if names is None:
        return "here"
    return "connected" if name in names else "not connected"


def _page(template: str, status: int, **values: Any) -> "Response":
    from fastapi import Response

    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
    text = _environment().get_template(template).render(style=style, version=__version__, **values)
    headers = {"content-security-policy": policy, "x-frame-options": "DENY"}
    return Response(text, status, headers, media_type="text/html")


@cache
def _style() -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, "console.css")[0]


@cache
def _environment() -> "Environment":
    """The templates; all text is escaped, and control characters are made visible."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("permea.federation.service"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: (
            value if hasattr(value, "__html__") else safe_text(value, lines=True)
        ),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["moment"] = _moment
    return environment


def _neutral(value: object) -> object:
    """Text without control characters; what a macro of the templates returned stays as it is."""
    return value if hasattr(value, "__html__") else safe_text(value, lines=True)


def _moment(seconds: float | None) -> str:
    """A time for people."""
    if seconds is None:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
