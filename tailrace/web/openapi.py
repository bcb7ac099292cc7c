"""The OpenAPI document of the JSON interface, made of the same actions that it runs."""

from __future__ import annotations

from typing import Any

from tailrace.web.actions import ACTIONS, Action, Field

PREFIX = "/api/v1"
Part = dict[str, Any]


def document() -> Part:
    """Return the OpenAPI 3.1 document."""
    paths = {PREFIX + path: {"get": operation} for path, operation in _reads().items()}
    paths |= {f"{PREFIX}/actions/{action.name}": {"post": _action(action)} for action in ACTIONS.values()}
    # Without a token, because it says nothing about a pipeline.
    paths[f"{PREFIX}/openapi.json"] = {"get": _read("This document.", {"type": "object"}) | {"security": []}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tailrace",
            "version": "1",
            "description": "One pipeline: its state, its log, actions.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, "Run": _RUN},
        },
    }


def _reads() -> dict[str, Part]:
    return {
        "/status": _read(
            "The report of `tailrace status --json` (docs/JSON.md), as it was seen last; null before the first look.",
            _object(seen_at="number", problem="string", report=["object", "null"]),
        ),
        "/attention": _read(
            "What somebody must look at, the most urgent first.",
            _list(
                "notices",
                level="string",
                part="string",
                code="string",
                what="string",
                where="string",
                hint="string",
                commands="array",
            ),
        ),
        "/history": _read(
            "The numbers of the last hour, as in the charts: seconds since 1970, row changes published since the page"
            " runs, and each channel's lag in seconds and row changes ever applied.",
            _list("points", at="number", published=["integer", "null"], channels="object"),
        ),
        "/epochs": _read(
            "The last epochs with content, the newest first. Times are in ms since 1970.",
            _list(
                "epochs",
                epoch="integer",
                published_ms="integer",
                committed_ms=["integer", "null"],
                transactions="integer",
                rows="integer",
                first_gtid=["string", "null"],
                last_gtid=["string", "null"],
                tables="array",
                more_tables="integer",
                ddl=["string", "null"],
                copy=["string", "null"],
            ),
        ),
        "/rows": _read(
            "A row's changes, the newest first. The search has limits; continue_before goes on.",
            _object(
                table="string",
                key="object",
                changes="array",
                rows_read="integer",
                cut=["array", "null"],
                continue_before=["integer", "null"],
            ),
            table=("database.table", True),
            key=("column=value; once for each column", True),
            before=("only epochs before this number", False),
        ),
        "/structures": _read(
            "A table's structure at two points of the log, and what differs.",
            _object(at="object", until="object", difference="array"),
            table=("database.table", True),
            at=("epoch:N, gtid:SET or time:RFC3339; default: the end", False),
            until=("the same", False),
        ),
        "/actions": _read(
            "The last actions, the newest first, also of earlier processes.",
            {"type": "object", "properties": {"actions": {"type": "array", "items": _RUN_LINK}}},
        ),
        "/actions/{id}": _read("An action that this process has begun.", _RUN_LINK, id=("its id", True)),
    }


def _read(summary: str, schema: Part, **parameters: tuple[str, bool]) -> Part:
    found: Part = {"summary": summary, "responses": {"200": _answer("found", schema), **_ERRORS}}
    if parameters:
        found["parameters"] = [_parameter(name, text, needed) for name, (text, needed) in parameters.items()]
    return found


def _parameter(name: str, text: str, needed: bool) -> Part:
    schema: Part = {"type": "string"}
    if name == "key":
        schema = {"type": "array", "items": schema}
    place = "path" if name == "id" else "query"
    return {"name": name, "in": place, "required": needed, "description": text, "schema": schema}


def _action(action: Action) -> Part:
    schema = {
        "type": "object",
        "properties": {field.name: _property(field) for field in action.fields},
        "required": [field.name for field in action.fields if field.required],
        "additionalProperties": False,
    }
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {
        "summary": action.does,
        "requestBody": body,
        "responses": {"202": _answer("begun; its path is /actions/{id}", _RUN_LINK), **_ERRORS},
    }


def _property(field: Field) -> Part:
    found: Part = {"type": "string", "description": field.label}
    return found | ({"enum": list(field.choices)} if field.choices else {"pattern": field.pattern})


def _answer(text: str, schema: Part) -> Part:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _object(**types: str | list[str]) -> Part:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}


def _list(name: str, **types: str | list[str]) -> Part:
    return {"type": "object", "properties": {name: {"type": "array", "items": _object(**types)}}}


_RUN_LINK = {"$ref": "#/components/schemas/Run"}
_ERROR = _object(code="string", what="string", where="string", hint="string", retryable="boolean")
_RUN = _object(
    id="string",
    action="string",
    fields="object",
    by="string",
    address="string",
    at="number",
    state="string",
    ended=["number", "null"],
    exit_code=["integer", "null"],
    error=["object", "null"],
    output="string",
)
_FAILED = _answer(
    "an error", {"type": "object", "properties": {"error": {"$ref": "#/components/schemas/Error"}}}
)
_ERRORS = {"4XX": _FAILED, "502": _FAILED}
