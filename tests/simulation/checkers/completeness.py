"""P4: a completion marker's totals and checksum are those of the changes that were committed.

It counts, too, what was left out of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS
from tidegate.schemas.progress import PartitionFinished


def check(history: History) -> Iterator[Violation]:
    order_keys: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for change in history.watched:
        if change.token is not None:
            order_keys[change.token, change.topic].append(change.order_key)
    gaps = history.gaps
    known = {change.token for change in history.committed}
    for entry in history.progress:
        body = entry.record.body
        if not isinstance(body, PartitionFinished) or body.chunk:
            continue
        if body.token not in known and None in known:
            continue  # the collector cannot tell which change came from where
        found = {total.topic: (total.mods, total.checksum) for total in body.totals}
        checksum_of = CHECKSUMS[body.checksums]
        wanted = {
            topic: (len(keys), sum(map(checksum_of, keys)) % CHECKSUM_MODULUS)
            for (token, topic), keys in order_keys.items()
            if token == body.token
        }
        left_out = [change for change in history.filtered if change.token == body.token]
        counted = [
            change
            for change in left_out
            if change.commit_timestamp_us >= history.start_us
            and (history.end_us is None or change.commit_timestamp_us <= history.end_us)
        ]
        in_gaps = sum(
            gap.token == body.token and gap.covers(change.commit_timestamp_us)
            for gap in gaps
            for change in counted
        )
        if not len(counted) - in_gaps <= body.filtered <= len(counted):
            text = f"its marker counts {body.filtered} left out, there were {len(counted)}"
            yield Violation(text, body.token)
        if found != wanted:
            yield Violation(f"its marker counts {found}, committed were {wanted}", body.token)
