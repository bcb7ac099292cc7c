"""An account's privileges on a server, read from SHOW GRANTS, active roles included.

Both servers include the privileges of the session's active roles: MySQL lists them under the account, MariaDB under
the role. A role that is granted but not active gives nothing. On MariaDB every account also has the privileges of
PUBLIC.

If several database patterns match, the server uses only the most specific pattern of each grantee. MySQL with
``partial_revokes`` shows REVOKE lines and does not treat database names as patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.tables import NEVER_REPLICATED
from spark_consumer.target.session import Session

#: the system schemas of the servers
SERVERS_OWN = NEVER_REPLICATED - {"tailrace"}
# Other names for the same privilege, and privileges that include it.
_INCLUDED_IN = {
    "REPLICATION CLIENT": {"BINLOG MONITOR"},
    "BINLOG MONITOR": {"REPLICATION CLIENT"},
    "REPLICATION SLAVE": {"REPLICATION REPLICA"},
    "REPLICATION_APPLIER": {"SUPER"},
    "SET_ANY_DEFINER": {"SET_USER_ID", "SUPER"},
    "SET_USER_ID": {"SET_ANY_DEFINER", "SUPER"},
    "ALLOW_NONEXISTENT_DEFINER": {"SET_USER_ID", "SUPER"},
    "SET USER": {"SUPER"},
    "SESSION_VARIABLES_ADMIN": {"SYSTEM_VARIABLES_ADMIN", "SUPER"},
    "BINLOG ADMIN": {"SUPER"},
    "BINLOG REPLAY": {"SUPER"},
    "DELETE HISTORY": {"DELETE VERSIONING ROWS"},
}
_ALL = frozenset({"ALL PRIVILEGES", "ALL"})
# ALL on a database includes only the privileges that can be granted on a database.
_ONLY_GLOBAL = re.compile(r"_|ADMIN|REPLICATION|BINLOG|^(SUPER|RELOAD|SHUTDOWN|PROCESS|FILE|SET USER|PROXY)$")
_NAME = r"`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\"|[^\s.`\"]+"
_LINE = re.compile(
    rf"(?P<verb>GRANT|REVOKE) (?P<rights>(?:`(?:[^`]|``)*`|[^`])+?) ON"
    rf" (?:TABLE )?(?P<db>\*|{_NAME})\.(?P<table>\*|{_NAME}) (?:TO|FROM)"
    rf" (?P<holder>(?:{_NAME})(?:@(?:{_NAME}))?)"
)
_COLUMNS = re.compile(r"\((?:`(?:[^`]|``)*`|[^)`])*\)")
_WILD = re.compile(r"(?<!\\)[%_]")
_PIECE = re.compile(r"\\.|.", re.DOTALL)


@dataclass(frozen=True)
class Grant:
    """One line of SHOW GRANTS.

    Attributes:
        rights: the privileges in capitals, without those on single columns.
        db, table: None for ``*``.
        holder: the account or role that has them.
        taken: whether the line is a REVOKE.
    """

    rights: frozenset[str]
    db: str | None
    table: str | None
    holder: str
    taken: bool = False


@dataclass(frozen=True)
class Privileges:
    """An account's privileges.

    Attributes:
        account: the account in GRANT's syntax.
        idle_roles: roles that are granted to the account and not active in its sessions.
        plain_names: whether database names are literal and not patterns.
    """

    account: str
    grants: tuple[Grant, ...]
    idle_roles: tuple[str, ...] = ()
    plain_names: bool = False

    def everywhere(self, right: str) -> bool:
        """Whether the account has a privilege ``ON *.*``, revoked at most on system schemas."""
        return self.given(right) and not any(
            one.taken and _includes(one.rights, right) and one.db not in SERVERS_OWN for one in self.grants
        )

    def given(self, right: str) -> bool:
        """Whether the account has a privilege ``ON *.*``, with or without partial revokes."""
        return any(one.db is None and _includes(one.rights, right) for one in self.grants)

    def on_schema(self, right: str, db: str) -> bool:
        """Whether the account has a privilege on a whole database."""
        taken = any(one.taken and _includes(one.rights, right) and self._fits(one, db) for one in self.grants)
        return (self.given(right) and not taken) or any(
            _includes(one.rights, right, narrow=True) for one in self._of_schema(db)
        )

    def on_table(self, right: str, db: str, table: str) -> bool:
        """Whether the account has a privilege on a table."""
        return self.on_schema(right, db) or any(
            (one.db, one.table) == (db, table) and _includes(one.rights, right, narrow=True)
            for one in self.grants
        )

    @property
    def scoped(self) -> bool:
        """Whether there are grants on single databases or tables."""
        return any(one.db is not None and not one.taken and one.holder != "PUBLIC" for one in self.grants)

    def _of_schema(self, db: str) -> list[Grant]:
        """Return each holder's effective grant on a database."""
        found: dict[str, list[Grant]] = {}
        for one in self.grants:
            if one.db is not None and one.table is None and not one.taken and self._fits(one, db):
                found.setdefault(one.holder, []).append(one)
        return [min(each, key=lambda one: _looseness(one.db or "")) for each in found.values()]

    def _fits(self, grant: Grant, db: str) -> bool:
        pattern = grant.db or ""
        if self.plain_names:
            return pattern.replace("\\_", "_").replace("\\%", "%") == db
        return re.fullmatch(_PIECE.sub(_as_regex, pattern), db, re.DOTALL) is not None


