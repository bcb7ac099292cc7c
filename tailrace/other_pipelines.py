"""Finds other pipelines and native replication on a server, to detect loops and conflicting writers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pymysql
import structlog
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from schemas.access.server_url import ServerUrl
from schemas.errors import TailraceError, UpstreamError
from schemas.names import is_uuid
from schemas.tables import QualifiedName, never_replicated
from spark_consumer.apply.tables import position_store
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.scope import Scope, common, meetings
from tailrace import servers

_log = structlog.get_logger()
_TABLES = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
# Columns of SHOW REPLICA STATUS that are named like filters but are none.
_NO_FILTERS = ("Replicate_Ignore_Server_Ids", "Replicate_Rewrite_DB")
# Variables that identify a MariaDB server; server_uid, in newer versions, also distinguishes clones.
_PARTS = ("server_uid", "hostname", "port", "datadir", "server_id")


@dataclass(frozen=True)
class OtherChannel:
    """A channel that writes to a server.

    Attributes:
        log_id: the id of the log that it follows; None before its first epoch.
        origins: the ids of the servers and logs that its rows come from.
        scope: the tables that it replicates; None before its first run.
        updated: when its row was last written, in UTC.
    """

    key: ChannelKey
    log_id: str | None
    origins: frozenset[str]
    scope: Scope | None
    epoch: int
    updated: str

    def __str__(self) -> str:
        return f"channel {self.key} (epoch {self.epoch}, updated {self.updated})"

    @property
    def sources(self) -> frozenset[str]:
        """The ids of its log and of all origins of its rows."""
        return self.origins | ({self.log_id} if self.log_id else frozenset())

    def writes_what_is_read_by(self, scope: Scope, tables: Iterable[QualifiedName]) -> QualifiedName | None:
        """Return a table that it may write and that a pipeline with this scope reads from the same server.

        It is one of ``tables`` if possible, otherwise a table that may be created; None if there is none.
        """
        mine = self.scope or Scope()
        possible = meetings(mine.written, scope.read)
        return common(mine.writes, scope.reads, tables) or common(mine.writes, scope.reads, possible)

    def writes_what_is_written_by(
        self, scope: Scope, tables: Iterable[QualifiedName]
    ) -> QualifiedName | None:
        """Return a table that both may write, one of ``tables`` if possible; None if there is none."""
        mine = self.scope or Scope()
        possible = meetings(mine.written, scope.written)
        return common(mine.writes, scope.writes, tables) or common(mine.writes, scope.writes, possible)


def channels_on(connection: Connection[Any]) -> list[OtherChannel]:
    """Return the channels that write to a server, none if no consumer ever ran. Raises pymysql's errors."""
    return [
        OtherChannel(
            row.key,
            row.position.log_id if is_uuid(str(row.position.log_id)) else None,
            frozenset(filter(is_uuid, str(row.position.origins or "").split())),
            _scope(row.replicates),
            row.position.epoch,
            f"{row.updated:%Y-%m-%d %H:%M:%S.%f}",
        )
        for row in position_store.all_channels(partial(servers.rows, connection))
    ]


def _scope(text: str | None) -> Scope | None:
    """Read the scope in a channel's row; None, which means all tables, if it is missing or invalid."""
    try:
        return Scope.from_json(text) if text else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, TailraceError):
        return None


def tables_of(connection: Connection[Any]) -> set[QualifiedName]:
    """Return a server's tables without system tables."""
    rows = servers.rows(connection, _TABLES)
    return {(str(db), str(table)) for db, table in rows if not never_replicated(str(db))}


def server_identity(connection: Connection[Any]) -> str:
    """Return a UUID that identifies a server at any address: MySQL's own, or one made from MariaDB's variables."""
    rows = dict(servers.rows(connection, "SHOW GLOBAL VARIABLES WHERE Variable_name = 'server_uuid'"))
    if is_uuid(found := str(rows.get("server_uuid", ""))):
        return found
    names = ", ".join(f"'{name}'" for name in _PARTS)
    rows = dict(servers.rows(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(str(rows.get(name, "")) for name in _PARTS)))


def is_same_server(one: Connection[Any], other: Connection[Any]) -> bool:
    """Return whether two connections lead to the same server: then one sees the other's lock."""
    name = f"tailrace {uuid.uuid4()}"
    servers.rows(one, "SELECT GET_LOCK(%s, 0)", (name,))
    try:
        return servers.rows(other, "SELECT IS_USED_LOCK(%s)", (name,))[0][0] is not None
    finally:
        servers.rows(one, "SELECT RELEASE_LOCK(%s)", (name,))


