"""Reads of tables: what Spanner is asked for, and rows that are records however they are cut."""

import datetime
import itertools
import uuid
from datetime import UTC
from decimal import Decimal

import grpc
import pytest
from google.cloud.spanner_v1.types import ExecuteSqlRequest, PartialResultSet, ResultSet, TypeCode
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator import Simulator, SimulatorConfig
from tests.reading import decoded, received
from tests.unit.producer.spanner import conftest
from tidegate.producer.backfill.read_partition import KeyRanges, ReadPartition
from tidegate.producer.backfill.table_run import RunWait
from tidegate.producer.description import GOOGLE_SQL, POSTGRESQL
from tidegate.producer.errors import ConditionRefused, QueryInterrupted, QueryRefused
from tidegate.producer.records import Mod
from tidegate.producer.spanner.catalogue import SpannerCatalogue, TablesAt
from tidegate.producer.spanner.chunk_sql import KeyOrder, KeyPart, chunk_query, unordered_key
from tidegate.producer.spanner.stream import QueryOptions
from tidegate.producer.spanner.table_reads import SpannerChunkReads, SpannerTableReads
from tidegate.producer.spanner.table_rows import ChunkDecoder, KeysDecoder, RowsDecoder, _plain
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

message, value = conftest.message, conftest.value
T_NS = 1_704_164_645_000_001_000
NUMBER, TEXT, FLOAT = map(ColumnType, ("INT64", "STRING", "FLOAT64"))
TABLE = TableSchema(
    "Sales.Items",
    (Column("Note", TEXT, 3), Column("Id", TEXT, 2, key_position=2),
     Column("Shop", TEXT, 1, key_position=1), Column("Left", TEXT, 4, is_watched=False)),
)  # fmt: skip
KEY = ("s", None)


class Reads:
    """Reads of one table, as it was at T, from a server that answers as a test says."""

    def __init__(self, channels, spanner, tasks):
        self.spanner, self.tasks = spanner, tasks
        self.table_then, self.asked, self.error = TABLE, [], None
        options = QueryOptions(priority="LOW", tag="filling")
        tables = TablesAt(self, stream="all", tasks=tasks)
        self.tables = SpannerTableReads(channels, tables, options)
        self.chunks = SpannerChunkReads(channels, tables, options)

    def table(self, name, *, stream, read_ns):
        assert (stream, read_ns) == ("all", T_NS)
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return self.table_then if name == TABLE.name else None

    def rows(self, after=None, through=None):
        partition = ReadPartition(TABLE.name, 0, 1, 1, after, through)
        return self.tables.rows(partition, read_ns=T_NS)

    def chunk(self, after=None, **options):
        place = RunWait(3, TABLE.name, 2, after, **options).chunk(T_NS, rows=2)
        return self.tasks.run(lambda: self.chunks.chunk(place))

    def answer(self, *cells):
        self.spanner.on_stream = lambda *_: iter([message(*cells)])

    def abort(self, code, details):
        def answer(_request, context):
            context.abort(grpc.StatusCode[code], details)
            yield

        self.spanner.on_stream = answer

    @property
    def request(self):
        _, request = self.spanner.requests
        assert request.transaction.single_use.read_only.read_timestamp.ToNanoseconds() == T_NS
        assert request.table == TABLE.name
        assert request.request_options.request_tag == "filling"
        return request


@pytest.fixture(params=["h2", "grpc"])
def transport(request):
    """Each test of a read runs with both clients of queries."""
    return request.param


@pytest.fixture
def reads(channels, spanner, tasks):
    return Reads(channels, spanner, tasks)


@pytest.mark.rule("P7")
def test_all_keys_are_read_in_their_order(reads, tasks):
    reads.answer("a", "1", "a", "2", "b", "1")
    ranges = KeyRanges(rows_min=2)
    for response in received(reads.tables.keys(TABLE.name, ranges, read_ns=T_NS), tasks):
        assert response.decode()[0] == []
    assert list(reads.request.columns) == ["Shop", "Id"]
    assert reads.request.key_set.all_
    assert ranges.bounds == [(None, ("a", "2"), 2), (("a", "2"), None, 1)]


