"""P4: a completion marker's totals and checksum are those of the changes that were committed."""

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
        if found != wanted:
            yield Violation(f"its marker counts {found}, committed were {wanted}", body.token)
