"""Whether what a batch releases is what the markers of its stream partitions state.

A replay begins with the same state and the same plan, counts the same releases, and so finds the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.dead_letters import with_dead_letters
from tidegate.spark_consumer.core.origin_ledger import NOTHING_FOLLOWED, OriginFaults, OriginLedger
from tidegate.spark_consumer.core.origin_sums import OriginSum, Pair
from tidegate.spark_consumer.core.part_log import StoredFile
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.proof import Mismatch
from tidegate.spark_consumer.core.transactions import LISTED_MAX
from tidegate.spark_consumer.errors import StreamPartitionIncomplete

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
