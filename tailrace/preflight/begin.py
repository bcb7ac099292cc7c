"""Finds out where a log would begin, before the producer is started."""

from __future__ import annotations

from producer.mirror.start import Start, place_to_begin
from producer.upstream.connect import LoginRefused, describe
from relay_store.layout.directory import read_index
from relay_store.read.start import initial_position
from schemas.errors import TailraceError, UpstreamError
from schemas.tables import TableFilter
from schemas.wire.epoch import ORIGIN
from tailrace.config.addresses import source_url
from tailrace.config.model import Config
from tailrace.preflight.finding import Finding, NotChecked, Result

_CODE = "log_begins"


def begin_findings(config: Config) -> list[Result]:
    """Whether anything is missing before the position at which a new log would begin; nothing if there is a log."""
    try:
        behind, why = _begin(config)
    except TailraceError as error:
        if isinstance(error, LoginRefused) or (isinstance(error, UpstreamError) and error.retryable):
            return [NotChecked("kafka", _CODE, "the upstream does not answer")]
        return [Finding("block", "kafka", _CODE, error.what, error.hint)]
    if why == ORIGIN:
        return [Finding("ok", "kafka", _CODE, "the log will hold all that was ever written upstream")]
    remedy = "start the producer before a copy is made, and the channel with `--from gtid:SET`, the set of the copy"
    what = f"the log will begin behind {behind} ({why}): what was written before is not in it"
    return [Finding("warn", "kafka", _CODE, what, remedy)]


def _begin(config: Config) -> tuple[str, str]:
    """What would lie before the log, and why it begins there. Raises TailraceError if it would not begin."""
    url, root, relay = source_url(config), config.relay.dir, config.relay
    info = describe(url)
    if root.is_dir() and read_index(root) and (found := initial_position(root, info.flavor)):
        return str(found.executed) or str(found.position), found.log_begins
    tables = TableFilter(config.tables.include, config.tables.exclude, folds=info.folds)
    place = config.source.start if config.source else "earliest"
    start = Start(relay.relay_binlog_gtid, relay.relay_binlog_name, place, tables=tables)
    begin = place_to_begin(url, info, start)
    return begin.gtid_set or f"{begin.file}:{begin.pos}", begin.log_begins
