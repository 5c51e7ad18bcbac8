"""Worker processes that are broken on purpose: the loop, its effects, readers and budget."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.budget_line import BudgetLine, Request, _Account
from tidegate.producer.core.now import Now
from tidegate.producer.core.queries import Queries
from tidegate.producer.driver import effect_runner, inbox
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.driver.inbox import Inbox
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader, size_bytes
from tidegate.producer.memory.group import MemberMetadata
from tidegate.producer.runtime_ports import Clock

__all__ = ["BROKEN_DRIVERS"]

_publish = EffectRunner._publish


def _fence_after_releasing(self: EffectRunner, effect: do.TransactionEffect) -> Any:
    """Serve the group without the core, then fence with the metadata of that moment."""
    if isinstance(effect, do.SendOffsets):
        membership: Any = self.membership
        while membership.client.callbacks:
            membership.client.done(membership.client.callbacks[0])
        membership._process.pause()
        metadata = membership.metadata()
        if metadata is not None:
            self._publisher._metadata = MemberMetadata.decode(metadata)  # type: ignore[attr-defined]
    return _publish(self, effect)


def _always(self: BudgetLine, size: int) -> bool:
    return True


def _may_take_what_fits(self: BudgetLine, size: int) -> bool:
    return self.taken + size <= self.bytes_max


def _first_come(self: BudgetLine) -> Request | None:
    """Give nobody's share a thought."""
    return self._line[0] if self._line else None


async def _take_the_rest_at_once(self: PartitionReader, size: int) -> bool:
    """Hold what becomes of a message, and do not wait until it fits."""
    if not self._held:
        return await _take(self, size)
    line = self._budget._line
    line.taken += size
    line._accounts.setdefault(self._token, _Account()).taken += size
    self._held += size
    return True


async def _receive_first(self: PartitionReader) -> Any:
    if await self._query.next_size() is None:
        return None
    response = await self._query.receive()
    return response if await self._take(response.size_bytes) else None


async def _forget_what_decoding_took(
    self: PartitionReader, items: list[Any], *, unfinished: int
) -> None:
    self._held = min(self._held, unfinished + sum(size_bytes(item) for item in items))
    await _hand_over(self, items, unfinished=unfinished)


_hand_over = PartitionReader._hand_over
_take = PartitionReader._take


def _release_nothing(self: Queries, *args: Any, **kwargs: Any) -> list[do.Effect]:
    effects = _add_records(self, *args, **kwargs)
    return [e for e in effects if not isinstance(e, do.ReleaseBudget)]


_add_records = Queries.add_records


def _lost_unheard(self: FleetWorker, slots: tuple[int, ...]) -> None:
    self._runner.held.difference_update(slots)


def _drop_nothing(self: EffectRunner) -> None:
    pass


def _on_the_wall(clock: Clock) -> Now:
    return Now(clock.wall_us(), clock.wall_us())


def _last_first(self: Inbox) -> on.ReaderOutput | None:
    with self._changed:
        return self._waiting.pop() if self._waiting else None


def _forget_the_bytes(run: list[on.RecordsRead]) -> on.RecordsRead:
    items = [item for output in run for item in output.items]
    return on.RecordsRead(run[0].token, run[0].query_id, items, run[0].size_bytes)


def _join_the_last_first(run: list[on.RecordsRead]) -> on.RecordsRead:
    items = [item for output in reversed(run) for item in output.items]
    size_bytes = sum(output.size_bytes for output in run)
    return on.RecordsRead(run[0].token, run[0].query_id, items, size_bytes)


def _always_replaced(self: EffectRunner, outcome: on.Event | None) -> on.Event | None:
    return on.ProducerFenced(has_successor=True) if _is_fence(outcome) else outcome


def _is_fence(outcome: on.Event | None) -> bool:
    return isinstance(outcome, on.ProducerFenced)


def _stop_reader_without_waiting(self: EffectRunner, query_id: int) -> None:
    """Forget a reader and let it read on."""
    self._readers.pop(query_id, None)


def _keep_what_is_late(self: PartitionReader, output: on.ReaderOutput, *, size: int = 0) -> None:
    """Deliver, unless the reader was stopped, and give nothing back."""
    if not self._is_stopped:
        self._deliver(output)


_read_inbox = FleetWorker._read_inbox


BROKEN_DRIVERS = (
    Mutant(
        "a message larger than the budget never admitted",
        "liveness",
        ((BudgetLine, "may_take", _may_take_what_fits),),
    ),
    Mutant(
        "slots released, and group metadata refreshed, inside the transaction",
        "single_writer",
        ((EffectRunner, "_publish", _fence_after_releasing),),
    ),
    Mutant(
        "a byte budget that never waits", "bounded_memory", ((BudgetLine, "may_take", _always),)
    ),
    Mutant("a byte budget without shares", "bounded_memory", ((BudgetLine, "_next", _first_come),)),
    Mutant(
        "a message received before its bytes are taken",
        "bounded_memory",
        ((PartitionReader, "_receive", _receive_first),),
    ),
    Mutant(
        "what becomes larger than it came held without waiting",
        "bounded_memory",
        ((PartitionReader, "_take", _take_the_rest_at_once),),
    ),
    Mutant(
        "what decoding took not given back",
        "bounded_memory",
        ((PartitionReader, "_hand_over", _forget_what_decoding_took),),
    ),
    Mutant(
        "the bytes of repeats not released",
        "bounded_memory",
        ((Queries, "add_records", _release_nothing),),
    ),
    Mutant(
        "a loss of slots that the core is not notified of",
        "soundness",
        ((FleetWorker, "slots_lost", _lost_unheard),),
    ),
    Mutant(
        "effects of a failed transaction carried out",
        "nothing_twice",
        ((EffectRunner, "_drop_transaction", _drop_nothing),),
    ),
    Mutant("intervals on the wall clock", "liveness", ((effect_runner, "now_on", _on_the_wall),)),
    Mutant("an inbox that gives the last first", "nothing_lost", ((Inbox, "take", _last_first),)),
    Mutant(
        "the bytes of joined records not added",
        "bounded_memory",
        ((inbox, "_one", _forget_the_bytes),),
    ),
    Mutant(
        "joined records in another order",
        "nothing_lost",
        ((inbox, "_one", _join_the_last_first),),
    ),
    Mutant(
        "a time-out taken for a successor",
        "soundness",
        ((EffectRunner, "_explain", _always_replaced),),
    ),
    Mutant(
        "a reader that is not stopped",
        "bounded_memory",
        ((EffectRunner, "_stop_reader", _stop_reader_without_waiting),),
    ),
    Mutant(
        "the bytes of what a stopped reader still read not released",
        "bounded_memory",
        ((PartitionReader, "_report", _keep_what_is_late),),
    ),
)