@pytest.mark.parametrize(
    ("after", "through", "start", "end"),
    [
        (None, None, "start_closed", []),
        (None, KEY, "start_closed", ["s", None]),
        (KEY, None, "start_open", []),
        (("r", 1.5, True), KEY, "start_open", ["s", None]),
    ],
)
def test_a_range_begins_behind_its_first_bound_and_has_its_last(reads, after, through, start, end):
    reads.answer("note", "1", "s")
    ((record,),) = decoded(reads.rows(after, through), reads.tasks)
    (bounds,) = reads.request.key_set.ranges
    assert list(reads.request.columns) == ["Note", "Id", "Shop"]
    assert bounds.WhichOneof("start_key_type") == start
    assert bounds.WhichOneof("end_key_type") == "end_closed"
    assert list(getattr(bounds, start)) == list(after or ())
    assert list(bounds.end_closed) == end
    assert record.mods[0].keys == {"Id": "1", "Shop": "s"}
    assert record.mods[0].new_values == {"Note": "note"}
    # A restart reads the columns of then and asks for them once: Spanner at T refuses later ones.
    list(decoded(reads.rows(after, through), reads.tasks))
    assert reads.asked == [TABLE.name]


def test_rows_that_spanner_keeps_no_more_are_named_with_what_to_do(reads, tasks):
    details = "Read-only transaction timestamp 2024-01-02 has exceeded the maximum staleness"
    reads.abort("FAILED_PRECONDITION", details)
    with pytest.raises(QueryRefused, match="version_retention_period") as caught:
        list(decoded(reads.rows(), tasks))
    assert caught.value.fields["table"] == TABLE.name
    assert caught.value.fields["read_timestamp"] == "2024-01-02T03:04:05.000001Z"
    reads.abort("UNAVAILABLE", "gone")
    with pytest.raises(QueryInterrupted, match="read a table from Spanner"):
        list(decoded(reads.rows(), tasks))


def test_a_catalogue_that_spanner_keeps_no_more_is_named_and_asked_again(reads, tasks):
    details = "Read timestamp is past the version GC bound: version_retention_period"
    reads.error = QueryRefused("refused", code="FAILED_PRECONDITION", details=details)
    with pytest.raises(QueryRefused, match="version_retention_period") as caught:
        tasks.run(reads.rows().next_size)
    assert "tidegate-producer reset" in caught.value.hint
    # After an error it is asked for again.
    reads.error = None
    reads.answer("note", "1", "s")
    asked = len(reads.asked)
    for _ in range(2):
        list(decoded(reads.rows(), tasks))
    assert len(reads.asked) == asked + 1


def test_a_table_that_is_gone_is_named(reads, tasks):
    query = reads.tables.keys("Gone", KeyRanges(), read_ns=T_NS)
    with pytest.raises(SchemaError, match=r"does not exist any more.*Gone"):
        tasks.run(query.next_size)
    reads.table_then = None
    assert reads.chunk() is None  # a chunk of such a table is not read


def test_a_query_that_is_cancelled_before_its_table_is_known_reads_nothing(reads, spanner, tasks):
    query = reads.rows()
    query.cancel()
    assert tasks.run(query.next_size) is None
    assert len(spanner.requests) == 1, "the session"


@pytest.mark.parametrize(
    ("after", "start"), [(None, "start_closed"), (("r", "7"), "start_open"), (KEY, "start_open")]
)
def test_a_chunk_is_so_many_rows_behind_a_key(reads, after, start):
    reads.answer("note", "1", "s", "other", "2", "t")
    query = reads.chunk(after)
    assert [*decoded(query, reads.tasks)] == []
    rest, last = query.rest()
    (bounds,) = reads.request.key_set.ranges
    assert (reads.request.limit, reads.asked) == (2, [TABLE.name])
    assert list(reads.request.columns) == ["Note", "Id", "Shop"]
    assert bounds.WhichOneof("start_key_type") == start
    assert list(getattr(bounds, start)) == list(after or ())
    assert (bounds.WhichOneof("end_key_type"), list(bounds.end_closed)) == ("end_closed", [])
    assert [mod.keys for mod in rest[0].mods] == [
        {"Id": "1", "Shop": "s"}, {"Id": "2", "Shop": "t"},
    ]  # fmt: skip
    assert last == ("t", "2")


