"""Options of the Kafka client that the producer sets itself; no setting may name them."""

from __future__ import annotations

OWNED_KAFKA_OPTIONS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.commit.*",
        "auto.offset.reset",
        "bootstrap.servers",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "dr_msg_cb",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "error_cb",
        "group.*",
        "heartbeat.interval.ms",
        "isolation.level",
        "message.max.bytes",
        "message.timeout.ms",
        "metadata.broker.list",
        "on_delivery",
        "partition.assignment.strategy",
        "partitioner",
        "produce.offset.report",
        "queuing.strategy",
        "request.required.acks",
        "session.timeout.ms",
        "test.mock.*",
        "topic.blacklist",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
"""By librdkafka's names; `*` stands for any text."""
