"""The stages of the producer's hot path, each alone, on the calling thread.

A stage is made once for a case; each call of it does one round on prepared input and returns the
CPU seconds that the round took.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.producer.core import CORE
from benchmarks.producer.responses import START_NS, STREAM, TABLE, responses
from tidegate.producer.core.effects import PublishRecords
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.spanner.stream import SpannerResponse
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.producer.responses import Case

__all__ = ["NAMES", "PREFIX", "STAGES", "Stage", "table_encoding"]

PREFIX = "bench"
NAMES = TopicNames(PREFIX)
_MOCK_TOPIC_PARTITIONS = 4
_TOKEN = "token-0123456789abcdef0123456789abcdef"

Stage: TypeAlias = "Callable[[], float]"


def table_encoding() -> TableEncoding:
    """Return the encoding of the benchmark's table."""
    return TableRegistrar(NAMES, InMemorySchemaRegistry()).register(TABLE)


def decode(case: Case, changes: int) -> Stage:
    """Bytes of a response to records."""
    messages = responses(case, changes)

    def run() -> float:
        decoder = ResponseDecoder(ColumnTypesCache())
        began = time.thread_time()
        for message in messages:
            SpannerResponse(message, decoder).decode()
        return time.thread_time() - began

    return run


def translate(case: Case, changes: int) -> Stage:
    """Records to messages in Avro."""
    records = _records(case, changes)
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)

    def run() -> float:
        began = time.thread_time()
        for record in records:
            translator.translate(record, token=_TOKEN)
        return time.thread_time() - began

    return run


def totals(case: Case, changes: int) -> Stage:
    """Translated records to the totals of a snapshot."""
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    pending = [translator.translate(one, token=_TOKEN) for one in _records(case, changes)]

    def run() -> float:
        partition = StreamPartition(ChildPartition(_TOKEN, (), START_NS))
        partition.pending.extend(pending)
        began = time.thread_time()
        partition.publication()
        return time.thread_time() - began

    return run


def produce(case: Case, changes: int) -> Stage:
    """Messages to the client and their delivery reports back.

    The broker is the client's own mock, whose threads do not count, and neither do those in which
    the client compresses and sends.
    """
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    records = tuple(translator.translate(one, token=_TOKEN) for one in _records(case, changes))
    # What another checkout does not take is left out: older ones leave the choice of topic
    # partitions to the client, and know one version of the progress records.
    settings = {
        "topic_partitions": {NAMES.data(TABLE.name): _MOCK_TOPIC_PARTITIONS},
        "progress_schema_ids": dict.fromkeys((1, 2, 3), (1, 2)),
        "key_schema_id": 1,
        "record_schema_id": 2,
    }
    known = inspect.signature(KafkaPublisher).parameters
    publisher = KafkaPublisher(
        bootstrap_servers="mock",
        transactional_id="bench",
        transaction_timeout_ms=15_000,
        progress_topic=NAMES.progress,
        options={"test.mock.num.brokers": 1, "log_level": 0},
        **{name: value for name, value in settings.items() if name in known},
    )
    publisher.start()

    def run() -> float:
        publisher.begin(b"unused")
        began = time.thread_time()
        publisher.publish_records(PublishRecords(0, _TOKEN, records))
        delivered = publisher.await_delivery()
        seconds = time.thread_time() - began
        assert delivered.written[0], delivered
        publisher.commit()
        return seconds

    return run


STAGES: dict[str, Callable[[Case, int], Stage]] = {
    **{stage.__name__: stage for stage in (decode, translate, totals, produce)},
    **CORE,
}


def _records(case: Case, changes: int) -> list[Any]:
    decoder = ResponseDecoder(ColumnTypesCache())
    return [
        record
        for message in responses(case, changes)
        for record in SpannerResponse(message, decoder).decode()[0]
    ]
