"""Gates that are broken on purpose in what they conclude from the records of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.simulation import gate_rows
from tests.simulation.mutant import Mutant
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.transactions import (
    ALL_WHOLE,
    RecordOfChange,
    TransactionFaults,
    TransactionJudge,
    count_transactions,
)

__all__ = ["BROKEN_TRANSACTIONS"]

_take, _settle = TransactionJudge.take, TransactionJudge.settle


def _take_for_whole(self: TransactionJudge, faults: TransactionFaults, *, leaves_out: bool) -> bool:
    return _take(self, ALL_WHOLE, leaves_out=leaves_out)


def _take_those_that_lack(
    self: TransactionJudge, faults: TransactionFaults, *, leaves_out: bool
) -> bool:
    return _take(self, replace(faults, others=0), leaves_out=leaves_out)


def _settle_as_parked(
    self: TransactionJudge, *, release: int, may_be_parked: bool = True, dead_letters: int = 0
) -> Any:
    return _settle(self, release=release, may_be_parked=True, dead_letters=dead_letters)


def _settle_as_lost(
    self: TransactionJudge, *, release: int, may_be_parked: bool = True, dead_letters: int = 0
) -> Any:
    return _settle(self, release=release, may_be_parked=False, dead_letters=dead_letters)


def _count_mods(
    changes: Iterable[RecordOfChange], *, after_us: int = -1, gaps: Sequence[PartitionGap] = ()
) -> TransactionFaults:
    """Count changes, of which a record may have several."""
    each = [
        (at_us, transaction, f"{number}", records, topic)
        for number, (at_us, transaction, _, records, topic) in enumerate(changes)
    ]
    return count_transactions(each, after_us=after_us, gaps=gaps)


def _count_of_one_topic(
    changes: Iterable[RecordOfChange], *, after_us: int = -1, gaps: Sequence[PartitionGap] = ()
) -> TransactionFaults:
    """Count the records of a transaction in the first of its topics alone."""
    found = list(changes)
    first: dict[tuple[int, str], str] = {}
    for change in found:
        first.setdefault(change[:2], change[-1])
    return count_transactions(
        (change for change in found if first[change[:2]] == change[-1]),
        after_us=after_us,
        gaps=gaps,
    )


def _count_what_had_expired(
    changes: Iterable[RecordOfChange], *, after_us: int = -1, gaps: Sequence[PartitionGap] = ()
) -> TransactionFaults:
    return count_transactions(changes, gaps=gaps)


BROKEN_TRANSACTIONS = (
    Mutant(
        "a transaction that lacks records released as it is",
        "nothing_lost",
        ((TransactionJudge, "take", _take_for_whole),),
    ),
    Mutant(
        "whatever a transaction lacks taken for parked",
        "nothing_lost",
        ((TransactionJudge, "settle", _settle_as_parked),),
    ),
    Mutant(
        "a record that no transaction states released with it",
        "nothing_twice",
        ((TransactionJudge, "take", _take_those_that_lack),),
    ),
    Mutant(
        "parked records taken for lost ones",
        "soundness",
        ((TransactionJudge, "settle", _settle_as_lost),),
    ),
    Mutant(
        "changes counted as records",
        "soundness",
        ((gate_rows, "count_transactions", _count_mods),),
    ),
    Mutant(
        "a transaction counted in one of its topics",
        "soundness",
        ((gate_rows, "count_transactions", _count_of_one_topic),),
    ),
    Mutant(
        "a transaction counted that had expired in part",
        "soundness",
        ((gate_rows, "count_transactions", _count_what_had_expired),),
    ),
)
