"""Makes a server replicate from another one, with the servers' own means."""

from __future__ import annotations

from compose.databases import Database

_FOLLOW = {
    "mysql": "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root',"
    " SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_DELAY = {delay}",
    "mariadb": "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root',"
    " MASTER_USE_GTID = slave_pos, MASTER_SSL = 0, MASTER_DELAY = {delay}",
}
_EXECUTED = {"mysql": "gtid_executed", "mariadb": "gtid_binlog_pos"}
_BEGIN = {"mysql": "gtid_purged", "mariadb": "gtid_slave_pos"}


def replicate(upstream: Database, replica: Database, delay: int = 0) -> None:
    """Let a new server follow the upstream from now on.

    Args:
        delay: seconds that it stays behind.
    """
    flavor = upstream.flavor
    ((executed,),) = upstream.execute(f"SELECT @@GLOBAL.{_EXECUTED[flavor]}")
    reset = ["RESET BINARY LOGS AND GTIDS"] if flavor == "mysql" else []
    replica.execute(*reset, f"SET GLOBAL {_BEGIN[flavor]} = '{executed}'")
    set_delay(upstream, replica, delay)


def set_delay(upstream: Database, replica: Database, delay: int) -> None:
    """Let a replica stay so many seconds behind."""
    follow = _FOLLOW[upstream.flavor].format(port=upstream.port, delay=delay)
    replica.execute("STOP REPLICA", follow, "START REPLICA")
