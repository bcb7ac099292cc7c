"""Write docs/COMMANDS.md from the commands themselves: ``make docs``, and a test holds the page to it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from schemas.errors import ExitCode
from tailrace.commands.app import app

PAGE = Path(__file__).with_name("COMMANDS.md")

MEANING = {
    ExitCode.OK: "fine; also a command that its first signal stopped",
    ExitCode.FAILED: "failed; stderr gives the code (`TRnnn`), what, where and a hint",
    ExitCode.USAGE: "usage: the command line or the configuration",
    ExitCode.PREFLIGHT: "`check` found something that blocks",
    ExitCode.DIVERGED: "`compare` or `validate` found a difference",
    ExitCode.DAMAGED: "`relay verify` or `artifacts verify` found damage",
    ExitCode.STOPPED: "`status`: an error has stopped the producer or a channel",
    ExitCode.BEHIND: "`status --max-lag`: a channel is further behind",
    ExitCode.MAY_PASS: "failed like 1, but another start may succeed without a change, such as a server that is away",
}
"""What an exit code says. Every command has the first three, and one that talks to servers has the last."""

READ_ON = {
    "artifacts": "[INSTALL.md](INSTALL.md#without-a-way-out)",
    "channel": "[REPLAY.md](REPLAY.md#several-channels)",
    "channel rewind": "[REPLAY.md](REPLAY.md#rewind)",
    "check": "[OPERATING.md](OPERATING.md#before-the-first-start)",
    "compare": "[OPERATING.md](OPERATING.md#comparing-both-servers)",
    "config": "[SETUP.md](SETUP.md#configuration)",
    "consume": "[OPERATING.md](OPERATING.md), [REPLAY.md](REPLAY.md)",
    "copy": "[OPERATING.md](OPERATING.md#copying-tables-again)",
    "error": "[OPERATING.md](OPERATING.md#a-refused-event)",
    "pause": "[OPERATING.md](OPERATING.md#pausing)",
    "produce": "[RELAY_LOG.md](RELAY_LOG.md)",
    "recover": "[RECOVERY.md](RECOVERY.md#the-upstream-and-kafka-are-gone)",
    "relay": "[RELAY_LOG.md](RELAY_LOG.md#inspecting-it)",
    "relay purge": "[PURGING.md](PURGING.md#by-hand)",
    "relay readers": "[PURGING.md](PURGING.md#readers)",
    "reset": "[RECOVERY.md](RECOVERY.md#the-relay-log-is-damaged)",
    "resume": "[OPERATING.md](OPERATING.md#pausing)",
    "run": "[OPERATING.md](OPERATING.md#running-both)",
    "schema": "[FORMAT.md](FORMAT.md#tracked-structures)",
    "serve": "[SERVE.md](SERVE.md)",
    "stack": "[SETUP.md](SETUP.md#servers-to-try-it-with)",
    "status": "[STATUS.md](STATUS.md)",
    "systemd": "[INSTALL.md](INSTALL.md#as-systemd-services)",
    "topic": "[FORMAT.md](FORMAT.md)",
    "validate": "[OPERATING.md](OPERATING.md#validating-while-replication-runs)",
}
"""The page that says more about a command, or about all commands of a group that have none of their own."""

HEAD = """\
# Commands

<!-- Made by `make docs` from the commands themselves. Edit those, not this page. -->

The commands are in `.venv/bin`. `tailrace COMMAND --help` prints what this page says.

Data goes to stdout; progress, logs and errors go to stderr. With `--json` the data is JSON, whose fields \
are in [JSON.md](JSON.md). `tailrace --version` prints the version. Errors have \
a code, which [ERRORS.md](ERRORS.md) explains. `--config FILE` names the configuration file; every field of it can \
also be set in the environment ([SETUP.md](SETUP.md#configuration)).
"""


def page() -> str:
    """The text of docs/COMMANDS.md."""
    commands = list(_commands(typer.main.get_command(app), ""))
    lines = [HEAD, "| command | what it does |", "|---|---|"]
    for name, command in commands:
        anchor = f"tailrace-{name.replace(' ', '-')}"
        lines.append(f"| [`tailrace {name}`](#{anchor}) | {_paragraphs(command.help)[0]} |")
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {MEANING[code]} |" for code in ExitCode]
    for name, command in commands:
        lines += ["", f"## tailrace {name}", "", *_section(name, command)]
    return "\n".join(lines) + "\n"


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _section(name: str, command: Any) -> Iterator[str]:
    options = [parameter for parameter in command.params if parameter.name != "help"]
    required = " ".join(_usage(one) for one in options if one.required)
    if required:
        yield from (f"`tailrace {name} {required}`", "")
    yield "\n\n".join(_paragraphs(command.help))
    if options:
        yield from ("", "| option | default | meaning |", "|---|---|---|")
        yield from (_row(one) for one in options)
    codes = sorted({ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE, *_own_codes(command)})
    read_on = READ_ON.get(name) or READ_ON[name.split()[0]]
    yield from ("", f"Exit codes: {', '.join(str(code.value) for code in codes)}. See {read_on}.")


def _paragraphs(text: str) -> list[str]:
    """A docstring's paragraphs, each on one line, its literals as Markdown has them."""
    return [" ".join(part.split()).replace("``", "`") for part in text.split("\n\n")]


def _own_codes(command: Any) -> set[ExitCode]:
    """The exit codes that a command's function names."""
    source = inspect.getsource(command.callback)
    return {ExitCode[name] for name in re.findall(r"\bExitCode\.([A-Z]+)\b", source)}


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in _names(parameter))
    meaning = parameter.help
    if parameter.envvar:
        meaning += f" Environment: `{parameter.envvar}`."
    return f"| {names} | {_default(parameter)} | {_cell(meaning)} |"


def _names(parameter: Any) -> list[str]:
    value = _value(parameter)
    if parameter.param_type_name == "argument":
        return [value]
    return [_cell(f"{option} {value}".strip()) for option in parameter.opts]


def _usage(parameter: Any) -> str:
    return _names(parameter)[0].replace("\\|", "|")


def _value(parameter: Any) -> str:
    """What stands behind the option: nothing behind a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(one.value for one in kind)
    return parameter.metavar or "N"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or default is False:
        return ""
    return f"`{default.value if isinstance(default, Enum) else default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
