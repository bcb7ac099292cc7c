"""The actions that the page offers. Each is a command of ours, with its arguments made of checked fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from schemas.errors import ConfigError
from spark_consumer.rules.channel import NAME as CHANNEL_NAME

Values = Mapping[str, str]
_LONGEST = 32 << 10  # characters of a field


@dataclass(frozen=True)
class Field:
    """A field of an action.

    Attributes:
        pattern: what a value must match as a whole.
        choices: the only values, if there are any.
        kind: how a form shows it: ``text``, ``lines``, ``choice``, ``flag`` (its value is ``yes``), ``channel``.
    """

    name: str
    label: str
    pattern: str = r"[^\0]+"
    required: bool = True
    choices: tuple[str, ...] = ()
    kind: str = "text"


@dataclass(frozen=True)
class Action:
    """An action.

    Attributes:
        does: what it does, in a sentence.
        arguments: makes the command's arguments; ``stdin`` names the field that the command reads from stdin.
    """

    name: str
    does: str
    fields: tuple[Field, ...]
    arguments: Callable[[Values], list[str]]
    stdin: str = ""

    def check(self, given: Mapping[str, object]) -> dict[str, str]:
        """Return the fields' values, without empty ones. Raises ConfigError TR161."""
        known = {field.name: field for field in self.fields}
        values: dict[str, str] = {}
        for name, value in given.items():
            if name not in known or not isinstance(value, str):
                raise _wrong(self.name, f"{name[:40]!r} is no field of it, or no text")
            if value.strip():
                values[name] = _checked(self.name, known[name], value.strip())
        if missing := [field.name for field in self.fields if field.required and field.name not in values]:
            raise _wrong(self.name, f"{missing[0]} is missing")
        return values


def _checked(action: str, field: Field, value: str) -> str:
    # JSON can have halves of characters, which no command's argument can.
    is_text = not re.search(r"[\ud800-\udfff]", value)
    if len(value) > _LONGEST or not is_text or not re.fullmatch(field.pattern, value, re.DOTALL):
        raise _wrong(action, f"{field.name} is not valid: {value[:80]!r}")
    if field.choices and value not in field.choices:
        raise _wrong(action, f"{field.name} must be one of {', '.join(field.choices)}")
    return value


def _wrong(action: str, what: str) -> ConfigError:
    return ConfigError(
        "TR161", f"{action}: {what}", hint="nothing was done; /api/v1/openapi.json describes the fields"
    )


_CHANNEL = Field("channel", "Channel", CHANNEL_NAME, kind="channel")
_EVENT = Field("event", "Event: epoch:row or epoch:ddl", r"[0-9]{1,19}:([0-9]{1,19}|ddl)")
_PART = Field("part", "Part", choices=("channel", "mirror", "publishing"), kind="choice")
_PAUSED_CHANNEL = Field("channel", "Channel, if it is one", CHANNEL_NAME, required=False, kind="channel")
_SAFE_PATTERN = r"[^\0\s-][^\0]*"
_TABLES = Field(
    "tables", "Tables, such as shop.orders, one a line", _SAFE_PATTERN, required=False, kind="lines"
)
_FLAG = "yes"


def _flag(name: str, label: str) -> Field:
    return Field(name, label, required=False, choices=(_FLAG,), kind="flag")


def _pause(values: Values) -> list[str]:
    return _paused("pause", values)


def _resume(values: Values) -> list[str]:
    return _paused("resume", values)


def _paused(verb: str, values: Values) -> list[str]:
    if (values["part"] == "channel") != ("channel" in values):
        raise _wrong(verb, "name a channel if, and only if, the part is one")
    return [verb, values["part"], *([values["channel"]] if "channel" in values else [])]


def _copy(values: Values) -> list[str]:
    tables = _lines(values)
    if bool(tables) == ("all" in values):
        raise _wrong("copy", "name tables, or choose all")
    # A name that begins like an option is none.
    return ["copy", "--all"] if "all" in values else ["copy", "--", *tables]


def _validate(values: Values) -> list[str]:
    tables = [f"--table={table}" for table in _lines(values)]
    repair = ["--repair"] if "repair" in values else []
    return ["validate", f"--channel={values['channel']}", *tables, *repair]


def _lines(values: Values) -> list[str]:
    return [line.strip() for line in values.get("tables", "").splitlines() if line.strip()]


def _rewind(values: Values) -> list[str]:
    return ["channel", "rewind", f"--channel={values['channel']}", f"--to={values['to']}", "--yes"]


def _skip(values: Values) -> list[str]:
    return ["error", "skip", f"--channel={values['channel']}", f"--event={values['event']}"]


def _replace(values: Values) -> list[str]:
    # The statement goes through stdin: other users see a process's arguments.
    return ["error", "replace", f"--channel={values['channel']}", f"--event={values['event']}", "--sql=-"]


ACTIONS = {
    action.name: action
    for action in (
        Action(
            "pause",
            "Pauses a channel, publishing, or the mirror; nothing is lost.",
            (_PART, _PAUSED_CHANNEL),
            _pause,
        ),
        Action("resume", "Lets a paused part go on.", (_PART, _PAUSED_CHANNEL), _resume),
        Action("skip", "Leaves out the one event at which a channel stopped.", (_CHANNEL, _EVENT), _skip),
        Action(
            "replace",
            "Runs another statement instead of the one event at which a channel stopped.",
            (_CHANNEL, _EVENT, Field("sql", "Statement", kind="lines")),
            _replace,
            stdin="sql",
        ),
        Action(
            "rewind",
            "Moves a channel back; its next run applies everything after that position again.",
            (_CHANNEL, Field("to", "To: earliest, epoch:N, gtid:SET or time:RFC3339", _SAFE_PATTERN)),
            _rewind,
        ),
        Action(
            "copy",
            "Copies tables again through the log: rows that are not upstream vanish from all channels.",
            (_TABLES, _flag("all", "all replicated tables")),
            _copy,
        ),
        Action(
            "validate",
            "Proves a channel's rows equal to the upstream's, or shows what differs.",
            (_CHANNEL, _TABLES, _flag("repair", "copy tables again that differ")),
            _validate,
        ),
    )
}
