"""One object's query over a local folder and real tasks."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from tests.datastream_files import history, write_stream
from tidegate.producer.datastream.errors import UnknownReadMethod
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream_source.limits import SourceLimits
from tidegate.producer.datastream_source.stream import DatastreamFiles
from tidegate.producer.datastream_source.tokens import object_token
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.records import DataChangeRecord, HeartbeatRecord

FIRST = datetime.now(UTC) - timedelta(minutes=5)


@pytest.fixture
def tasks():
    found = TaskThread()
    yield found
    found.close()


def query_of(tmp_path, tasks, *, parks=True, resumption=None):
    start_us = int((FIRST - timedelta(hours=1)).timestamp()) * 1_000_000
    files = DatastreamFiles(
        LocalStore(), str(tmp_path), tasks, SystemClock(), limits=SourceLimits(), poll_ms=50,
        parks=parks,
    )  # fmt: skip
    return files.resumed(resumption or {}).query(
        token=object_token(start_us // 60_000_000, "shop_orders"), start_ns=start_us * 1_000,
        end_ns=None, heartbeat_ms=20,
    )  # fmt: skip


def read(tasks, query, count):
    """Return records until there are so many changes."""

    async def run():
        found = []
        while sum(isinstance(one, DataChangeRecord) for one in found) < count:
            assert await query.next_size() is not None
            found += (await query.receive()).decode()[0]
        return found

    return tasks.run(run)


def test_files_that_appear_are_read_and_heartbeats_do_not_fall(tmp_path, tasks):
    events = history("mysql", random.Random(1), 20)
    write_stream(tmp_path, "mysql", events[:7], first=FIRST)
    query = query_of(tmp_path, tasks)
    found = read(tasks, query, 7)
    write_stream(tmp_path, "mysql", events[7:], first=FIRST + timedelta(minutes=1))
    found += read(tasks, query, 13)
    query.cancel()
    rows = [
        {**one.mods[0].new_values, **one.mods[0].old_values}["_datastream_uuid"]
        for one in found
        if isinstance(one, DataChangeRecord)
    ]
    assert rows == [event["uuid"] for event in events]
    beats = [one.timestamp_ns for one in found if isinstance(one, HeartbeatRecord)]
    assert beats == sorted(beats)


def test_an_open_file_is_closed_when_the_query_is_cancelled(tmp_path, tasks):
    write_stream(tmp_path, "mysql", history("mysql", random.Random(1), 7), first=FIRST)
    query = query_of(tmp_path, tasks)
    while query._open is None:
        query.step()
    stream = query._open._stream
    query.cancel()
    assert stream.closed


def test_what_comes_before_an_event_that_stops_is_returned_first(tmp_path, tasks):
    events = history("mysql", random.Random(1), 7)
    events[3]["read_method"] = "db2-cdc"
    write_stream(tmp_path, "mysql", events, first=FIRST)
    query = query_of(tmp_path, tasks, parks=False)
    assert len(read(tasks, query, 3)) >= 3
    with pytest.raises(UnknownReadMethod) as raised:
        read(tasks, query, 1)
    assert raised.value.fields["record"] == 4
