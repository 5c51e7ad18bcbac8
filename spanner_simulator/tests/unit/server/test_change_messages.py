from __future__ import annotations

from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner
from google.cloud.spanner_v1.streamed import StreamedResultSet

from spanner_simulator.core.change_streams.records import DataChangeRecord
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.server.change_messages import ChangeMessages
from spanner_simulator.server.encoding.change_rows import ChangeRowEncoder, RowForm
from spanner_simulator.server.encoding.change_rows_json import JsonRows
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows
from spanner_simulator.server.encoding.change_rows_struct import StructRows
from spanner_simulator.server.messages import plain_of
from unit.conftest import data_record

MEBIBYTE = 1 << 20
FORMS: dict[str, RowForm] = {
    "struct": StructRows(),
    "json": JsonRows("read_json_s"),
    "proto": ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL"),
}


def record(*values: str) -> DataChangeRecord:
    return data_record(*(Mod({"K": str(at)}, {"V": one}, {}) for at, one in enumerate(values)))


def partition_of(*records: DataChangeRecord) -> StreamPartition:
    one = StreamPartition("t", (), 0)
    for each in records:
        one.records.append(each)
    return one


def parse(message: bytes) -> Any:
    return spanner.PartialResultSet.deserialize(message)


def merged(messages: list[bytes]) -> list[list[Any]]:
    """What the official Python client makes of the messages."""
    result = StreamedResultSet(iter([parse(one) for one in messages]), lazy_decode=True)
    return [[plain_of(value) for value in row] for row in result]


def whole(form: RowForm, one: DataChangeRecord) -> list[Any]:
    return [
        plain_of(value)
        for value in spanner.PartialResultSet.pb().FromString(form.encode(one)).values
    ]


LARGE = record("x" * 700_000, "äöü€" * 100_000, "", "y" * 1_500_000)
MIDDLING = record("x" * 700, "äöü€" * 400, "", "y" * 3_000)
SMALL = record("z")


@pytest.mark.parametrize("name", FORMS)
def test_a_row_above_a_mebibyte_comes_in_pieces_that_clients_join(name: str) -> None:
    form = FORMS[name]
    one = partition_of(SMALL, LARGE, SMALL)
    messages = list(ChangeMessages(ChangeRowEncoder(), form, "q").records(one, range(3)))
    assert len(messages) > 4
    assert all(len(message) <= MEBIBYTE for message in messages)
    assert merged(messages) == [whole(form, each) for each in (SMALL, LARGE, SMALL)]
    tokens = [parse(message).resume_token for message in messages]
    assert len(set(tokens)) == len(tokens)
    assert [parse(message).chunked_value for message in messages].count(True) == len(messages) - 3


@pytest.mark.parametrize("name", FORMS)
def test_each_piece_can_be_resumed_after(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanner_simulator.server.change_messages._MESSAGE_BYTES_MAX", 1000)
    form = FORMS[name]
    one = partition_of(SMALL, MIDDLING, SMALL)
    encoder = ChangeRowEncoder()
    messages = list(ChangeMessages(encoder, form, "q").records(one, range(3)))
    for cut, message in enumerate(messages, 1):
        again = ChangeMessages(encoder, form, "q")
        position = again.parse_resume_token(parse(message).resume_token)
        assert position is not None
        again.position = position
        rest = list(again.records(one, range(position.data_index, 3)))
        assert merged(messages[:cut] + rest) == merged(messages)


@pytest.mark.parametrize(
    "token", [b"x", b"cs.1.2.3.4.5", b"cs..0.0.0.0", b"cs.1.1.1.1.1.1", b"cs.9" + b"9" * 40]
)
def test_foreign_tokens_are_refused(token: bytes) -> None:
    messages = ChangeMessages(ChangeRowEncoder(), FORMS["json"], "q")
    assert messages.parse_resume_token(b"") is None
    with pytest.raises(Exception, match="Invalid resume_token"):
        messages.parse_resume_token(token)