def _as_regex(piece: re.Match[str]) -> str:
    text = piece.group()
    return {"%": ".*", "_": "."}.get(text) or re.escape(text[-1])


def _includes(rights: frozenset[str], right: str, *, narrow: bool = False) -> bool:
    """Whether ``rights`` include ``right``; ``narrow``: in a grant on a database or table."""
    if rights & ({right} | _INCLUDED_IN.get(right, set())):
        return True
    return bool(rights & _ALL) and not (narrow and _ONLY_GLOBAL.search(right))


def _looseness(pattern: str) -> tuple[int, int]:
    """Return the servers' sort key of a pattern: plain names first, then patterns with a later first wildcard."""
    wild = _WILD.search(pattern)
    return (0, 0) if wild is None else (1, -wild.start())


def parse_grants(lines: Iterable[str]) -> tuple[Grant, ...]:
    """Parse the lines of SHOW GRANTS. Lines about roles, proxies and routines are left out."""
    found = []
    for line in lines:
        if match := _LINE.match(line):
            rights = re.split(r"\s*,\s*", _COLUMNS.sub("()", match["rights"]))
            plain = frozenset(right.strip().upper() for right in rights if "()" not in right)
            db, table = (None if name == "*" else _unquoted(name) for name in match.group("db", "table"))
            found.append(Grant(plain, db, table, match["holder"], match["verb"] == "REVOKE"))
    return tuple(found)


def _unquoted(name: str) -> str:
    if name[:1] in ("`", '"'):
        return name[1:-1].replace(name[0] * 2, name[0])
    return name


def idle_roles(lines: Iterable[str], user: str, active: str | None) -> tuple[str, ...]:
    """Return the roles that are granted to an account and not active.

    Args:
        lines: the lines of SHOW GRANTS.
        user: the value of CURRENT_USER().
        active: the value of CURRENT_ROLE().
    """
    names = {_unquoted(found) for found in re.findall(_NAME, active or "")}
    given = []
    for line in lines:
        match = re.match(rf"GRANT (?P<roles>.+) TO (?P<holder>{_NAME})(?:@(?:{_NAME}))?", line)
        if match and " ON " not in line and _unquoted(match["holder"]) == user.rpartition("@")[0]:
            given += [part.strip() for part in match["roles"].split(",")]
    return tuple(role for role in given if _unquoted(role.partition("@")[0]) not in names)


def account_of(user: str) -> str:
    """Return the value of CURRENT_USER() in GRANT's syntax."""
    name, _, host = user.rpartition("@")
    return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))


def read_privileges(session: Session) -> Privileges:
    """Read the privileges of a connection's account. Raises pymysql.MySQLError."""
    [(user,)] = session.rows("SELECT CURRENT_USER()")
    lines = [str(row[0]) for row in session.rows("SHOW GRANTS")]
    has_roles = any(" ON " not in line for line in lines)
    [(active,)] = session.rows("SELECT CURRENT_ROLE()") if has_roles else [(None,)]
    shown = session.rows("SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    plain = bool(shown) and str(shown[0][1]).upper() == "ON"
    return Privileges(account_of(str(user)), parse_grants(lines), idle_roles(lines, str(user), active), plain)
