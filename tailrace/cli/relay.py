"""``tailrace relay``: the relay log on this machine's disk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace.cli import relay_cat, relay_list, relay_verify
from tailrace.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile

app = typer.Typer(help="Look at the relay log on this machine, and purge it.", no_args_is_help=True)
app.command("cat")(relay_cat.cat)
app.command("list")(relay_list.list_files)
app.command("verify")(relay_verify.verify)

Forget = Annotated[
    str | None,
    typer.Option("--forget", metavar="NAME", help="Remove a reader that is gone for good, instead."),
]


@app.command("readers")
def readers(config: ConfigFile = DEFAULT_CONFIG, forget: Forget = None, as_json: AsJson = False) -> None:
    """List who still needs the relay log, and from where on; no purge deletes that.

    The publisher and each consumer's channel on this machine register by themselves. A channel that will
    never run again keeps its files until it is forgotten.
    """
    from tailrace import logs
    from tailrace.config_file import load

    logs.configure("relay readers")
    root = load(config).relay.dir
    if forget is not None:
        _forget(root, forget)
        return
    found = _readers(root)
    if as_json:
        import json

        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print_readers(found, root)


def _forget(root: Path, name: str) -> None:
    from relay_store.readers import forget
    from schemas.errors import RelayError

    if not root.is_dir() or not forget(root, name):
        hint = "`tailrace relay readers` lists those that are"
        raise RelayError("TR321", f"no reader {name!r} is registered in {root}", hint=hint)
    typer.echo(f"forgot {name}", err=True)


def _readers(root: Path) -> list[dict[str, Any]]:
    from relay_store.inventory import bytes_behind, relay_files
    from relay_store.layout import read_index
    from relay_store.readers import read_readers

    files = relay_files(root, read_index(root))
    return [
        {
            "reader": reader.name,
            "subdir": reader.position.subdir,
            "file": reader.position.file,
            "position": reader.position.pos,
            "bytes_behind": bytes_behind(files, reader.position),
            "updated": datetime.fromtimestamp(reader.updated, UTC).isoformat(timespec="milliseconds"),
        }
        for reader in read_readers(root)
    ]


def _print_readers(found: list[dict[str, Any]], root: Path) -> None:
    if not found:
        typer.echo(f"no reader is registered in {root}", err=True)
        return
    rows = [("reader", "needs from", "bytes behind", "updated")]
    for row in found:
        place = f"{row['subdir']}/{row['file']}:{row['position']}"
        rows.append((row["reader"], place, f"{row['bytes_behind']:,}", row["updated"]))
    _print_columns(rows)


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    """A table that keeps long names whole: paths are there to be copied."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
