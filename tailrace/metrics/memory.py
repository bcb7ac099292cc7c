"""Resident memory of a process and of all processes that it has started, by their programs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _RESIDENT = 1, 21  # fields of /proc/PID/stat after the program's name


class _Process(NamedTuple):
    parent: int
    program: str
    resident: int  # bytes


def memory_by_program(pid: int, proc: Path = Path("/proc")) -> Counter[str]:
    """Return the bytes of the process and those below it, by program."""
    processes = {int(path.name): one for path in proc.glob("[0-9]*") if (one := _read(path / "stat"))}
    found: Counter[str] = Counter()
    for number, process in processes.items():
        if _is_below(number, pid, processes):
            found[process.program] += process.resident
    return found


def _read(path: Path) -> _Process | None:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None  # it has ended
    # A name may have spaces and parentheses.
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    if len(fields) <= _RESIDENT:
        return None
    return _Process(int(fields[_PARENT]), head.partition("(")[2], int(fields[_RESIDENT]) * _PAGE)


def _is_below(number: int, pid: int, processes: dict[int, _Process]) -> bool:
    for _ in range(len(processes)):
        if number == pid:
            return True
        if number not in processes:
            return False
        number = processes[number].parent
    return False