def channels_feeding(
    found: Sequence[OtherChannel], scope: Scope, tables: Iterable[QualifiedName]
) -> list[OtherChannel]:
    """Return the channels that write rows to an upstream which a pipeline with this scope replicates."""
    tables = set(tables)
    return [one for one in found if one.writes_what_is_read_by(scope, tables) is not None]


def origins_of(source: ServerUrl, scope: Scope, log_id: str) -> tuple[str, ...]:
    """Return the upstream's id and the ids of all origins of the rows that a pipeline with this scope replicates.

    The result is empty if the upstream does not answer; the caller asks again later.

    Raises UpstreamError TR211 if the pipeline's own log, ``log_id``, is one of them.
    """
    try:
        with closing(servers.connect(source, "upstream", connect_timeout=2)) as connection:
            found = channels_on(connection)
            tables = tables_of(connection) if found else set()
            own = server_identity(connection)
    except (TailraceError, pymysql.MySQLError) as error:
        _log.warning("origins_not_known", upstream=str(source), reason=str(error))
        return ()
    fed_by = channels_feeding(found, scope, tables)
    if log_id and (back := next((one for one in fed_by if log_id in one.sources), None)) is not None:
        raise UpstreamError(
            "TR211",
            f"rows of this pipeline come back: {back} writes them to {source}",
            hint="exclude the other pipeline's tables from [tables] of each; if that pipeline is no longer used, or"
            " schema tailrace was copied from another server, run `tailrace channel remove` or delete the channel's"
            " row there",
        )
    return tuple(dict.fromkeys([own, *sorted(frozenset().union(*(one.sources for one in fed_by)))]))


def is_same_cluster(one: Connection[Any], other: Connection[Any]) -> bool:
    """Return whether two servers are nodes of the same Galera cluster or replication group."""
    found = [_cluster(one), _cluster(other)]
    return found[0] == found[1] != ""


def _cluster(connection: Connection[Any]) -> str:
    state = dict(servers.rows(connection, "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'"))
    group = dict(servers.rows(connection, "SHOW GLOBAL VARIABLES LIKE 'group_replication_group_name'"))
    return str(next(iter(state.values()), "") or next(iter(group.values()), ""))


def follows(replica: Connection[Any], source: Connection[Any], url: ServerUrl) -> list[bool]:
    """Return for each running native replication from ``source`` to ``replica`` whether it has filters.

    Args:
        url: the source's. Its account is used to log in to the server that the replica connects to.

    Raises pymysql's errors if the account may not read the replication's state.
    """
    return [_filters(row) for row in _replications(replica) if _is_from(row, source, url)]


def _replications(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return the running replications of SHOW REPLICA STATUS, with the column names of before MySQL 8.0.22."""
    statement = "SHOW ALL SLAVES STATUS" if servers.is_mariadb(connection) else "SHOW REPLICA STATUS"
    with connection.cursor(DictCursor) as cursor:
        try:
            cursor.execute(statement)
        except pymysql.err.ProgrammingError:  # MySQL before 8.0.22
            cursor.execute("SHOW SLAVE STATUS")
        rows = [{_older(name): value for name, value in row.items()} for row in cursor.fetchall()]
    return [row for row in rows if "Yes" in (row["Slave_IO_Running"], row["Slave_SQL_Running"])]


def _older(name: str) -> str:
    """Return the name that a column had before MySQL 8.0.22."""
    return (
        "Slave" + name[len("Replica") :] if name.startswith("Replica_") else name.replace("Source", "Master")
    )


def _filters(row: dict[str, Any]) -> bool:
    return any(
        value for name, value in row.items() if name.startswith("Replicate_") and name not in _NO_FILTERS
    )


def _is_from(row: dict[str, Any], source: Connection[Any], url: ServerUrl) -> bool:
    """Return whether a replication reads from a server, by its UUID or by connecting to the replication's address."""
    if found := row.get("Master_UUID"):
        return bool(found == server_identity(source))
    # 0: the replica has not connected yet.
    if row["Master_Server_Id"] not in (0, servers.rows(source, "SELECT @@server_id")[0][0]):
        return False
    params = {name: value for name, value in url.params.items() if name != "unix-socket"}
    address = replace(url, host=str(row["Master_Host"]), port=int(row["Master_Port"]), params=params)
    try:
        with closing(servers.connect(address, "upstream", connect_timeout=2)) as connection:
            return is_same_server(connection, source)
    except (TailraceError, pymysql.MySQLError):
        return False
