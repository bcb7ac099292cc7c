"""Findings about Kafka's brokers and topics."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.counted import counted
from tailrace.preflight.finding import Finding, NotChecked, Result, verdict

#: the transaction timeout that the producer requests
TRANSACTION_TIMEOUT_MS = 600_000


@dataclass(frozen=True)
class TopicFacts:
    """One existing topic; ``settings`` is None if it may not be read."""

    partitions: int
    replicas: int
    settings: dict[str, str] | None


@dataclass(frozen=True)
class KafkaFacts:
    """Facts about the brokers; ``broker_settings`` is None if the account may not read it."""

    brokers: int
    broker_settings: dict[str, str] | None
    topics: dict[str, TopicFacts]
    prefix: str
    partitions: int


def kafka_findings(facts: KafkaFacts) -> list[Result]:
    """Return all findings about brokers and topics."""
    return [
        Finding("ok", "kafka", "reachable", counted(facts.brokers, "broker")),
        *_limits(facts),
        *_topics(facts),
    ]


def _limits(facts: KafkaFacts) -> list[Result]:
    settings = facts.broker_settings
    if settings is None:
        return [NotChecked("kafka", "limits", "the account may not read the brokers' settings")]
    timeout = int(settings.get("transaction.max.timeout.ms", "900000"))
    size = int(settings.get("message.max.bytes", "1048588"))
    return [
        verdict(
            timeout >= TRANSACTION_TIMEOUT_MS,
            "kafka",
            "transaction.max.timeout.ms",
            f"transactions may take {timeout // 1000} s",
            f"transactions may take only {timeout // 1000} s",
            f"set transaction.max.timeout.ms to {TRANSACTION_TIMEOUT_MS} or more on the brokers",
        ),
        *_replication(facts, settings),
        Finding(
            "ok",
            "kafka",
            "message.max.bytes",
            f"the brokers' limit for a message is {size:,} bytes; the topics of this prefix have their own limit",
        ),
    ]


def _replication(facts: KafkaFacts, settings: dict[str, str]) -> list[Result]:
    needed = int(settings.get("transaction.state.log.replication.factor", "1"))
    there = counted(facts.brokers, "broker")
    what = f"Kafka's transaction log needs {counted(needed, 'replica')}, and there is only {there}"
    remedy = "start more brokers, or lower transaction.state.log.replication.factor"
    fine = "there are enough brokers for Kafka's transaction log"
    good = needed <= facts.brokers
    return [verdict(good, "kafka", "transactions", fine, what, remedy, passes=True)]


def _topics(facts: KafkaFacts) -> list[Result]:
    rows = facts.topics.get(f"{facts.prefix}.rows")
    epochs = facts.topics.get(f"{facts.prefix}.epochs")
    if rows is None or epochs is None:
        return [Finding("ok", "kafka", "topics", "the topics do not exist yet: the producer creates them")]
    results: list[Result] = [
        verdict(
            rows.partitions == facts.partitions,
            "kafka",
            "partitions",
            f"{counted(rows.partitions, 'partition')} of rows",
            f"{facts.prefix}.rows has {counted(rows.partitions, 'partition')}, the configuration"
            f" has {facts.partitions}",
            f"set [kafka] partitions = {rows.partitions}: another number would move keys to other partitions",
            error="TR509",
        ),
        verdict(
            epochs.partitions == 1,
            "kafka",
            "epochs",
            "one partition of epochs",
            f"{facts.prefix}.epochs has {counted(epochs.partitions, 'partition')} and needs one to keep its order",
            "use another [kafka] prefix; the producer creates the topics",
            error="TR509",
        ),
    ]
    return [*results, *_kept(facts), *_copies(facts)]


def _kept(facts: KafkaFacts) -> list[Result]:
    """Return findings about retention, which stops a channel if it deletes records that the channel has not read."""
    results: list[Result] = []
    for name in ("rows", "epochs"):
        topic = facts.topics[f"{facts.prefix}.{name}"]
        if topic.settings is None:
            results.append(
                NotChecked("kafka", f"{name}.retention", "the account may not read the topic's settings")
            )
            continue
        milliseconds = int(topic.settings.get("retention.ms", "-1"))
        hours = milliseconds / 3_600_000
        what = f"{facts.prefix}.{name} keeps {hours:g} hours: a channel that is stopped for longer cannot continue"
        good = milliseconds < 0 or hours >= 24
        fine = f"{facts.prefix}.{name} keeps " + ("everything" if milliseconds < 0 else f"{hours:g} hours")
        results.append(
            verdict(good, "kafka", f"{name}.retention", fine, what, "raise the topic's retention.ms", "warn")
        )
    return results


def _copies(facts: KafkaFacts) -> list[Result]:
    single = [name for name, topic in sorted(facts.topics.items()) if topic.replicas < 2]
    if facts.brokers < 2:
        what = "there is only one broker: data that it loses is lost"
        return [Finding("warn", "kafka", "replicas", what, "use three brokers in production")]
    what = f"only one replica: {', '.join(single)}"
    remedy = "raise the topics' replication factor"
    return [verdict(not single, "kafka", "replicas", "all topics have replicas", what, remedy, "warn")]
