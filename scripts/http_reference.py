"""Write docs/http-api.md from the routes of the service. Every build of the site does it.

python scripts/http_reference.py
"""

from pathlib import Path
from typing import Any

from permea.federation.service.http import make_app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "http-api.md"
HEAD = """# HTTP API

What `permea serve` answers, written from its routes by `scripts/http_reference.py`. The guide
[to the service](howto/serve.md) has examples for curl and Python, media types, the scopes of
tokens and what is kept. A running service describes itself under `/openapi.json`.

Requests carry `Authorization: Bearer TOKEN`, but for `/health` and `/ready`.

| request | what it does | parameters | replies |
|---|---|---|---|
"""


class _AnyService:
    """Stands for a service: the routes are the same for all of them."""

    def __getattr__(self, name: str) -> "_AnyService":
        return _AnyService()

    def __call__(self, *values: Any, **more: Any) -> "_AnyService":
        return _AnyService()


def routes() -> list[tuple[str, str, str, str]]:
    """Request, summary, parameters and status codes of every route."""
    service: Any = _AnyService()
    paths = make_app(service).openapi()["paths"]
    return [
        (
            f"`{method.upper()} {path}`",
            described.get("summary", ""),
            ", ".join(f"`{one['name']}` ({one['in']})" for one in described.get("parameters", [])),
            ", ".join(described["responses"]),
        )
        for path, methods in paths.items()
        for method, described in methods.items()
    ]


def drawn() -> str:
    """The whole page."""
    return HEAD + "".join("| " + " | ".join(row) + " |\n" for row in routes())


if __name__ == "__main__":
    PAGE.write_text(drawn())
