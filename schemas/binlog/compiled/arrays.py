"""The fields of what compiled walks over events are asked for, and of what came of it."""

from __future__ import annotations

(AT, HAS_CHECKSUM, IS_MARIADB, POSITION, STATE, MOST_GROUPS, MOST_POSITION, BEHIND, SIZE, EVENTS, BOUNDARY, GROUPS,
 RUNS, GTIDS, SOURCE, NUMBER, SERVER_ID, FIELDS) = range(18)  # fmt: skip

#: fields of a run of groups with successive numbers: where the first one's UUID is in the output (MariaDB: their
#: domain), the first and the last number, their server, and whether the first one was open before: then these four say
#: nothing of it
RUN_SOURCE, RUN_FIRST, RUN_LAST, RUN_SERVER_ID, RUN_WAS_OPEN, RUN_FIELDS = range(6)
