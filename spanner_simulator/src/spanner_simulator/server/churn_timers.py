"""Runs churn policies: one for each change stream that churns, on the simulator's clock.

The policy decides, the change stream acts; where an action is impossible the stream partition gets
a new life instead. Stream partitions that have ended stay until their retention period is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from spanner_simulator.core.change_streams.change_streams import ChangeStreams
from spanner_simulator.core.change_streams.churn import ChurnAction, ChurnPolicy, ChurnSettings
from spanner_simulator.core.database import Database
from spanner_simulator.errors import SpannerError
from spanner_simulator.server.clock import Clock, Timer

# The least time between two looks of one policy, however short its lives are.
_PAUSE_US = 1_000


@dataclass(slots=True)
class _Churn:
    policy: ChurnPolicy
    timer: Timer | None = None


class ChurnTimers:
    """All running policies of one simulator."""

    def __init__(
        self,
        clock: Clock,
        *,
        settings: ChurnSettings | None = None,
        seed_of: Callable[[str], str] = str,
    ) -> None:
        """`settings`: churn of every change stream that `follow` finds; None: it starts no churn.

        `seed_of` makes a seed from the name of what needs one.
        """
        self._clock = clock
        self._settings = settings
        self._seed_of = seed_of
        self._running: dict[tuple[Database, str], _Churn] = {}
        # The change streams that `follow` has found, by database.
        self._followed: dict[Database, set[str]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def follow(self, database: Database) -> None:
        """Start the churn of change streams that are new since the last call, if it is set.

        Call it after each change of the database's schema. A churn that was stopped or replaced
        since stays as it is.
        """
        if self._settings is None:
            return
        names = database.streams.by_name.keys()
        followed = self._followed.setdefault(database, set())
        if names == followed:
            return
        for name in sorted(names - followed):
            seed = self._seed_of(f"{database.name}/{name} churn")
            self.start(database, name, self._settings, seed=seed)
        self._followed[database] = set(names)

    def start(
        self, database: Database, stream: str, settings: ChurnSettings, *, seed: int | str
    ) -> None:
        """Start the churn of a change stream, in place of the one that it has; or NOT_FOUND."""
        name = database.streams.state(stream).name.lower()
        self.stop(database, name)
        chance = random.Random(seed)  # noqa: S311  # repeatable is what is wanted here
        self._running[database, name] = _Churn(ChurnPolicy(chance, settings))
        self._act(database, name)

    def stop(self, database: Database, stream: str) -> None:
        """Stop the churn of a change stream; without effect where there is none."""
        churn = self._running.pop((database, stream.lower()), None)
        if churn is not None and churn.timer is not None:
            churn.timer.cancel()

    def forget(self, database: Database) -> None:
        """Stop the churn of a database that was dropped, and hold nothing of it any more."""
        for other, stream in list(self._running):
            if other is database:
                self.stop(database, stream)
        self._followed.pop(database, None)

    def _act(self, database: Database, name: str) -> None:
        """Do what is due, and set the timer for what is due next."""
        streams, churn = database.streams, self._running[database, name]
        if name not in streams.by_name:
            del self._running[database, name]
            return
        now_us = self._clock.now_us()
        partitions = streams.by_name[name].partitions
        for action in churn.policy.due(now_us, partitions.live):
            if not _turn(streams, name, action, now_us):
                for token in action.tokens:
                    churn.policy.spare(token, now_us)
        # Those that have just started get their lives.
        churn.policy.due(now_us, partitions.live)
        due_us = churn.policy.next_due_us() or 0
        churn.timer = self._clock.call_at(
            max(due_us, now_us + _PAUSE_US), lambda: self._act(database, name)
        )


def _turn(streams: ChangeStreams, name: str, action: ChurnAction, now_us: int) -> bool:
    """Act, with a move in place of what is impossible; False when that is impossible as well."""
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
        # It may be too narrow to split; its life has to end all the same.
        return _turn(streams, name, ChurnAction("move", (token,)), now_us)
    return True
