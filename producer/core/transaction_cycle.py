"""The cycle of one worker's transactions over its slots, at most one at a time.

    begin -> data, announcements, completion markers -> their delivery -> snapshots -> their
    delivery -> the fence -> commit                              (`docs/protocol.md`, 3.1 and 3.4)

Records are kept until the commit is confirmed, and nothing in a slot changes before; an abort
leaves everything as it was.  A transaction whose commit was asked for is decided: a slot that is
lost from then on does not change its outcome, it only no longer learns of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.producer.core import effects as do
from tidegate.producer.core.slot import Slot, SlotPhase
from tidegate.producer.core.transaction import OpenTransaction, TransactionPhase
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_codec import CHUNK_ITEMS_MAX
from tidegate.schemas.topics import ROOT_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.producer.core.events import Delivered
    from tidegate.producer.core.progress_writer import ProgressWriter
    from tidegate.producer.core.tally import Tally

__all__ = ["TransactionCycle", "WorkerLimits"]

_REPUBLISH_DELAY_US = 100_000
_COMMIT_PATIENCE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """When a transaction is due, and how its progress is cut."""

    commit_interval_us: int = 250_000
    commit_bytes_max: int = 8 << 20
    chunk_items_max: int = CHUNK_ITEMS_MAX
    """Tokens or children in one progress record."""


class TransactionCycle:
    """See the module.  `slots` is the worker's own, shared."""

    def __init__(self, slots: dict[int, Slot], *, limits: WorkerLimits, tally: Tally) -> None:
        """Begin with nothing open."""
        self.open: OpenTransaction | None = None
        self._slots = slots
        self._limits = limits
        self._tally = tally
        self._due_us = 0
        self._not_before_us = 0

    # ------------------------------------------------------------ beginning

    def is_due(self, now_us: int, *, size_bytes: int = 0) -> bool:
        """Tell whether the next one may begin: after the interval, or with enough to carry."""
        is_large = size_bytes >= self._limits.commit_bytes_max
        if self.open is not None or now_us < self._not_before_us:
            return False
        return now_us >= self._due_us or is_large

    def concerned(self, now_us: int) -> list[Slot]:
        """Return the slots that a transaction is due for, by number; none if it is too early."""
        owned = [s for s in self._slots.values() if s.phase is SlotPhase.OWNED]
        moved = [s for s in owned if s.has_news]
        due = {s.number: s for s in owned if s.needs_snapshot(now_us)}
        size = sum(p.pending_bytes for s in moved for p in s.tokens.values())
        if not self.is_due(now_us, size_bytes=size):
            return []
        found = {**due, **{slot.number: slot for slot in moved}}
        return [found[number] for number in sorted(found)]

    def begin(self, concerned: Iterable[Slot], writer: ProgressWriter) -> list[do.Effect]:
        """Publish all that the slots' tokens have read."""
        slots = {slot.number: slot for slot in concerned}
        publications = {
            number: {
                token: partition.publication()
                for token, partition in slot.tokens.items()
                if partition.has_news
            }
            for number, slot in slots.items()
        }
        self.open = OpenTransaction(
            {number: slot.incarnation for number, slot in slots.items()}, publications
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        for number, by_token in publications.items():
            for token, publication in sorted(by_token.items()):
                if publication.records:
                    effects.append(do.PublishRecords(number, token, publication.records))
                if publication.finish is not None:
                    child = slots[number].tokens[token].child
                    effects += writer.finish(child, publication, slot=number)
        return [*effects, do.AwaitDelivery()]

    def begin_stream(
        self, slot: Slot, started: StreamStarted, writer: ProgressWriter
    ) -> list[do.Effect]:
        """Publish the record that opens an epoch, and announce the children of the beginning."""
        number = slot.number
        self.open = OpenTransaction(
            {number: slot.incarnation},
            {number: {}},
            start=ProgressRecord(writer.epoch, writer.worker, started),
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        effects += writer.record(started, slot=number, author_slot=number)
        for child in started.children:
            effects += writer.announcement(child, parent=ROOT_TOKEN, author_slot=number)
        return [*effects, do.AwaitDelivery()]

    # ------------------------------------------------------------ going on

    def deliver(self, event: Delivered, writer: ProgressWriter, now_us: int) -> list[do.Effect]:
        """Go on after delivery reports: to the snapshots, or to the fence and the commit."""
        one = self.open
        if one is None or one.phase is TransactionPhase.ABORTING:
            return []
        if one.phase is TransactionPhase.PUBLISHING:
            return self._publish_snapshots(one, event, writer, now_us)
        invariant(one.phase is TransactionPhase.SNAPSHOTTING, "reports came out of turn")
        one.snapshot_offsets = event.snapshots
        offsets = tuple(
            (number, self._slots[number].fence_offset(snapshot, event.snapshots[number]))
            for number, snapshot in sorted(one.snapshots.items())
        )
        invariant(offsets, "a fence without an offset does not fence")
        one.phase = TransactionPhase.COMMITTING
        one.ask_until_us = now_us + _COMMIT_PATIENCE_US
        return [do.SendOffsets(offsets), do.CommitTransaction()]

    def _publish_snapshots(
        self, one: OpenTransaction, event: Delivered, writer: ProgressWriter, now_us: int
    ) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in sorted(one.incarnations):
            snapshot = self._slots[number].draft(
                one.publications[number], event.written.get(number, ()), now_us=now_us
            )
            one.snapshots[number] = snapshot
            effects += writer.record(snapshot, slot=number)
        one.phase = TransactionPhase.SNAPSHOTTING
        return [*effects, do.AwaitDelivery()]

    def give_up(self, lost: Iterable[int]) -> list[do.Effect]:
        """Abort if a lost slot has a part in what is open and the outcome is not decided yet."""
        one = self.open
        if one is None or one.is_decided or one.incarnations.keys().isdisjoint(lost):
            return []
        one.phase = TransactionPhase.ABORTING
        return [do.AbortTransaction()]

    # ------------------------------------------------------------ outcomes

    def commit(self, now_us: int) -> tuple[list[do.Effect], ProgressRecord | None]:
        """Take a confirmed commit over into the slots still owned.

        Returns what is to be done, and the record that opened an epoch, if it was that one.
        """
        one, self.open = self.open, None
        invariant(one is not None and one.phase is TransactionPhase.COMMITTING, "committed unasked")
        if one is None:
            return [], None
        self._tally.counts["committed"] += 1
        self._due_us = now_us + self._limits.commit_interval_us
        size_bytes = 0
        for number, snapshot in one.snapshots.items():
            slot = self._slots.get(number)
            if slot is None or slot.incarnation != one.incarnations[number]:
                continue  # lost while the commit was under way: its next owner reads it
            publications = one.publications[number]
            self._tally.add(slot.tokens, publications)
            slot.confirm(snapshot, one.snapshot_offsets[number], publications)
            size_bytes += sum(publication.size_bytes for publication in publications.values())
        return ([do.ReleaseBudget(size_bytes)] if size_bytes else []), one.start

    def abort(self, now_us: int) -> None:
        """Take note that what was open has left nothing behind."""
        self.open = None
        self._tally.counts["abort"] += 1
        for slot in self._slots.values():
            if slot.phase is SlotPhase.REVOKING:
                slot.may_publish = False  # the next owner reads it again; the group waits
        # However much waits: only who polls in between can learn why it was aborted.
        self._not_before_us = now_us + _REPUBLISH_DELAY_US

    def ask_again(self, now_us: int) -> list[do.Effect]:
        """Ask for the commit again; nothing once patience has ended."""
        one = self.open
        invariant(one is not None and one.phase is TransactionPhase.COMMITTING, "asked unasked")
        if one is None or now_us >= one.ask_until_us:
            return []
        one.is_doubtful = True
        return [do.CommitTransaction()]

    @property
    def is_doubtful(self) -> bool:
        """Whether even an abort would leave open what has become of the transaction."""
        return self.open is not None and self.open.is_doubtful

    def forget(self) -> None:
        """Take note that nobody knows what became of it."""
        self.open = None
        self._tally.counts["unknown_outcome"] += 1

    def check_invariants(self) -> None:
        """Raise InvariantViolation if what is open speaks for a slot that is gone."""
        one = self.open
        if one is None or one.is_decided:
            return
        for number, incarnation in one.incarnations.items():
            slot = self._slots.get(number)
            invariant(
                slot is not None and slot.incarnation == incarnation,
                "a transaction speaks for a slot that is gone",
                slot=number,
            )
