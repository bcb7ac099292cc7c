"""The results of checks: a finding, or the reason why a check could not run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Level = Literal["block", "warn", "ok"]
#: configuration, upstream, relay, kafka, downstream, consumer; "downstream of NAME" for a channel's own target
Part: TypeAlias = str


@dataclass(frozen=True)
class Finding:
    """The result of one check. ``block``: replication cannot work; ``warn``: it may fail later.

    Attributes:
        error: the code of the error with which a program refuses to start, the same as that of the later failure.
        passes: whether the problem may pass, so that programs start and wait for it.
        another_start: whether a later start may succeed without changes.
    """

    level: Level
    part: Part
    code: str
    message: str
    hint: str = ""
    error: str = "TR003"
    passes: bool = False
    another_start: bool = False

    def as_dict(self) -> dict[str, str]:
        """Return plain data for ``--json``."""
        found = {"level": self.level, "part": self.part, "code": self.code}
        return {**found, "what": self.message, "remedy": self.hint}


@dataclass(frozen=True)
class NotChecked:
    """A check that could not run, and why."""

    part: Part
    code: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        """Return plain data for ``--json``."""
        return {"part": self.part, "code": self.code, "why": self.reason}


Result = Finding | NotChecked


@dataclass(frozen=True)
class Preflight:
    """The results of all checks."""

    results: tuple[Result, ...]

    @property
    def blocked(self) -> bool:
        return any(isinstance(r, Finding) and r.level == "block" for r in self.results)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        return {
            "blocked": self.blocked,
            "findings": [r.as_dict() for r in self.results if isinstance(r, Finding)],
            "not_checked": [r.as_dict() for r in self.results if isinstance(r, NotChecked)],
        }


def verdict(
    good: bool,
    part: Part,
    code: str,
    fine: str,
    wrong: str,
    hint: str,
    level: Level = "block",
    *,
    error: str = "TR003",
    passes: bool = False,
    another_start: bool = False,
) -> Finding:
    """Return ``ok`` with ``fine``, or ``level`` with ``wrong`` and ``hint``."""
    if good:
        return Finding("ok", part, code, fine)
    return Finding(level, part, code, wrong, hint, error, passes, another_start)


def setting(
    part: Part,
    variables: dict[str, str],
    name: str,
    wanted: Iterable[str],
    why: str,
    level: Level = "block",
) -> Result:
    """Return whether a server variable has one of the wanted values."""
    wanted = list(wanted)
    value = variables.get(name)
    if value is None:
        return NotChecked(part, name, "the server has no such variable")
    hint = f"SET GLOBAL {name} = {wanted[0]}, and the same in the server's option file"
    return verdict(
        value.upper() in wanted, part, name, f"{name} is {value}", f"{name} is {value}: {why}", hint, level
    )
