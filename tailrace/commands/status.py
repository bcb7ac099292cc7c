"""``tailrace status``: shows the positions of upstream, relay log, Kafka and channels."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from schemas.counted import counted
from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json, read_config
from tailrace.service.console import FactTable

MaxLag = Annotated[
    float | None,
    typer.Option("--max-lag", metavar="SECONDS", min=0, help="End with 7 if a channel is further behind."),
]


def status(config: ConfigFile = DEFAULT_CONFIG, max_lag: MaxLag = None, as_json: AsJson = False) -> None:
    """Show the positions of upstream, relay log, Kafka and each channel, and each channel's lag.

    Exit code 6: an error has stopped the producer or a channel. 1: a part could not be read; the others are still
    shown. 7: a channel is further behind than --max-lag, or how far is not known. The first of these that holds.
    """
    from schemas.errors import ExitCode
    from tailrace.status.collect import collect
    from tailrace.status.verdict import exceeds_lag

    report = collect(read_config("status", config))
    if as_json:
        print_json(report)
    else:
        _print(report)
    if report["stopped"]:
        raise typer.Exit(ExitCode.STOPPED)
    if not report["ok"]:
        raise typer.Exit(ExitCode.FAILED)
    if max_lag is not None and exceeds_lag(report, max_lag):
        raise typer.Exit(ExitCode.BEHIND)


def _print(report: dict[str, Any]) -> None:
    table = FactTable()
    _upstream(table, report["upstream"])
    _relay(table, report["relay"], report["kafka"])
    _kafka(table, report["kafka"])
    _copy(table, report["copy"], is_producing=report["relay"]["memory"] is not None)
    _head(table, "downstream", report["downstream"])
    for channel in report["downstream"]["channels"]:
        _channel(table, channel)
    if not report["downstream"]["channels"] and "error" not in report["downstream"]:
        table.add_row("", "no channel yet")
    _others(table, report["downstream"])
    for part in report["targets"]:
        _head(table, "downstream", part)
        _others(table, part)
    table.print()


def _head(table: FactTable, name: str, part: dict[str, Any], more: str = "") -> bool:
    """Add the first line of a part. Return false if the part could not be read."""
    from rich.markup import escape

    if "error" in part:
        error = part["error"]
        table.add_row(f"[bold]{name}[/]", f"[red]unreachable[/]  {error['code']}: {escape(error['what'])}")
        if error["hint"]:
            table.add_row("", f"[dim]{escape(error['hint'])}[/]")
        return False
    address = part.get("server") or part.get("directory") or part.get("servers")
    table.add_row(f"[bold]{name}[/]", f"{escape(str(address))}  {more or part.get('version', '')}".rstrip())
    return True


def _upstream(table: FactTable, part: dict[str, Any]) -> None:
    if _head(table, "upstream", part):
        table.add_row("", _at(part["file"], part["position"], part["gtids"]))


def _elsewhere(kafka: dict[str, Any]) -> str:
    """Return what is known of a producer that does not run on this machine, by Kafka's part of the report."""
    from tailrace.status.verdict import heard_ago

    here = "no producer is running on this machine"
    if "error" in kafka:
        return f"[yellow]{here}[/]"
    if (seconds := heard_ago(kafka, time.time())) is None:
        return f"[yellow]{here}, and none has written to Kafka[/]"
    return f"[yellow]{here}; Kafka last heard of one {seconds:,.0f} s ago[/]"


def _relay(table: FactTable, part: dict[str, Any], kafka: dict[str, Any]) -> None:
    from rich.markup import escape

    size = f"{counted(part.get('files', 0), 'file')}, {counted(part.get('bytes', 0), 'byte')}"
    readable = _head(table, "relay", part, size)
    memory = part["memory"]
    if memory is None:
        table.add_row("  memory", _elsewhere(kafka))
    elif "receiver" not in memory:
        table.add_row("  memory", _unknown_memory(memory))
    else:
        receiver, publisher = memory["receiver"], memory["publisher"]
        color = "green" if memory["state"] == "connected" else "yellow"
        heard = f", last event at {receiver['Last_heard']}" if receiver["Last_heard"] else ""
        why = f": {escape(memory['paused'])}" if memory["paused"] else ""
        table.add_row("  memory", f"[{color}]{escape(memory['state'])}[/]{why}{heard}")
        if error := receiver["Last_error"]:
            table.add_row("", f"[yellow]{error['code']} at {error['at']}: {escape(error['what'])}[/]")
        read = _mysql_at(receiver, "Retrieved_Gtid_Set")
        table.add_row("", f"read       {read}")
        behind = publisher["Seconds_behind_source"]
        late = "" if behind is None else f"  behind: {behind:,} s"
        table.add_row("", f"published  {_mysql_at(publisher, 'Executed_Gtid_Set')}{late}")
        if skipped := publisher["Skipped"]:
            shown = ", ".join(f"{what} {count:,}" for what, count in skipped.items())
            table.add_row("", f"[yellow]skipped since the start: {escape(shown)}[/]")
    for half, since in part.get("paused", {}).items():
        if since is not None:
            table.add_row("", f"[yellow]{half} paused since {since}[/]")
    if error := part["stopped_by"]:
        table.add_row("  stopped", f"[red]at {error['at']}: {error['code']}[/]: {escape(error['what'])}")
        table.add_row("", f"[dim]{escape(error['where'])}  {escape(error['hint'])}[/]")
    if readable:
        stored = part["stored"]
        table.add_row("  stored", _mysql_at(stored, "Retrieved_Gtid_Set") if stored else "nothing yet")