def key_order(request, _context):
    """The answer of the catalogue: `Shop` descends and may be NULL."""
    result = ResultSet.pb()()
    asked = request.sql.split("SELECT ")[1].split(" FROM")[0].split(", ")
    if "index_columns" not in request.sql:
        asked, rows = ["option_value"], []
    else:
        assert request.transaction.single_use.read_only.read_timestamp.ToNanoseconds() == T_NS
        rows = [("Sales", "Items", "Shop", "1", "DESC", "YES"),
                 ("Sales", "Items", "Id", "2", "ASC", "NO")]  # fmt: skip
    for name in asked:
        result.metadata.row_type.fields.add(name=name)
    for row in rows:
        result.rows.add(values=[Value(string_value=cell) for cell in row])
    return result


BEHIND = (
    "((`Shop` <= @after1 OR `Shop` IS NULL) AND (((`Shop` < @after1 OR `Shop` IS NULL)) "
    "OR (`Shop` = @after1 AND `Id` > @after2)))"
)


@pytest.fixture
def conditional(reads):
    reads.spanner.on_sql = key_order
    return lambda after=None: reads.chunk(after, where="Note > 'a'")


@pytest.mark.rule("P7")
@pytest.mark.parametrize(("after", "behind"), [(None, ""), (("s", "1"), f"{BEHIND} AND ")])
def test_a_chunk_with_a_condition_is_a_query_at_its_time(reads, conditional, after, behind):
    reads.answer("note", "1", "s", "other", "2", "r")
    query = conditional(after)
    list(decoded(query, reads.tasks))
    rest, last = query.rest()
    request = reads.spanner.requests[-1]
    assert request.sql == (
        f"SELECT `Note`, `Id`, `Shop` FROM `Sales`.`Items` WHERE {behind}(Note > 'a'\n) "
        "ORDER BY `Shop` DESC, `Id` LIMIT 2"
    )
    assert request.transaction.single_use.read_only.read_timestamp.ToNanoseconds() == T_NS
    assert request.request_options.request_tag == "filling"
    bound = {name: field.string_value for name, field in request.params.fields.items()}
    assert bound == dict(zip(("after1", "after2"), after or (), strict=False))
    assert {param_type.code for param_type in request.param_types.values()} <= {TypeCode.STRING}
    assert rest[0].mods[1].keys == {"Id": "2", "Shop": "r"}
    assert last == ("r", "2")


@pytest.mark.parametrize(
    "case",
    [
        ("OUT_OF_RANGE", "division by zero: 1 / 0", ConditionRefused),
        # Words of a row are not taken for a time that is too old.
        ("OUT_OF_RANGE", "Bad int64 value: garbage", ConditionRefused),
        ("INVALID_ARGUMENT", "Unrecognized name: staleness", ConditionRefused),
        ("OUT_OF_RANGE", "the read timestamp is too old", QueryRefused),
        ("FAILED_PRECONDITION", "exceeded the maximum staleness", QueryRefused),
        ("PERMISSION_DENIED", "no SELECT", QueryRefused),
        ("UNAVAILABLE", "gone", QueryInterrupted),
    ],
)
def test_what_the_condition_is_to_blame_for(reads, conditional, monkeypatch, case):
    """All else may be over at another time."""
    code, details, kind = case
    if "garbage" in details:
        monkeypatch.setattr("time.time_ns", lambda: T_NS + 60_000_000_000)
    reads.abort(code, details)
    with pytest.raises(kind) as caught:
        list(received(conditional(), reads.tasks))
    assert type(caught.value) is kind
    assert caught.value.fields["details"] == details


def test_a_table_that_came_back_with_a_key_of_floats_takes_no_condition(reads, conditional):
    reads.table_then = TableSchema(TABLE.name, (Column("W", FLOAT, 1, key_position=1),))
    with pytest.raises(ConditionRefused, match="key column W has the type FLOAT64"):
        conditional()


ITEMS = TableSchema(
    "Sales.Items", (Column("Id", NUMBER, 2, 2), Column("Shop", TEXT, 1, 1), Column("Note", TEXT, 3))
)
SHOP, ID = KeyPart("Shop", is_nullable=False), KeyPart("Id", is_descending=True)


def query(dialect, *parts, after=None, where="Id > 5"):
    order = KeyOrder(dialect, parts)
    return chunk_query(ITEMS, order, ["Note", "Id"], after=after, where=where, rows=7)


