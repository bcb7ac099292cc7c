"""The flavors of servers, by name."""

from __future__ import annotations

from compose.databases import Database, MariaDB, MySQL

FLAVORS: dict[str, type[Database]] = {"mysql": MySQL, "mariadb": MariaDB}
