"""A channel's lag: how old is what it may not have applied?"""

from __future__ import annotations

#: Seconds since the log was last known to be complete, up to which a channel without anything to apply has no lag. On
#: a quiet upstream the producer says it every ten seconds.
LATEST = 30.0


def lag_seconds(pending_ms: int | None, complete_ms: int | None, now: float) -> float | None:
    """Return a channel's lag in seconds: an upper limit while it is not known what is pending, None without any.

    Args:
        pending_ms: the upstream's commit time of the oldest transaction that is known and not applied, ms since 1970;
            0 if there is none; None if that is unknown.
        complete_ms: the channel has applied everything that was committed upstream before this time, ms since 1970; 0
            or None if that is unknown.
        now: seconds since 1970.
    """
    if pending_ms:
        return max(0.0, now - pending_ms / 1000)
    if not complete_ms:
        return None
    age = max(0.0, now - complete_ms / 1000)
    return 0.0 if pending_ms == 0 and age <= LATEST else age
