"""Workers that are broken on purpose: what is left out of a stream, and who knows of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.progress import TokenSnapshot

__all__ = ["BROKEN_FILTERS"]

_publication = StreamPartition.publication
_restore = StreamPartition.restore.__func__  # type: ignore[attr-defined]  # of the class method
_find_value = TableRegistrar._find_value
_leaves_out = RecordFilter.leaves_out


def _nothing(_self: RecordFilter, _record: DataChangeRecord) -> bool:
    return False


def _all_with_a_tag(self: RecordFilter, record: DataChangeRecord) -> bool:
    return _leaves_out(self, record) or bool(
        self.tags_left_out and record.number_of_records_in_transaction > 1
    )


def _without_counting(self: StreamPartition) -> Publication:
    return replace(_publication(self), filtered=self.filtered)


def _forgetting(cls: type[StreamPartition], snapshot: TokenSnapshot) -> StreamPartition:
    return _restore(cls, replace(snapshot, filtered=0))  # type: ignore[no-any-return]  # its function is no


def _find_value_in_silence(self: TableRegistrar, topic: str, table: Any) -> Any:
    self._filter = RecordFilter()
    return _find_value(self, topic, table)


BROKEN_FILTERS = (
    Mutant(
        "what is to be left out published all the same",
        "nothing_twice",
        ((RecordFilter, "leaves_out", _nothing),),
    ),
    Mutant(
        "more left out than the filter says",
        "nothing_lost",
        ((RecordFilter, "leaves_out", _all_with_a_tag),),
    ),
    Mutant(
        "what is left out not counted",
        "completeness",
        ((StreamPartition, "publication", _without_counting),),
    ),
    Mutant(
        "a restart that forgets how much was left out",
        "completeness",
        ((StreamPartition, "restore", classmethod(_forgetting)),),
    ),
    Mutant(
        "value schemas that do not say what is left out",
        "soundness",
        ((TableRegistrar, "_find_value", _find_value_in_silence),),
    ),
)
