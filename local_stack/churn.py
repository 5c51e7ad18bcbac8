"""What happens to a run on purpose, and when: splits, merges and kills, spread by seed.

`schedule` is pure and decides everything; `SimulatorControl` only carries out splits and merges.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any, Literal
from urllib.parse import urlencode

from tidegate.local_stack.errors import LocalStackError

__all__ = ["Disturbance", "DisturbanceKind", "SimulatorControl", "schedule"]

DisturbanceKind = Literal["split", "merge", "kill-worker", "kill-consumer"]

_FIRST, _LAST = 0.06, 0.9
_CONSUMER_KILL_SHARE = 0.24
_TIMEOUT_S = 15


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing to do when a share of the transfers is done."""

    at_share: float
    kind: DisturbanceKind


def schedule(
    seed: int, *, splits: int, merges: int, kill_workers: int, kill_consumer: int
) -> list[Disturbance]:
    """Return everything to do, by the share of transfers done.

    Splits and merges are mixed, then placed at even distances with some jitter.  Kills of one kind
    stay apart as far as they can: a program that is just starting again is not worth killing.
    Those of the consumer come early: its start takes longest, and so goes on beside the work.
    """
    chance = random.Random(f"{seed}/schedule")  # noqa: S311 - a plan, no secret
    kills: dict[DisturbanceKind, int] = {
        "kill-worker": kill_workers,
        "kill-consumer": kill_consumer,
    }
    planned = _spread(_churn_order(splits, merges, chance), chance)
    for kind, count in kills.items():
        if kind == "kill-consumer":
            last = min(_FIRST + _CONSUMER_KILL_SHARE * count, _LAST)
            planned += _spread([kind] * count, chance, last=last, jitter_max=0.2)
        else:
            planned += _spread([kind] * count, chance)
    return sorted(planned, key=lambda disturbance: disturbance.at_share)


def _churn_order(splits: int, merges: int, chance: random.Random) -> list[DisturbanceKind]:
    """Return splits and merges in an order of chance.

    As long as there are splits, it never leaves fewer stream partitions than there were: most
    transfers shall span several of them.
    """
    order: list[DisturbanceKind] = []
    ahead = 0
    while splits or merges:
        may_merge = merges and (ahead > 0 or not splits)
        if may_merge and (not splits or chance.random() < merges / (splits + merges)):
            order.append("merge")
            merges, ahead = merges - 1, ahead - 1
        else:
            order.append("split")
            splits, ahead = splits - 1, ahead + 1
    return order


def _spread(
    kinds: list[DisturbanceKind],
    chance: random.Random,
    *,
    last: float = _LAST,
    jitter_max: float = 0.9,
) -> list[Disturbance]:
    step = (last - _FIRST) / max(1, len(kinds))
    return [
        Disturbance(round(_FIRST + step * (number + chance.uniform(0.1, jitter_max)), 4), kind)
        for number, kind in enumerate(kinds)
    ]


@dataclass(frozen=True, slots=True)
class SimulatorControl:
    """The simulator's control port, for one stream.  Raises LocalStackError if it refuses."""

    address: str
    database: str
    stream: str

    def split(self) -> dict[str, Any]:
        """Split the busiest stream partition; return what the simulator says has come of it."""
        return self._ask("/split")

    def merge(self) -> dict[str, Any]:
        """Merge two adjacent stream partitions; returns as `split` does."""
        return self._ask("/merge")

    def move(self) -> dict[str, Any]:
        """Move the busiest stream partition: one parent, one child; returns as `split` does."""
        return self._ask("/move")

    def stream_partitions(self) -> list[Any]:
        """Return the live stream partitions as the simulator describes them."""
        query = urlencode({"database": self.database, "stream": self.stream})
        answer = self._send("GET", f"/stream-partitions?{query}")
        found = answer.get("stream_partitions", []) if isinstance(answer, dict) else answer
        return list(found)

    def _ask(self, path: str) -> dict[str, Any]:
        body = json.dumps({"database": self.database, "stream": self.stream})
        return dict(self._send("POST", path, body))

    def _send(self, method: str, path: str, body: str | None = None) -> Any:
        connection = HTTPConnection(self.address, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
        except OSError as error:
            message = "the simulator's control port does not answer"
            raise LocalStackError(message, address=self.address) from error
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            message = "the simulator refused"
            raise LocalStackError(message, path=path, said=said.strip())
        return json.loads(said or "null")
