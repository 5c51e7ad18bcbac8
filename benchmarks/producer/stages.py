"""What one change costs at each stage on its way, each measured alone: the floors of a worker.

    receive, gRPC   gRPC's own client for Python reads the responses and drops them
    receive         the worker's transport reads and drops them
    parse           responses to records
    encode          records to messages for Kafka
    produce         librdkafka takes the messages in one transaction, until all are acknowledged

The server and the broker are processes of their own, whose CPU time does not count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import grpc
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from google.cloud.spanner_v1.types import ExecuteSqlRequest

from benchmarks.producer.memory_fleet import table_encoding
from benchmarks.producer.responses import START_NS, STREAM, TABLE, Case
from benchmarks.producer.source import SourceProcess
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.messages import ChangeMessage
from tidegate.producer.ports import Response
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN

_DATABASE = "projects/p/instances/i/databases/d"
_TOKEN = "token-0-0123456789abcdef"
_HEARTBEAT_MS = 60_000
_FLUSH_S = 60.0
_TOPIC_PARTITIONS = 6


def stages(case: Case, stack: LocalStack, *, changes: int = 40_000) -> dict[str, float]:
    """Return the CPU microseconds of a change at each stage."""
    messages = changes // case.mods // case.rows
    with closing(SourceProcess(case, changes=changes, stream_partitions=1)) as source:
        source.ask("release", 1)
        grpc_s = _seconds(lambda: asyncio.run(_by_grpc(source.address, messages)))[1]
        responses, receive_s = _seconds(lambda: asyncio.run(_received(source.address, messages)))
    records, parse_s = _seconds(lambda: [one for each in responses for one in each.decode()[0]])
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    published, encode_s = _seconds(
        lambda: [
            message
            for record in records
            for message in translator.translate(record, token=_TOKEN).messages
        ]
    )
    if len(published) != changes:
        raise SystemExit(f"{len(published)} of {changes} changes came")
    _create(published[0].topic, stack.bootstrap_servers)
    produce_s = _produce(published, stack.bootstrap_servers)
    seconds = {
        "receive, gRPC": grpc_s,
        "receive": receive_s,
        "parse": parse_s,
        "encode": encode_s,
        "produce": produce_s,
    }
    return {name: 1e6 * value / changes for name, value in seconds.items()}


def _seconds(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what the work returns, and the CPU seconds of all threads of this process."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


async def _by_grpc(address: str, messages: int) -> None:
    request = ExecuteSqlRequest.pb()()
    request.params["start_timestamp"] = format_rfc3339(START_NS)
    request.params["partition_token"] = _TOKEN
    request.params["heartbeat_milliseconds"] = str(_HEARTBEAT_MS)
    async with grpc.aio.insecure_channel(address) as channel:
        method = channel.unary_stream(
            "/google.spanner.v1.Spanner/ExecuteStreamingSql",
            request_serializer=type(request).SerializeToString,
        )
        call = method(request)
        for _ in range(1 + messages):  # the metadata come first
            await call.read()
        call.cancel()


async def _received(address: str, messages: int) -> list[Response]:
    channels = SpannerChannels(database=_DATABASE, emulator_host=address)
    stream = SpannerChangeStream(channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, STREAM))
    query = stream.query(token=_TOKEN, start_ns=START_NS, end_ns=None, heartbeat_ms=_HEARTBEAT_MS)
    found: list[Response] = []
    while len(found) < 1 + messages:
        if await query.next_size() is None:
            raise SystemExit("the query has ended")
        response = await query.receive()
        if response.size_bytes:
            found.append(response)
    query.cancel()
    return found


def _create(topic: str, bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    if topic not in admin.list_topics(timeout=_FLUSH_S).topics:
        for made in admin.create_topics([NewTopic(topic, _TOPIC_PARTITIONS, 1)]).values():
            made.result(_FLUSH_S)


def _produce(messages: Iterable[ChangeMessage], bootstrap_servers: str) -> float:
    """Return the CPU seconds of a transaction with these messages, as a worker sends them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": f"stages-{time.time_ns()}",
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()
    began = time.process_time()
    producer.begin_transaction()
    for topic, key, value, order_key, mod, origin, *_ in messages:
        headers = [(HEADER_ORDER, order_key), (HEADER_MOD, mod), (HEADER_ORIGIN, origin)]
        producer.produce(topic, value, key, headers=headers)
    if left := producer.flush(_FLUSH_S):
        raise SystemExit(f"{left} messages were not acknowledged")
    producer.commit_transaction()
    return time.process_time() - began
