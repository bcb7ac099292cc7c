"""The JSON interface below ``/api/v1``: the same facts as the page, and the actions."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.errors import ConfigError, TailraceError
from tailrace.status.attention import attention
from tailrace.web.actions import ACTIONS
from tailrace.web.guard import credentials
from tailrace.web.lookup import parse_key
from tailrace.web.openapi import PREFIX, document
from tailrace.web.site import Site

_log = structlog.get_logger()
Answer = Callable[[Request], Awaitable[Any]]


def routes(site: Site) -> list[Route]:
    """Return the routes of the interface."""
    api = _Api(site)
    reads = {
        "/status": api.status,
        "/attention": api.attention,
        "/history": api.history,
        "/epochs": api.epochs,
        "/rows": api.rows,
        "/structures": api.structures,
        "/actions": api.actions,
        "/actions/{id}": api.action,
    }
    found = [Route(PREFIX + path, api.reading(read), methods=["GET"]) for path, read in reads.items()]
    found += [Route(f"{PREFIX}/actions/{name}", api.acting(name), methods=["POST"]) for name in ACTIONS]
    return [*found, Route(f"{PREFIX}/openapi.json", api.openapi, methods=["GET"])]


def failure(error: TailraceError, status: int = 400) -> JSONResponse:
    """Return the answer for an error."""
    return JSONResponse({"error": error.as_dict()}, status)


def status_of(error: TailraceError) -> int:
    """Return the HTTP status of an error."""
    if error.code == "TR165":
        return 429
    return 400 if isinstance(error, ConfigError) else 502


class _Api:
    def __init__(self, site: Site) -> None:
        self._site = site

    def reading(self, read: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a path that only reads."""

        async def handle(request: Request) -> Response:
            if not (self._site.access.reads_freely or credentials(request, self._site.access)):
                return self._denied()
            try:
                found = await read(request)
            except TailraceError as error:
                return failure(error, status_of(error))
            return found if isinstance(found, Response) else JSONResponse(found)

        return handle

    def acting(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of an action. A session is not enough: a browser's forms go to the page."""

        async def handle(request: Request) -> Response:
            address = request.client.host if request.client else ""
            if credentials(request, self._site.access) != "token":
                _log.warning("action_refused", action=name, address=address)
                return self._denied()
            try:
                given = json.loads(await request.body() or b"{}")
                if not isinstance(given, dict):
                    raise ValueError("it is no object")
            except (ValueError, RecursionError) as error:
                wrong = ConfigError(
                    "TR161", f"{name}: the body is no JSON object: {error}", hint="nothing was done"
                )
                return failure(wrong)
            try:
                values = ACTIONS[name].check(given)
                run = await run_in_threadpool(
                    self._site.runner.begin, ACTIONS[name], values, "token", address
                )
            except TailraceError as error:
                return failure(error, status_of(error))
            return JSONResponse(run.as_dict(), 202)

        return handle

    def _denied(self) -> JSONResponse:
        denied = ConfigError(
            "TR166", "the token is missing or wrong", hint="send Authorization: Bearer TOKEN"
        )
        answer = failure(denied, 401)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    async def openapi(self, request: Request) -> Response:
        """The description of the interface has no secret."""
        return JSONResponse(document())

    async def status(self, request: Request) -> Any:
        seen = self._site.watch.seen
        return {"seen_at": seen.at, "problem": seen.problem, "report": seen.report}

    async def attention(self, request: Request) -> Any:
        report = self._site.watch.seen.report
        return {"notices": [notice.as_dict() for notice in attention(report, time.time())] if report else []}

    async def history(self, request: Request) -> Any:
        return {"points": [asdict(point) for point in self._site.watch.seen.points]}

    async def epochs(self, request: Request) -> Any:
        return {"epochs": list(self._site.watch.seen.epochs)}

    async def rows(self, request: Request) -> Any:
        query = request.query_params
        wanted = parse_key("\n".join(query.getlist("key")))
        search = self._site.lookups.row_history
        return await run_in_threadpool(
            search, query.get("table", ""), wanted, number(query.get("before", ""))
        )

    async def structures(self, request: Request) -> Any:
        query = request.query_params
        search = self._site.lookups.structures
        return await run_in_threadpool(
            search, query.get("table", ""), query.get("at", ""), query.get("until", "")
        )

    async def actions(self, request: Request) -> Any:
        return {"actions": await run_in_threadpool(self._site.runner.last, 100)}

    async def action(self, request: Request) -> Any:
        run = self._site.runner.get(request.path_params["id"])
        if run is None:
            missing = ConfigError(
                "TR164", "this process has begun no such action", hint="/api/v1/actions has all"
            )
            return failure(missing, 404)
        return run.as_dict()


def number(text: str) -> int | None:
    """Return an epoch's number; None for no text. Raises ConfigError TR164."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ConfigError("TR164", f"{text[:40]!r} is no number of an epoch")
    return int(text)
