"""An offset that an admin client has listed, or an error where it has none."""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import ListOffsetsResultInfo


def listed_offset(answer: ListOffsetsResultInfo) -> int:
    """Return the offset; -1 where Kafka has none for the time that was asked for.

    Raises KafkaException for an answer without an offset, as librdkafka 2.16 gives it, without an
    error, while a broker that was killed starts again.
    """
    if answer.offset == OFFSET_INVALID:
        raise KafkaException(
            KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the broker's answer holds no offset")
        )
    return int(answer.offset)
