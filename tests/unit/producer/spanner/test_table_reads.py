"""What a table read asks Spanner for, and how its errors are reported."""

import grpc
import pytest
from google.cloud.spanner_v1.types import PartialResultSet, ResultSet, TypeCode
from google.protobuf.struct_pb2 import Value

from tests.reading import decoded, received
from tidegate.producer.backfill.read_partition import ReadPartition
from tidegate.producer.backfill.read_plan import KeyRanges
from tidegate.producer.backfill.table_run import RunPlace
from tidegate.producer.errors import ConditionRefused, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.query_options import QueryOptions
from tidegate.producer.spanner.table_reads import SpannerChunkReads, SpannerTableReads
from tidegate.producer.spanner.tables_at import TablesAt
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

T_NS = 1_704_164_645_000_001_000
TEXT = ColumnType("STRING")
TABLE = TableSchema(
    "Sales.Items",
    (
        Column("Note", TEXT, 3),
        Column("Id", TEXT, 2, key_position=2),
        Column("Shop", TEXT, 1, key_position=1),
        Column("Left", TEXT, 4, is_watched=False),
    ),
)
KEY = ("s", None)


class Catalogue:
    """Knows one table, as it was at T."""

    def __init__(self, table=TABLE):
        self.found = table
        self.asked = []
        self.error = None

    def table(self, name, *, stream, read_ns):
        assert (stream, read_ns) == ("all", T_NS)
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return self.found if name == TABLE.name else None


@pytest.fixture
def catalogue():
    return Catalogue()


@pytest.fixture
def reads(channels, catalogue, tasks):
    options = QueryOptions(priority="LOW", tag="filling")
    return SpannerTableReads(channels, TablesAt(catalogue, stream="all", tasks=tasks), options)


@pytest.fixture
def wired(reads, spanner, tasks):
    return reads, spanner, tasks


def part(after=None, through=None, rows=1):
    return ReadPartition(TABLE.name, 0, 1, rows, after, through)


def rows(*cells):
    message = PartialResultSet.pb()(values=[Value(string_value=cell) for cell in cells])
    return lambda _request, _context: iter([message])


def read_request(spanner):
    _, request = spanner.requests
    assert request.transaction.single_use.read_only.read_timestamp.ToNanoseconds() == T_NS
    assert request.table == TABLE.name
    assert request.request_options.request_tag == "filling"
    return request


@pytest.mark.rule("P7")
def test_all_keys_are_read_in_their_order(reads, spanner, tasks):
    spanner.on_stream = rows("a", "1", "a", "2", "b", "1")
    ranges = KeyRanges(rows_min=2)
    for response in received(reads.keys(TABLE.name, ranges, read_ns=T_NS), tasks):
        assert response.decode()[0] == []
    request = read_request(spanner)
    assert list(request.columns) == ["Shop", "Id"]
    assert request.key_set.all_
    assert ranges.bounds == [(None, ("a", "2"), 2), (("a", "2"), None, 1)]


@pytest.mark.parametrize(
    ("keys", "start", "end"),
    [
        ((None, None), "start_closed", []),
        ((None, KEY), "start_closed", ["s", None]),
        ((KEY, None), "start_open", []),
        ((("r", 1.5, True), KEY), "start_open", ["s", None]),
    ],
)
def test_a_range_begins_behind_its_first_bound_and_has_its_last(wired, keys, start, end):
    reads, spanner, tasks = wired
    after, through = keys
    spanner.on_stream = rows("note", "1", "s")
    ((record,),) = decoded(reads.rows(part(after, through), read_ns=T_NS), tasks)
    (bounds,) = read_request(spanner).key_set.ranges
    assert list(read_request(spanner).columns) == ["Note", "Id", "Shop"]
    assert bounds.WhichOneof("start_key_type") == start
    assert bounds.WhichOneof("end_key_type") == "end_closed"
    assert list(getattr(bounds, start)) == list(after or ())
    assert list(bounds.end_closed) == end
    assert record.mods[0].keys == {"Id": "1", "Shop": "s"}
    assert record.mods[0].new_values == {"Note": "note"}


