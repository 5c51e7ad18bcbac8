"""What a stream partition has published to each topic, counted from its records."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS
from tidegate.schemas.progress import ChecksumKind, TopicTotals


@dataclass(slots=True)
class _Count:
    """What records add to one topic."""

    records: int = 0
    mods: int = 0
    value_bytes: int = 0
    checksum: int = 0
    last: PublishableRecord | None = None


def counted(
    records: list[PublishableRecord], totals: dict[str, TopicTotals], checksums: ChecksumKind
) -> dict[str, TopicTotals]:
    """Return the totals, with the records, of every topic that the records belong to.

    Parked changes are not counted: they are in no data topic.
    """
    counts: dict[str, _Count] = {}
    checksum_of = CHECKSUMS[checksums]
    for record in records:
        for message in record.messages:
            count = counts.get(message.topic)
            if count is None:
                count = counts[message.topic] = _Count()
            if count.last is not record:
                count.last = record
                count.records += 1
            count.mods += 1
            count.value_bytes += len(message.value)
            count.checksum += checksum_of(message.order_key)
    found = {}
    for topic, count in counts.items():
        before = totals.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
        found[topic] = TopicTotals(
            topic,
            records=before.records + count.records,
            mods=before.mods + count.mods,
            value_bytes=before.value_bytes + count.value_bytes,
            checksum=(before.checksum + count.checksum) % CHECKSUM_MODULUS,
        )
    return found
