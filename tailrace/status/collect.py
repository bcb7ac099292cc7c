"""Reads the state of every part; a part that cannot be read is shown with its error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from schemas.errors import TailraceError
from spark_consumer.apply.ddl.intent import intent_of
from spark_consumer.apply.tables import (
    audit,
    channel_pauses,
    error_log,
    position_store,
    validation,
    worker_info,
)
from spark_consumer.apply.tables.position_store import ChannelRow
from spark_consumer.apply.tables.validation import Validated
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import first_kept
from spark_consumer.plan.refusal import cut_values
from spark_consumer.rules.channel import ChannelKey
from tailrace import servers
from tailrace.channels.files import files_channels
from tailrace.config.addresses import files_target, log_address, source_url, target_url, targets
from tailrace.config.model import Config
from tailrace.service.copy_progress import NO_COPY
from tailrace.service.last_error import read_error
from tailrace.service.status_socket import CONSUMER, PRODUCER, query_status
from tailrace.status.copies import LoggedCopies
from tailrace.status.lag import UNKNOWN_LAG, OldestPending, is_comparable, lag
from tailrace.status.new_channels import NewChannels
from tailrace.status.position import last_epoch
from tailrace.status.verdict import channel_state, stopped_parts

Part = dict[str, Any]

_CHANNEL_FIELDS = (
    "target",
    "log_id",
    "epoch",
    "epoch_rows",
    "epochs_offset",
    "gtids",
    "consistent",
    "fencing_token",
    "structures_version",
    "ddl_in_doubt",
    "began_at",
    "began_behind",
    "began_whole",
    "copying",
    "is_new",
    "rewound_from",
    "decided",
    "updated",
    "last_commit",
    "counters",
    "workers",
    "validation",
    "paused",
    "error",
    "stored",
)
_EPOCH_FIELDS = (
    "log_id",
    "epoch",
    "gtids",
    "last_gtid",
    "source_id",
    "file",
    "position",
    "commit_time",
    "published_time",
    "complete_time",
    "new_channels",
    "next_copy",
)


def read_in_turn(reads: Mapping[str, Callable[[], Part]]) -> dict[str, Part]:
    """Return the parts by name; one that cannot be read has `error`."""
    return {name: _part(read) for name, read in reads.items()}


def collect(
    config: Config, read: Callable[[Mapping[str, Callable[[], Part]]], dict[str, Part]] = read_in_turn
) -> Part:
    """Return all parts as plain data; ``ok`` is false if a part could not be read.

    Args:
        read: reads the servers, the relay log and Kafka; a caller may read them side by side.
    """
    downstreams = {
        f"downstream {number}" if number > 1 else "downstream": partial(downstream_part, one)
        for number, one in enumerate(targets(config), 1)
    }
    found = read(
        {
            "upstream": lambda: upstream_part(config),
            "relay": lambda: relay_part(config),
            "kafka": lambda: kafka_part(config),
            **downstreams,
        }
    )
    upstream, kafka = found["upstream"], found["kafka"]
    first, *others = (found[name] for name in downstreams)
    report: Part = {
        "upstream": upstream,
        "relay": found["relay"],
        "kafka": kafka,
        "downstream": first,
        "targets": others,
    }
    # A running process is shown even if its stored state cannot be read.
    memory = report["relay"]["memory"] = memory_part(config.relay.dir, PRODUCER)
    report["relay"]["stopped_by"] = read_error(config.relay.dir) if memory is None else None
    channels = report["downstream"].setdefault("channels", [])
    for other in others:
        channels += other.pop("channels", [])
    _add_memory(channels, config.consumer.checkpoint_dir, config.kafka.prefix)
    report["copy"] = _copy(config, report["relay"]["memory"], kafka, channels)
    pending = OldestPending(config, upstream, kafka)
    for channel in channels:
        channel["lag"] = lag(channel, upstream, kafka, pending.for_channel(channel), time.time())
        channel["state"] = channel_state(channel)
    parts = [report[name] for name in ("upstream", "relay", "kafka", "copy", "downstream")]
    report["stopped"] = stopped_parts(report)
    report["ok"] = all("error" not in part for part in (*parts, *others))
    return report


def with_state_and_lag(config: Config, listed: list[Part]) -> list[Part]:
    """Return listed channels with `state`, `lag` and `error`. Other prefixes' have no lag that could be known."""
    names = ("prefix", "channel", "target")
    known = {
        (config.kafka.prefix, one["channel"], one.get("target")): one
        for one in collect(config)["downstream"]["channels"]
    }
    unknown: Part = {"lag": UNKNOWN_LAG, "error": None}
    return [
        one | {name: found[name] for name in ("state", "lag", "error")}
        if (found := known.get(tuple(one[name] for name in names)))
        else one | {"state": channel_state(one)} | unknown
        for one in listed
    ]


