"""``tailrace relay``: shows, verifies and purges the relay log of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.counted import counted
from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json, read_config
from tailrace.commands.relay import cat as relay_cat
from tailrace.commands.relay import list as relay_list
from tailrace.commands.relay import verify as relay_verify

if TYPE_CHECKING:
    from relay_store.layout.inventory import RelayFile
    from relay_store.purge.purge import PurgeReport
    from tailrace.config.model import Config

app = typer.Typer(help="Show, verify and purge the relay log of this machine.", no_args_is_help=True)
app.command("cat")(relay_cat.cat)
app.command("list")(relay_list.list_files)
app.command("verify")(relay_verify.verify)

Filename = Annotated[
    str, typer.Option("--filename", metavar="FILE", help="The oldest file to keep, such as mysql-bin.000006.")
]
SubDir = Annotated[
    str | None,
    typer.Option(
        "--sub-dir", metavar="UUID.SERIAL", help="The sub-directory of FILE; default: the current one."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")]
Forget = Annotated[
    str | None,
    typer.Option("--forget", metavar="NAME", help="Remove a reader that will never run again."),
]


@app.command("purge")
def purge(
    filename: Filename,
    config: ConfigFile = DEFAULT_CONFIG,
    sub_dir: SubDir = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete all relay files before FILE, also in earlier sub-directories, starting with the oldest.

    It stops at the first file that is being written or read, or that the publisher, a configured channel or another
    registered reader still needs. The producer may keep running.
    """
    from relay_store.purge.purge import purge as run
    from tailrace.assemble.settings import relay_readers

    loaded = read_config("relay purge", config)
    awaited = relay_readers(loaded)
    report = run(_relay_dir(loaded), (filename, sub_dir), dry_run=dry_run, awaited=awaited)
    if as_json:
        print_json(_as_dict(report, dry_run))
    else:
        _print_purge(report, dry_run)


def _relay_dir(config: Config) -> Path:
    from relay_store.layout.directory import read_owner
    from schemas.errors import RelayError

    root = config.relay.dir
    if not root.is_dir():
        hint = "set [relay] dir, and run this on the machine of `tailrace produce`"
        raise RelayError("TR322", f"there is no relay log in {root}", hint=hint)
    read_owner(root)  # refuses a format that this release does not know
    return root


def _as_dict(report: PurgeReport, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "deleted": [_file(file) for file in report.deleted],
        "bytes": report.bytes,
        "removed_subdirs": list(report.removed_subdirs),
        "kept_from": _file(report.kept) if report.kept else None,
        "why": report.why,
    }


def _file(file: RelayFile) -> dict[str, Any]:
    return {"subdir": file.subdir, "file": file.name, "bytes": file.size, "updated": _moment(file.updated)}


def _print_purge(report: PurgeReport, dry_run: bool) -> None:
    done = "would delete" if dry_run else "deleted"
    rows = [(done, str(file), counted(file.size, "byte"), _moment(file.updated)) for file in report.deleted]
    if rows:
        _print_columns(rows)
    for subdir in report.removed_subdirs:
        typer.echo(f"{'would remove' if dry_run else 'removed'}  {subdir}")
    typer.echo(f"{done} {counted(len(rows), 'file')}, {counted(report.bytes, 'byte')}")
    typer.echo(f"kept from {report.kept} on: {report.why}" if report.kept else report.why)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


@app.command("readers")
def readers(config: ConfigFile = DEFAULT_CONFIG, forget: Forget = None, as_json: AsJson = False) -> None:
    """List the readers of the relay log and the position from which each needs it. A purge keeps these files.

    The publisher and the configured channels are registered automatically; one that has not started needs all files.
    If a channel will never run again, remove it from the configuration and with --forget.
    """
    from tailrace.assemble.settings import relay_readers

    loaded = read_config("relay readers", config)
    root, awaited = _relay_dir(loaded), relay_readers(loaded)
    if forget is not None:
        _forget(root, forget, awaited)
        return
    found = _readers(root, awaited)
    if as_json:
        print_json(found)
    else:
        _print_readers(found, root)


def _forget(root: Path, name: str, awaited: Sequence[str]) -> None:
    from relay_store.layout.readers import forget
    from schemas.errors import RelayError

    if name in awaited:
        what = f"{name} is a channel of the configuration, so it needs the relay log"
        hint = (
            "remove its section from the configuration first; for the default channel, name another one in [consumer]"
            " channel, or remove [target] on a machine that only produces"
        )
        raise RelayError("TR323", what, hint=hint)
    if not forget(root, name):
        hint = "`tailrace relay readers` lists the registered readers"
        raise RelayError("TR321", f"no reader {name!r} is registered in {root}", hint=hint)
    typer.echo(f"removed {name}", err=True)


def _readers(root: Path, awaited: Sequence[str]) -> list[dict[str, Any]]:
    from relay_store.layout.directory import read_index
    from relay_store.layout.inventory import bytes_after, relay_files
    from relay_store.layout.readers import read_readers

    files = relay_files(root, read_index(root))
    return [
        {
            "reader": reader.name,
            "subdir": reader.position.subdir,
            "file": reader.position.file,
            "position": reader.position.pos,
            "bytes_after": bytes_after(files, reader.position),
            "updated": None if reader.updated is None else _moment(reader.updated),
        }
        for reader in read_readers(root, awaited)
    ]


def _print_readers(found: list[dict[str, Any]], root: Path) -> None:
    if not found:
        typer.echo(f"no reader is registered in {root}", err=True)
        return
    rows = [("reader", "needs from", "bytes behind", "updated")]
    for row in found:
        position = f"{row['subdir']}/{row['file']}:{row['position']}"
        updated = row["updated"] or "has not started yet"
        rows.append((row["reader"], position, f"{row['bytes_after']:,}", updated))
    _print_columns(rows)


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print columns without shortening them, so that paths can be copied."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