def _kafka(table: FactTable, part: dict[str, Any]) -> None:
    from tailrace.status.new_channels import NewChannels

    if _head(table, "kafka", part):
        epoch = "no epoch yet" if part["epoch"] is None else f"epoch {part['epoch']}"
        committed = f", committed upstream {part['commit_time']}" if part.get("commit_time") else ""
        table.add_row("", epoch + committed)
        table.add_row("", _at(part.get("file"), part.get("position"), part.get("gtids")))
        if new := part["new_channels"]:
            text = NewChannels(**new).text
            table.add_row("", f"[dim]{text}[/]" if new["whole"] else f"[yellow]{text}[/]")
        if part["next_copy"]:
            table.add_row("", f"[dim]the next copy for new channels is due at {part['next_copy']}[/]")


def _copy(table: FactTable, part: dict[str, Any], *, is_producing: bool) -> None:
    from rich.markup import escape

    from tailrace.service.copy_progress import describe_copy, listed

    if part.get("error"):
        return
    for one in part["not_copied"] or ():
        table.add_row(
            "[bold]copy[/]", f"[yellow]not copied: {escape(one['table'])}: {escape(one['reason'])}[/]"
        )
    if not part["running"]:
        if part["tables_total"]:
            done, rows = counted(part["tables_total"], "table"), counted(part["rows_done"], "row")
            table.add_row("[bold]copy[/]", f"complete: {done}, {rows}")
        return
    color = "green" if is_producing and not part["paused"] else "yellow"
    table.add_row("[bold]copy[/]", f"[{color}]{escape(describe_copy(part))}[/]")
    if part["not_begun"]:
        table.add_row("", f"not begun: {escape(listed(part['not_begun']))}")
    if not is_producing:
        table.add_row("", "[yellow]it continues when the producer runs[/]")


def _others(table: FactTable, part: dict[str, Any]) -> None:
    """Add the channels of other pipelines that write to the same server."""
    from rich.markup import escape

    for other in part.get("others", ()):
        name = escape(f"{other['channel']} of {other['prefix']}")
        table.add_row("", f"[dim]another pipeline's channel {name}, updated {other['updated']}[/]")


def _channel(table: FactTable, channel: dict[str, Any]) -> None:
    from rich.markup import escape

    from tailrace.service.copy_progress import listed

    table.add_row(f"[bold]channel {escape(channel['channel'])}[/]", escape(channel["target"] or ""))
    memory, stored = channel["memory"], channel["stored"]
    if memory is None:
        table.add_row("  memory", "[yellow]no consumer is running on this machine[/]")
    elif "epoch" not in memory:
        table.add_row("  memory", _unknown_memory(memory))
    else:
        table.add_row("  memory", f"[green]{memory['state']}[/], epoch {memory['epoch']}")
        table.add_row("", _mysql_at(memory, "Executed_Gtid_Set"))
        if batch := memory["batch_in_hand"]:
            epochs = f"epochs {batch['first_epoch']} to {batch['last_epoch']}"
            table.add_row("", f"applying since {batch['since']}: {epochs}, {counted(batch['rows'], 'row')}")
    if stored is None:
        table.add_row("  stored", "[yellow]unknown[/]")
        return
    lag = channel["lag"]
    behind = [_counted(lag["epochs"], "epoch"), _counted(lag["transactions"], "transaction")]
    behind.append("? s" if lag["seconds"] is None else f"{lag['seconds']:,} s")
    color = "green" if lag["seconds"] == 0 else "yellow"
    if since := channel["paused"]:
        table.add_row("  paused", f"[yellow]since {since}[/]")
    table.add_row("  stored", f"epoch {channel['epoch']}")
    table.add_row("", _mysql_at(stored, "Executed_Gtid_Set"))
    table.add_row("", f"[{color}]behind: {', '.join(behind)}[/]  updated {channel['updated']}")
    if counters := channel["counters"]:
        shown = (f"{name.replace('_', ' ')} {number:,}" for name, number in counters.items() if number)
        table.add_row("", f"since the first start: {', '.join(shown)}")
    for worker in channel["workers"]:
        did = {"part": "parts", "row": "rows_written", "statement": "statements"}
        done = ", ".join(counted(worker[field], noun) for noun, field in did.items())
        ahead = "  [yellow]ahead of the position[/]" if worker["ahead"] else ""
        table.add_row("", f"worker {worker['Id']}: {done}{ahead}")
    for line in _state(channel):
        table.add_row("", escape(line))
    if incomplete := channel["copies_incomplete"]:
        table.add_row(
            "", f"[yellow]copies that are not complete at this position: {escape(listed(incomplete))}[/]"
        )
    if validated := channel.get("validation"):
        _validation(table, validated)
    if error := channel.get("error"):
        table.add_row("", f"[red]stopped at {error['at']}: {error['code']}[/]: {escape(error['what'])}")
        table.add_row("", f"[dim]{escape(error['where'])}  {escape(error['hint'])}[/]")
    if channel["ddl_in_doubt"]:
        table.add_row("", f"[yellow]a DDL has started: {escape(channel['ddl_in_doubt'])}[/]")


