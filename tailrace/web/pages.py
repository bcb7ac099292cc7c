"""The HTML pages. They are complete without a script; ours only loads them again and exchanges the live parts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from schemas.errors import ConfigError, TailraceError
from tailrace.status.attention import Notice, attention
from tailrace.web import charts, river
from tailrace.web.actions import ACTIONS
from tailrace.web.api import number, status_of
from tailrace.web.guard import credentials
from tailrace.web.lookup import parse_key
from tailrace.web.site import Site

_log = structlog.get_logger()
_STALE = 30.0  # seconds without a look
_EPOCHS, _ACTIONS = 20, 5
_WRONG_TOKEN_PAUSE = 0.5  # seconds
Handler = Callable[[Request], Awaitable[Response]]


def routes(site: Site) -> list[Route | Mount]:
    """Return the pages' routes."""
    pages = _Pages(site)
    return [
        Route("/", pages.reading(pages.overview)),
        Route("/row", pages.reading(pages.row)),
        Route("/structure", pages.reading(pages.structure)),
        Route("/actions", pages.reading(pages.actions)),
        Route("/actions/{name}", pages.act, methods=["POST"]),
        Route("/login", pages.login, methods=["GET", "POST"]),
        Route("/logout", pages.logout, methods=["POST"]),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]


class _Pages:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._templates = Environment(
            loader=PackageLoader("tailrace.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {"clock": river.clock, "seconds": river.seconds, "moment": _moment}

    def reading(self, show: Handler) -> Handler:
        """Return the handler of a page that only reads: without a session it leads to the login."""

        async def handle(request: Request) -> Response:
            if self._site.access.reads_freely or credentials(request, self._site.access):
                return await show(request)
            return RedirectResponse("/login", 303)

        return handle

    async def overview(self, request: Request) -> Response:
        """Show the whole pipeline."""
        seen, now = self._site.watch.seen, time.time()
        report = seen.report
        shown: dict[str, Any] = {
            "seen": seen,
            "report": report,
            "age": now - seen.at,
            "problems": _problems(seen.problem, now - seen.at, report is not None),
            "notices": attention(report, now) if report else [],
            "stations": river.stations(report, now) if report else [],
            "channels": river.channels(report) if report else [],
            "charts": [charts.throughput(seen.points, now), charts.lags(seen.points, now)],
            "size": (charts.WIDTH, charts.HEIGHT),
            "epochs": list(seen.epochs)[:_EPOCHS],
            "runs": await run_in_threadpool(self._site.runner.last, _ACTIONS),
        }
        return self._page(request, "overview.html", **shown)

    async def row(self, request: Request) -> Response:
        """Show a row's history."""
        query = request.query_params
        table, key, before = (query.get(name, "") for name in ("table", "key", "before"))

        def search() -> Any:
            return self._site.lookups.row_history(table, parse_key(key), number(before))

        found, error = await _tried(search) if table else (None, None)
        older = ""
        if found and found["continue_before"] is not None:
            older = "/row?" + urlencode({"table": table, "key": key, "before": found["continue_before"]})
        return self._page(request, "row.html", table=table, key=key, found=found, error=error, older=older)

    async def structure(self, request: Request) -> Response:
        """Show a table's structure at two points of the log."""
        query = request.query_params
        table, at, until = (query.get(name, "") for name in ("table", "at", "until"))
        found, error = None, None
        if table:
            found, error = await _tried(lambda: self._site.lookups.structures(table, at, until))
        return self._page(
            request, "structure.html", table=table, at=at, until=until, found=found, error=error
        )

    async def actions(self, request: Request) -> Response:
        """Show the actions' forms, and what was done."""
        return await self._actions_page(request)

    async def _actions_page(
        self, request: Request, error: TailraceError | None = None, status: int = 200
    ) -> Response:
        report = self._site.watch.seen.report or {"downstream": {}}
        found = report["downstream"].get("channels", ())
        stopped = {c["channel"]: (c.get("error") or {}).get("event") or "" for c in found}
        return self._page(
            request,
            "actions.html",
            status,
            offered=list(ACTIONS.values()),
            channels=list(stopped),
            events=sorted(filter(None, stopped.values())),
            runs=await run_in_threadpool(self._site.runner.last, 50),
            record=self._site.runner.record.path,
            error=error.as_dict() if error else None,
        )

    async def act(self, request: Request) -> Response:
        """Begin an action that a form of ours asks for."""
        access, name = self._site.access, request.path_params["name"]
        cookie = request.cookies.get(access.cookie, "")
        form = await _form(request)
        address = request.client.host if request.client else ""
        if not access.is_form_key(cookie, form.pop("form_key", "")):
            _log.warning("action_refused", action=name[:40], address=address)
            return self._page(request, "login.html", 401, wrong=False, asked=True)
        try:
            if name not in ACTIONS:
                raise ConfigError("TR161", f"there is no action {name[:40]!r}", hint="nothing was done")
            if form.pop("confirmed", "") != "yes":
                raise ConfigError("TR161", f"{name} was not confirmed", hint="nothing was done")
            values = ACTIONS[name].check(form)
            await run_in_threadpool(self._site.runner.begin, ACTIONS[name], values, "session", address)
        except TailraceError as error:
            return await self._actions_page(request, error, status_of(error))
        return RedirectResponse("/actions", 303)

    async def login(self, request: Request) -> Response:
        """Take the token, or the word of the link that the terminal shows."""
        access = self._site.access
        if request.method == "POST":
            is_right = access.is_token((await _form(request)).get("token", "").strip())
            if not is_right:
                # Nobody guesses a random token; a chosen one may be weak.
                await asyncio.sleep(_WRONG_TOKEN_PAUSE)
        else:
            is_right = access.use_link(request.query_params.get("once", ""))
        if not is_right:
            is_post = request.method == "POST"
            return self._page(request, "login.html", 403 if is_post else 200, wrong=is_post, asked=False)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(access.cookie, access.new_session(), httponly=True, samesite="strict", path="/")
        return answer

    async def logout(self, request: Request) -> Response:
        """Remove the browser's session."""
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(self._site.access.cookie, path="/")
        return answer

    def _page(self, request: Request, template: str, status: int = 200, **shown: Any) -> Response:
        access = self._site.access
        cookie = request.cookies.get(access.cookie, "")
        may_act = access.is_session(cookie)
        text = self._templates.get_template(template).render(
            prefix=self._site.prefix,
            may_act=may_act,
            form_key=access.form_key(cookie) if may_act else "",
            path=request.url.path,
            **shown,
        )
        return HTMLResponse(text, status)


def _problems(problem: str, age: float, has_report: bool) -> list[Notice]:
    """Return what is wrong with the page's own looks."""
    found = (
        [Notice("error", "page", "", problem, hint="the log of tailrace serve has the traceback")]
        if problem
        else []
    )
    if age > _STALE and has_report:
        found.append(
            Notice("warning", "page", "", f"what is shown was seen {river.seconds(age)} ago: a look hangs")
        )
    return found


async def _tried(search: Callable[[], Any]) -> tuple[Any, dict[str, object] | None]:
    """Return the result of a search, or its error."""
    try:
        return await run_in_threadpool(search), None
    except TailraceError as error:
        return None, error.as_dict()


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; none if the body is no form."""
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return {}


def _moment(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def errors(site: Site) -> Mapping[Any, Any]:
    """Return the handlers of requests for what does not exist, and of unexpected errors."""

    async def missing(request: Request, error: Exception) -> Response:
        return HTMLResponse(
            "<!doctype html><title>Not here</title><p>There is no such page. <a href=/>The page</a>", 404
        )

    return {404: missing}
