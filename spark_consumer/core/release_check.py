"""What a release must agree with before it is written: its transactions, and markers it passes.

A replay begins with the same state and the same plan, counts the same releases, and so finds the
same.  Records that were set aside as dead letters are in no release.  One that was a change is
therefore missing like any other, and the error says that there are dead letters to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.origin_ledger import NOTHING_FOLLOWED, OriginFaults, OriginLedger
from tidegate.spark_consumer.core.part_log import StoredFile
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds, WriteRelease
from tidegate.spark_consumer.core.proof import Mismatch
from tidegate.spark_consumer.core.sums import OriginSum, Pair, ReleaseCount
from tidegate.spark_consumer.core.transactions import LISTED_MAX, TransactionJudge
from tidegate.spark_consumer.errors import StreamPartitionIncomplete, with_dead_letters

ENTRIES_MAX = 10_000
"""Stream partitions, and pairs of one and a topic, that are followed at a time, together."""

_HINT = (
    "Nothing of this release was written, and a restart finds the same. The changes between the "
    "stream partition's begin and end are not those that its completion marker states: look for "
    "who deletes from the data topics or writes to them. "
    'on_mismatch = "record" releases them as they are, and counts them'
)


class OriginAccount:
    """The ledger of one batch, from the state before it to the state after it."""

    def __init__(self, complete_from_us: int, *, records: bool) -> None:
        """Wait for `begin`.  `records`: what contradicts a marker is released."""
        self._ledger = NOTHING_FOLLOWED
        self._released: Mapping[Pair, OriginSum] = {}
        self._through_us = 0
        self._complete_from_us = complete_from_us
        self._records = records
        self.recorded = 0
        """How many contradictions of the batch were released."""

    def begin(self, before: State, plan: Plan) -> None:
        """Take what the batch has read."""
        self._ledger = before.origins.taken(plan.news).within(ENTRIES_MAX)
        if plan.late_rows:
            # They are not released, and may be in the totals.
            self._ledger = self._ledger.forgotten(plan.after_us)
        self._through_us = plan.through_us

    def take(self, released: Mapping[Pair, OriginSum]) -> None:
        """Take the sums of the next release."""
        self._released = released

    def settle(self, bounds: ReleaseBounds, *, dead_letters: int = 0) -> OriginFaults:
        """Add that release, and compare what it ends; raises StreamPartitionIncomplete.

        `dead_letters` is how many records the query has set aside: the error names them.
        """
        added = self._ledger.added(self._released, through_us=bounds.through_us)
        self._ledger, faults = added.settled(
            bounds.through_us, complete_from_us=self._complete_from_us
        )
        if faults and not self._records:
            raise _incomplete(faults, release=bounds.number, dead_letters=dead_letters)
        self.recorded += len(faults)
        return OriginFaults(len(faults), faults[:LISTED_MAX])

    def close(
        self, before: State, *, file: str, own_max: int, dead_letters: int = 0
    ) -> tuple[OriginLedger, str | None, tuple[StoredFile, ...]]:
        """Compare what has ended without a release; return what the state holds, and its file.

        That is `file` if it has more than `own_max` entries and has changed.  Where faults are
        recorded, they wait for the manifest of the next release.
        """
        ledger, faults = self._ledger.settled(
            self._through_us, complete_from_us=self._complete_from_us, keeps_faulty=True
        )
        if faults and not self._records:
            raise _incomplete(faults, dead_letters=dead_letters)
        ledger = ledger.within(ENTRIES_MAX)
        if ledger == before.origins:
            return ledger, before.origins_file, ()
        # The number of entries decides: each attempt at a batch writes the file, or none does.
        if ledger.size <= own_max:
            return ledger, None, ()
        return ledger, file, ((file, ledger.snapshot()),)


def _incomplete(
    faults: Sequence[Mismatch], *, release: int | None = None, dead_letters: int
) -> StreamPartitionIncomplete:
    """Return the error that names the first of the stream partitions."""
    first = faults[0]
    fields = {} if release is None else {"release": release}
    return StreamPartitionIncomplete(
        f"a stream partition is not as its completion marker states: {first.fault}",
        hint=with_dead_letters(_HINT, dead_letters),
        **first.subject,
        expected=dict(first.expected),
        found=dict(first.found),
        **fields,
        mismatches=len(faults),
    )


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