def test_the_first_chunk_has_the_condition_alone_in_a_line_that_a_comment_may_end():
    chunk = query(GOOGLE_SQL, SHOP, ID, where="Id > 5 -- large")
    assert chunk.sql == (
        "SELECT `Note`, `Id` FROM `Sales`.`Items` WHERE (Id > 5 -- large\n) "
        "ORDER BY `Shop`, `Id` DESC LIMIT 7"
    )
    assert chunk.parameters == {}
    assert query(GOOGLE_SQL).sql.endswith(" WHERE (Id > 5\n) LIMIT 7")  # a table without a key


def test_keys_whose_values_do_not_compare_as_they_are_sorted_are_named():
    for kind, is_ordered in (
        (NUMBER, True), (ColumnType("UUID"), True), (FLOAT, False), (ColumnType("NUMERIC"), True),
        (ColumnType("NUMERIC", None, "PG_NUMERIC"), False), (ColumnType("ENUM"), False),
    ):  # fmt: skip
        wrong = Column("x", kind, 2, 2)
        table = TableSchema("t", (Column("a", TEXT, 1, 1), wrong, Column("f", FLOAT, 3)))
        assert unordered_key(table) == (None if is_ordered else wrong)


VALUES = (None, "1", "2", "3")
DIRECTIONS = list(itertools.product((False, True), repeat=2))
KINDS = {
    GOOGLE_SQL: "CREATE TABLE Kinds (B BOOL, Y BYTES(MAX), D DATE, T TIMESTAMP, S STRING(MAX), "
    "U UUID, N NUMERIC) PRIMARY KEY (B DESC, Y, D, T, S, U, N)",
    POSTGRESQL: 'CREATE TABLE "Kinds" (b bool, y bytea, d date, t timestamptz, s varchar, '
    "u uuid, PRIMARY KEY (b, y, d, t, s, u))",
}
_FIRST = (True, "AP8=", datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, tzinfo=UTC),
          "it's", uuid.UUID(int=7), Decimal("1.5"))  # fmt: skip
_SECOND = (False, "AQ==", datetime.date(2024, 5, 2), datetime.datetime(2024, 5, 2, tzinfo=UTC),
           "z", uuid.UUID(int=8), Decimal(10))  # fmt: skip


def kind_rows(width):
    """Return a row, and one for each column that differs in it alone."""
    rows = [(*_FIRST[:n], *_SECOND[n : n + 1], *_FIRST[n + 1 :]) for n in range(width)]
    return [row[:width] for row in (_FIRST, *rows)]


PG_TABLE = 'CREATE TABLE "T" (id bigint PRIMARY KEY, a bigint, b bigint)'


def ddl(is_descending):
    a, b = ("DESC" if is_down else "ASC" for is_down in is_descending)
    return f"CREATE TABLE {name_of(is_descending)} (a INT64, b INT64) PRIMARY KEY (a {a}, b {b})"


def name_of(is_descending):
    return "T" + "".join("01"[is_down] for is_down in is_descending)


@pytest.fixture(scope="module")
def databases():
    """By dialect a database whose tables have keys, or columns, that may be NULL."""
    rows = list(itertools.product(VALUES, repeat=2))
    with Simulator(SimulatorConfig()) as simulator:
        simulator.create_database(
            "gs", ddl=[KINDS[GOOGLE_SQL], *(ddl(direction) for direction in DIRECTIONS)]
        )
        simulator.create_database("pg", ddl=[PG_TABLE, KINDS[POSTGRESQL]], dialect="POSTGRESQL")
        instance = simulator.client().instance("test-instance")
        with instance.database("gs").batch() as batch:
            batch.insert("Kinds", list("BYDTSUN"), kind_rows(7))
            for direction in DIRECTIONS:
                batch.insert(name_of(direction), ("a", "b"), rows)
        with instance.database("pg").batch() as batch:
            batch.insert("T", ("id", "a", "b"), [(n, *row) for n, row in enumerate(rows)])
            batch.insert("Kinds", list("bydtsu"), kind_rows(6))
        with conftest.channels_to(simulator, **{GOOGLE_SQL: "gs", POSTGRESQL: "pg"}) as opened:
            yield opened


def rows_of(channels, found):
    request = ExecuteSqlRequest.pb()(sql=found.sql)
    request.transaction.single_use.read_only.strong = True
    for name, (code, value) in found.parameters.items():
        request.params[name] = value
        request.param_types[name].code = TypeCode[code]
    result = channels.execute_sql(request, timeout_s=30)
    return [tuple(_plain(value.SerializeToString()) for value in row.values) for row in result.rows]


