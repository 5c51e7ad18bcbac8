"""However a response is cut, its rows are the same records."""

import pytest
from google.cloud.spanner_v1.types import PartialResultSet
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.backfill.read_partition import ReadPartition
from tidegate.producer.backfill.read_plan import KeyRanges
from tidegate.producer.backfill.table_run import RunPlace
from tidegate.producer.records import Mod
from tidegate.producer.spanner.table_rows import ChunkDecoder, KeysDecoder, RowsDecoder
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType

T_NS = 1_700_000_000_000_001_000
COLUMNS = [
    Column("Note", ColumnType("STRING"), 2),
    Column("Id", ColumnType("INT64"), 1, key_position=1),
    Column("Tags", ColumnType("ARRAY", ColumnType("STRING")), 3),
]
ROWS = 45


def value(content):
    match content:
        case None:
            return Value(null_value=0)
        case bool():
            return Value(bool_value=content)
        case str():
            return Value(string_value=content)
        case list():
            return Value(list_value=ListValue(values=[value(one) for one in content]))
        case _:
            return Value(number_value=content)


def row(number):
    return [None if number % 3 else f"note {number}", str(number), ["a", None, str(number)]]


def messages(cells, cuts):
    """The cells as messages that end at the cuts; a text may be cut within."""
    bounds = {cut % len(cells): is_within for cut, is_within in cuts if cut % len(cells)}
    begun, sent = "", []
    for place, cell in enumerate(cells, 1):
        rest = cell[len(begun) :] if begun else cell
        begun = ""
        if place not in bounds:
            sent.append(value(rest))
            continue
        is_within = bounds[place] and isinstance(cell, str) and len(rest) > 1
        if is_within:
            begun = rest[: len(rest) // 2]
            sent.append(value(begun))
        else:
            sent.append(value(rest))
        yield PartialResultSet.pb()(values=sent, chunked_value=is_within).SerializeToString()
        sent = [value(rest[len(begun) :])] if is_within else []
        begun = ""
    if sent:
        yield PartialResultSet.pb()(values=sent).SerializeToString()


def decoded(decoder, sent):
    found = [record for message in sent for record in decoder.decode(message)]
    decoder.end()
    return found


def rows_decoder(rows=ROWS):
    one = ReadPartition("Items", 3, 5, rows, None, None)
    return RowsDecoder(one, COLUMNS, read_ns=T_NS)


CUTS = st.lists(st.tuples(st.integers(0, 3 * ROWS), st.booleans()), max_size=8)


@given(cuts=CUTS)
def test_rows_are_records_of_twenty(cuts):
    cells = [cell for number in range(ROWS) for cell in row(number)]
    found = decoded(rows_decoder(), messages(cells, cuts))

    assert [len(record.mods) for record in found] == [20, 20, 5]
    assert [mod for record in found for mod in record.mods] == [
        Mod({"Id": str(n)}, {"Note": row(n)[0], "Tags": ["a", None, str(n)]}, {})
        for n in range(ROWS)
    ]
    assert [record.record_sequence for record in found] == ["00000000", "00000001", "00000002"]
    first = found[0]
    assert (first.table_name, first.commit_timestamp_ns, first.mod_type) == (
        "Items",
        T_NS,
        "INSERT",
    )
    assert first.server_transaction_id == "spanner-backfill-3"
    assert first.transaction_tag == "spanner-backfill"
    assert first.number_of_records_in_transaction == 3
    assert [one.is_primary_key for one in first.columns] == [False, True, False]
    assert [r.is_last_record_in_transaction_in_partition for r in found] == [False, False, True]


@given(cuts=CUTS, rows=st.integers(0, 60), rows_min=st.integers(1, 7))
def test_keys_are_counted_however_they_come(cuts, rows, rows_min):
    ranges = KeyRanges(ranges_max=100, rows_min=rows_min)
    cells = [cell for number in range(rows) for cell in (str(number), number / 2)]
    sent = messages(cells, cuts) if cells else []
    assert decoded(KeysDecoder(ranges, width=2), sent) == []

    assert ranges.rows == rows
    ends = [through for _, through, _ in ranges.bounds[:-1]]
    assert ends == [(str(n), n / 2) for n in range(rows_min - 1, rows, rows_min)][: len(ends)]
    assert len(ranges.bounds) == -(-rows // rows_min)


def test_what_waits_for_the_rest_of_a_record_counts():
    decoder = rows_decoder()
    cells = [value(cell) for cell in ["x" * 100, "1", []] * 2 + ["y" * 100]]
    assert decoder.decode(PartialResultSet.pb()(values=cells).SerializeToString()) == []
    assert decoder.unfinished_bytes > 300


@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_another_number_of_rows_than_planned_is_refused(rows):
    cells = [cell for number in range(rows) for cell in row(number)]
    with pytest.raises(SchemaError, match=f"another number of rows.*Items.*expected={ROWS}"):
        decoded(rows_decoder(), messages(cells, []))


def test_an_end_within_a_row_is_refused():
    cells = [value(cell) for cell in row(0)[:2]]
    message = PartialResultSet.pb()(values=cells).SerializeToString()
    for decoder in (rows_decoder(), KeysDecoder(KeyRanges(), width=3)):
        decoder.decode(message)
        with pytest.raises(SchemaError):
            decoder.end()


@pytest.mark.parametrize(
    ("content", "plain"),
    [(True, True), (1.5, 1.5), ("NaN", "NaN"), (None, None), ([1.0, None], [1.0, None]), ([], [])],
)
def test_values_are_those_of_a_change(content, plain):
    one = ReadPartition("t", 0, 1, 1, None, None)
    columns = [Column("K", ColumnType("INT64"), 1, key_position=1), Column("V", ColumnType("X"), 2)]
    message = PartialResultSet.pb()(values=[value("7"), value(content)]).SerializeToString()
    (record,) = RowsDecoder(one, columns, read_ns=T_NS).decode(message)
    assert record.mods == (Mod({"K": "7"}, {"V": plain}, {}),)


def chunk_decoder(rows):
    place = RunPlace(4, "Items", 9).chunk(T_NS, rows=rows)
    columns = [*COLUMNS, Column("Shop", ColumnType("STRING"), 4, key_position=0)]
    return ChunkDecoder(place, columns)


@given(cuts=CUTS, rows=st.integers(1, 120), asked=st.integers(1, 120))
def test_a_chunk_is_records_of_fifty_and_ends_with_its_last_key(cuts, rows, asked):
    rows = min(rows, asked)
    cells = [cell for number in range(rows) for cell in [*row(number), "s"]]
    decoder = chunk_decoder(asked)
    found = decoded(decoder, messages(cells, cuts))
    rest, after = decoder.rest()
    found += rest

    assert [len(one.mods) for one in found] == [50] * (rows // 50) + [rows % 50] * bool(rows % 50)
    assert [mod.keys["Id"] for one in found for mod in one.mods] == list(map(str, range(rows)))
    # In the order of the key, not of the columns.
    assert after == (("s", str(rows - 1)) if rows == asked else None)
    names = [one.server_transaction_id for one in found]
    assert names == [f"spanner-backfill-4-9-{number:06d}" for number in range(len(found))]
    assert {one.table_name for one in found} == {"Items__backfill"}
    assert {one.number_of_records_in_transaction for one in found} == {1}
    assert {one.commit_timestamp_ns for one in found} == {T_NS}


def test_a_chunk_without_a_row_ends_its_table():
    decoder = chunk_decoder(10)

    assert decoded(decoder, []) == []
    assert decoder.rest() == ([], None)


def test_a_chunk_that_ends_within_a_row_is_refused():
    decoder = chunk_decoder(10)
    decoder.decode(PartialResultSet.pb()(values=[value("a")]).SerializeToString())
    with pytest.raises(SchemaError, match="in the middle of a row"):
        decoder.end()


def test_a_column_of_an_unknown_notation_has_the_type_of_the_answer():
    odd = Column("Odd", ColumnType("VECTOR<3>"), 4)
    decoder = ChunkDecoder(RunPlace(1, "Items", read_ns=T_NS, rows=5), [*COLUMNS, odd])
    codes = [{"code": 6}, {"code": 6}, {"code": 8, "array_element_type": {"code": 6}},
             {"code": 8, "array_element_type": {"code": 15}}]  # fmt: skip
    fields = [{"name": "", "type_": code} for code in codes]
    first = PartialResultSet(metadata={"row_type": {"fields": fields}})
    sent = [PartialResultSet.serialize(first), *messages([*row(1), [1.5]], [])]
    assert decoded(decoder, sent) == []
    ((record,), _) = decoder.rest()
    assert [one.type for one in record.columns] == [
        *(one.type for one in COLUMNS), ColumnType("ARRAY", ColumnType("FLOAT32")),
    ]  # fmt: skip
    assert record.mods == (Mod({"Id": "1"}, {"Note": None, "Tags": row(1)[2], "Odd": [1.5]}, {}),)
