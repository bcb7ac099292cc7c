"""Reads the state of every part; a part that cannot be read says why and does not hide the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pymysql

from schemas.errors import TailraceError
from schemas.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from schemas.gtid_base import Flavor
from tailrace import servers, wiring
from tailrace.config import Config
from tailrace.status.position import last_epoch

Part = dict[str, Any]


def collect(config: Config) -> Part:
    """All parts as plain data; ``ok`` is false if any of them could not be read."""
    upstream = _part(lambda: upstream_part(config))
    kafka = _part(lambda: kafka_part(config))
    report: Part = {
        "upstream": upstream,
        "relay": _part(lambda: relay_part(config)),
        "kafka": kafka,
        "downstream": _part(lambda: downstream_part(config)),
    }
    for channel in report["downstream"].get("channels", []):
        channel["lag"] = lag(channel, upstream, kafka, time.time())
    report["ok"] = all("error" not in report[name] for name in ("upstream", "relay", "kafka", "downstream"))
    return report


def _part(read: Callable[[], Part]) -> Part:
    try:
        return read()
    except TailraceError as error:
        return {"error": error.as_dict()}


def upstream_part(config: Config) -> Part:
    """The upstream's flavour, executed GTIDs and end of its binlog."""
    from producer.upstream.connect import describe

    url = wiring.source_url(config)
    info = describe(url)
    return {
        "server": str(url),
        "flavor": info.flavor,
        "version": info.version,
        "uuid": info.server_uuid,
        "gtids": str(info.executed),
        "file": info.file,
        "position": info.position,
    }


def relay_part(config: Config) -> Part:
    """The newest relay file and what ``relay.meta`` says; ``file`` is null before the first event."""
    from relay_store.layout import binlog_files, read_index, read_meta

    root = config.relay.dir
    subdirs = read_index(root) if root.is_dir() else []
    part: Part = {"directory": str(root), "subdir": None, "file": None, "position": None, "gtids": ""}
    if not subdirs:
        return part
    folder = root / subdirs[-1]
    meta = read_meta(folder)
    if meta is not None:
        part |= {"subdir": subdirs[-1], "file": meta.file, "position": meta.pos}
        part |= {"gtids": meta.gtid_set}
    files = [folder / name for folder in map(root.__truediv__, subdirs) for name in binlog_files(folder)]
    return part | {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}


def kafka_part(config: Config) -> Part:
    """The last committed epoch."""
    last = last_epoch(config)
    part: Part = {"servers": config.kafka.bootstrap_servers, "topic": f"{config.kafka.prefix}.epochs"}
    if last is None:
        return part | {"epoch": None}
    return part | {
        "epoch": last.epoch,
        "gtids": last.executed_gtids,
        "last_gtid": last.last_gtid,
        "file": last.source_file,
        "position": last.source_pos,
        "commit_time": _moment(last.last_commit_ms),
        "published_time": _moment(last.published_ms),
    }


_CHANNELS = """
SELECT Channel_name, epoch, epochs_offset, executed_gtid_set, Master_log_name, Master_log_pos, Relay_log_name,
  Relay_log_pos, consistent, fencing_token, structures_version, ddl_intent,
  UNIX_TIMESTAMP(updated_at) AS updated,
  (SELECT UNIX_TIMESTAMP(a.last_commit_at) FROM tailrace.applied_epochs a
    WHERE a.channel = i.Channel_name ORDER BY a.first_epoch DESC LIMIT 1) AS last_commit
FROM tailrace.relay_log_info i ORDER BY Channel_name
"""
_NO_SUCH_TABLE = (1049, 1146)


def downstream_part(config: Config) -> Part:
    """The downstream's channels; none before the first consumer has run."""
    url = wiring.target_url(config)
    # The audit's times are in UTC.
    connection = servers.connect(url, "downstream", init_command="SET time_zone = '+00:00'")
    try:
        version = servers.rows(connection, "SELECT VERSION()")[0][0]
        found = [_channel(row) for row in servers.rows(connection, _CHANNELS)]
    except pymysql.MySQLError as error:
        if not error.args or error.args[0] not in _NO_SUCH_TABLE:
            raise servers.unreachable(url, "downstream", error) from error
        found = []
    finally:
        connection.close()
    return {"server": str(url), "version": version, "channels": found}


def _channel(row: tuple[Any, ...]) -> Part:
    return {
        "channel": row[0],
        "epoch": row[1],
        "epochs_offset": row[2],
        "gtids": row[3],
        "source_file": row[4],
        "source_position": row[5],
        "relay_file": row[6],
        "relay_position": row[7],
        "consistent": bool(row[8]),
        "fencing_token": row[9],
        "structures_version": row[10],
        "ddl_in_doubt": row[11],
        "updated": _moment(float(row[12]) * 1000) if row[12] is not None else None,
        "last_commit": _moment(float(row[13]) * 1000) if row[13] is not None else None,
    }


def lag(channel: Part, upstream: Part, kafka: Part, now: float) -> Part:
    """How far a channel is behind; null where a part that must be known could not be read."""
    epochs = None
    if kafka.get("epoch") is not None:
        epochs = max(0, kafka["epoch"] - channel["epoch"])
    transactions = None
    if "error" not in upstream:
        transactions = transactions_behind(upstream["gtids"], channel["gtids"], upstream["flavor"])
    seconds = None
    if transactions == 0 or (transactions is None and epochs == 0):
        seconds = 0.0
    elif channel["last_commit"] is not None:
        seconds = max(0.0, round(now - datetime.fromisoformat(channel["last_commit"]).timestamp(), 3))
    return {"epochs": epochs, "transactions": transactions, "seconds": seconds}


def transactions_behind(upstream: str, applied: str, flavor: Flavor) -> int | None:
    """Transactions of the upstream that are not applied; None if the sets cannot be compared."""
    try:
        ours: GtidSet = parse_gtid_set(upstream, flavor)
        theirs: GtidSet = parse_gtid_set(applied, flavor)
    except ValueError:
        return None
    if isinstance(ours, MysqlGtidSet) and isinstance(theirs, MysqlGtidSet):
        return ours.minus(theirs).count()
    if isinstance(ours, MariadbGtidSet) and isinstance(theirs, MariadbGtidSet):
        done = {domain: gtid.sequence for domain, gtid in theirs.domains.items()}
        return sum(max(0, g.sequence - done.get(d, 0)) for d, g in ours.domains.items())
    return None


def _moment(milliseconds: float) -> str | None:
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