def _part(read: Callable[[], Part]) -> Part:
    try:
        return read()
    except TailraceError as error:
        return {"error": error.as_dict()}


def upstream_part(config: Config) -> Part:
    """Return the upstream's flavor, executed GTIDs and end of binlog."""
    from producer.upstream.connect import describe

    url = source_url(config)
    info = describe(url)
    return {
        "server": str(url),
        "flavor": info.flavor,
        "version": info.version,
        "uuid": info.server_uuid,
        "gtids": str(info.executed),
        "has_gtids": info.has_gtids,
        "file": info.file,
        "position": info.position,
    }


def relay_part(config: Config) -> Part:
    """Return the relay files and the content of relay.meta; `stored` is None before the first file."""
    from relay_store.layout.directory import find_upstream_position, read_index, read_meta, subdir_uuid
    from relay_store.layout.inventory import relay_files
    from relay_store.layout.pauses import HALVES, read_pauses

    root = config.relay.dir
    subdirs = read_index(root) if root.is_dir() else []
    meta = read_meta(root / subdirs[-1]) if subdirs else None
    stored = None
    if meta is not None:
        position = find_upstream_position(root, subdirs[-1], meta.file, meta.pos)
        stored = {
            "Master_log_name": meta.file,
            "Master_log_pos": meta.pos,
            "Relay_log_name": f"{position.subdir}/{position.file}" if position else None,
            "Relay_log_pos": position.pos if position else None,
            "Retrieved_Gtid_Set": meta.gtid_set,
            "Uuid": subdir_uuid(subdirs[-1]),
        }
    files = relay_files(root, subdirs)
    return {
        "directory": str(root),
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "stored": stored,
        "paused": dict.fromkeys(HALVES) | read_pauses(root),
    }


def _add_memory(channels: list[Part], folder: Path, prefix: str) -> None:
    """Add the memory of consumers on this machine, also for channels without a stored position."""
    known = {channel["channel"] for channel in channels}
    unknown = dict.fromkeys(_CHANNEL_FIELDS)
    running = {path.parent.parent.name for path in folder.glob(f"*/{prefix}/{CONSUMER}")}
    for channel in channels:
        own = folder / channel["channel"] / prefix
        channel["memory"] = memory_part(own, CONSUMER)
        if channel["memory"] is None and channel.get("error") is None:
            channel["error"] = _later(read_error(own), channel["updated"])
    for name in sorted(running - known):
        if memory := memory_part(folder / name / prefix, CONSUMER):
            channels.append(unknown | {"channel": name, "prefix": prefix, "memory": memory})


def _later(error: dict[str, str] | None, updated: str) -> dict[str, str] | None:
    """Return the error of a consumer of this machine, unless another one has applied something since."""
    return error if error is not None and error["at"] >= updated else None


def memory_part(folder: Path, name: str) -> Part | None:
    """Return the memory of the process that serves a socket; None if it does not run on this machine."""
    try:
        return query_status(folder, name)
    except OSError as error:
        hint = "run the command as the user that the process runs as"
        where = str(folder / name)
        what = f"the running process does not answer: {error.strerror or error}"
        return {"error": {"code": "TR002", "what": what, "where": where, "hint": hint, "retryable": True}}


def kafka_part(config: Config) -> Part:
    """Return the last committed epoch."""
    last = last_epoch(config)
    part: Part = {"servers": config.kafka.bootstrap_servers, "topic": f"{config.kafka.prefix}.epochs"}
    if last is None:
        return part | dict.fromkeys(_EPOCH_FIELDS)
    return part | {
        "log_id": last.log_id,
        "epoch": last.epoch,
        "gtids": last.executed_gtids,
        "last_gtid": last.last_gtid,
        "source_id": last.source_id,
        "file": last.source_file,
        "position": last.source_pos,
        "commit_time": _moment(last.last_commit_ms),
        "published_time": _moment(last.published_ms),
        "complete_time": _moment(last.complete_ms),
        "new_channels": None,
        "next_copy": None,
    }


def _copy(config: Config, producer: Part | None, kafka: Part, channels: list[Part]) -> Part:
    """Return how far copies are. Add to each channel which are not complete at its position; None: unknown.

    Add also from where a new channel could begin, and when the next copy for new channels is due.

    Args:
        producer: its memory, which also knows the rate.
    """
    logged, part = LoggedCopies({}), dict.fromkeys(NO_COPY)
    try:
        if kafka.get("epoch") is not None:
            log = log_address(config.kafka)
            logged, reader = LoggedCopies.read(log), LogReader(log)
            first, has_first_rows = first_kept(reader).record, reader.has_first_rows()
            copied = logged.complete_after(first.epoch)
            kafka["new_channels"] = NewChannels.of(first, copied, has_first_rows=has_first_rows).as_dict()
            if (due := logged.next_for_new(config.copies.every)) is not None:
                kafka["next_copy"] = _moment(max(due, time.time() * 1000))
        part = logged.part() if "error" not in kafka else part | {"error": kafka["error"]}
    except TailraceError as error:
        part |= {"error": error.as_dict()}
    for channel in channels:
        is_known = "error" not in part and is_comparable(channel, kafka)
        channel["copies_incomplete"] = _incomplete(channel, logged) if is_known else None
    return (producer or {}).get("copy") or part