def pages(chunk):
    """Yield all rows, one in each chunk; without an end if a chunk begins before its place."""
    after = None
    while page := chunk(after, 1):
        yield from page
        after = page[-1]


@pytest.mark.parametrize("is_descending", DIRECTIONS)
@pytest.mark.parametrize("dialect", [GOOGLE_SQL, POSTGRESQL])
def test_every_row_comes_once_in_order_wherever_null_stands(databases, dialect, is_descending):
    channels = databases[dialect]
    name = "T" if dialect == POSTGRESQL else name_of(is_descending)
    parts = (KeyPart("a", is_descending[0]), KeyPart("b", is_descending[1]))
    order = KeyOrder(dialect, parts)
    if dialect == GOOGLE_SQL:
        assert SpannerCatalogue(channels).key_order(name) == order
    table = TableSchema(name, (Column("a", NUMBER, 1, 1), Column("b", NUMBER, 2, 2)))

    def chunk(after, rows):
        found = chunk_query(
            table, order, ["a", "b"], after=after, where="a IS NULL OR b < 3 OR a = 3", rows=rows
        )
        return rows_of(channels, found)

    whole = chunk(None, 100)
    assert list(itertools.islice(pages(chunk), 20)) == whole
    assert len(whole) == 12


@pytest.mark.parametrize("dialect", [GOOGLE_SQL, POSTGRESQL])
def test_a_chunk_is_behind_a_key_of_any_type_that_is_taken(databases, dialect):
    channels = databases[dialect]
    catalogue = SpannerCatalogue(channels)
    table, order = catalogue.table("Kinds", stream=""), catalogue.key_order("Kinds")
    columns = [column.name for column in table.columns]

    def chunk(after, rows):
        found = chunk_query(table, order, columns, after=after, where="TRUE", rows=rows)
        return rows_of(channels, found)

    whole = chunk(None, 100)
    assert list(itertools.islice(pages(chunk), 20)) == whole
    assert len(whole) == len(columns) + 1
    if dialect == POSTGRESQL:  # no column of its keys may be null
        parts = (KeyPart("id", is_nullable=False),)
        assert catalogue.key_order("T") == KeyOrder(POSTGRESQL, parts)


COLUMNS = [
    Column("Note", TEXT, 2), Column("Id", NUMBER, 1, key_position=1),
    Column("Tags", ColumnType("ARRAY", TEXT), 3),
]  # fmt: skip
ROWS = 45


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


def decoded_by(decoder, sent):
    records = [record for message in sent for record in decoder.decode(message)]
    decoder.end()
    return records


def in_one(*cells):
    return message(*cells).SerializeToString()


def rows_decoder():
    read_partition = ReadPartition("Items", 3, 5, ROWS, None, None)
    return RowsDecoder(read_partition, COLUMNS, read_ns=T_NS)


CUTS = st.lists(st.tuples(st.integers(0, 3 * ROWS), st.booleans()), max_size=8)


@given(cuts=CUTS)
def test_rows_are_records_of_twenty(cuts):
    cells = [cell for number in range(ROWS) for cell in row(number)]
    records = decoded_by(rows_decoder(), messages(cells, cuts))
    assert [len(record.mods) for record in records] == [20, 20, 5]
    assert [mod for record in records for mod in record.mods] == [
        Mod({"Id": str(n)}, {"Note": row(n)[0], "Tags": ["a", None, str(n)]}, {})
        for n in range(ROWS)
    ]
    assert [record.record_sequence for record in records] == ["00000000", "00000001", "00000002"]
    first = records[0]
    assert (
        first.table_name, first.commit_timestamp_ns, first.mod_type, first.server_transaction_id,
        first.transaction_tag, first.number_of_records_in_transaction,
    ) == ("Items", T_NS, "INSERT", "spanner-backfill-3", "spanner-backfill", 3)  # fmt: skip
    assert [column.is_primary_key for column in first.columns] == [False, True, False]
    assert [r.is_last_record_in_transaction_in_partition for r in records] == [False, False, True]


