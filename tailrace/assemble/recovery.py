"""Constructs a recovery: the publisher, with the channel's sink in the place of the epoch log."""

from __future__ import annotations

import math
from functools import partial

from producer.decode.decode_rules import DecodeRules
from producer.epochs.open_epoch import EpochLimits
from producer.publish import Publisher
from relay_store.read.tail import RelayTail
from schemas.gtid.sets import Flavor
from schemas.tables import QualifiedName, TableFilter
from spark_consumer.apply.ddl.run import LoggedTables
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.sinks.server import ServerSink
from tailrace.assemble.settings import skip_rules
from tailrace.assemble.sink import server_sink
from tailrace.config.channels import server_channel
from tailrace.config.model import Config
from tailrace.recover.applied_log import AppliedLog, RecordRows
from tailrace.recover.run import Recovery

_NEVER = math.inf  # seconds: epochs end because of their size, not their age


def recovery(config: Config, channel: str) -> Recovery:
    """Return the recovery of a channel. Raises ConfigError."""
    settings = server_channel(config, channel)
    log, rows, seen = LogReader(settings), RecordRows(), set[QualifiedName]()
    # Called only if there are routes; Kafka must be reachable then.
    logged = LoggedTables(lambda epoch: seen | log.tables(epoch), None)

    def publisher(sink: ServerSink, flavor: Flavor, folds: bool, tail: RelayTail) -> Publisher:
        rules = DecodeRules(
            flavor,
            TableFilter(config.tables.include, config.tables.exclude, folds=folds),
            # An epoch's rows are in memory.
            EpochLimits(settings.max_batch_rows, config.epoch.max_bytes, _NEVER, _NEVER),
            accounts=settings.ddl.accounts == "apply",
            skip=tuple(rule.in_lower_case() if folds else rule for rule in skip_rules(config)),
        )
        return Publisher(AppliedLog(sink, rows, seen), config.relay.dir, tail, rules)

    return Recovery(settings, config.relay.dir, partial(server_sink, log, logged, rows, None), publisher)
