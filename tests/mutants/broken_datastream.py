"""Parts that are broken on purpose: how Datastream's events are ordered, and when files end."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import UnitMutant
from tidegate.producer.datastream import event, event_file, json_lines, order_key, sort_keys
from tidegate.producer.datastream.avro_container import AvroContainer
from tidegate.producer.datastream.errors import FileCutShort
from tidegate.producer.datastream.inventory import Inventory
from tidegate.producer.datastream.read_methods import ReadKind
from tidegate.producer.datastream_source.server_order import ServerOrder

__all__ = ["BROKEN_DATASTREAM"]

_FOLDER = "tests/unit/producer/datastream"
_READING = "tests/unit/producer/datastream_source/test_object_reading.py"
_SERVERS = "tests/unit/producer/datastream_source/test_server_order.py"
_ORDER = f"{_FOLDER}/test_order_key.py"
_AVRO = f"{_FOLDER}/test_avro_container.py"
_HISTORY = f"{_ORDER}::test_a_history_is_put_in_order_and_rows_of_a_backfill_before_it"
_MYSQL = f"{_ORDER}::test_mysql_by_number_of_the_log_and_position_whatever_the_time"


def _as_text(text: str) -> int:
    """Return an integer that sorts as the text's first eight characters."""
    return int.from_bytes(text.encode()[:8].ljust(8, b"\0"))


def _log_file_as_text(log_file: str) -> tuple[str, int]:
    base, _, number = log_file.rpartition(".")
    return base, _as_text(number)


def _record_set_as_text(rs_id: str) -> tuple[int, int, int]:
    return _as_text(rs_id[2:]), _as_text(rs_id[10:]), _as_text(rs_id[18:])


_encoded = order_key._encoded


def _time_first(metadata: Any, at: int, position: Any) -> bytes:
    return at.to_bytes(8) + _encoded(metadata, at, position)


def _halves_alike(metadata: Any, at: int, position: Any) -> bytes:
    return _encoded(metadata, at, position)[:16]


_order_key = order_key.order_key


def _backfill_by_time(method: Any, metadata: Any, **more: Any) -> bytes:
    if method.kind is ReadKind.BACKFILL:
        return b"\1" + (more["source_timestamp_us"] + (1 << 63)).to_bytes(8)
    return _order_key(method, metadata, **more)


def _same(*_: Any) -> bool:
    return True


def _keys_ignored(_keys: Any, _method: Any, metadata: Any, **_more: Any) -> Any:
    return metadata


_completed = sort_keys.completed


def _keys_of_changes_alone(keys: Any, method: Any, metadata: Any, **more: Any) -> Any:
    is_change = method.kind is ReadKind.CDC
    return _completed(keys if is_change else None, method, metadata, **more)


_records = AvroContainer.__iter__


def _ends_anywhere(container: Any) -> Any:
    try:
        yield from _records(container)
    except FileCutShort:
        return


_lines = json_lines.json_lines


def _lines_end_anywhere(stream: Any, file: str) -> Any:
    try:
        yield from _lines(stream, file)
    except FileCutShort:
        return


def _nothing(*_: Any) -> None:
    pass


def _one_source(inventory: Any, found: Any) -> None:
    inventory.source = found.read_method.source


BROKEN_DATASTREAM = (
    UnitMutant(
        "transactions of two servers of MySQL by their numbers alone",
        (
            f"{_SERVERS}::test_transactions_sort_by_server_and_then_by_number",
            f"{_READING}::test_servers_of_mysql_that_follow_one_another_have_one_order",
        ),
        ((ServerOrder, "ranked", lambda _self, order_key, _gtid: order_key),),
    ),
    UnitMutant(
        "numbers of MySQL's logs compared as text",
        (_MYSQL, _HISTORY),
        ((order_key, "log_file_number", _log_file_as_text),),
    ),
    UnitMutant(
        "both halves of an UPDATE of a key with one order key",
        (f"{_ORDER}::test_mysql_at_one_position_first_what_leaves_a_key",),
        ((order_key, "_encoded", _halves_alike),),
    ),
    UnitMutant(
        "LSNs of PostgreSQL compared as text",
        (f"{_ORDER}::test_postgresql_by_time_and_lsn",),
        ((order_key, "postgresql_lsn", _as_text),),
    ),
    UnitMutant(
        "record sets of Oracle compared as text",
        (f"{_ORDER}::test_oracle_by_record_set_and_sequence_whatever_scn_and_time", _HISTORY),
        ((order_key, "oracle_record_set", _record_set_as_text),),
    ),
    UnitMutant(
        "changes of MySQL and Oracle sorted by the source's time",
        (_MYSQL, _HISTORY),
        ((order_key, "_encoded", _time_first),),
    ),
    UnitMutant(
        "rows of a backfill sorted among the changes",
        (_HISTORY, f"{_ORDER}::test_rows_of_a_backfill_are_before_every_change_and_need_nothing"),
        (
            (order_key, "order_key", _backfill_by_time),
            (event, "order_key", _backfill_by_time),
        ),
    ),
    UnitMutant(
        "sort keys that are not compared",
        (f"{_FOLDER}/test_sort_keys.py::test_a_part_that_contradicts_the_metadata_is_refused",),
        ((sort_keys, "_is_same", _same),),
    ),
    UnitMutant(
        "sort keys that fill nothing",
        (f"{_FOLDER}/test_sort_keys.py::test_what_only_they_have_is_taken_from_them",),
        ((sort_keys, "completed", _keys_ignored),),
    ),
    UnitMutant(
        "sort keys of rows read after a rollback that are not read",
        (f"{_FOLDER}/test_sort_keys.py::test_those_of_a_row_read_after_a_rollback_are_compared",),
        ((sort_keys, "completed", _keys_of_changes_alone),),
    ),
    UnitMutant(
        "an Avro file that was cut taken for a whole one",
        (f"{_AVRO}::test_a_file_cut_anywhere_is_noticed_unless_it_ends_between_two_blocks",),
        ((AvroContainer, "__iter__", _ends_anywhere),),
    ),
    UnitMutant(
        "a line that was cut left out",
        (f"{_FOLDER}/test_json_lines.py::test_a_file_cut_anywhere_in_a_line_is_noticed",),
        (
            (json_lines, "json_lines", _lines_end_anywhere),
            (event_file, "json_lines", _lines_end_anywhere),
        ),
    ),
    UnitMutant(
        "an event whose row lacks its key",
        (f"{_FOLDER}/test_event.py::test_a_key_that_the_row_does_not_have_is_refused",),
        ((event, "_require_key", _nothing),),
    ),
    UnitMutant(
        "events of several sources in one order",
        (
            f"{_FOLDER}/test_inventory.py::test_two_kinds_of_sources_are_refused",
            f"{_FOLDER}/test_inventory.py::test_two_logs_of_mysql_are_refused",
        ),
        ((Inventory, "_require_one_source", _one_source),),
    ),
)
