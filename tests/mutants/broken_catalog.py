"""Parts that are broken on purpose: which tables get names, when, and what a program waits for."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.spark_consumer.checkpoint.gate_files import newest_state
from tidegate.spark_consumer.library.query import TidegateQuery
from tidegate.spark_consumer.sinks.delta import catalog_names
from tidegate.spark_consumer.sinks.delta.named_sink import NamedSink

__all__ = ["BROKEN_CATALOG"]

_NAMED = "tests/unit/spark_consumer/sinks/delta/test_named_sink.py"
_NAMES = "tests/spark/sinks/delta/test_catalog_names.py"
_QUERY = "tests/unit/spark_consumer/library/test_query.py"
_AWAITED = "test_a_release_has_come_when_the_watermark_has_passed_and_the_mirrors_have_it"


def _names_nothing(_self: NamedSink, versions: Any) -> Any:
    return versions


def _opens_only(self: NamedSink, *, query_id: str, release_max: int) -> None:
    self._sink.open(query_id=query_id, release_max=release_max)


def _by_the_watermark(self: TidegateQuery, time_us: int) -> bool:
    state = newest_state(self._running.gate)
    return state is not None and state.watermark_us >= time_us


BROKEN_CATALOG = (
    UnitMutant(
        "a table without a name after its release",
        (f"{_NAMED}::test_a_release_is_written_before_its_tables_get_their_names",),
        ((NamedSink, "_register", _names_nothing),),
    ),
    UnitMutant(
        "a start that leaves a table without a name",
        (f"{_NAMED}::test_a_start_gives_names_to_what_a_kill_has_left_without",),
        ((NamedSink, "open", _opens_only),),
    ),
    UnitMutant(
        "a name of another table taken for one's own",
        (f"{_NAMES}::test_a_name_is_made_again_where_it_is_missing_and_never_replaced",),
        ((catalog_names, "plain_location", lambda _location: ""),),
    ),
    UnitMutant(
        "a release that is awaited without its mirrors",
        (f"{_QUERY}::{_AWAITED}",),
        ((TidegateQuery, "_is_released", _by_the_watermark),),
    ),
)
