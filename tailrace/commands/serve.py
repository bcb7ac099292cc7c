"""``tailrace serve``: the page of one pipeline, and its JSON interface."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.commands.options import DEFAULT_CONFIG, ConfigFile, read_config

Listen = Annotated[
    str | None,
    typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; default: serve.listen."),
]


def serve(config: ConfigFile = DEFAULT_CONFIG, listen: Listen = None) -> None:
    """Serve a page that shows the pipeline live, and a JSON interface below /api/v1.

    It shows positions and lag of each part, the last hour, epochs and DDL as they pass, copies and validation, errors
    with the commands that heal them, a row's history and the tables' structures over time. Reading and acting need a
    token: without one in [serve], a random one is made and kept in a file, whose name is printed. On a terminal a link
    is printed too that logs in once.

    Every action is recorded in serve.actions-file. SIGTERM or Ctrl-C ends the command.
    """
    from tailrace.config.listen import ListenAddress
    from tailrace.service.lifecycle import run_until_signalled
    from tailrace.web.serve import serve as run

    loaded = read_config("serve", config, warn=True)
    try:
        address = ListenAddress.parse(listen or loaded.serve.listen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--listen") from None
    run_until_signalled(lambda stop: run(config, loaded, address, stop))
