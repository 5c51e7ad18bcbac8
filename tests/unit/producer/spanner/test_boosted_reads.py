"""Chunks that Data Boost reads: the records that any other read of them has, however it is cut."""

import itertools
import time
from itertools import product
from types import SimpleNamespace

import grpc
import pytest

from spanner_simulator import Simulator
from tests.reading import decoded
from tests.unit.producer.spanner import conftest
from tidegate.producer.backfill.table_run import RunWait
from tidegate.producer.errors import QueryRefused
from tidegate.producer.spanner.catalogue import SpannerCatalogue, TablesAt
from tidegate.producer.spanner.channel import rpc_error
from tidegate.producer.spanner.stream import QueryOptions
from tidegate.producer.spanner.table_reads import BoostedChunk, SpannerChunkReads
from tidegate.producer.spanner.transport.status import CallError
from tidegate.schemas.errors import SchemaError

ROWS = [
    (a, b, f"{a} {b}")
    for a, b in itertools.product((None, *map(str, range(10))), map(str, range(12)))
]
DDL = {
    "GOOGLE_STANDARD_SQL": [
        "CREATE TABLE Items (A STRING(9), Note STRING(9), B STRING(9)) PRIMARY KEY (A DESC, B)",
        "CREATE TABLE Empty (Id INT64) PRIMARY KEY (Id)",
        "CREATE CHANGE STREAM Feed FOR ALL",
    ],
    "POSTGRESQL": [
        'CREATE TABLE "Items" ("A" text, "Note" text, "B" text, PRIMARY KEY ("A", "B"))',
        'CREATE TABLE "Empty" ("Id" bigint PRIMARY KEY)',
        'CREATE CHANGE STREAM "Feed" FOR ALL',
    ],
}


@pytest.fixture(scope="module", params=[*product(DDL, ["h2", "grpc"])], ids=" ".join)
def database(request):
    dialect, transport = request.param
    with Simulator() as simulator:
        simulator.create_database("items", ddl=DDL[dialect], dialect=dialect)
        client = simulator.client().instance("test-instance").database("items")
        rows = ROWS if dialect.startswith("GOOGLE") else [one for one in ROWS if one[0]]
        with client.batch() as batch:
            batch.insert("Items", ("A", "B", "Note"), rows)
        with conftest.channels_to(simulator, transport, items="items") as opened:
            yield SimpleNamespace(channels=opened["items"], rows=len(rows))


@pytest.fixture
def read(database, tasks, monkeypatch):
    """Read a chunk by Data Boost or not; remembers what was asked for, and turns shares around."""
    channels, read_ns = database.channels, time.time_ns() // 1_000 * 1_000
    asked = SimpleNamespace(streams=[], cuts=[])
    stream = channels.stream

    def note(method, request, session):
        asked.streams.append(request)
        return stream(method, request, session)

    monkeypatch.setattr(channels, "stream", note)
    of_shares(database, monkeypatch, lambda shares: asked.cuts.append(len(shares)) or shares[::-1])
    tables = TablesAt(SpannerCatalogue(channels), stream="Feed", tasks=tasks)
    reads = SpannerChunkReads(channels, tables, QueryOptions(priority="LOW", tag="filling"))

    def read(table="Items", *, is_boosted, after=None, rows=50):
        place = RunWait(3, table, 2, after, is_boosted=is_boosted).chunk(read_ns, rows=rows)
        query = tasks.run(lambda: reads.chunk(place))
        first = [record for records in decoded(query, tasks) for record in records]
        rest, last = query.rest()
        return [*first, *rest], last

    read.asked = asked
    return read


def test_a_chunk_has_the_same_records_whichever_servers_read_it(database, read):
    after, found = None, 0
    for rows in itertools.cycle((7, 50, 51, 120)):
        whole = read(is_boosted=False, after=after, rows=rows)
        assert read(is_boosted=True, after=after, rows=rows) == whole
        found += sum(len(record.mods) for record in whole[0])
        after = whole[1]
        if after is None:
            break
    assert found == database.rows
    assert max(read.asked.cuts) > 1
    boosted = [stream for stream in read.asked.streams if stream.partition_token]
    assert len(boosted) == sum(read.asked.cuts)
    assert all(one.data_boost_enabled and not one.limit for one in boosted)
    assert all(one.request_options.request_tag == "filling" for one in boosted)
    assert not any(
        stream.data_boost_enabled for stream in read.asked.streams if not stream.partition_token
    )


def test_a_table_without_rows_is_not_cut(read):
    assert read("Empty", is_boosted=True) == ([], None)
    assert read.asked.cuts == []


def of_shares(database, monkeypatch, change):
    """Let something become of the shares of each cut."""
    cut = database.channels.partition_read

    def changed(request, **options):
        found = cut(request, **options)
        shares = change(list(found.partitions))
        return SimpleNamespace(transaction=found.transaction, partitions=shares)

    monkeypatch.setattr(database.channels, "partition_read", changed)


@pytest.mark.parametrize(
    "change",
    [lambda shares: shares[1:], lambda shares: [*shares, shares[0]]],
    ids=["one is missing", "one comes twice"],
)
def test_shares_without_each_row_once_are_an_error(database, read, monkeypatch, change):
    of_shares(database, monkeypatch, change)
    with pytest.raises(SchemaError, match=r"other rows than the table had.*table='Items'"):
        read(is_boosted=True)


@pytest.mark.parametrize("place", ["cut", "read"])
def test_a_missing_permission_is_named(database, read, monkeypatch, place):
    code = grpc.StatusCode.PERMISSION_DENIED
    error = rpc_error(CallError(code, "no useDataBoost"), action="read a table")

    def refuse(*_args, **_options):
        raise error

    if place == "cut":
        monkeypatch.setattr(database.channels, "partition_read", refuse)
    else:
        of_shares(database, monkeypatch, lambda _: [SimpleNamespace(partition_token=b"nothing")])
        monkeypatch.setattr(database.channels, "failed", lambda *_args, **_options: error)
    with pytest.raises(QueryRefused, match="no useDataBoost") as caught:
        read(is_boosted=True)
    assert "spanner.databases.useDataBoost" in caught.value.hint
    assert "--data-boost" in caught.value.hint


class Share:
    """A share that says whether it was read."""

    def __init__(self):
        self.asked, self.is_cancelled = 0, False

    async def next_size(self):
        self.asked += not self.is_cancelled
        return None if self.is_cancelled else 9

    def cancel(self):
        self.is_cancelled = True


def test_a_chunk_that_is_cancelled_while_it_is_cut_reads_no_share(tasks):
    class Keys(Share):
        async def next_size(self):
            return None

        def rest(self):
            return [], None

    shares = [Share(), Share()]

    async def cut(_last):
        chunk.cancel()
        return shares

    decoder = SimpleNamespace(expect=lambda _: None, last_key=("a",), rest=lambda: ([], None))
    chunk = BoostedChunk(Keys(), decoder, cut)
    assert tasks.run(chunk.next_size) is None
    assert [one.asked for one in shares] == [0, 0]
