"""A client that reads topic partitions from their beginning, beside any group and its offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.program.kafka_clients import make_client
from tidegate.program.kafka_errors import GROUP_DENIED, is_decisive, is_denied, kafka_failure

_SMALL_RECORDS = {"queued.max.messages.kbytes": 8 << 10}
_PATIENCE_S = 30.0
_ANSWER_S = 5.0
_AGAIN_S = 0.2
_REPORTS_MAX = 100


def consume_from_beginning(
    topic: str,
    numbers: Iterable[int],
    *,
    bootstrap_servers: str,
    client_group: str,
    options: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] = _SMALL_RECORDS,
) -> Consumer:
    """Return a consumer of committed records, which reports each end that it reaches.

    An offset that is no longer in the log is reported as an error (`kafka_errors.OUT_OF_RANGE`);
    reading never begins again by itself.

    `client_group` only names the client: the group is neither joined nor committed to.  `sizes` are
    the client's options for how much it fetches and holds.  Blocks and raises as
    `assign_beginnings`.
    """
    consumer = make_client(
        Consumer,
        {
            "bootstrap.servers": bootstrap_servers,
            **(options or {}),
            "group.id": client_group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **sizes,
        },
    )
    try:
        assign_beginnings(consumer, topic, numbers)
    except BaseException:
        consumer.close()
        raise
    return consumer


def assign_beginnings(consumer: Consumer, topic: str, numbers: Iterable[int]) -> None:
    """Let a consumer begin where topic partitions begin.

    Blocks until that is known.  Raises ConfigError if Kafka denies access, and UnreachableError if
    no leader says so within half a minute.
    """
    give_up_at = time.monotonic() + _PATIENCE_S
    consumer.assign(
        [
            TopicPartition(topic, number, _beginning(consumer, topic, number, give_up_at))
            for number in numbers
        ]
    )


def _beginning(consumer: Consumer, topic: str, number: int, give_up_at: float) -> int:
    """Return the first offset of a topic partition.

    The client is not left to find it by `OFFSET_BEGINNING`: where a leader does not know yet a
    topic that was just created, it gives up and reports the offset as one that the log lacks.
    """
    while True:
        failure: KafkaError = KafkaError(KafkaError._TIMED_OUT, "no answer")  # noqa: SLF001 - a public constant
        try:
            found = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_ANSWER_S)
        except KafkaException as error:
            found, failure = None, error.args[0]
        if found is not None:
            return int(found[0])
        reports = [message.error() for message in consumer.consume(_REPORTS_MAX, 0.0)]
        reported = [one for one in reports if one is not None and one.code() != GROUP_DENIED]
        is_final = is_denied(failure) or any(map(is_decisive, reported))
        if is_final or time.monotonic() >= give_up_at:
            raise kafka_failure(failure, attempt=f"cannot read topic {topic}", reported=reported)
        time.sleep(_AGAIN_S)
