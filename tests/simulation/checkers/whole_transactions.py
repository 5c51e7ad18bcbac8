"""P5: all changes of a transaction are in one release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    release_of = {key: release.number for release in history.released for key in release.order_keys}
    seen: dict[tuple[int, str], set[int]] = defaultdict(set)
    of_last: dict[tuple[int, str], bytes] = {}
    for change in history.watched:
        if change.order_key in release_of:
            transaction = change.commit_timestamp_us, change.transaction
            seen[transaction].add(release_of[change.order_key])
            of_last[transaction] = change.order_key
    for transaction, releases in seen.items():
        if len(releases) > 1:
            text = f"transaction {transaction[1]} is spread over releases {sorted(releases)}"
            yield Violation(text, of_last[transaction])
