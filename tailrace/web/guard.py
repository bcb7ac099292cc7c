"""Stands before every request: whose it may be, how large, and what the answer tells the browser."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.web.access import Access

LARGEST = 64 << 10  # bytes of a request's body
_PATIENCE = 10.0  # seconds for it to arrive
_HEADERS = {
    # No text of a database can become a script: none is allowed but ours.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # With no-referrer browsers would send forms without an Origin.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests for other hosts, from other sites, and with large bodies; adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        if (refused := self._refused(scope["method"], headers)) is not None:
            await refused(scope, receive, with_headers)
            return
        try:
            body = await asyncio.wait_for(_body(receive), _PATIENCE) if scope["method"] == "POST" else b""
        except TimeoutError:
            await PlainTextResponse("too slow\n", 408)(scope, receive, with_headers)
            return
        if body is None:
            await _too_large()(scope, receive, with_headers)
            return
        await self._app(scope, _replayed(body, receive), with_headers)

    def _refused(self, method: str, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._access.is_our_host(host):
            return PlainTextResponse("this server has another name\n", 421)
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("not allowed\n", 405)
        if method == "POST":
            # Programs send neither; a browser sends at least one of them.
            origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
            if (
                origin is not None and origin not in (f"http://{host}", f"https://{host}")
            ) or site != "same-origin":
                return PlainTextResponse("sent by another site\n", 403)
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length[:10]) > LARGEST:
                return _too_large()
        return None


def _too_large() -> Response:
    return PlainTextResponse(f"at most {LARGEST} bytes\n", 413)


async def _body(receive: Receive) -> bytes | None:
    """Return a request's body; None if it is too large."""
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return bytes(parts)
        parts += message.get("body", b"")
        if len(parts) > LARGEST:
            return None
        if not message.get("more_body", False):
            return bytes(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def credentials(request: Request, access: Access) -> str:
    """Return how a request proves that it knows the token: ``token``, ``session``, or ``""`` if it does not."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and access.is_token(given.strip()):
        return "token"
    return "session" if access.is_session(request.cookies.get(access.cookie, "")) else ""
