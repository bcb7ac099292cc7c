"""What an account may do, read from SHOW GRANTS."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.preflight.finding import Finding, NotChecked, Part, Result

# Names that servers use for the same right, or that include it.
_INCLUDED_IN = {
    "REPLICATION CLIENT": {"BINLOG MONITOR"},
    "BINLOG MONITOR": {"REPLICATION CLIENT"},
    "REPLICATION_APPLIER": {"SUPER"},
    "SET_ANY_DEFINER": {"SET_USER_ID", "SUPER"},
    "SET USER": {"SUPER"},
    "SESSION_VARIABLES_ADMIN": {"SYSTEM_VARIABLES_ADMIN", "SUPER"},
    "BINLOG ADMIN": {"SUPER"},
    "BINLOG REPLAY": {"SUPER"},
}


def global_rights(grants: Iterable[str]) -> frozenset[str]:
    """The rights ``ON *.*``, in capitals; ``ALL PRIVILEGES`` stays one name."""
    rights: set[str] = set()
    for grant in grants:
        if match := re.match(r"GRANT (.+?) ON \*\.\* TO ", grant, re.IGNORECASE):
            rights |= {right.strip().upper() for right in match[1].split(",")}
    return frozenset(rights)


def has_roles(grants: Iterable[str]) -> bool:
    """Whether a role is granted, whose rights are not in the list."""
    return any(not re.search(r" ON ", grant) for grant in grants)


def missing(grants: list[str], wanted: Iterable[str]) -> list[str]:
    """The wanted rights that the account does not have everywhere."""
    rights = global_rights(grants)
    if "ALL PRIVILEGES" in rights or "ALL" in rights:
        return []
    return [right for right in wanted if not rights & ({right} | _INCLUDED_IN.get(right, set()))]


def rights_result(part: Part, code: str, grants: list[str], wanted: Iterable[str], why: str) -> Result:
    """Whether the account has these rights; with roles or grants on single schemas nobody can be sure."""
    wanted = list(wanted)
    lacking = missing(grants, wanted)
    if not lacking:
        return Finding("ok", part, code, f"the account has {', '.join(wanted)}")
    if has_roles(grants):
        return NotChecked(
            part, code, f"the account has roles, which may or may not give {', '.join(lacking)}"
        )
    remedy = f"GRANT {', '.join(lacking)} ON *.* TO the account"
    return Finding("block", part, code, f"the account lacks {', '.join(lacking)}: {why}", remedy)


def scoped_rights_result(part: Part, code: str, grants: list[str], wanted: Iterable[str], why: str) -> Result:
    """Like ``rights_result`` for rights that may also be granted on the replicated schemas only."""
    result = rights_result(part, code, grants, wanted, why)
    scoped = [g for g in grants if re.search(r" ON (?!\*\.\*)[`\"'\w%\\]+\.", g)]
    if isinstance(result, Finding) and result.level == "block" and scoped:
        return NotChecked(
            part, code, "rights are granted on single schemas; see that they cover what is replicated"
        )
    return result
