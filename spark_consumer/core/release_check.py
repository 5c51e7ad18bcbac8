"""What a release is held against before it is written: its transactions, and markers it passes.

Records that were set aside as dead letters are in no release.  One that was a change is therefore
missing like any other, and the error says that there are dead letters to look at.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.origin_account import OriginAccount
from tidegate.spark_consumer.core.origin_ledger import OriginLedger
from tidegate.spark_consumer.core.part_log import StoredFile
from tidegate.spark_consumer.core.plan import Plan, WriteRelease
from tidegate.spark_consumer.core.row_sums import ReleaseCount
from tidegate.spark_consumer.core.transactions import TransactionJudge


class ReleaseCheck:
    """The checks of one batch's releases; `dead_letters` is how many these have set aside."""

    def __init__(self, complete_from_us: int, *, records: bool) -> None:
        """Wait for `begin`.  `records`: what contradicts itself is released and counted."""
        self._judge = TransactionJudge(records=records)
        self._origins = OriginAccount(complete_from_us, records=records)
        self._dead_letters_before = 0
        self.dead_letters = 0

    @property
    def recorded(self) -> int:
        """How many contradictions of the batch were released."""
        return self._judge.recorded + self._origins.recorded

    @property
    def _all_dead_letters(self) -> int:
        return self._dead_letters_before + self.dead_letters

    def begin(self, before: State, plan: Plan) -> None:
        """Take what the batch has read."""
        self._origins.begin(before, plan)
        self._dead_letters_before = before.dead_letters + plan.dead_letters

    def take(self, count: ReleaseCount) -> bool:
        """Take the next release; return whether `settle` must know of parked changes."""
        self._origins.take(count.origins)
        return self._judge.take(count.transactions, leaves_out=count.leaves_out)

    def settle(self, step: WriteRelease, plan: Plan, *, may_be_parked: bool) -> WriteRelease:
        """Return the step with what its manifest says.

        Raises TransactionIncomplete and StreamPartitionIncomplete.
        """
        bounds, dead_letters = step.bounds, self._all_dead_letters
        found = self._judge.settle(
            release=bounds.number, may_be_parked=may_be_parked, dead_letters=dead_letters
        )
        origins = self._origins.settle(bounds, dead_letters=dead_letters)
        gaps = plan.gaps_below(bounds.through_us)
        return replace(step, transactions=found, origins=origins, gaps=gaps)

    def close(
        self, before: State, *, file: str, own_max: int
    ) -> tuple[OriginLedger, str | None, tuple[StoredFile, ...]]:
        """Return what the state holds of open stream partitions, as `OriginAccount.close`."""
        return self._origins.close(
            before, file=file, own_max=own_max, dead_letters=self._all_dead_letters
        )
