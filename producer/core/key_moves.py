"""Keys that move between living stream partitions (MUTABLE_KEY_RANGE), and what waits for what.

A stream partition that returns a move-in at T publishes nothing of what follows before each source
has published what precedes its move-out at T: so the changes of a key keep their order.  It gives
its query back meanwhile, since its sources may need one.

A source has got there when it has published through T, or up to its own move-out of that instant,
which its position then holds.  So two stream partitions that exchange keys at one instant do not
wait for each other, and the one that waits with the least T of all waits for none that waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.producer.core.effects import AwaitSources


@dataclass(slots=True)
class MoveIns:
    """The newest move-ins of one stream partition, all of one instant."""

    at_us: int = -1
    waits_for: set[str] = field(default_factory=set)
    """Sources that have not published up to their move-out, as far as it is known."""
    _published: set[str] = field(default_factory=set)

    def add(self, at_us: int, sources: Iterable[str]) -> list[tuple[str, int]]:
        """Take a move-in; return (source, time) of those that have to be asked for."""
        if at_us != self.at_us:
            self.at_us, self.waits_for, self._published = at_us, set(), set()
        found = [one for one in sources if one not in self.waits_for | self._published]
        self.waits_for.update(found)
        return [(source, at_us) for source in found]

    def publish(self, source: str, at_us: int) -> bool:
        """Take note that a source has published up to a move; return whether nothing is left."""
        if at_us != self.at_us or source not in self.waits_for:
            return False
        self.waits_for.remove(source)
        self._published.add(source)
        return not self.waits_for


class SourceWaits:
    """Who of a worker's stream partitions waits for which source to publish up to which move."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiting: dict[tuple[str, int], set[str]] = {}

    def add(self, token: str, waits: Iterable[tuple[str, int]]) -> list[AwaitSources]:
        """Let a stream partition wait; return what has to be asked for that was not before."""
        new = []
        for wait in waits:
            if wait not in self._waiting:
                new.append(wait)
            self._waiting.setdefault(wait, set()).add(token)
        return [AwaitSources(tuple(new))] if new else []

    def publish(self, source: str, at_us: int) -> Iterable[str]:
        """Return who waited for a source to publish up to a move; they wait for it no more."""
        return sorted(self._waiting.pop((source, at_us), ()))
