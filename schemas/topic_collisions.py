"""Topics whose names cannot stand beside each other.

Kafka's metrics write `.` as `_`: a broker refuses to create `p.shop_Items` beside `p.shop.Items`.
Names of one stream that differ in case only would be those of one table,
since Spanner compares names without case, and one folder or table of many an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def topic_collisions(wanted: Iterable[str], existing: Iterable[str]) -> dict[str, str]:
    """Return the wanted topics that Kafka would not create, each with the one in its way.

    That may be another wanted one that comes before it.  What exists is not created.
    """
    return _in_the_way(wanted, existing, _in_metrics)


def topics_of_one_name(wanted: Iterable[str], existing: Iterable[str]) -> dict[str, str]:
    """Return likewise those that differ in case only from another one of the stream."""
    return _in_the_way(wanted, existing, str.lower)


def _in_the_way(
    wanted: Iterable[str], existing: Iterable[str], as_one: Callable[[str], str]
) -> dict[str, str]:
    known = frozenset(existing)
    taken = {as_one(topic): topic for topic in sorted(known)}
    found: dict[str, str] = {}
    for topic in wanted:
        other = topic if topic in known else taken.setdefault(as_one(topic), topic)
        if other != topic:
            found[topic] = other
    return found


def _in_metrics(topic: str) -> str:
    return topic.replace(".", "_")
