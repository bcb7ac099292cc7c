"""Reports of `tailrace status` as real pipelines gave them: at rest, under load, in trouble."""

from __future__ import annotations

import copy
from typing import Any

from schemas.errors import DownstreamError, LogError, UpstreamError
from tailrace.service.copy_progress import NO_COPY
from tailrace.web.watch import KEPT, ChannelPoint, Point, Seen

Part = dict[str, Any]
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
#: seconds since 1970
NOW = 1_795_000_000.0
#: names and texts that a hostile upstream may have
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"


def _position(position: int) -> Part:
    return {
        "Master_log_name": "mysql-bin.000007",
        "Master_log_pos": position,
        "Relay_log_name": f"{UUID}.000001/mysql-bin.000007",
        "Relay_log_pos": position,
    }


def channel(name: str, epoch: int = 4711, **more: Any) -> Part:
    """Return a channel that runs."""
    at = _position(91_200)
    found: Part = {
        "channel": name,
        "prefix": "shop",
        "log_id": "a-log",
        "epoch": epoch,
        "gtids": f"{UUID}:1-90210",
        "consistent": False,
        "ddl_in_doubt": None,
        "counters": {"row_changes": 1_204_000},
        "error": None,
        "validation": None,
        "memory": {
            "state": "waiting",
            "epoch": epoch,
            "batch_in_hand": None,
            "rows": 1_204_000,
            "batches": 800,
        },
        "stored": {**at, "Executed_Gtid_Set": f"{UUID}:1-90210"},
        "lag": {"epochs": 0, "transactions": 0, "seconds": 0.0},
        "copies_incomplete": [],
        "target": "mysql://applier@10.0.0.8:3306/",
        "paused": None,
    }
    return found | more


def at_rest() -> Part:
    """Return the report of a pipeline with nothing to do."""
    return copy.deepcopy(
        {
            "upstream": {
                "server": "mysql://tailrace@10.0.0.7:3306/",
                "flavor": "mysql",
                "version": "9.7.0",
                "gtids": f"{UUID}:1-90210",
                "has_gtids": True,
                "file": "mysql-bin.000007",
                "position": 91_200,
            },
            "relay": {
                "directory": "/var/lib/tailrace/relay",
                "files": 12,
                "bytes": 912_000_000,
                "paused": {"mirror": None, "publishing": None},
                "stopped_by": None,
                "stored": {**_position(91_200), "Retrieved_Gtid_Set": f"{UUID}:1-90210"},
                "memory": {
                    "state": "connected",
                    "paused": None,
                    "receiver": {
                        **_position(91_200),
                        "Last_heard": "2026-11-18T11:06:38.000+00:00",
                        "Last_error": None,
                    },
                    "publisher": {
                        **_position(91_200),
                        "epoch": 4711,
                        "Seconds_behind_source": 0.0,
                        "Skipped": {},
                    },
                },
            },
            "kafka": {
                "servers": "kafka:9092",
                "epoch": 4711,
                "log_id": "a-log",
                "gtids": f"{UUID}:1-90210",
                "file": "mysql-bin.000007",
                "position": 91_200,
                "commit_time": "2026-11-18T11:06:37.000+00:00",
                "published_time": "2026-11-18T11:06:37.000+00:00",
            },
            "copy": dict(NO_COPY),
            "downstream": {
                "server": "mysql://applier@10.0.0.8:3306/",
                "channels": [channel("main")],
                "others": [],
            },
            "targets": [],
            "stopped": [],
            "ok": True,
        }
    )


