"""The OpenAPI document, from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from geminorum import __version__
from geminorum.apps.web.api.endpoint import JSON, PREFIX, SSE, Endpoint
from geminorum.apps.web.failures import Failure

_PARAMETER = re.compile(r"\{(\w+)\}")
_REFERENCE = "#/components/schemas/{name}"
_EVERYWHERE = (401, 403, 421)
"""Not logged in; another page's request, or read-only; a name that is not ours."""


def document(endpoints: Sequence[Endpoint], root: str = "") -> dict[str, Any]:
    """Describes the API for other front ends; `root` is the prefix that the page is mounted at."""
    types = [Failure, *(kind for one in endpoints for kind in (one.body, one.returns) if kind)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    known = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operations = paths.setdefault(f"{PREFIX}{endpoint.path}", {})
        operations[endpoint.method.lower()] = _operation(endpoint, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "geminorum web", "version": __version__},
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


_SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of the link that `geminorum web` prints.",
    },
    "session": {
        "type": "apiKey",
        "in": "header",
        "name": "X-CSRF-Token",
        "description": "For scripts of the page itself, beside its session's cookie.",
    },
}


def _operation(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": dict(_responses(endpoint, known)),
    }
    if endpoint.body is not None:
        content = {JSON: {"schema": known[repr(endpoint.body)]}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = _PARAMETER.findall(endpoint.path)
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    (_,), components = msgspec.json.schema_components([endpoint.query])
    properties = components[endpoint.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        for name, schema in properties.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query says nothing by leaving it out."""
    kept = {name: value for name, value in schema.items() if (name, value) != ("default", None)}
    choices = [one for one in kept.pop("anyOf", []) if one != {"type": "null"}]
    return {**kept, **(choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {})}


def _responses(endpoint: Endpoint, known: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    phrase = HTTPStatus(endpoint.status).phrase
    answer: dict[str, Any] = {"description": phrase}
    if endpoint.media_type == SSE:
        answer["content"] = {SSE: {"schema": {"type": "string"}}}
    elif endpoint.returns is not None:
        answer["content"] = {JSON: {"schema": known[repr(endpoint.returns)]}}
    yield str(endpoint.status), answer
    failed = {JSON: {"schema": known[repr(Failure)]}}
    for status in sorted({*_EVERYWHERE, *endpoint.failures, *_by_input(endpoint)}):
        yield str(status), {"description": HTTPStatus(status).phrase, "content": failed}


def _by_input(endpoint: Endpoint) -> set[int]:
    """What may be wrong with what was sent."""
    found = {422} if endpoint.query is not None else set[int]()
    found |= {400, 413, 415, 422} if endpoint.body is not None else set()
    return found | ({404} if "{" in endpoint.path else set())
