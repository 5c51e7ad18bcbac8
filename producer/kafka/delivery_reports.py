"""What the delivery reports of one transaction say.

Callbacks refer to this and not to the publisher.  A report that comes late cannot count in a later
transaction, and one that is never polled keeps no client alive: the client holds its callbacks, and
Python's garbage collector cannot see a cycle through the inside of the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message

from tidegate.producer.core.effects import PublishProgress
from tidegate.producer.kafka.refusals import Refusals, RefusedMessage
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.progress import SlotChanges, SlotProgress, TopicOffset

Callback = Callable[[KafkaError | None, Message], None]


_FAILURES_MAX = 10


class DeliveryReports:
    """The offsets that a slot's messages and snapshots got, and what failed."""

    def __init__(self) -> None:
        """Start with nothing reported."""
        self.failures: deque[str] = deque(maxlen=_FAILURES_MAX)
        self.refusals = Refusals()
        self.snapshots: dict[int, int] = {}
        """The offset of each slot's snapshot, which is that of its chunk 0."""
        self._last_offsets: dict[int, dict[tuple[str, int], int]] = {}

    @property
    def written(self) -> dict[int, tuple[TopicOffset, ...]]:
        """The last offset in each topic partition, by the slot that wrote it."""
        return {
            slot: tuple(TopicOffset(*place, offset) for place, offset in sorted(places.items()))
            for slot, places in self._last_offsets.items()
        }

    def of_changes(self, slot: int, records: Sequence[PublishableRecord] = ()) -> Callback:
        """Return the callback for messages, of these records, that count in this slot's vector."""
        last_offsets = self._last_offsets.setdefault(slot, {})

        def on_report(error: KafkaError | None, report: Message) -> None:
            found = self._place_of(error, report, slot, records)
            if found is not None:
                place, offset = found
                if offset > last_offsets.get(place, -1):
                    last_offsets[place] = offset

        return on_report

    def of_parked(self, slot: int, records: Sequence[PublishableRecord]) -> Callback:
        """Return the callback for the parked changes of these records, which no vector counts."""

        def on_report(error: KafkaError | None, report: Message) -> None:
            self._place_of(error, report, slot, records)

        return on_report

    def of_progress(self, effect: PublishProgress) -> Callback:
        """Return the callback for one progress record."""
        if effect.author_slot is not None:
            return self.of_changes(effect.author_slot)
        body = effect.record.body
        is_snapshot = isinstance(body, SlotProgress | SlotChanges) and body.chunk == 0

        def on_report(error: KafkaError | None, report: Message) -> None:
            found = self._place_of(error, report, effect.slot)
            if found is not None and is_snapshot:
                self.snapshots[effect.slot] = found[1]

        return on_report

    def refuse(self, refused: RefusedMessage) -> None:
        """Note a message that failed."""
        self.failures.append(f"{refused.topic}: {refused.error.str()}")
        self.refusals.add(refused)

    def _place_of(
        self,
        error: KafkaError | None,
        report: Message,
        slot: int,
        records: Sequence[PublishableRecord] = (),
    ) -> tuple[tuple[str, int], int] | None:
        """Return (topic, topic partition) and the offset; None for a report without them."""
        topic, number, offset = report.topic(), report.partition(), report.offset()
        if error is not None:
            key, value = bytes(report.key() or b""), bytes(report.value() or b"")
            self.refuse(RefusedMessage(error, slot, topic or "", key, value, records))
        elif topic is None or number is None or offset is None or offset < 0:
            self.failures.append(f"{topic}: a delivery report without an offset")
        else:
            return (topic, number), offset
        return None
