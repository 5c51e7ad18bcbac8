"""P4: a completion marker's totals and checksum are those of the changes that were committed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.order_key import CHECKSUM_MODULUS, order_key_checksum
from tidegate.schemas.progress import PartitionFinished


def check(history: History) -> Iterator[Violation]:
    mods: Counter[tuple[str, str]] = Counter()
    checksums: dict[tuple[str, str], int] = defaultdict(int)
    for change in history.watched:
        if change.token is not None:
            place = change.token, change.topic
            mods[place] += 1
            checksums[place] += order_key_checksum(change.order_key)
    known = {change.token for change in history.committed}
    for entry in history.progress:
        body = entry.record.body
        if not isinstance(body, PartitionFinished) or body.chunk:
            continue
        if body.token not in known and None in known:
            continue  # the collector cannot tell which change came from where
        found = {total.topic: (total.mods, total.checksum) for total in body.totals}
        wanted = {
            topic: (count, checksums[token, topic] % CHECKSUM_MODULUS)
            for (token, topic), count in mods.items()
            if token == body.token
        }
        if found != wanted:
            yield Violation(f"its marker counts {found}, committed were {wanted}", body.token)
