"""The command line application. ``main`` turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailrace.commands import (
    artifacts,
    channel,
    check,
    config,
    consume,
    copy,
    error,
    pause,
    produce,
    recover,
    reset,
    run,
    serve,
    stack,
    status,
    systemd,
    validate,
)
from tailrace.commands.failure import report
from tailrace.commands.log import schema, topic
from tailrace.commands.relay import relay
from tailrace.service.console import UNWRAPPED, on_terminals

app = typer.Typer(
    name="tailrace",
    help="Replicate MySQL and MariaDB through Kafka, exactly once: from the binlog to relay files, to epochs in Kafka, "
    "to a downstream.",
    epilog="Exit codes: 0 fine, 1 failed, 2 usage, 3 preflight findings, 4 servers differ, "
    "5 relay log or jar damaged, 6 stopped by an error, 7 too far behind, "
    "75 failed, but another start may succeed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Rich wraps text in frames, at 80 columns if there is no terminal.
    rich_markup_mode="rich" if on_terminals() else None,
    context_settings={} if on_terminals() else {"terminal_width": UNWRAPPED, "max_content_width": UNWRAPPED},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"tailrace {version('tailrace')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
]


@app.callback()
def options(version: Version = False) -> None:
    """Take the options that come before a command."""


app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("run")(run.run)
app.command("recover")(recover.recover)
app.command("pause")(pause.pause)
app.command("resume")(pause.resume)
app.command("copy")(copy.copy)
app.command("reset")(reset.reset)
app.command("check")(check.check)
app.command("serve")(serve.serve)
app.command("status")(status.status)
app.command("systemd")(systemd.systemd)
app.command("compare")(validate.compare)
app.command("validate")(validate.validate)
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(channel.app, name="channel")
app.add_typer(config.app, name="config")
app.add_typer(error.app, name="error")
app.add_typer(relay.app, name="relay")
app.add_typer(schema.app, name="schema")
app.add_typer(stack.app, name="stack")
app.add_typer(topic.app, name="topic")


def main() -> None:
    """Run the command line; the entry point of the console script."""
    try:
        app()
    except BrokenPipeError:
        # The reader of the output has exited, as in `tailrace status | head -1`.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        sys.exit(report(error))
