"""A worker that puts parked changes back, and reads nothing.

Its one transaction holds the changes, a marker for each key, and the heartbeats of all slots with
tokens that held one of the keys, now without it; and the record of a later table whose every change
so far is parked, so that no worker has found its topic.

The changes come from outside, as events: what is parked does not fit into a core.
"""

from __future__ import annotations

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.now import Now
from tidegate.producer.core.sole_worker import SoleWorker
from tidegate.producer.core.transaction import TransactionPhase
from tidegate.producer.errors import RedriveFailed
from tidegate.schemas.topics import ROOT_TOKEN


class RedrivingWorker(SoleWorker):
    """The decisions of the one worker that puts parked changes back, from `RedriveBegan` on."""

    def _failure(self, reason: str, **fields: object) -> RedriveFailed:
        return RedriveFailed(reason, **fields)

    def _handle(self, event: on.Event, now: Now) -> list[do.Effect]:
        match event:
            case on.RedriveBegan():
                return self._begin(event.keys)
            case on.RedriveRead() | on.RedriveEnded():
                return self._put_back(event)
            case _:
                return super()._handle(event, now)

    def _begin(self, keys: frozenset[int]) -> list[do.Effect]:
        """Begin the transaction, over the root's slot and every slot that holds one of the keys.

        The tokens forget the keys at once: whatever happens, the process ends after it.
        """
        if not self.is_ready or self._cycle.open is not None:
            return [self._failed("a slot is not owned")]
        holding = [slot for slot in self.slots.values() if slot.put_back(keys)]
        return self._cycle.begin_empty({*holding, self.slots[self._root_slot]})

    def _put_back(self, event: on.RedriveRead | on.RedriveEnded) -> list[do.Effect]:
        """Publish changes for the root's slot, or wait until all of them are delivered."""
        one = self._cycle.open
        if one is None or one.phase is not TransactionPhase.PUBLISHING:
            return []  # it was aborted while they were read
        if isinstance(event, on.RedriveEnded):
            return [do.AwaitDelivery()]
        due = self._tables.due(self._tables.waited_for(event.records))
        tables = [table for table in due if table not in one.tables]
        one.tables += tables
        return [
            *(
                effect
                for table in tables
                for effect in self._writer.table(table, author_slot=self._root_slot)
            ),
            do.PublishRecords(self._root_slot, ROOT_TOKEN, event.records),
        ]
