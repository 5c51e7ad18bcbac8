"""P5: the output is in commit order, over all releases, and releases follow without a hole.

Within a release the ordinals are the places in that order, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.order_key import first_key_after


def check(history: History) -> Iterator[Violation]:
    last = b""
    for number, release in enumerate(history.released):
        if release.number != number:
            yield Violation(f"release {release.number} stands in place {number}")
        if number and release.after_us < history.released[number - 1].through_us:
            yield Violation(f"release {number} begins before the one before it ends")
        if release.ordinals not in {None, tuple(range(len(release.order_keys)))}:
            yield Violation(f"ordinals of release {number} are not its places: {release.ordinals}")
        low, high = first_key_after(release.after_us), first_key_after(release.through_us)
        for order_key in release.order_keys:
            if order_key <= last:
                yield Violation(f"release {number} holds it behind a later change", order_key)
            if not low <= order_key < high:
                yield Violation(f"outside the bounds of release {number}", order_key)
            last = max(last, order_key)