def _validation(table: FactTable, part: dict[str, Any]) -> None:
    """Add what `validate --follow` has proved."""
    from rich.markup import escape

    tables = ", ".join(
        f"{counted(number, 'table')} {verdict}" for verdict, number in part["tables"].items() if number
    )
    table.add_row(
        "  validated", f"up to epoch {part['epoch']}: {tables or 'no table yet'}  {part['updated']}"
    )
    table.add_row("", escape(part["gtids"]))
    for found in part["not_equal"]:
        if found["verdict"] == "different":
            what = (
                f"{counted(found['different'], 'row')} different" if found["different"] else found["problem"]
            )
            table.add_row("", f"[red]{escape(found['table'])}: {escape(what)}[/]")


def _state(channel: dict[str, Any]) -> list[str]:
    """Return lines about the end of the last run, and about the tables as far as it proves their content."""
    if not channel["consistent"]:
        runs = channel["memory"] is not None
        return ["running" if runs else "was interrupted, or runs on another machine"]
    if (level := channel["rewound_from"]) is not None:
        again = f"changes are repeated up to epoch {level['epoch']}"
        return [
            f"stopped cleanly; rewound: {again}, and until then the tables are inconsistent with each other"
        ]
    if channel["copying"]:
        return ["stopped cleanly; a copy of tables has not come to its end, so rows are missing"]
    if str(channel.get("target", "")).startswith("parquet:"):
        after = "" if channel["began_whole"] else f" after {channel['began_behind']}"
        return [f"stopped cleanly; the files contain every change{after} up to this position"]
    if not channel["began_whole"]:
        before = channel["began_behind"] or "its start"
        return [
            "stopped cleanly at this position",
            f"the channel did not apply what was written upstream up to {before}; it cannot know whether the tables"
            " contain it",
        ]
    equal = "stopped cleanly; the tables equal the upstream at this position"
    return [equal + "".join(f", except for {what}" for what in _exceptions(channel))]


def _exceptions(channel: dict[str, Any]) -> list[str]:
    """Return the changes that the tables lack because of rules and decisions."""
    counters = channel["counters"] or {}
    left_out = sum(counters.get(name, 0) for name in ("filtered", "expression_filtered"))
    found = [
        (left_out, "row change", "left out by its rules"),
        (counters.get("ddl_left_out", 0), "DDL statement", "left out"),
        (counters.get("skipped", 0), "event", "left out by [[skip]]"),
        (channel["decided"], "event", "skipped or replaced with `tailrace error`"),
    ]
    return [f"{counted(count, noun)} {why}" for count, noun, why in found if count]


def _unknown_memory(memory: dict[str, Any]) -> str:
    from rich.markup import escape

    error = memory.get("error")
    if isinstance(error, dict):
        return f"[red]{error['code']}: {escape(error['what'])}[/]  [dim]{escape(error['hint'])}[/]"
    return escape(str(error or memory["state"]))


def _mysql_at(part: dict[str, Any], gtids: str) -> str:
    return _at(part["Master_log_name"], part["Master_log_pos"], part[gtids])


def _at(file: str | None, position: int | None, gtids: str | None) -> str:
    from rich.markup import escape

    return escape(f"{f'{file}:{position}' if file else 'nothing yet'}  {gtids or ''}".rstrip())


def _counted(count: int | None, noun: str) -> str:
    return f"? {noun}s" if count is None else counted(count, noun)
