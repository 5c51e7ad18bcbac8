"""Parts that are broken on purpose: what only tables of some schema meet, on real sinks."""

from __future__ import annotations

from tests.mutants.broken_lookups import _found_as_text, _found_by_filter, _own_bounds
from tests.mutants.mutant import UnitMutant
from tests.simulation.broken_gates import _stated_by_any_operation
from tidegate.spark_consumer.sinks.delta import commit_log, direct_table
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.spark import query_session

__all__ = ["BROKEN_SCHEMAS"]

_FILE = "tests/spark/sinks/test_any_schema_properties.py"
_HOLDS = "test_tables_hold_what_was_committed_whichever_engine_writes_and_reads"
_WORLDS = (f"{_FILE}::{_HOLDS}",)

_COMPACTING = {
    name: value for name, value in query_session.STORED_AS.items() if "autoCompact" not in name
}

BROKEN_SCHEMAS = (
    UnitMutant(
        "text as a first key column compared as each file has it",
        _WORLDS,
        ((DirectTable, "found", _found_by_filter),),
    ),
    UnitMutant(
        "numbers and times as a first key column looked up by rounded bounds",
        _WORLDS,
        (
            (DirectTable, "found", _found_as_text),
            (direct_table, "writer_properties", _own_bounds),
        ),
    ),
    UnitMutant(
        "auto compaction's commit taken for one that carries a release",
        _WORLDS,
        (
            (commit_log, "_stated", _stated_by_any_operation),
            (query_session, "STORED_AS", _COMPACTING),
        ),
    ),
)
