"""Chooses a transaction's commit timestamp: a new one, or sometimes that of the last commit.

In the service, unrelated transactions may share a timestamp, so readers must not use one as an
identifier.  Transactions that share one here began before it was used, and none of them wrote or
read a row that another one wrote; otherwise their order could be observed.
"""

from __future__ import annotations

from spanner_simulator.core.rng import Rng
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.rows.write_set import WriteSet
from spanner_simulator.core.timestamps import CommitClock


class EqualTimestamps:
    """Chooses commit timestamps; `probability` is that of sharing one where it is allowed."""

    def __init__(self, clock: CommitClock, chance: Rng, probability: float) -> None:
        self._clock = clock
        self._chance = chance
        self._probability = probability
        # For the transactions that share the last commit timestamp.
        self._first_number = 0
        self._written: set[tuple[str, bytes]] = set()

    @property
    def are_wanted(self) -> bool:
        """Whether timestamps may be shared; then the rows that a commit examines count as read."""
        return self._probability > 0

    def choose_us(self, transaction: Transaction, writes: WriteSet, now_us: int) -> int:
        """The last timestamp again, if allowed and chosen at random, otherwise a new one."""
        may_share = (
            self.are_wanted
            and self._clock.is_last_open()
            and transaction.begun_at < self._first_number
            and not transaction.has_read_any(self._written)
            and self._chance.random() < self._probability
            and self._written.isdisjoint(writes.places)
            and not writes.has_pending_key()
        )
        return self._clock.last_commit_us if may_share else self._clock.next_us(now_us)

    def committed(self, commit_us: int, writes: WriteSet, *, number: int) -> None:
        """Record a commit at the chosen timestamp; `number` counts commits from 1."""
        if commit_us != self._clock.last_commit_us:
            self._first_number = number
            self._written.clear()
        self._clock.committed(commit_us)
        if self.are_wanted:
            self._written |= writes.places
