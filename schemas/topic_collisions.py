"""Topics whose names Kafka takes for one: its metrics write `.` as `_`.

A broker refuses to create `p.shop_Items` beside `p.shop.Items`, whoever asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["topic_collisions"]


def topic_collisions(wanted: Iterable[str], existing: Iterable[str]) -> dict[str, str]:
    """Return the wanted topics that Kafka would not create, each with the one in its way.

    That may be another wanted one that comes before it.  What exists is not created.
    """
    known = frozenset(existing)
    taken = {_in_metrics(topic): topic for topic in sorted(known)}
    found: dict[str, str] = {}
    for topic in wanted:
        other = topic if topic in known else taken.setdefault(_in_metrics(topic), topic)
        if other != topic:
            found[topic] = other
    return found


def _in_metrics(topic: str) -> str:
    return topic.replace(".", "_")
