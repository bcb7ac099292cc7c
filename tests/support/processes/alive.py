"""Finds the processes of a command that runs; cheap, since tests ask again and again while they wait."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from compose.processes import ProcessId


def children_of(pid: int) -> list[int]:
    """The running processes that a process has started itself."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return [child for child in found if ProcessId.of(child)]


def commands_of(pid: int) -> dict[str, int]:
    """A supervisor's children by their command."""
    return {
        command[command.index("tailrace") + 1]: child
        for child in children_of(pid)
        if "tailrace" in (command := _command(child))
    }


def all_of(pid: int) -> dict[int, str]:
    """A process and all that come from it, as a service's are, with their command lines."""
    found, rest = {}, [pid]
    while rest:
        one = rest.pop()
        rest += children_of(one)
        if command := " ".join(_command(one)):
            found[one] = command
    return found


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]
