"""The OpenAPI 3.1 document, made from the table of endpoints and the very structs that requests are read into.

`python -m holdfast.web.api` writes it; the committed copy is compared in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from http import HTTPStatus
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from holdfast.model.times import Timestamp
from holdfast.stores.http.wire import PROBLEM_TYPE, ROOT, Problem
from holdfast.version import __version__
from holdfast.web.api.endpoint import EVENTS, Endpoint
from holdfast.web.api.paging import Page

#: What any request may meet: it is none, no access token, no role, too slow, nonsense, too many, a fault of ours or
#: damage, a store that cannot.
ALWAYS = (400, 401, 403, 408, 422, 429, 500, 503)
#: What may be a name, and an id, as `model.ids` says; and what stands in a path.
NAME, ID = (
    r"^[A-Za-z0-9_.:/\-]{1,128}$",
    r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]{0,198}[^\s\x00-\x1f\x7f-\x9f])?$",
)
_IN_PATH = r"^[^\x00-\x1f\x7f-\x9f]+$"
_NAMES = ("job_type", "queue", "workflow")
_REFS = "#/components/schemas/{name}"
_HEADERS = {
    "If-Match": "The version that was read; another one is not overwritten.",
    "Last-Event-ID": "The last event a stream had; it goes on behind it.",
    "Idempotency-Key": "The caller's own, kept for an hour: a repetition gives the first outcome, another content 409.",
}


def document(table: Sequence[Endpoint]) -> dict[str, Any]:
    """Describe the endpoints of a table."""
    types = list(_types(table))
    schemas, components = msgspec.json.schema_components([described(kind) for kind in types], ref_template=_REFS)
    _shape_texts(components)
    schema_of = {_name(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in table:
        paths.setdefault(f"{ROOT}{endpoint.path}", {})[endpoint.method.lower()] = _operation(
            endpoint, schema_of, components
        )
    _close_requests(table, schema_of, components)
    for endpoint in table:  # a query is a list of parameters, no struct of its own
        components.pop(endpoint.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "summary": "Jobs, schedules and durable workflows of one coordinator.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"access_token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "access_token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Made by `holdfast access add`; on a loopback address it may be left out.",
                }
            },
        },
    }


def _shape_texts(components: Mapping[str, Any]) -> None:
    """Say of names and ids in requests what they look like."""
    for name, component in components.items():
        for field, schema in component.get("properties", {}).items() if name.endswith("Body") else ():
            pattern = NAME if field in _NAMES else ID if field.endswith("_id") else None
            for one in (schema, *schema.get("anyOf", ())) if pattern is not None else ():
                if one.get("type") == "string":
                    one["pattern"] = pattern


def _close_requests(table: Sequence[Endpoint], schema_of: Mapping[str, Any], components: Mapping[str, Any]) -> None:
    """Say of what stands in requests alone that it has no other fields, as `web.field_validation` sees to it."""
    asked = [one.body for one in table if one.body is not None and not isinstance(one.body, str)]
    told = [kind for one in table for content in one.answers.values() for kind in _parts(content)]
    open_ones = _reached([schema_of[_name(kind)] for kind in told], components)
    for name in _reached([schema_of[_name(kind)] for kind in asked], components) - open_ones:
        if components[name].get("type") == "object":
            components[name]["additionalProperties"] = False


def _reached(schemas: Sequence[Any], components: Mapping[str, Any]) -> set[str]:
    """Give the names of all components that some schemas are made of."""
    found: set[str] = set()
    left = list(schemas)
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            name = one.get("$ref", "").rpartition("/")[2] if isinstance(one.get("$ref"), str) else ""
            if name and name not in found:
                found.add(name)
                left.append(components[name])
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return found


def written(found: Mapping[str, Any]) -> bytes:
    """Give the bytes of a document: a line for each path and each schema, so that two can be compared by eye."""
    head = {name: value for name, value in found.items() if name not in ("paths", "components")}
    parts = found["components"]
    others = {name: value for name, value in parts.items() if name != "schemas"}
    return b"".join(
        (
            _encode(head).removesuffix(b"}"),
            b',"paths":{\n',
            _lines(found["paths"]),
            b'\n},"components":',
            _encode(others).removesuffix(b"}"),
            b',"schemas":{\n',
            _lines(dict(sorted(parts["schemas"].items()))),
            b"\n}}}\n",
        )
    )


def _lines(values: Mapping[str, Any]) -> bytes:
    return b",\n".join(_encode(name) + b":" + _encode(value) for name, value in values.items())


_encode = msgspec.json.Encoder(order="deterministic").encode


def _types(table: Sequence[Endpoint]) -> Iterator[Any]:
    """Walk every type that the table names, each once."""
    seen: dict[str, Any] = {_name(Problem): Problem}
    for endpoint in table:
        bodies = [] if endpoint.body is None or isinstance(endpoint.body, str) else [endpoint.body]
        for kind in (
            endpoint.query,
            *bodies,
            *(one for content in endpoint.answers.values() for one in _parts(content)),
        ):
            seen.setdefault(_name(kind), kind)
    return iter(seen.values())


def _parts(content: Any) -> list[Any]:
    """Give the structs among what an answer may hold."""
    several = content if isinstance(content, tuple) else (content,)
    return [one for one in several if one is not None and not isinstance(one, str)]


def _name(kind: Any) -> str:
    return repr(kind) if get_origin(kind) is not None else f"{kind.__module__}.{kind.__qualname__}.{id(kind)}"


# --- operations -------------------------------------------------------------------------------------------------------


def _operation(endpoint: Endpoint, schema_of: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "description": f"For: {endpoint.allowed}.",
        "tags": [endpoint.path.split("/")[1]],
        "parameters": [*_path(endpoint), *_query(endpoint, schema_of, components), *_headers(endpoint)],
        "responses": dict(sorted(_responses(endpoint, schema_of).items())),
    }
    if endpoint.body is not None:
        is_bytes = isinstance(endpoint.body, str)
        schema = {} if is_bytes else schema_of[_name(endpoint.body)]
        # What has no field that must be there may be left out whole.
        needed = is_bytes or bool(_component(schema, components).get("required"))
        made["requestBody"] = {
            "required": needed,
            "content": {endpoint.body if is_bytes else "application/json": {"schema": schema}},
        }
    return made


def _operation_id(endpoint: Endpoint) -> str:
    words = [part.strip("{}").replace(".", "_") for part in endpoint.path.split("/")[1:]]
    return "_".join([endpoint.method.lower(), *words])


def _path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": _IN_PATH}}
        for name in endpoint.parameters
    ]


def _query(endpoint: Endpoint, schema_of: Mapping[str, Any], components: Mapping[str, Any]) -> list[dict[str, Any]]:
    properties = _component(schema_of[_name(endpoint.query)], components)["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        for name, schema in properties.items()
    ]


def _component(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = components.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return found


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Leave null out: in a query what is not given is left out."""
    kept = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    if "anyOf" in kept:
        kinds = [one for one in kept.pop("anyOf") if one != {"type": "null"}]
        kept = {**kept, **kinds[0]} if len(kinds) == 1 else {**kept, "anyOf": kinds}
    return kept


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = [*endpoint.headers, *(["Idempotency-Key"] if endpoint.sends and endpoint.handler else [])]
    limits = {"Idempotency-Key": {"maxLength": 200}}
    return [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": _HEADERS[name],
            "schema": {"type": "string", **limits.get(name, {})},
        }
        for name in names
    ]


