"""The plan of splits, merges and kills of a run, and the client of the simulator's control port.

`schedule` is pure: the same seed gives the same plan.  `SimulatorControl` carries out splits and
merges, and slows table reads down.
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

DisturbanceKind = Literal["split", "merge", "kill-worker", "kill-consumer"]

_FIRST, _LAST = 0.06, 0.9
_TIMEOUT_S = 15


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing to do when a share of the transfers is done."""

    at_share: float
    kind: DisturbanceKind


def schedule(
    seed: int,
    *,
    splits: int,
    merges: int,
    kill_workers: int,
    kill_consumer: int,
    kills_from: float,
) -> list[Disturbance]:
    """Return everything to do, by the share of transfers done.

    Splits and merges are mixed, then placed at even distances with some jitter over the whole run.
    Kills come after `kills_from`, a share too; those of one kind as far apart as that allows.
    """
    chance = random.Random(f"{seed}/schedule")  # noqa: S311 - a plan, no secret
    planned = _spread(_churn_order(splits, merges, chance), chance, first=_FIRST, jitter_max=0.9)
    kills: list[list[DisturbanceKind]] = [
        ["kill-worker"] * kill_workers,
        ["kill-consumer"] * kill_consumer,
    ]
    for kinds in kills:
        planned += _spread(kinds, chance, first=kills_from, jitter_max=0.2)
    return sorted(planned, key=lambda disturbance: disturbance.at_share)


def _churn_order(splits: int, merges: int, chance: random.Random) -> list[DisturbanceKind]:
    """Return splits and merges in a random order.

    Merges never outnumber the splits before them, unless there are no splits left: with at least
    the initial number of stream partitions, most transfers span several of them.
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
    first: float,
    jitter_max: float,
) -> list[Disturbance]:
    step = (_LAST - first) / max(1, len(kinds))
    return [
        Disturbance(round(first + step * (number + chance.uniform(0.1, jitter_max)), 4), kind)
        for number, kind in enumerate(kinds)
    ]


@dataclass(frozen=True, slots=True)
class SimulatorControl:
    """The simulator's control port, for one change stream.

    Raises LocalStackError when the port does not answer or refuses.
    """

    address: str
    database: str
    stream: str

    def split(self) -> dict[str, Any]:
        """Split the busiest stream partition; return the simulator's answer."""
        return self._ask("/split")

    def merge(self) -> dict[str, Any]:
        """Merge two adjacent stream partitions; returns as `split` does."""
        return self._ask("/merge")

    def move(self) -> dict[str, Any]:
        """Move the busiest stream partition: one parent, one child; returns as `split` does."""
        return self._ask("/move")

    def slow_reads(self, delay_ms: int) -> None:
        """Let each message of a table read come so much later, until `clear_faults`."""
        rule = {"method": "StreamingRead", "kind": "slow", "delay_ms": delay_ms, "count": None}
        self._send("POST", "/add-fault", json.dumps({"database": self.database, **rule}))

    def clear_faults(self) -> None:
        """Take all faults back."""
        self._send("POST", "/clear-faults", "{}")

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
            content = answer.read().decode(errors="replace")
        except OSError as error:
            raise LocalStackError(
                "the simulator's control port does not answer", address=self.address
            ) from error
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise LocalStackError("the simulator refused", path=path, answer=content.strip())
        return json.loads(content or "null")
