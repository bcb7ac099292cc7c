"""``tailrace relay list``: shows the files of the relay log and their content."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from schemas.counted import counted
from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json, read_config

if TYPE_CHECKING:
    from relay_store.read.catalog import CatalogEntry

_TIMES = ("first_time", "last_time")


def list_files(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """List sub-directories and files: size, first and last GTID, time span in UTC, and which readers need them.

    Only the start and the end of each file are read. The number of transactions is shown if MySQL's files contain
    it.
    """
    from relay_store.read.catalog import list_relay_files
    from tailrace.assemble.settings import relay_readers

    loaded = read_config("relay list", config)
    root = loaded.relay.dir
    found = list_relay_files(root, relay_readers(loaded))
    report = _report(found, str(root))
    if as_json:
        print_json(report)
    else:
        _print(report)


def _report(found: list[CatalogEntry], root: str) -> dict[str, Any]:
    subdirs: dict[str, list[dict[str, Any]]] = {}
    for entry in found:
        subdirs.setdefault(entry.subdir, []).append(_fields(entry))
    return {
        "directory": root,
        "subdirs": [
            {"name": name, "bytes": sum(file["size"] for file in listed), "files": listed}
            for name, listed in subdirs.items()
        ],
        "files": len(found),
        "bytes": sum(entry.size for entry in found),
    }


def _fields(entry: CatalogEntry) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": entry.name,
        "size": entry.size,
        "first_gtid": entry.first_gtid,
        "last_gtid": entry.last_gtid,
        "first_time": _moment(entry.first_time),
        "last_time": _moment(entry.last_time),
        "transactions": entry.transactions,
        "active": entry.is_active,
        "needed_by": list(entry.needed_by),
    }
    return fields | ({"trouble": entry.error} if entry.error else {})


def _moment(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print(report: dict[str, Any]) -> None:
    for subdir in report["subdirs"]:
        typer.echo(f"{subdir['name']}  {counted(subdir['bytes'], 'byte')}")
        name_width = max(len(file["name"]) for file in subdir["files"])
        size_width = max(len(f"{file['size']:,}") for file in subdir["files"])
        for file in subdir["files"]:
            times = " – ".join(file[t].replace("T", " ").rstrip("Z") for t in _TIMES if file[t])
            cells = [file["name"].ljust(name_width), f"{file['size']:,}".rjust(size_width), times]
            typer.echo("  " + "  ".join([*cells, *_marks(file)]).rstrip())
            if file["first_gtid"]:
                typer.echo(f"    {file['first_gtid']} – {file['last_gtid']}")
    counts = f"{counted(report['files'], 'file')}, {counted(report['bytes'], 'byte')}"
    typer.echo(f"{report['directory']}: {counts}; times are in UTC")


def _marks(file: dict[str, Any]) -> list[str]:
    count = file["transactions"]
    marks = [counted(count, "transaction")] if count is not None else []
    marks += ["active"] if file["active"] else []
    marks += [f"needed by {', '.join(file['needed_by'])}"] if file["needed_by"] else []
    return marks + ([file["trouble"]] if file.get("trouble") else [])
