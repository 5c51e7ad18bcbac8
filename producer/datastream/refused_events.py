"""Events that are not published: copies and refused ones, with their place in the stream.

Each is a data change record without a change until it is translated, so that it has a place in the
order; then it is counted as left out, or becomes a record of the dead-letter topic.
"""

from __future__ import annotations

import json

from tidegate.producer.core.file_position import REFUSED
from tidegate.producer.datastream.event_records import place_of, time_and_turn
from tidegate.producer.datastream.file_ledger import FoundFile
from tidegate.producer.messages import FORM_EVENT, ParkedChange, PublishableRecord
from tidegate.producer.records import DataChangeRecord
from tidegate.schemas.errors import TidegateError

_ERROR_CHARACTERS_MAX = 1_000
_PATH_CHARACTERS_MAX = 2_000
_COPY = "copy"


def copied_event(file: FoundFile, record: int, *, earliest_us: int, turn: int) -> DataChangeRecord:
    """Return the record of an event that was published before."""
    return _record(file, record, earliest_us=earliest_us, turn=turn, kind=_COPY, text="")


def refused_event(
    error: TidegateError, file: FoundFile, record: int, *, earliest_us: int, turn: int
) -> DataChangeRecord:
    """Return the record of an event that cannot be published."""
    text = _content(error, path=file.path, record=record)
    kind = type(error).__name__
    return _record(file, record, earliest_us=earliest_us, turn=turn, kind=kind, text=text)


def refused_file(
    error: TidegateError, file: FoundFile, record: int, *, earliest_us: int, turn: int
) -> DataChangeRecord:
    """Return the record of a file that cannot be read from that record on.

    A position notes it in addition to the file's records: the file may be completed, and read on.
    """
    placeholder = refused_event(error, file, record, earliest_us=earliest_us, turn=turn)
    return placeholder._replace(
        server_transaction_id=f"{REFUSED}{placeholder.server_transaction_id}"
    )


def set_aside(record: DataChangeRecord, *, file: str, number: int, token: str) -> PublishableRecord:
    """Return the published form of one of these records: a count, or a dead letter."""
    earliest_us, turn = time_and_turn(record.record_sequence)
    noted = f"{file}{REFUSED}" if record.server_transaction_id.startswith(REFUSED) else file
    place = (earliest_us, noted, f"{number}/{turn}", ())
    if record.value_capture_type == _COPY:
        return PublishableRecord(*place, filtered=1)
    kind, text = record.value_capture_type, record.transaction_tag
    return PublishableRecord(*place, (_letter(kind, text, file=file, record=number, token=token),))


def dead_letter(
    error: TidegateError, record: DataChangeRecord, *, file: str, number: int, token: str
) -> ParkedChange:
    """Return the dead letter of an event whose values or table its topic cannot represent."""
    text = _content(error, path=record.transaction_tag, record=number, table=record.table_name)
    return _letter(type(error).__name__, text, file=file, record=number, token=token)


def _content(error: TidegateError, *, path: str, record: int, **more: str) -> str:
    where = {"file": path[-_PATH_CHARACTERS_MAX:], "record": record, **more}
    return json.dumps({**where, "error": str(error)[:_ERROR_CHARACTERS_MAX]})


def _letter(kind: str, text: str, *, file: str, record: int, token: str) -> ParkedChange:
    return ParkedChange(
        topic="",
        key=f"{file}-{record:08x}".encode(),
        order_key=b"",
        mod=b"",
        content=text.encode(),
        form=FORM_EVENT,
        reason=kind,
        error=str(json.loads(text)["error"]),
        token=token,
    )


def _record(
    file: FoundFile, record: int, *, earliest_us: int, turn: int, kind: str, text: str
) -> DataChangeRecord:
    return DataChangeRecord(
        commit_timestamp_ns=earliest_us * 1_000,
        record_sequence=place_of(earliest_us, turn),
        server_transaction_id=f"-{file.name}-{record:08x}",
        is_last_record_in_transaction_in_partition=True,
        table_name="",
        columns=(),
        mods=(),
        mod_type="INSERT",
        value_capture_type=kind,
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
        transaction_tag=text,
        is_system_transaction=False,
    )
