"""Whether a release holds whole transactions: as many records as each of them states.

A release ends at a commit timestamp, so all records of a transaction are in one release.  Each
record states how many its transaction has, over all tables (`docs/protocol.md`, 6.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.proof import Fault, Mismatch
from tidegate.spark_consumer.errors import TransactionIncomplete, with_dead_letters

LISTED_MAX = 20
"""Transactions of each kind that are named; all are counted."""

_HINT = (
    "Nothing of this release was written, and a restart finds the same. Records are missing from "
    "Kafka, or others were added: look for who deletes from the data topics or writes to them. "
    'on_mismatch = "record" releases them as they are, and counts them'
)

RecordOfChange: TypeAlias = tuple[int, str, str, int, str]
"""A change's commit time, transaction, record sequence, the stated number, topic."""


@dataclass(frozen=True, slots=True)
class TransactionCount:
    """A transaction with another number of records than its records state.

    `least` and `most` are the stated numbers; they differ only if records contradict each other.
    `topics` are the topics of its changes, empty if they were not requested.
    """

    commit_us: int
    server_transaction_id: str
    found: int
    least: int
    most: int
    topics: tuple[str, ...] = ()

    @property
    def lacks_records(self) -> bool:
        """Whether records may be absent on purpose: there are fewer than stated."""
        return self.found < self.most

    def mismatch(self) -> Mismatch:
        """Return the count in the form of an audit."""
        topics = {"topics": list(self.topics)} if self.topics else {}
        return Mismatch(
            "transaction",
            {"commit_us": self.commit_us, "server_transaction_id": self.server_transaction_id},
            Fault.MISSING if self.lacks_records else Fault.TOO_MANY,
            expected={"records": self.most},
            found={"records": self.found, **topics},
        )


@dataclass(frozen=True, slots=True)
class TransactionFaults:
    """The transactions of a release that are not whole: how many, and the first of each kind."""

    lacking: int = 0
    """With fewer records than stated."""
    others: int = 0
    """With more, or whose records state different numbers."""
    listed: tuple[TransactionCount, ...] = ()
    """In the order of their commit times."""

    def without_lacking(self) -> TransactionFaults:
        """Return what stays where records may be absent on purpose."""
        listed = tuple(count for count in self.listed if not count.lacks_records)
        return TransactionFaults(0, self.others, listed)

    @property
    def number(self) -> int:
        """How many there are."""
        return self.lacking + self.others


ALL_WHOLE = TransactionFaults()


def count_transactions(
    changes: Iterable[RecordOfChange], *, after_us: int = -1, gaps: Sequence[PartitionGap] = ()
) -> TransactionFaults:
    """Count the records of each transaction with a commit time above `after_us`.

    One in an accepted gap may lack records.
    """
    stated: dict[tuple[int, str], dict[str, int]] = {}
    contradicting: dict[tuple[int, str], set[int]] = {}
    topics: dict[tuple[int, str], set[str]] = {}
    for commit_us, transaction, sequence, records, topic in changes:
        if commit_us <= after_us:
            continue
        place = (commit_us, transaction)
        of_sequence = stated.setdefault(place, {})
        if of_sequence.setdefault(sequence, records) != records:
            contradicting.setdefault(place, set()).add(records)
        topics.setdefault(place, set()).add(topic)
    counts = [
        TransactionCount(
            *place,
            found=len(of_sequence),
            least=min(numbers),
            most=max(numbers),
            topics=tuple(sorted(topics[place])),
        )
        for place, of_sequence in stated.items()
        if (numbers := {*of_sequence.values(), *contradicting.get(place, ())}) != {len(of_sequence)}
    ]
    counts = [
        count
        for count in counts
        if not (count.lacks_records and any(gap.covers(count.commit_us) for gap in gaps))
    ]
    return faults_in(
        sorted(counts, key=lambda count: (count.commit_us, count.server_transaction_id))
    )


def faults_in(
    counts: Iterable[TransactionCount], *, lacking: int | None = None, others: int | None = None
) -> TransactionFaults:
    """Return faults, the first of them listed; numbers are those of `counts` if not given."""
    faulty = tuple(counts)
    of_lacking = [count for count in faulty if count.lacks_records]
    of_others = [count for count in faulty if not count.lacks_records]
    named = {*of_lacking[:LISTED_MAX], *of_others[:LISTED_MAX]}
    return TransactionFaults(
        len(of_lacking) if lacking is None else lacking,
        len(of_others) if others is None else others,
        tuple(count for count in faulty if count in named),
    )


class TransactionJudge:
    """Decides on the releases of a batch whose transactions are not whole."""

    def __init__(self, *, records: bool) -> None:
        """`records`: faulty transactions are written all the same, and counted."""
        self._records = records
        self._faults = ALL_WHOLE
        self.recorded = 0
        """How many transactions of the batch were not whole and released."""

    def take(self, faults: TransactionFaults, *, leaves_out: bool) -> bool:
        """Take the faults of the next release; return whether `settle` needs `may_be_parked`.

        `leaves_out` says whether the change stream leaves changes out.
        """
        self._faults = faults.without_lacking() if leaves_out else faults
        return bool(self._faults.lacking)

    def settle(
        self, *, release: int, may_be_parked: bool = True, dead_letters: int = 0
    ) -> TransactionFaults:
        """Return the release's faults for its manifest, or raise TransactionIncomplete.

        `dead_letters` is how many records the query has set aside: the error names this number.
        """
        faults = self._faults.without_lacking() if may_be_parked else self._faults
        if faults.number and not self._records:
            raise _incomplete(faults, release=release, dead_letters=dead_letters)
        self.recorded += faults.number
        return faults


def _incomplete(
    faults: TransactionFaults, *, release: int, dead_letters: int
) -> TransactionIncomplete:
    """Return the error that names the first of the transactions."""
    first = faults.listed[0]
    message = (
        "a transaction has fewer records than they state"
        if first.lacks_records
        else "a transaction has another number of records than they state"
    )
    return TransactionIncomplete(
        message,
        hint=with_dead_letters(_HINT, dead_letters),
        transaction=first.server_transaction_id,
        commit_timestamp_us=first.commit_us,
        expected=first.most,
        found=first.found,
        topics=first.topics,
        release=release,
        transactions=faults.number,
    )
