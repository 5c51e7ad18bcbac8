"""Gates that are broken on purpose in what they conclude from the markers of stream partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.spark_consumer.core import origin_ledger
from tidegate.spark_consumer.core.marker_news import MarkerNews
from tidegate.spark_consumer.core.origin_ledger import Followed, OriginLedger, fault_of

__all__ = ["BROKEN_MARKERS"]

_settled, _taken, _added = OriginLedger.settled, OriginLedger.taken, OriginLedger.added


def _settle_unseen(self: OriginLedger, through_us: int, **settings: Any) -> Any:
    ledger, _ = _settled(self, through_us, **settings)
    return ledger, ()


def _settle_what_had_expired(
    self: OriginLedger, through_us: int, *, complete_from_us: int, keeps_faulty: bool = False
) -> Any:
    return _settled(self, through_us, complete_from_us=-1, keeps_faulty=keeps_faulty)


def _take_without_sums(self: OriginLedger, news: MarkerNews) -> OriginLedger:
    """Begin each batch with nothing released."""
    return replace(_taken(self, news), sums={})


def _add_nothing(self: OriginLedger, released: Any, *, through_us: int) -> OriginLedger:
    return self


def _add_unnamed(self: OriginLedger, released: Any, *, through_us: int) -> OriginLedger:
    """Pass over changes that do not say where they come from."""
    named = {pair: one for pair, one in released.items() if pair[0] is not None}
    return _added(self, named, through_us=through_us)


def _is_over_where_it_ends(self: Followed, through_us: int) -> bool:
    """Take a stream partition for released as soon as its marker was read."""
    return bool(self.chunks)


def _compare_any_checksum(expected: Any, found: Any, *, parked: int, has_checksum: bool) -> Any:
    return fault_of(expected, found, parked=parked, has_checksum=True)


def _allow_nothing_put_back(expected: Any, found: Any, *, parked: int, has_checksum: bool) -> Any:
    return fault_of(expected, found, parked=0, has_checksum=has_checksum)


BROKEN_MARKERS = (
    Mutant(
        "a transaction that is lost as a whole released without",
        "nothing_lost",
        ((OriginLedger, "settled", _settle_unseen),),
    ),
    Mutant(
        "a stream partition judged that had expired in part",
        "soundness",
        ((OriginLedger, "settled", _settle_what_had_expired),),
    ),
    Mutant(
        "sums of stream partitions forgotten with each batch",
        "soundness",
        ((OriginLedger, "taken", _take_without_sums),),
    ),
    Mutant(
        "markers compared without the release in hand",
        "soundness",
        ((OriginLedger, "added", _add_nothing),),
    ),
    Mutant(
        "changes without an origin passed over",
        "soundness",
        ((OriginLedger, "added", _add_unnamed),),
    ),
    Mutant(
        "a marker compared before its end is released",
        "soundness",
        ((Followed, "is_over", _is_over_where_it_ends),),
    ),
    Mutant(
        "another hash's checksum compared",
        "soundness",
        ((origin_ledger, "fault_of", _compare_any_checksum),),
    ),
    Mutant(
        "what was put back taken for too many changes",
        "soundness",
        ((origin_ledger, "fault_of", _allow_nothing_put_back),),
    ),
)
