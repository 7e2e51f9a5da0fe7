"""A client of the HTTP interface, with nothing but the standard library and NumPy."""

import base64
import http.client
import json
import secrets
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from permea._text import safe_text
from permea.federation.encryption.protocol import EncryptedQuery, KeyHolder, Terms
from permea.federation.errors import FederationError, PartyTimeoutError
from permea.federation.service.decode import JSON, NPY
from permea.federation.service.queue import load_keys, pack_array, save_keys

_BINARY = "application/octet-stream"
_LONGEST_POLL = 1.0
_LONGEST_ANSWER = 1 << 30


class ServiceError(FederationError):
    """The service refused a request, or cannot be reached.

    Parameters
    ----------
    text : str
        What the service said.
    status : int
        HTTP status; 0 when there was no answer.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels, and on whose models they are based."""

    labels: NDArray[Any]
    who_answered: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Labels":
        """Read an answer."""
        rest = {name: value for name, value in values.items() if name != "labels"}
        return cls(
            labels=np.array(values["labels"]),
            who_answered=tuple(values.get("who_answered", ())),
            missing=dict(values.get("missing", {})),
            report=rest,
        )


class Client:
    """Asks a service that ``permea serve`` runs.

    Parameters
    ----------
    url : str
        ``https://host:port``; ``http://`` is for the loopback interface.
    token : str
        From ``permea serve token create``, or of the identity provider.
    ca : path, optional
        Certificate of the authority that signed the service's; the system's authorities by default.
    timeout : float, default=60
        Seconds to wait for one reply.

    Examples
    --------
    With a service on this machine::

        client = Client("https://localhost:8443", token, ca="keys/ca.crt")
        client.ask(X).labels
        job = client.submit(X)
        client.wait(job, timeout=600).who_answered
    """

    def __init__(
        self, url: str, token: str, *, ca: str | Path | None = None, timeout: float = 60.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must be https://host:port.")
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("http:// is for the loopback interface: a token would be readable.")
        self._token, self._timeout = token, timeout
        self._place = (parts.hostname, parts.port or 443)
        self._context = (
            ssl.create_default_context(cafile=None if ca is None else str(ca))
            if parts.scheme == "https"
            else None
        )
        self._local = threading.local()  # one connection for each thread

    # ---- questions ---------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """Columns and classes, the parties, and what this token may use."""
        return self._json("GET", "/v1/about")

    def ask(self, X: ArrayLike) -> Labels:
        """Labels of a few rows, at once; over a network it may become a job that is waited for."""
        status, values = self._send("POST", "/v1/ask", *_body(X))
        if status == 202:
            return self.wait(str(values["job"]), timeout=self._timeout)
        return Labels.of(values)

    def submit(self, X: ArrayLike, *, patience: float = 3600.0) -> str:
        """Submit rows as a job; returns its name. Sending it twice by a lost reply is harmless."""
        headers = {"idempotency-key": secrets.token_hex(16)}
        path = f"/v1/jobs?patience={patience:g}"
        return str(self._json("POST", path, *_body(X), headers=headers)["job"])

    def status(self, job: str) -> dict[str, Any]:
        """State of a job, with the reason when it has no answer."""
        return self._json("GET", f"/v1/jobs/{job}")

    def jobs(self) -> list[dict[str, Any]]:
        """The latest jobs of this token."""
        return list(self._json("GET", "/v1/jobs")["jobs"])

    def cancel(self, job: str) -> dict[str, Any]:
        """Take a job back."""
        return self._json("DELETE", f"/v1/jobs/{job}")

    def wait(self, job: str, *, timeout: float) -> Labels:
        """Labels of a job, when there are some."""
        return Labels.of(self._finished(job, timeout))

    def _finished(self, job: str, timeout: float) -> dict[str, Any]:
        deadline, pause = time.monotonic() + timeout, 0.02
        while True:
            status, values = self._send("GET", f"/v1/jobs/{job}/result")
            if status != 202:
                return values
            if time.monotonic() > deadline:
                raise PartyTimeoutError(f"Job {job} is still {values['state']}.")
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_POLL)

    # ---- on ciphertexts ----------------------------------------------------------------------

    def ask_encrypted(
        self, X: ArrayLike, *, keys: str | Path | None = None, timeout: float = 600.0
    ) -> Labels:
        """Labels that are computed on ciphertexts and decrypted here.

        Parameters
        ----------
        X : array-like of shape (m, p)
            Rows; parties compute their distances on them in the clear.
        keys : path, optional
            Private folder where the key set is kept between programs; in memory only by default.
        timeout : float
            Seconds to wait.
        """
        holder = self._holder(keys)
        terms = holder.terms
        query = holder.query()
        rows = pack_array(np.asarray(terms.schema.check_queries(X), dtype=np.float64))
        body = json.dumps({
            "queries": base64.b64encode(rows).decode("ascii"), "key": holder.keys.evaluation.digest,
            "public_key": base64.b64encode(holder.keys.public.to_bytes()).decode("ascii"),
            "query": _public(query),
        }).encode("utf-8")  # fmt: skip
        headers = {"idempotency-key": secrets.token_hex(16)}
        job = str(self._json("POST", "/v1/jobs", body, JSON, headers=headers)["job"])
        values = self._finished(job, timeout)
        sealed = [base64.b64decode(one) for one in values.pop("ciphertexts")]
        labels, beyond = holder.labels(sealed, query)
        return Labels.of({**values, "labels": labels, "beyond_scale": beyond})

    def key_digest(self, keys: str | Path) -> str:
        """Digest of the public key in a folder, which is made when there is none.

        Parties list the keys that they encrypt for as ``client_keys``; tell them this digest over
        another line, such as a telephone.
        """
        return self._holder(keys).keys.public.digest

    def _holder(self, keys: str | Path | None) -> KeyHolder:
        terms = Terms.from_json(json.dumps(self._json("GET", "/v1/terms")))
        return self._key_holder(terms, None if keys is None else Path(keys))

    def _key_holder(self, terms: Terms, folder: Path | None) -> KeyHolder:
        """The key holder for these terms, whose evaluation key the service has."""
        known: KeyHolder | None = getattr(self._local, "holder", None)
        if known is not None and known.terms == terms:
            return known
        place = None if folder is None else folder / terms.scheme.fingerprint
        if place is not None and place.exists():
            holder = KeyHolder(terms, load_keys(place))
        else:
            holder = KeyHolder(terms)
            if place is not None:
                save_keys(holder.keys, place)
        self._json("PUT", "/v1/keys", holder.keys.evaluation.to_bytes(), _BINARY)
        self._local.holder = holder
        return holder

    # ---- requests ----------------------------------------------------------------------------

    def _json(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return self._send(method, path, body, kind, headers)[1]

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request, once more on a new connection when an idle one was closed."""
        sent = {"authorization": f"Bearer {self._token}", "accept": JSON, **(headers or {})}
        if body is not None:
            sent["content-type"] = kind
        repeatable = method != "POST" or "idempotency-key" in sent
        for attempt in (0, 1):
            fresh = getattr(self._local, "connection", None) is None
            try:
                return self._exchange(method, path, body, sent)
            except (OSError, http.client.HTTPException) as error:
                self._local.connection = None
                closed = isinstance(error, http.client.RemoteDisconnected | ConnectionError)
                if attempt or not (closed and (repeatable or not fresh)):
                    raise ServiceError(
                        f"The service cannot be reached ({type(error).__name__})."
                    ) from error
        raise AssertionError("the loop returns or raises")

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        data = response.read(_LONGEST_ANSWER)
        self._local.connection = connection
        try:
            values = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            values = {}
        if response.status >= 400 or not isinstance(values, dict):
            said = values if isinstance(values, dict) else {}
            text = said.get("error") or said.get("reason") or response.reason or "no reason given"
            raise ServiceError(safe_text(text)[:1000], response.status)
        return response.status, values

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(*self._place, timeout=self._timeout)
        return http.client.HTTPSConnection(
            *self._place, timeout=self._timeout, context=self._context
        )

    def __repr__(self) -> str:
        return f"Client({self._place[0]}:{self._place[1]})"


def _public(query: EncryptedQuery) -> dict[str, Any]:
    record = query.to_record()
    return {name: record[name] for name in ("scheme", "classes", "query_id")}


def _body(X: ArrayLike) -> tuple[bytes, str]:
    """Rows as they are sent: numbers as they are in memory, a frame with its names."""
    columns: Sequence[Any] | None = getattr(X, "columns", None)
    if columns is None:
        rows = np.asarray(X)
        if rows.dtype not in (np.float32, np.float64):
            rows = rows.astype(np.float64)
        return pack_array(rows), NPY
    frame: Any = X
    values = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    cells = [[_cell(cell) for cell in row] for row in values]
    names = [str(name) for name in columns]
    return json.dumps({"columns": names, "rows": cells}, allow_nan=False).encode("utf-8"), JSON


def _cell(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