def _incomplete(channel: Part, logged: LoggedCopies) -> list[str]:
    if channel["is_new"]:
        return ["*.*"]
    return logged.incomplete_at(channel["epoch"]) if channel["copying"] else []


def downstream_part(config: Config) -> Part:
    """Return this pipeline's channels on a downstream, and the names of other pipelines' channels."""
    if (files := files_target(config)) is not None:
        return {
            "server": f"parquet:{files}",
            "version": "change files",
            "channels": files_channels(files),
            "others": [],
        }
    url = target_url(config)
    # The audit table's times are in UTC.
    with servers.asking(url, "downstream", init_command="SET time_zone = '+00:00'") as connection:
        version = servers.rows(connection, "SELECT VERSION()")[0][0]
        query, prefix = partial(servers.rows, connection), config.kafka.prefix
        each = [_channel(row) for row in position_store.all_channels(query)]
        found = [channel for channel in each if channel["prefix"] == prefix]
        others = [
            {name: channel[name] for name in ("prefix", "channel", "updated")}
            for channel in each
            if channel["prefix"] != prefix
        ]
        counters, workers = audit.counters(query, prefix), worker_info.counts(query, prefix)
        commits, decided = audit.last_commits(query, prefix), error_log.used_counts(query, prefix)
        errors, validated = error_log.errors(query, prefix), validation.read(query, prefix)
        paused = channel_pauses.all_pauses(query)
        for channel in found:
            name = channel["channel"]
            channel["last_commit"] = _moment(commits.get(name, 0) * 1000)
            channel["counters"] = counters.get(name)
            channel["workers"] = workers.get(name, [])
            error = errors.get(name)
            channel["error"] = error and error | {"at": _moment(float(error["at"]) * 1000)}
            channel["decided"] = decided.get(name, 0)
            channel["validation"] = _validation(validated.get(name, {}))
            channel["target"] = str(url)
            channel["paused"] = paused.get(ChannelKey(prefix, name))
    return {"server": str(url), "version": version, "channels": found, "others": others}


def _channel(row: ChannelRow) -> Part:
    """Return a channel's row, with the columns that MySQL's table has too in `stored`."""
    position = row.position
    return {
        "channel": row.key.name,
        "prefix": row.key.prefix,
        "log_id": position.log_id,
        "epoch": position.epoch,
        "epoch_rows": position.epoch_rows,
        "epochs_offset": position.epochs_offset,
        "gtids": position.executed_gtids,
        "consistent": row.consistent,
        "fencing_token": position.fencing_token,
        "structures_version": position.structures_version,
        "ddl_in_doubt": _open_ddl(position.ddl_intent),
        "began_at": row.began_at,
        "began_behind": row.began_behind,
        "began_whole": row.began_whole,
        "copying": position.copying,
        "is_new": position.is_new,
        "rewound_from": position.repeat_until.shown if position.repeat_until else None,
        "updated": row.updated.isoformat(timespec="milliseconds"),
        "last_commit": None,
        "stored": {**row.stored, "Executed_Gtid_Set": position.executed_gtids},
    }


def _validation(found: dict[str, Validated]) -> Part | None:
    """Return what a validation that goes on has proved; None if there was none."""
    own = found.pop("", None)
    if own is None:
        return None
    verdicts = Counter(table.verdict for table in found.values())
    return {
        "epoch": own.position.epoch,
        "gtids": own.position.executed,
        "updated": _moment(own.at * 1000),
        "changes": own.rows,
        "different": own.different,
        "pending": own.pending,
        "oldest": _moment(min((table.at for table in found.values()), default=0) * 1000),
        "tables": {name: verdicts[name] for name in ("equal", "different", "pending", "left out")},
        "not_equal": [table.as_dict() for table in found.values() if table.verdict != "equal"],
    }


def _open_ddl(intent: str | None) -> str | None:
    """Return position and statement of a DDL that a channel has started, without passwords; None if there is none."""
    found = intent_of(intent)
    if found is None:
        return None
    statements = found.translated.statements
    number = min(found.index, len(statements) - 1)
    which = f" statement {number + 1} of {len(statements)}" if len(statements) > 1 else ""
    return f"{found.place}{which}: {cut_values(statements[number].shown, 300)}"


def _moment(milliseconds: float) -> str | None:
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
