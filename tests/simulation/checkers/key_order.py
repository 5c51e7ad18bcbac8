"""P2: in every data topic the changes of one primary key stand in commit order."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.order_key import OrderKey


def check(history: History) -> Iterator[Violation]:
    """Compare neighbours of a key; transactions of one instant have no order between them.

    They touch different cells, so that no reader can tell.
    """
    places: dict[tuple[str, bytes], int] = {}
    newest: dict[tuple[str, bytes], OrderKey] = {}
    for record in sorted(history.published, key=lambda r: (r.topic, r.topic_partition, r.offset)):
        if record.is_copy:
            continue
        key = record.topic, record.key
        if places.setdefault(key, record.topic_partition) != record.topic_partition:
            yield Violation("a key is in two topic partitions", record.order_key)
        now, before = OrderKey.decode(record.order_key), newest.get(key)
        newest[key] = now
        if before is None:
            continue
        if _is_behind(now, before):
            yield Violation("behind a later change of its key", record.order_key)


def _is_behind(now: OrderKey, before: OrderKey) -> bool:
    if now.commit_timestamp_us != before.commit_timestamp_us:
        return now.commit_timestamp_us < before.commit_timestamp_us
    if now.server_transaction_id != before.server_transaction_id:
        return False
    return (now.record_sequence, now.mod_number) <= (before.record_sequence, before.mod_number)