def under_load() -> Part:
    """Return the report of a pipeline that copies, validates and applies on two channels."""
    report = at_rest()
    main, lake = report["downstream"]["channels"][0], channel("lake", 4700)
    batch = {
        "first_epoch": 4712,
        "last_epoch": 4730,
        "rows": 91_000,
        "last_gtid": f"{UUID}:90400",
        "since": None,
    }
    main["memory"] |= {"state": "applying", "batch_in_hand": batch}
    main["lag"] = {"epochs": 19, "transactions": 190, "seconds": 2.4}
    main["validation"] = {
        "epoch": 4700,
        "gtids": f"{UUID}:1-90100",
        "updated": "2026-11-18T11:06:30.000+00:00",
        "changes": 88_000,
        "different": 0,
        "pending": 12,
        "oldest": None,
        "tables": {"equal": 8, "different": 0, "pending": 1, "left out": 0},
        "not_equal": [],
    }
    lake |= {
        "target": "parquet:/data/lake",
        "counters": None,
        "lag": {"epochs": 30, "transactions": 300, "seconds": 340.0},
    }
    lake["paused"] = "2026-11-18T11:00:00.000+00:00"
    report["downstream"]["channels"].append(lake)
    report["copy"] |= {
        "running": True,
        "tables_total": 9,
        "tables_done": 3,
        "rows_done": 420_000,
        "rows_estimated": 1_200_000,
        "rows_per_s": 31_000,
        "seconds_left": 25,
        "tables": [{"table": "shop.orders", "rows": 20_000, "rows_estimated": 90_000}],
    }
    return report


def in_trouble() -> Part:
    """Return the report of a pipeline whose upstream is away, and whose channel stopped at a row."""
    report = at_rest()
    away = UpstreamError(
        "TR200", "the upstream cannot be reached: timed out", hint="check [source] url", retryable=True
    )
    report["upstream"] = {"error": away.as_dict()}
    memory = report["relay"]["memory"]
    memory["state"] = "reconnecting"
    memory["receiver"]["Last_error"] = {
        "code": "TR201",
        "what": "lost the upstream",
        "at": "2026-11-18T11:00:00+00:00",
    }
    main = report["downstream"]["channels"][0]
    main["memory"] = None
    main["lag"] = {"epochs": 40, "transactions": None, "seconds": None}
    main["error"] = {
        "code": "TR623",
        "what": f"Duplicate entry '7' for key 'orders.PRIMARY' {HOSTILE}",
        "where": "mysql-bin.000007:81200, table shop.orders, epoch 4671, event 4671:12",
        "hint": "correct the row; or leave it out: `tailrace error skip`",
        "statement": "INSERT INTO `shop`.`orders` VALUES (7, 'paid')",
        "at": "2026-11-18T11:00:00.000+00:00",
        "event": "4671:12",
    }
    main["validation"] = {
        **under_load()["downstream"]["channels"][0]["validation"],
        "different": 3,
        "not_equal": [{"table": "shop.a b;c", "verdict": "different", "different": 3, "problem": ""}],
    }
    report["copy"]["not_copied"] = [{"table": "shop.views", "reason": "its rows change by foreign keys"}]
    report["ok"] = False
    return report


def not_reached() -> Part:
    """Return the report of a pipeline of which Kafka and the downstream do not answer."""
    report = at_rest()
    report["kafka"] = {
        "error": LogError("TR500", "Kafka at kafka:9092 cannot be reached", hint="start it").as_dict()
    }
    gone = DownstreamError("TR600", "the downstream cannot be reached", hint="check [target] url")
    report["downstream"] = {"error": gone.as_dict(), "channels": []}
    report["relay"]["memory"] = None
    report["copy"] |= {"error": report["kafka"]["error"]}
    return report


def seen(report: Part | None, now: float = NOW) -> Seen:
    """Return a report with an hour of points and some epochs."""
    points = [
        Point(
            now - age,
            None if 1500 < age < 1800 else int((KEPT - age) * 900) + age % 700 * 20,
            {
                "main": ChannelPoint(abs(age % 300 - 150) / 10, int((KEPT - age) * 950)),
                "lake": ChannelPoint(None, None),
            },
        )
        for age in range(int(KEPT), 0, -30)
    ]
    return Seen(report, now - 2, points, [_epoch(number) for number in range(4711, 4681, -1)])


def _epoch(number: int) -> Part:
    is_ddl = number % 7 == 0
    return {
        "epoch": number,
        "published_ms": int(NOW * 1000) - (4711 - number) * 900,
        "committed_ms": int(NOW * 1000),
        "transactions": 1 if is_ddl else 20,
        "rows": 0 if is_ddl else 4_000,
        "first_gtid": None,
        "last_gtid": f"{UUID}:{number}",
        "tables": [] if is_ddl else ["shop.orders", f"shop.{HOSTILE}"],
        "more_tables": 2,
        "ddl": "ALTER TABLE shop.orders ADD COLUMN note VARCHAR(100)" if is_ddl else None,
        "copy": None,
    }
