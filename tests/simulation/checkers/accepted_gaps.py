"""P6: what is given up is what somebody has accepted, no more, and every output says so.

A change in a gap is not published, unless it was before: at the first instant of the gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    accepted = {one.gap: one for one in history.accepted}
    for gap, times in Counter(history.gaps).items():
        if gap not in accepted:
            yield Violation("a gap that the operator has not accepted", gap.token)
        elif gap.until_us > accepted[gap].until_us:
            yield Violation(f"the gap ends at {gap.until_us}: it can be read before", gap.token)
        if times > 1:
            yield Violation(f"the gap from {gap.from_us} is recorded {times} times", gap.token)
    published = {record.order_key for record in history.published}
    for change in history.within:
        for gap in history.gaps:
            is_inside = gap.from_us < change.commit_timestamp_us < gap.until_us
            if change.token == gap.token and is_inside and change.order_key in published:
                yield Violation("published although it was given up", change.order_key)
    for manifest in history.manifests:
        due = {gap for gap in history.gaps if gap.from_us <= manifest.through_us}
        if set(manifest.gaps) != due:
            yield Violation(f"manifest {manifest.number} names {manifest.gaps}, not {due}")
