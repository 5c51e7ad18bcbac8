"""Splits, merges and moves the stream partitions of the simulator."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.judge.partitions import StreamPartitions
from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.errors import LocalStackError

_LIVE_MIN, _LIVE_MAX = 6, 14
_CHURN_EVERY_S = (2.0, 6.0)


@dataclass(slots=True)
class Lineage:
    """Splits, merges and moves stream partitions by a seed, and knows all that there ever were."""

    seed: int
    control: SimulatorControl
    born: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Token -> its start in microseconds, and its parents, as the simulator reported it."""
    children: dict[str, tuple[str, ...]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=lambda: {"split": 0, "merge": 0, "move": 0})

    def begin(self) -> None:
        """Learn of those that the stream began with."""
        for stream_partition in self.control.stream_partitions():
            self.born[stream_partition["token"]] = stream_partition

    def partitions(self, start_us: int) -> StreamPartitions:
        """Return all stream partitions, for the judge; none is read before `start_us`."""
        return StreamPartitions(start_us, self.born, self.children)

    def churn(self, until: threading.Event) -> None:
        """Go on until the event is set; a verb that the simulator refuses is not counted."""
        chance = random.Random(f"{self.seed}/churn")
        while not until.wait(chance.uniform(*_CHURN_EVERY_S)):
            live = len(self.control.stream_partitions())
            verbs = {
                "split": (self.control.split, 0.0 if live >= _LIVE_MAX else 4.0),
                "merge": (self.control.merge, 0.0 if live <= _LIVE_MIN else 3.0),
                "move": (self.control.move, 2.0),
            }
            (verb,) = chance.choices(list(verbs), [weight for _, weight in verbs.values()])
            try:
                change = verbs[verb][0]()
            except LocalStackError:
                continue
            self.done[verb] += 1
            tokens = tuple(child["token"] for child in change["children"])
            for parent in change["parents"]:
                self.children[parent] = tokens
            for child in change["children"]:
                self.born[child["token"]] = child
