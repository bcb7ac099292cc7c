"""The fields of what compiled walks over events are asked for, and of what came of it."""

from __future__ import annotations

(AT, HAS_CHECKSUM, IS_MARIADB, POSITION, STATE, MOST_GROUPS, MOST_POSITION, BEHIND, SIZE, EVENTS, BOUNDARY, GROUPS,
 GTIDS, SOURCE, NUMBER, SERVER_ID, FIELDS) = range(17)  # fmt: skip

#: fields of a group: where its UUID is in the output (MariaDB: its domain), its number, its server, and how many GTID
#: events came up to it; 0: the group was open before
GROUP_FIELDS = 4