def test_rows_that_spanner_keeps_no_more_are_named_with_what_to_do(reads, spanner, tasks):
    def answer(_request, context):
        details = "Read-only transaction timestamp 2024-01-02 has exceeded the maximum staleness"
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, details)
        yield

    spanner.on_stream = answer
    with pytest.raises(QueryRefused, match="version_retention_period") as caught:
        list(decoded(reads.rows(part(), read_ns=T_NS), tasks))
    assert caught.value.fields["table"] == TABLE.name
    assert caught.value.fields["read_timestamp"] == "2024-01-02T03:04:05.000001Z"


def test_other_errors_are_what_they_are(reads, spanner, tasks):
    def answer(_request, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        yield

    spanner.on_stream = answer
    with pytest.raises(QueryInterrupted, match="read a table from Spanner"):
        list(decoded(reads.rows(part(), read_ns=T_NS), tasks))


def test_a_table_that_is_gone_is_named(reads, tasks):
    query = reads.keys("Gone", KeyRanges(), read_ns=T_NS)
    with pytest.raises(SchemaError, match=r"does not exist any more.*Gone"):
        tasks.run(query.next_size)


def test_a_restart_reads_the_columns_of_then_and_asks_for_them_once(
    reads, spanner, tasks, catalogue
):
    """A column that was added since is unknown to Spanner at T, which would refuse the read."""
    spanner.on_stream = rows("note", "1", "s")
    for _ in range(2):
        list(decoded(reads.rows(part(), read_ns=T_NS), tasks))
    assert catalogue.asked == [TABLE.name]


def test_a_catalogue_that_spanner_keeps_no_more_is_named_with_what_to_do(reads, tasks, catalogue):
    details = "Read timestamp is past the version GC bound: version_retention_period"
    catalogue.error = QueryRefused("refused", code="FAILED_PRECONDITION", details=details)
    with pytest.raises(QueryRefused, match="version_retention_period") as caught:
        tasks.run(reads.rows(part(), read_ns=T_NS).next_size)
    assert "tidegate-producer reset" in caught.value.hint


def test_a_query_that_is_cancelled_before_its_table_is_known_reads_nothing(reads, spanner, tasks):
    query = reads.rows(part(), read_ns=T_NS)
    query.cancel()
    assert tasks.run(query.next_size) is None
    assert len(spanner.requests) == 1, "the session"


def chunk_reads(channels, tasks, table=TABLE):
    catalogue = Catalogue(table)
    options = QueryOptions(priority="LOW", tag="filling")
    tables = TablesAt(catalogue, stream="all", tasks=tasks)
    return SpannerChunkReads(channels, tables, options), catalogue.asked


def chunk_of(reads, tasks, after):
    place = RunPlace(3, TABLE.name, 2, after).chunk(T_NS, rows=2)
    return tasks.run(lambda: reads.chunk(place))


@pytest.mark.parametrize(
    ("after", "start"), [(None, "start_closed"), (("r", "7"), "start_open"), (KEY, "start_open")]
)
def test_a_chunk_is_so_many_rows_behind_a_key(channels, spanner, tasks, after, start):
    spanner.on_stream = rows("note", "1", "s", "other", "2", "t")
    reads, asked = chunk_reads(channels, tasks)
    query = chunk_of(reads, tasks, after)
    found = [record for one in received(query, tasks) for record in one.decode()[0]]
    rest, last = query.rest()
    request = read_request(spanner)
    (bounds,) = request.key_set.ranges

    assert (request.limit, asked) == (2, [TABLE.name])
    assert list(request.columns) == ["Note", "Id", "Shop"]
    assert bounds.WhichOneof("start_key_type") == start
    assert list(getattr(bounds, start)) == list(after or ())
    assert (bounds.WhichOneof("end_key_type"), list(bounds.end_closed)) == ("end_closed", [])
    assert found == []
    assert [mod.keys for mod in rest[0].mods] == [
        {"Id": "1", "Shop": "s"},
        {"Id": "2", "Shop": "t"},
    ]
    assert last == ("t", "2")


def test_a_chunk_of_a_table_that_is_gone_is_not_read(channels, tasks):
    reads, _ = chunk_reads(channels, tasks, table=None)

    assert chunk_of(reads, tasks, None) is None


# ---------------------------------------------------------------- a condition


def key_order(request, _context):
    """The answer of the catalogue: `Shop` descends and may be NULL."""
    result = ResultSet.pb()()
    asked = request.sql.split("SELECT ")[1].split(" FROM")[0].split(", ")
    if "index_columns" not in request.sql:
        asked, found = ["option_value"], []
    else:
        assert request.transaction.single_use.read_only.read_timestamp.ToNanoseconds() == T_NS
        found = [("Sales", "Items", "Shop", "1", "DESC", "YES"),
                 ("Sales", "Items", "Id", "2", "ASC", "NO")]  # fmt: skip
    for name in asked:
        result.metadata.row_type.fields.add(name=name)
    for row in found:
        result.rows.add(values=[Value(string_value=one) for one in row])
    return result


BEHIND = (
    "((`Shop` <= @after1 OR `Shop` IS NULL) AND (((`Shop` < @after1 OR `Shop` IS NULL)) "
    "OR (`Shop` = @after1 AND `Id` > @after2)))"
)


def conditional(reads, tasks, after=None):
    place = RunPlace(3, TABLE.name, 2, after, where="Note > 'a'").chunk(T_NS, rows=2)
    return tasks.run(lambda: reads.chunk(place))


@pytest.mark.rule("P7")
@pytest.mark.parametrize(("after", "behind"), [(None, ""), (("s", "1"), f"{BEHIND} AND ")])
def test_a_chunk_with_a_condition_is_a_query_at_its_time(channels, spanner, tasks, after, behind):
    spanner.on_sql, spanner.on_stream = key_order, rows("note", "1", "s", "other", "2", "r")
    reads, _ = chunk_reads(channels, tasks)
    query = conditional(reads, tasks, after)
    list(decoded(query, tasks))
    rest, last = query.rest()
    request = spanner.requests[-1]

    assert request.sql == (
        f"SELECT `Note`, `Id`, `Shop` FROM `Sales`.`Items` WHERE {behind}(Note > 'a'\n) "
        "ORDER BY `Shop` DESC, `Id` LIMIT 2"
    )
    assert request.transaction.single_use.read_only.read_timestamp.ToNanoseconds() == T_NS
    assert request.request_options.request_tag == "filling"
    bound = {name: one.string_value for name, one in request.params.fields.items()}
    assert bound == dict(zip(("after1", "after2"), after or (), strict=False))
    assert {one.code for one in request.param_types.values()} <= {TypeCode.STRING}
    assert rest[0].mods[1].keys == {"Id": "2", "Shop": "r"}
    assert last == ("r", "2")


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, "division by zero: 1 / 0", ConditionRefused),
        (grpc.StatusCode.INVALID_ARGUMENT, "Unrecognized name: staleness", ConditionRefused),
        (grpc.StatusCode.OUT_OF_RANGE, "the read timestamp is too old", QueryRefused),
        (grpc.StatusCode.FAILED_PRECONDITION, "exceeded the maximum staleness", QueryRefused),
        (grpc.StatusCode.PERMISSION_DENIED, "no SELECT", QueryRefused),
        (grpc.StatusCode.UNAVAILABLE, "gone", QueryInterrupted),
    ],
)
def test_what_the_condition_is_to_blame_for(wired, channels, code, details, kind):
    """All else may be over at another time."""
    _, spanner, tasks = wired

    def answer(_request, context):
        context.abort(code, details)
        yield

    spanner.on_sql, spanner.on_stream = key_order, answer
    reads, _ = chunk_reads(channels, tasks)
    with pytest.raises(kind) as caught:
        list(received(conditional(reads, tasks), tasks))
    assert type(caught.value) is kind
    assert caught.value.fields["details"] == details


def test_words_of_a_row_are_not_taken_for_a_time_that_is_too_old(wired, channels, monkeypatch):
    """Such a chunk would be read at another time, and fail there, for good."""
    _, spanner, tasks = wired

    def answer(_request, context):
        context.abort(grpc.StatusCode.OUT_OF_RANGE, "Bad int64 value: garbage")
        yield

    spanner.on_sql, spanner.on_stream = key_order, answer
    monkeypatch.setattr("time.time_ns", lambda: T_NS + 60_000_000_000)
    reads, _ = chunk_reads(channels, tasks)
    with pytest.raises(ConditionRefused):
        list(received(conditional(reads, tasks), tasks))


def test_a_table_that_came_back_with_a_key_of_floats_takes_no_condition(channels, tasks):
    table = TableSchema(TABLE.name, (Column("W", ColumnType("FLOAT64"), 1, key_position=1),))
    reads, _ = chunk_reads(channels, tasks, table)
    with pytest.raises(ConditionRefused, match="key column W has the type FLOAT64"):
        conditional(reads, tasks)
