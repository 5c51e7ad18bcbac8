"""What a worker costs by the number of its stream partitions: progress records, CPU, its own echo.

    scale, 1000 stream partitions   a minute of heartbeats each second, beside `formula`
    scale, 100 of 10000 move        one transaction, beside `bound_bytes`; of each slot the worst
    scale, handle                   an event's CPU time at 10,000 stream partitions, and at 10
    echo                            what a worker reads of what it wrote itself, beside decoding it

Time is counted (`virtual_fleet.py`): only the CPU figures depend on the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Message

from benchmarks.producer.core import handling, reading_worker
from benchmarks.producer.memory_fleet import NAMES
from benchmarks.producer.virtual_fleet import TOPIC, Commit, VirtualFleet
from tidegate.producer.core.events import Now
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.progress import ProgressRecord, SlotChanges, SlowestToken, TokenMove
from tidegate.schemas.progress_chunks import CHUNK_ITEMS_MAX
from tidegate.schemas.progress_codec import encode_key, encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import SLOTS_DEFAULT
from tidegate.schemas.wire_format import frame

_FEW, _MANY = 10, 10_000
_WARM_UP_S, _MEASURED_S = 15, 60
_TRANSACTIONS = 3
_HANDLE_ROUNDS, _HANDLE_EVENTS = 15, 1_500
_ECHO_RECORDS, _ECHO_ROUNDS, _ECHO_MOVES = 500, 20, 16


class Rates(NamedTuple):
    """Rates of one worker's progress records."""

    messages_per_s: float
    bytes_per_s: float
    """Keys and values."""


def formula(
    stream_partitions: int, *, heartbeat_s: float = 1.0, commit_interval_s: float = 0.25
) -> Rates:
    """Return what docs/reference/topics.md states for heartbeats alone, in the default slots."""
    moves = stream_partitions / heartbeat_s
    each_minute = SLOTS_DEFAULT / 60
    heartbeats = min(moves, SLOTS_DEFAULT / commit_interval_s) + each_minute
    chunks = math.ceil(moves / heartbeats / CHUNK_ITEMS_MAX)
    return Rates(
        heartbeats * chunks + each_minute + moves / (4 * CHUNK_ITEMS_MAX),
        200 * (heartbeats + each_minute) + 60 * moves,
    )


def bound_bytes(moved: int) -> int:
    """Return how much a transaction writes at most into a slot of which so many have moved."""
    return 200 * moved + 4_096


# ---------------------------------------------------------------- progress records


def _steady(stream_partitions: int) -> dict[str, float]:
    with VirtualFleet(stream_partitions) as fleet:
        fleet.run(_WARM_UP_S)
        before, cpu_s = len(fleet.commits), fleet.cpu_s
        fleet.run(_MEASURED_S)
        found, cpu_s = fleet.commits[before:], fleet.cpu_s - cpu_s
    messages = sum(sum(one.messages.values()) for one in found) / _MEASURED_S
    size = _bytes(found) / _MEASURED_S
    stated = formula(stream_partitions)
    return {
        "messages_per_s": messages,
        "messages_of_formula": messages / stated.messages_per_s,
        "bytes_per_s": size,
        "bytes_of_formula": size / stated.bytes_per_s,
        "cpu_ms_per_cycle": cpu_s * 1e3 / len(found),
        "cpu_us_per_move": cpu_s * 1e6 / (stream_partitions * _MEASURED_S),
        "core_percent": 100 * cpu_s / _MEASURED_S,
    }


def _moves(moved: int) -> dict[str, float]:
    """Costs of moves among 10,000: by a heartbeat each, and by a change each."""
    with VirtualFleet(_MANY) as fleet:
        fleet.run(2)  # every chain has begun, and describes all
        fleet.rest()
        tokens = fleet.tokens[:moved]
        by_heartbeat, by_change = (
            [one for _ in range(_TRANSACTIONS) for one in fleet.move(tokens, item_of)]
            for item_of in (
                lambda _token: fleet.heartbeat(),
                lambda token: _change(token, fleet.wall_us()),
            )
        )
    return {
        "heartbeats_bytes": _bytes(by_heartbeat) / _TRANSACTIONS,
        "heartbeats_of_bound": _worst(by_heartbeat),
        "changes_bytes": _bytes(by_change) / _TRANSACTIONS,
        "changes_of_bound": _worst(by_change),
    }


def _bytes(commits: Iterable[Commit]) -> int:
    return sum(sum(one.size_bytes.values()) for one in commits)


