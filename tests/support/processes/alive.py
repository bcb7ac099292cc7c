"""Finds the processes of a command that runs."""

from __future__ import annotations

from pathlib import Path


def processes() -> dict[int, tuple[int, list[str]]]:
    """Parent and command of each process that runs."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if state not in "ZX":
            found[int(entry.name)] = (int(parent), command)
    return found


def children_of(pid: int) -> dict[str, int]:
    """The supervisor's children by their command."""
    return {
        command[command.index("tailrace") + 1]: child
        for child, (parent, command) in processes().items()
        if parent == pid and "tailrace" in command
    }


def all_of(pid: int) -> dict[int, str]:
    """A process and all that come from it, as a service's are, with their commands."""
    alive, found = processes(), {pid}
    while more := {child for child, (parent, _) in alive.items() if parent in found} - found:
        found |= more
    return {one: " ".join(alive[one][1]) for one in found & alive.keys()}
