"""The parts of a world, between which an action lies: the ground, and each worker process.

A part can be copied and named alone, so that what an action makes of it needs to be found out once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.simulation.clients import NotedPublisher
from tests.simulation.exhaustive.node import Node
from tests.simulation.exhaustive.sameness import Names
from tests.simulation.exhaustive.script import NAMES, SLOTS
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.log import Entry, Log, Outcome, Place
from tidegate.schemas.progress import PartitionFinished


@dataclass(slots=True, eq=False)
class Ground:
    """What all have in common."""

    broker: MemoryBroker
    has_failed: bool = False  # the one fault has been

    def key(self, names: Names) -> tuple[int, ...]:
        """Return numbers for all that the future depends on: the logs', then the rest's."""
        broker = self.broker
        transactions = [
            (name, one.handle.epoch, one.outcome.name, tuple(sorted(one.offsets.items())))
            for name, one in broker._current.items()
            if not one.is_settled
        ]
        rest = (
            self.has_failed, tuple(transactions), tuple(sorted(broker.offsets.items())),
            tuple(sorted(broker._epochs.items())), names.of_object(broker.group),
            tuple(sorted(broker.claims.items())),
        )  # fmt: skip
        return *(_log_key(log, names) for log in broker.logs.values()), names.of(rest)

    def shown(self) -> dict[Place, tuple[Entry, ...]]:
        """Return what a `read_committed` reader gets now."""
        return {place: tuple(log.read(0)) for place, log in self.broker.logs.items()}

    def finished(self) -> Iterator[str]:
        """Yield the tokens whose completion marker is committed, shown or not."""
        for slot in range(SLOTS):
            for entry in self.broker.logs[NAMES.progress, slot].entries:
                transaction = entry.transaction
                is_committed = transaction is not None and transaction.outcome is Outcome.COMMITTED
                if is_committed and isinstance(entry.value.body, PartitionFinished):
                    yield entry.value.body.token


@dataclass(slots=True, eq=False)
class Actor:
    """A worker process, or the place where one was."""

    name: str
    node: Node | None = None  # None while it is dead
    is_refused: bool = False  # its group client has to notice first why its transaction was refused

    def key(self, names: Names) -> int:
        """Return a number for all that the future depends on."""
        node = self.node
        if node is None:
            return names.of(self.name)
        queries = sorted((token, len(query.answers)) for token, query in node.queries.values())
        client, publisher = node.client, node.publisher
        return names.of(
            (
                self.name, self.is_refused,
                names.of_object(node.worker),
                _epoch(publisher), names.of_object(_in_transaction(publisher)),
                (client.state.name, client.member_id, client.generation, client.owned),
                (tuple(client.callbacks), client.must_rejoin, node.releasing),
                frozenset(node.held), node.seeks_start, tuple(queries),
                tuple(node.positions.items()),
                names.of_object(node.effects), names.of_object(node.outcomes),
            )
        )  # fmt: skip

    def detach(self) -> None:
        """Forget the world around, so that a copy holds nothing but the process."""
        if self.node is not None:
            node: Any = self.node
            node.world = node.publisher.broker = node.membership.broker = node.client.group = None
            node.publisher.on_commit = None


def _epoch(publisher: NotedPublisher) -> int:
    return publisher.handle.epoch if publisher.handle is not None else 0


def _in_transaction(publisher: NotedPublisher) -> tuple[Any, ...]:
    """Return what a publisher keeps while a transaction is open, which the next one clears."""
    if not publisher.is_open:
        return ()
    return (
        publisher._metadata, publisher._queue, publisher._written, publisher._snapshots,
        publisher._carried.covers, publisher._carried.finished,
    )  # fmt: skip


def _log_key(log: Log, names: Names) -> int:
    entries = log.entries
    return names.of(tuple((e.offset, names.of_record(e.value), _standing(e, log)) for e in entries))


def _standing(entry: Entry, log: Log) -> str:
    """Return the state of an entry, as far as readers and writers can tell."""
    transaction = entry.transaction
    if transaction is None:
        return ""
    if transaction not in log.open:
        return "" if transaction.outcome is Outcome.COMMITTED else "aborted"
    handle = transaction.handle
    return f"{handle.transactional_id} {handle.epoch} {transaction.outcome.name}"