def _worst(commits: Iterable[Commit]) -> float:
    """Return the largest part of a slot's bound; the cost of a new chain is spread over others."""
    return max(
        size / bound_bytes(one.moved.get(slot, 0))
        for one in commits
        for slot, size in one.size_bytes.items()
        if slot not in one.begins_chain
    )


def _change(token: str, at_us: int) -> PublishableRecord:
    key = token[:8].encode()
    message = ChangeMessage(TOPIC, key, b"v" * 200, b"o" * 28, b"U", token[:8].encode())
    return PublishableRecord(at_us, f"OTQ5NTY0MDIzNTc1{token[:8]}", "00000000", (message,))


# ---------------------------------------------------------------- the core and the echo


def _handle() -> dict[str, float]:
    """Rounds of both in turn; the least of each, which other programs disturb least."""
    rounds = {owned: handling(owned, _HANDLE_EVENTS) for owned in (_FEW, _MANY)}
    least = {
        owned: min(run() for _ in range(_HANDLE_ROUNDS)) * 1e6 / _HANDLE_EVENTS
        for owned, run in rounds.items()
    }
    return {
        "few_us": least[_FEW],
        "many_us": least[_MANY],
        "many_of_few": least[_MANY] / least[_FEW],
    }


def _echo() -> dict[str, float]:
    """Time of a record: reading and passing it over, to the core's answer; and decoding it.

    What Kafka's client does before is no part of it.
    """
    worker = reading_worker(stream_partitions=1_000)
    membership = KafkaMembership(
        bootstrap_servers="mock",
        group=NAMES.group,
        worker="w",
        topic=NAMES.progress,
        session_timeout_ms=10_000,
        listener=_Nobody(),
        decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1]),
        options={"test.mock.num.brokers": 1, "log_level": 0},
    )
    consumer = membership._consumer = _Prepared()  # type: ignore[assignment]  # noqa: SLF001 - in place of a client
    decoder = ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1])
    for number, slot in worker.slots.items():
        membership._incarnations[number] = slot.incarnation  # noqa: SLF001 - as `recover` does
        membership.read_announcements(number, slot.incarnation)
    skipping, decoding = [], []
    for round_number in range(_ECHO_ROUNDS):
        messages = consumer.messages = _own_records(10 + round_number * _ECHO_RECORDS)
        began = time.thread_time()
        for event in membership.poll(0.0):
            worker.handle(event, now=Now(0, 0))
        skipping.append(time.thread_time() - began)
        values = [message.value() for message in messages]
        began = time.thread_time()
        for value in values:
            decoder.decode(value)
        decoding.append(time.thread_time() - began)
    return {
        "skip_us": min(skipping) * 1e6 / _ECHO_RECORDS,
        "decode_us": min(decoding) * 1e6 / _ECHO_RECORDS,
    }


def _own_records(offset: int) -> list[Message]:
    """Heartbeats as a transaction leaves them: one in each slot, then one in each again."""
    moved = tuple(TokenMove(number, 1_700_000_000_000_000) for number in range(_ECHO_MOVES))
    slowest = SlowestToken("token-0", 1_700_000_000_000_000)
    found = []
    for number in range(_ECHO_RECORDS):
        slot, at = number % SLOTS_DEFAULT, offset + number
        body = SlotChanges(slot, at, at, 0, at, (), slowest, _ECHO_MOVES, moved=moved)
        key, value = encode_key(body), encode_record(ProgressRecord("e", "w", body))
        found.append(
            Message(
                topic=NAMES.progress, partition=slot, offset=at,
                key=frame(1, key), value=frame(1, value or b""),
            )
        )  # fmt: skip
    return found


class _Prepared:
    """Stands for Kafka's consumer."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        return self.messages


class _Nobody:
    """No rebalance comes."""

    def slots_assigned(self, slots: tuple[int, ...]) -> None: ...

    def slots_revoked(self, slots: tuple[int, ...]) -> None: ...

    def slots_lost(self, slots: tuple[int, ...]) -> None: ...


SCALE: dict[str, Callable[[], dict[str, Any]]] = {
    **{
        f"scale, {count} stream partitions": partial(_steady, count)
        for count in (_FEW, 1_000, _MANY)
    },
    **{
        f"scale, {moved} of {_MANY} move": partial(_moves, moved)
        for moved in (1, 10, 100, 1_000, _MANY)
    },
    "scale, handle": _handle,
    "echo": _echo,
}