@given(cuts=CUTS, rows=st.integers(0, 60), rows_min=st.integers(1, 7))
def test_keys_are_counted_however_they_come(cuts, rows, rows_min):
    ranges = KeyRanges(ranges_max=100, rows_min=rows_min)
    cells = [cell for number in range(rows) for cell in (str(number), number / 2)]
    sent = messages(cells, cuts) if cells else []
    assert decoded_by(KeysDecoder(ranges, width=2), sent) == []
    assert ranges.rows == rows
    ends = [through for _, through, _ in ranges.bounds[:-1]]
    assert ends == [(str(n), n / 2) for n in range(rows_min - 1, rows, rows_min)][: len(ends)]
    assert len(ranges.bounds) == -(-rows // rows_min)


def test_another_number_of_rows_than_planned_or_an_end_within_one_is_refused():
    for rows in (ROWS - 1, ROWS + 1):
        cells = [cell for number in range(rows) for cell in row(number)]
        with pytest.raises(SchemaError, match=f"another number of rows.*Items.*expected={ROWS}"):
            decoded_by(rows_decoder(), messages(cells, []))
    for decoder in (rows_decoder(), KeysDecoder(KeyRanges(), width=3), chunk_decoder(10)):
        decoder.decode(in_one(*row(0)[:2]))
        with pytest.raises(SchemaError):
            decoder.end()


def test_values_are_those_of_a_change_and_what_waits_for_the_rest_counts():
    decoder = rows_decoder()
    assert decoder.decode(in_one(*["x" * 100, "1", []] * 2, "y" * 100)) == []
    assert decoder.unfinished_bytes > 300
    columns = [Column("K", NUMBER, 1, key_position=1), Column("V", ColumnType("X"), 2)]
    for content in (True, 1.5, "NaN", None, [1.0, None], []):
        read_partition = ReadPartition("t", 0, 1, 1, None, None)
        (record,) = RowsDecoder(read_partition, columns, read_ns=T_NS).decode(in_one("7", content))
        assert record.mods == (Mod({"K": "7"}, {"V": content}, {}),)


def chunk_decoder(rows, last=None):
    last = last or Column("Shop", TEXT, 4, key_position=0)
    return ChunkDecoder(RunWait(4, "Items", 9).chunk(T_NS, rows=rows), [*COLUMNS, last])


@given(cuts=CUTS, rows=st.integers(0, 120), asked=st.integers(1, 120))
def test_a_chunk_is_records_of_fifty_and_ends_with_its_last_key(cuts, rows, asked):
    rows = min(rows, asked)
    cells = [cell for number in range(rows) for cell in [*row(number), "s"]]
    decoder = chunk_decoder(asked)
    records = decoded_by(decoder, messages(cells, cuts) if cells else [])
    rest, after = decoder.rest()
    records += rest
    assert [len(record.mods) for record in records] == [50] * (rows // 50) + [rows % 50] * bool(
        rows % 50
    )
    assert [mod.keys["Id"] for record in records for mod in record.mods] == list(
        map(str, range(rows))
    )
    # In the order of the key, not of the columns.
    assert after == (("s", str(rows - 1)) if rows == asked else None)
    names = [record.server_transaction_id for record in records]
    assert names == [f"spanner-backfill-4-9-{number:06d}" for number in range(len(records))]
    assert {record.table_name for record in records} <= {"Items__backfill"}
    assert {record.number_of_records_in_transaction for record in records} <= {1}
    assert {record.commit_timestamp_ns for record in records} <= {T_NS}


def test_a_column_of_an_unknown_notation_has_the_type_of_the_answer():
    decoder = chunk_decoder(5, Column("Odd", ColumnType("VECTOR<3>"), 4))
    codes = [{"code": 6}, {"code": 6}, {"code": 8, "array_element_type": {"code": 6}},
             {"code": 8, "array_element_type": {"code": 15}}]  # fmt: skip
    fields = [{"name": "", "type_": code} for code in codes]
    first = PartialResultSet(metadata={"row_type": {"fields": fields}})
    sent = [PartialResultSet.serialize(first), *messages([*row(1), [1.5]], [])]
    assert decoded_by(decoder, sent) == []
    ((record,), _) = decoder.rest()
    assert [column.type for column in record.columns] == [
        *(column.type for column in COLUMNS), ColumnType("ARRAY", ColumnType("FLOAT32")),
    ]  # fmt: skip
    assert record.mods == (Mod({"Id": "1"}, {"Note": None, "Tags": row(1)[2], "Odd": [1.5]}, {}),)
