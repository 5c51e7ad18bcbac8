"""Parts that are broken on purpose: the changes of one key stay in commit order (P2)."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.core import position, stream_partition
from tidegate.producer.kafka import publisher as kafka_publisher
from tidegate.producer.records import PartitionEndRecord
from tidegate.producer.translation.parked_changes import ParkedSurvey
from tidegate.schemas import order_key, partitioner

_sequence_pair = order_key.sequence_pair


def _low_before_high(record_sequence: str) -> tuple[int, int]:
    high, low = _sequence_pair(record_sequence)
    return (low, high) if "-" in record_sequence else (high, low)


_waits = stream_partition.waits_for_move_ins


def _end_is_read_at_once(item: Any, at_us: int) -> bool:
    return not isinstance(item, PartitionEndRecord) and _waits(item, at_us)


def _each_key_alone(self: Any) -> Any:
    return {name: [key] for name, key in self._keys.items()}


def _leave_the_place_to_the_client(key: bytes, number: int) -> int:
    """Name no topic partition: the client takes the number that the topic has by now."""
    return -1


def _murmur2_of_signed_bytes(data: bytes) -> int:
    """Forget `& 0xff`, without which Java's bytes beyond 127 are negative."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    size = len(data)
    hashed = 0x9747B28C ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        mixed = int.from_bytes(data[at : at + 4], "little") * factor & mask
        hashed = (hashed * factor ^ (mixed ^ mixed >> 24) * factor) & mask
    tail = data[whole:]
    if tail:
        signed = int.from_bytes(tail, "little", signed=True)
        hashed = (hashed ^ signed) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return hashed ^ hashed >> 15


BROKEN_ORDER = (
    UnitMutant(
        "a key placed by the live number of topic partitions",
        (
            "tests/unit/producer/kafka/test_publisher.py::TestDelivery::test_keys_stay_where_the_recorded_number_of_topic_partitions_puts_them",
        ),
        ((kafka_publisher, "topic_partition_of", _leave_the_place_to_the_client),),
    ),
    UnitMutant(
        "a hash over signed bytes",
        (
            "tests/unit/schemas/test_encodings.py::test_framed_avro_keys_stand_where_javas_client_puts_them",
            "tests/unit/producer/kafka/test_publisher.py::test_a_key_is_placed_as_the_contract_says",
        ),
        ((partitioner, "murmur2", _murmur2_of_signed_bytes),),
    ),
    UnitMutant(
        "the halves of a record sequence exchanged",
        (
            "tests/unit/schemas/test_order_key.py::test_record_sequences_of_one_notation_sort_as_their_numbers",
        ),
        ((order_key, "sequence_pair", _low_before_high),),
    ),
    UnitMutant(
        "record sequences compared as text",
        (
            "tests/unit/producer/core/test_stream_partition.py::TestPosition::test_sequences_of_any_width_are_compared_as_numbers",
        ),
        ((position, "sequence_pair", str),),
    ),
    UnitMutant(
        "keys of one row put back one after the other",
        (
            "tests/unit/producer/translation/test_parked_changes.py::test_the_keys_of_one_row_go_back_together_and_in_the_order_of_the_row",
        ),
        ((ParkedSurvey, "_groups", _each_key_alone),),
    ),
    UnitMutant(
        "an end that does not wait for keys that moved in",
        (
            "tests/unit/producer/core/test_stream_partition.py::TestWaiting::test_what_follows_is_held_and_the_query_given_back",
        ),
        ((stream_partition, "waits_for_move_ins", _end_is_read_at_once),),
    ),
)