def _responses(endpoint: Endpoint, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, content in endpoint.answers.items():
        described_answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        several = content if isinstance(content, tuple) else (content,)
        media = {
            (one if isinstance(one, str) else "application/json"): _media(one, schema_of)
            for one in several
            if one is not None
        }
        if media:
            described_answer["content"] = media
        if endpoint.has_version:
            described_answer["headers"] = {"ETag": {"description": "The version.", "schema": {"type": "string"}}}
        found[str(status)] = described_answer
    for status in _refusals(endpoint):
        problem = {PROBLEM_TYPE: {"schema": schema_of[_name(Problem)]}}
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": problem}
    return found


def _refusals(endpoint: Endpoint) -> set[int]:
    missing = {404} if endpoint.parameters else set()
    large = {413} if endpoint.body is not None else set()
    return {*ALWAYS, *missing, *large, *endpoint.refuses}


def _media(content: Any, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(content, str):
        return {"schema": {"type": "string"}} if content == EVENTS else {}
    return {"schema": schema_of[_name(content)]}


# --- types ------------------------------------------------------------------------------------------------------------


def described(hint: Any) -> Any:
    """Give a type as it is written down: a payload is any JSON, a time is of RFC 3339."""
    if hint is msgspec.Raw:
        return Any
    if hint is Timestamp:
        return Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint) if _is_rewritten(hint, set()) else hint
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Page:
        return _page(described(parts[0]))
    if origin in (Union, UnionType):
        return reduce(or_, map(described, parts))
    if origin is Annotated:
        return Annotated[(described(parts[0]), *parts[1:])]
    if origin in (list, tuple, dict):
        return origin[tuple(part if part is Ellipsis else described(part) for part in parts)]
    return hint


def _is_rewritten(hint: Any, seen: set[Any]) -> bool:
    """Tell whether there is a payload or a time in a type, at whatever depth; a type may contain itself."""
    if hint in (msgspec.Raw, Timestamp):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint in seen:
            return False
        seen.add(hint)
        return any(_is_rewritten(field.type, seen) for field in msgspec.structs.fields(hint))
    return any(_is_rewritten(part, seen) for part in get_args(hint))


@cache
def _page(row: type) -> type:
    return msgspec.defstruct(
        f"{row.__name__}Page",
        [("items", list[row]), ("next_cursor", str | None), ("as_of", int)],  # type: ignore[valid-type]  # it is one at run time
        namespace={"__doc__": Page.__doc__},
    )


@cache
def _struct(kind: type[msgspec.Struct]) -> type:
    """Give a struct whose payloads are any JSON, and whose defaults can be written."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        hint = described(field.type)
        if field.required:
            fields.append((field.encode_name, hint))
        elif field.default is msgspec.NODEFAULT:
            fields.append((field.encode_name, hint, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.encode_name, hint, _default(field.default)))
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__,
        fields,
        namespace={"__doc__": kind.__doc__},
        module=kind.__module__,
        tag=config.tag,
        tag_field=config.tag_field,
        forbid_unknown_fields=config.forbid_unknown_fields,
        array_like=config.array_like,
        kw_only=True,
    )


def _default(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return msgspec.field(default_factory=lambda: msgspec.json.decode(value))
    if isinstance(value, msgspec.Struct):
        return msgspec.field(default_factory=lambda: value)
    return value
