"""The open stream partitions of one slot, in full, as its newest heartbeat describes them.

A gate needs the slowest one only (`slot_view.py`).  A reader that compares the slots of a fleet
also has to know which stream partitions can move: a stopped one, or one that waits for its parents,
must not hold up the others.  A heartbeat of version 1 does not record what is stopped.

Memory grows with the stream partitions that are open, and the cost of a record with the tokens that
it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    PartitionAnnounced,
    ProgressBody,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    TokenSnapshot,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import ProgressAssembler

_US_PER_MINUTE = 60_000_000


def can_move(token: TokenSnapshot) -> bool:
    """Whether the owner of its slot can read on: it is not stopped, and waits for no parent."""
    return token.stopped is None and set(token.parents) <= set(token.parents_heard)


class SlotTokens:
    """One slot's stream partitions; only `fold` changes it."""

    def __init__(self) -> None:
        """Start without records."""
        self.worker = ""
        """The worker that wrote the newest heartbeat."""
        self.version = 0
        """The newest heartbeat's version; 0 without one."""
        self.paused_by: int | None = None
        """The number of the newest pause that the slot's owner has confirmed."""
        self._assembler = ProgressAssembler()
        self._chain: SlotChain | None = None
        self._announced: dict[str, tuple[frozenset[str], int]] = {}
        """Children that wait for parents: the parents announced since the newest heartbeat, and the
        offset of the last announcement."""
        self._movable = KeyedHeap()
        self._stopped_minutes: dict[str, int] = {}
        self._heard: int | None = None
        self._steady: int | None = None
        self._empty: int | None = None

    @property
    def tokens(self) -> Mapping[str, TokenSnapshot] | None:
        """The open stream partitions by token; None until a whole chain was read.  Read only."""
        return None if self._chain is None else self._chain.tokens

    @property
    def has_stopped(self) -> bool:
        """Whether a stream partition is stopped."""
        return bool(self._stopped_minutes)

    def stopped_since_us(self, token: str) -> int | None:
        """Return when a heartbeat first reported a token as stopped, to the minute.

        Compaction may have removed earlier reports, so it may have stopped before.  None if it is
        not stopped.
        """
        return _instant(self._stopped_minutes.get(token))

    @property
    def heard_us(self) -> int | None:
        """When the newest heartbeat was written, to the minute, by its writer's clock."""
        return _instant(self._heard)

    @property
    def steady_since_us(self) -> int | None:
        """Since when each minute has a heartbeat, and no heartbeat reports a stop.

        Compaction may have removed earlier heartbeats, so the true time may be earlier.  None if a
        stream partition is stopped.
        """
        return _instant(self._steady)

    @property
    def empty_since_us(self) -> int | None:
        """Since when heartbeats name no stream partition; None if the newest one names any."""
        return _instant(self._empty)

    def fold(self, record: ProgressRecord, *, offset: int) -> ProgressBody | None:
        """Fold the slot's next record; return the record that a `SlotView` folds at this offset.

        That is the whole record, with the slowest movable stream partition in place of the slowest
        of all.  None while chunks are missing, and for the announcement of a child that waits for
        more parents.
        """
        assembled = self._assembler.add(record.body, offset=offset)
        if assembled is None:
            return None
        body, first_offset = assembled
        if isinstance(body, PartitionAnnounced):
            return body if self._announce(body, offset) else None
        if isinstance(body, SlotPaused):
            self.paused_by = body.control
        if isinstance(body, SlotProgress | SlotChanges | SlotWatermark):
            self.worker, self.version = record.worker, record.version
            if self._announced:
                waiting = self._announced.items()
                self._announced = {
                    t: announced for t, announced in waiting if announced[1] > body.includes
                }
        if isinstance(body, SlotProgress):
            self._begin(body, first_offset)
            movable = tuple(token for token in body.tokens if can_move(token))
            return replace(body, tokens=movable)
        if isinstance(body, SlotChanges) and self._continue(body):
            slowest = self._slowest()
            return replace(body, slowest=slowest, added=(), moved=(), removed=())
        return body

    def _announce(self, announced: PartitionAnnounced, offset: int) -> bool:
        """Note a parent; return whether the child waits for no other parent."""
        child = announced.child
        if len(child.parents) < 2:
            return True
        before, _ = self._announced.pop(child.token, (frozenset(), 0))
        snapshot = None if self._chain is None else self._chain.tokens.get(child.token)
        heard = before | {announced.parent} | set(snapshot.parents_heard if snapshot else ())
        if heard.issuperset(child.parents):
            return True
        self._announced[child.token] = heard, offset
        return False

    def _begin(self, start: SlotProgress, offset: int) -> None:
        self._chain = SlotChain(start, offset=offset)
        tokens, stopped = self._chain.tokens, self._stopped_minutes
        self._stopped_minutes = {token: stopped[token] for token in stopped if token in tokens}
        self._movable = KeyedHeap()
        self._compare(self._chain, list(self._chain.tokens))
        self._note(start.minute)

    def _continue(self, changes: SlotChanges) -> bool:
        chain = self._chain
        if chain is None or not chain.is_continued_by(changes):
            return False  # the remainder of an older chain after compaction
        try:
            self._compare(chain, chain.add(changes))
        except SchemaError:
            # Only the newest heartbeat has to be complete: the slot's next full one will be.
            self._chain = None
            return False
        self._note(changes.minute)
        return True

    def _compare(self, chain: SlotChain, named: list[str]) -> None:
        for token in named:
            snapshot = chain.tokens.get(token)
            if snapshot is None or snapshot.stopped is None:
                self._stopped_minutes.pop(token, None)
            else:
                self._stopped_minutes.setdefault(token, chain.minute)
            if snapshot is not None and can_move(snapshot):
                self._movable.set(token, snapshot.watermark_us)
            else:
                self._movable.discard(token)

    def _note(self, minute: int) -> None:
        """Note when a heartbeat was written, once its tokens are known."""
        is_missing = self._heard is None or minute - self._heard > 1
        self._heard = minute
        if self.has_stopped:
            self._steady = None
        elif is_missing or self._steady is None:
            self._steady = minute
        if self.tokens:
            self._empty = None
        elif self._empty is None:
            self._empty = minute

    def _slowest(self) -> SlowestToken | None:
        first = self._movable.first()
        return None if first is None else SlowestToken(first[1], first[0])


def _instant(minute: int | None) -> int | None:
    return None if minute is None else minute * _US_PER_MINUTE
