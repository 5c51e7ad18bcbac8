"""Where topics begin and end: offsets and times of the first records that retention has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.lineage.subscription import Subscription
from tidegate.program.kafka_clients import admin_config, listed_offset, make_client
from tidegate.program.kafka_errors import kafka_failure
from tidegate.spark_consumer.core.retention import FirstRecord

_TIMEOUT_S = 10.0
_ANY_TIME = 0
_NO_OFFSET = -1


def first_records(
    bootstrap_servers: str, options: Mapping[str, str], subscription: Subscription
) -> dict[str, dict[int, FirstRecord]]:
    """Return the first record of each topic partition that the gate reads; blocks for seconds.

    Raises ConfigError for options or a login that are rejected, UnreachableError if no broker
    answers.
    """
    admin = make_client(AdminClient, admin_config(bootstrap_servers, options))
    try:
        known = admin.list_topics(timeout=_TIMEOUT_S).topics
        places = [
            TopicPartition(topic, number)
            for topic, description in sorted(known.items())
            if subscription.names.has_schemas(topic)
            for number in description.partitions
        ]
        begins = _offsets(admin, places, OffsetSpec.earliest())
        firsts = _offsets(admin, places, OffsetSpec.for_timestamp(_ANY_TIME))
        ends = _offsets(admin, places, OffsetSpec.latest())
    except KafkaException as error:
        raise kafka_failure(error.args[0], bootstrap_servers=bootstrap_servers) from error
    found: dict[str, dict[int, FirstRecord]] = {}
    for place, (offset, _) in begins.items():
        first_offset, timestamp_ms = firsts[place]
        time_ms = timestamp_ms if first_offset != _NO_OFFSET else None
        found.setdefault(place[0], {})[place[1]] = FirstRecord(offset, time_ms, ends[place][0])
    return found


def _offsets(
    admin: AdminClient, places: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], tuple[int, int]]:
    if not places:
        return {}
    answers = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=_TIMEOUT_S)
    results = {(place.topic, place.partition): answer.result() for place, answer in answers.items()}
    return {place: (listed_offset(one), one.timestamp) for place, one in results.items()}
