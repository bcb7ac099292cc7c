"""Makes the page of a configuration, and serves it until it is asked to stop."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from schemas.errors import ConfigError
from tailrace.config.addresses import log_address, token_of
from tailrace.config.listen import ListenAddress
from tailrace.config.model import Config
from tailrace.status.collect import collect
from tailrace.web import api, pages
from tailrace.web.access import Access, check_address, check_token, kept_token
from tailrace.web.guard import Guard
from tailrace.web.lookup import Lookups
from tailrace.web.parts import LimitedReads
from tailrace.web.passing import PassingEpochs
from tailrace.web.record import ActionRecord
from tailrace.web.runner import Runner
from tailrace.web.site import Site
from tailrace.web.watch import Watch

_log = structlog.get_logger()
_LONGEST_HEADERS = 16 << 10  # bytes
_CONNECTIONS = 64
_EPOCHS = 50


class PunctualProtocol(H11Protocol):
    """Closes a connection that has not sent a whole request for a while: silent ones must not take all places."""

    patience = 10.0  # seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch a new connection."""
        super().connection_made(transport)
        self.loop.call_later(self.patience, self._close_if_silent, None)

    def _close_if_silent(self, last: object) -> None:
        """Close the connection unless it has sent a request since ``last``, or is still being answered."""
        if self.transport.is_closing():
            return
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.cycle is last and not is_answering:
            self.transport.close()
        else:
            self.loop.call_later(self.patience, self._close_if_silent, self.cycle)


def application(site: Site) -> Starlette:
    """Return the page and its JSON interface."""
    return Starlette(
        routes=[*api.routes(site), *pages.routes(site)],
        middleware=[Middleware(Guard, access=site.access)],
        exception_handlers=pages.errors(site),
    )


def serve(file: Path, config: Config, listen: ListenAddress, stop: threading.Event) -> None:
    """Serve the page until ``stop`` is set.

    Args:
        file: the configuration's file, for the commands of actions.

    Raises:
        ConfigError: TR160, an address without a secret, or a token that cannot be used; TR167, it cannot listen.
    """
    access = _access(config, listen)
    listener = _listener(listen)
    passing, read = PassingEpochs(log_address(config.kafka)), LimitedReads()

    def epochs() -> tuple[int, list[dict[str, object]]]:
        passing.read()
        return passing.rows, passing.last(_EPOCHS)

    watch = Watch(lambda: collect(config, read), epochs)
    runner = Runner(file.absolute(), ActionRecord(config.serve.actions_file))
    site = Site(config.kafka.prefix, access, watch, Lookups(log_address(config.kafka)), runner)
    threading.Thread(target=watch.run, args=(stop,), name="watch", daemon=True).start()
    _announce(access)
    try:
        run_server(application(site), listener, stop)
    finally:
        runner.close()


def _access(config: Config, listen: ListenAddress) -> Access:
    settings = config.serve
    given = token_of(settings)
    check_address(listen, has_token=given is not None, reads_freely=settings.read_without_token)
    if given is None:
        path = settings.actions_file.parent / "token"
        token = kept_token(path)
        _log.info("token_is_in", file=str(path))
    else:
        token = check_token(given)
    return Access(token, listen, settings.read_without_token)


def _listener(listen: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            "TR167",
            f"the page cannot listen at {listen}: {error.strerror or error}",
            hint="choose another address with --listen, or in [serve] listen",
        ) from None


def _announce(access: Access) -> None:
    address = f"http://{access.listen}/"
    _log.info("serving", address=address)
    if sys.stderr.isatty():
        # Only on a terminal: a log may be read by others, and the link logs in.
        print(
            f"\n  {address}login?once={access.new_link()}\n  (logs in once, within ten minutes)\n",
            file=sys.stderr,
        )


def run_server(app: Starlette, listener: socket.socket, stop: threading.Event) -> None:
    """Serve an application on a listening socket until ``stop`` is set."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http=PunctualProtocol,
            h11_max_incomplete_event_size=_LONGEST_HEADERS,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
        )
    )

    def end() -> None:
        stop.wait()
        server.should_exit = True

    threading.Thread(target=end, name="end", daemon=True).start()
    server.run(sockets=[listener])
