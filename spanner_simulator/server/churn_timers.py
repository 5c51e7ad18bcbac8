"""Churn policies at work: each of a change stream, acting when the clock says that it is time.

The policy decides, the change streams turn; where a turn cannot be, another life is given instead.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.change_streams.churn import ChurnAction, ChurnKind, ChurnPolicy
from tidegate.spanner_simulator.errors import SpannerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.change_streams.change_streams import ChangeStreams
    from tidegate.spanner_simulator.core.database import Database
    from tidegate.spanner_simulator.server.clock import Clock, Timer

__all__ = ["ChurnTimers"]

# A policy does not look more often than this, whatever its lives are.
_PAUSE_US = 1_000


@dataclass(slots=True)
class _Churn:
    policy: ChurnPolicy
    timer: Timer | None = None


class ChurnTimers:
    """All running policies of one simulator."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[tuple[Database, str], _Churn] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(
        self,
        database: Database,
        stream: str,
        *,
        mean_life_ms: int,
        weights: Mapping[ChurnKind, float],
        seed: int,
    ) -> None:
        """Let stream partitions of a change stream turn by themselves from now on, or anew."""
        name = database.streams.state(stream).name.lower()
        self.stop(database, name)
        chance = random.Random(seed)  # noqa: S311  # repeatable is what is wanted here
        policy = ChurnPolicy(chance, mean_life_ms=mean_life_ms, weights=weights)
        self._running[database, name] = _Churn(policy)
        self._act(database, name)

    def stop(self, database: Database, stream: str) -> None:
        """End the policy of a change stream, if one runs."""
        churn = self._running.pop((database, stream.lower()), None)
        if churn is not None and churn.timer is not None:
            churn.timer.cancel()

    def stop_all(self, database: Database) -> None:
        """End all policies of a database."""
        for other, stream in list(self._running):
            if other is database:
                self.stop(database, stream)

    def _act(self, database: Database, name: str) -> None:
        """Do what is due, and come back when something is due again."""
        streams, churn = database.streams, self._running[database, name]
        if name not in streams.by_name:
            del self._running[database, name]
            return
        now_us = self._clock.now_us()
        for action in churn.policy.due(now_us, streams.by_name[name].partitions.live):
            if not _turn(streams, name, action, now_us):
                for token in action.tokens:
                    churn.policy.spare(token, now_us)
        # The newborn get their lives.
        churn.policy.due(now_us, streams.by_name[name].partitions.live)
        due_us = churn.policy.next_due_us() or 0
        churn.timer = self._clock.call_at(
            max(due_us, now_us + _PAUSE_US), lambda: self._act(database, name)
        )


def _turn(streams: ChangeStreams, name: str, action: ChurnAction, now_us: int) -> bool:
    """Do what churn has decided, or at least move; False where neither can be done."""
    token = action.tokens[0]
    try:
        match action.kind:
            case "split":
                streams.split(name, now_us=now_us, token=token)
            case "merge":
                streams.merge(name, now_us=now_us, tokens=action.tokens)
            case "move":
                streams.move(name, now_us=now_us, token=token)
    except SpannerError:
        if action.kind == "move":
            return False
        # Too narrow to split, say: it still has to end its life.
        return _turn(streams, name, ChurnAction("move", (token,)), now_us)
    return True
