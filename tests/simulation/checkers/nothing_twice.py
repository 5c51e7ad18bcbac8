"""P1 and P5: no change stands twice, neither in Kafka nor in the output, and none was made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    redriven = history.redriven
    committed = {change.order_key for change in history.watched} | redriven.keys()
    published = Counter(r.order_key for r in history.published if not r.is_copy)
    released = Counter(key for release in history.released for key in release.order_keys)
    for where, counted in (("Kafka", published), ("the output", released)):
        for order_key, times in counted.items():
            if times > 1:
                yield Violation(f"{times} times in {where}", order_key)
            if order_key not in committed:
                yield Violation(f"in {where}, but never committed within the stream", order_key)
    copied = {record.order_key for record in history.published if record.is_copy}
    arrived = Counter(key for key in history.late if key in redriven and key not in copied)
    for order_key, times in arrived.items():
        if times + released[order_key] > 1:
            yield Violation("put back, and more than once in the output or late", order_key)
