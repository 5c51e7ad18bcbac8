"""Compares a release, before it is written, with its transactions and the markers it passes.

A replay begins with the same state and the same plan and counts the same releases, so its findings
are the same.  Records that were set aside as dead letters are in no release.  A change among them
is therefore missing like any other, and the error says that there are dead letters to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.origin_ledger import NOTHING_FOLLOWED, OriginFaults, OriginLedger
from tidegate.spark_consumer.core.part_log import StoredFile
from tidegate.spark_consumer.core.plan import Plan, WriteRelease
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


class ReleaseCheck:
    """The checks of one batch's releases, from the state before it to the state after it."""

    def __init__(self, complete_from_us: int, *, records: bool) -> None:
        """Wait for `begin`.  `records`: what contradicts itself is released and counted."""
        self._judge = TransactionJudge(records=records)
        self._records = records
        self._complete_from_us = complete_from_us
        self._ledger = NOTHING_FOLLOWED
        self._released: Mapping[Pair, OriginSum] = {}
        self._through_us = 0
        self._mismatched = 0
        self._dead_letters_before = 0
        self.dead_letters = 0
        """Records that the batch's releases have set aside."""

    @property
    def recorded(self) -> int:
        """How many contradictions of the batch were released."""
        return self._judge.recorded + self._mismatched

    @property
    def _all_dead_letters(self) -> int:
        return self._dead_letters_before + self.dead_letters

    def begin(self, before: State, plan: Plan) -> None:
        """Begin with the announcements and markers that the batch has read."""
        self._ledger = before.origins.taken(plan.news).within(ENTRIES_MAX)
        if plan.late_rows:
            # They are not released, and may be in the totals.
            self._ledger = self._ledger.forgotten(plan.after_us)
        self._through_us = plan.through_us
        self._dead_letters_before = before.dead_letters + plan.dead_letters

    def take(self, count: ReleaseCount) -> bool:
        """Take the next release; return whether `settle` needs `may_be_parked`."""
        self._released = count.origins
        return self._judge.take(count.transactions, leaves_out=count.leaves_out)

    def settle(self, step: WriteRelease, plan: Plan, *, may_be_parked: bool) -> WriteRelease:
        """Return the step with the facts for its manifest.

        Raises TransactionIncomplete, and StreamPartitionIncomplete for a partition that the release
        ends.
        """
        bounds, through_us = step.bounds, step.bounds.through_us
        transactions = self._judge.settle(
            release=bounds.number,
            may_be_parked=may_be_parked,
            dead_letters=self._all_dead_letters,
        )
        added = self._ledger.added(self._released, through_us=through_us)
        self._ledger, faults = added.settled(through_us, complete_from_us=self._complete_from_us)
        self._require_none(faults, release=bounds.number)
        self._mismatched += len(faults)
        origins = OriginFaults(len(faults), faults[:LISTED_MAX])
        gaps = plan.gaps_below(through_us)
        return replace(step, transactions=transactions, origins=origins, gaps=gaps)

    def close(
        self, before: State, *, file: str, own_max: int
    ) -> tuple[OriginLedger, str | None, tuple[StoredFile, ...]]:
        """Check partitions that ended without a release; return the state's ledger, and its file.

        The file is `file` if the ledger has more than `own_max` entries and has changed.  Recorded
        faults wait for the manifest of the next release.
        """
        ledger, faults = self._ledger.settled(
            self._through_us, complete_from_us=self._complete_from_us, keeps_faulty=True
        )
        self._require_none(faults)
        ledger = ledger.within(ENTRIES_MAX)
        if ledger == before.origins:
            return ledger, before.origins_file, ()
        # The number of entries decides: each attempt at a batch writes the file, or none does.
        if ledger.size <= own_max:
            return ledger, None, ()
        return ledger, file, ((file, ledger.snapshot()),)

    def _require_none(self, faults: Sequence[Mismatch], **fields: int) -> None:
        """Raise StreamPartitionIncomplete for the first of the faults, unless they are recorded."""
        if not faults or self._records:
            return
        first = faults[0]
        raise StreamPartitionIncomplete(
            f"a stream partition is not as its completion marker states: {first.fault}",
            hint=with_dead_letters(_HINT, self._all_dead_letters),
            **first.subject,
            expected=dict(first.expected),
            found=dict(first.found),
            **fields,
            mismatches=len(faults),
        )
