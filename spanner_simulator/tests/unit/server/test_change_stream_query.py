from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.change_stream_query import serve_change_stream_query
from spanner_simulator.server.messages import plain_of


def rows_of(messages: list[Any]) -> list[tuple[str, Any]]:
    """Each row as its kind and content."""
    kinds = ("data", "heartbeat", "children")
    found = []
    for message in messages:
        for value in message.values:
            ((fields,),) = (plain_of(value),)
            found.extend((kind, part[0]) for kind, part in zip(kinds, fields, strict=True) if part)
    return found


def serve(rig, request: Any) -> AsyncIterator[bytes]:
    return serve_change_stream_query(rig.host, rig.host.session(request.session), request)


def run(rig, request: Any) -> list[Any]:
    return rig.collect(serve(rig, request))


async def waiting(rig, request: Any, found: list[bytes]) -> asyncio.Task[None]:
    """A query that has begun to wait; its messages are found as they come."""

    async def consume() -> None:
        async for message in serve(rig, request):
            found.append(message)  # noqa: PERF401  # seen while the query goes on

    task = asyncio.create_task(consume())
    await rig.until(lambda: rig.host.database("bank").readers)
    return task


@pytest.fixture
def session(rig) -> str:
    return rig.session()


def first_token(rig) -> str:
    return rig.database.streams.state("Bank").partitions.live[-1].token


def bounded(rig, session: str, start_us: int, **parameters: Any) -> Any:
    """A query of all positive keys that ends now."""
    end = format_us(rig.now_us)
    rig.now_us += 1
    return rig.change_query(
        session, first_token(rig), start=format_us(start_us), end=end, **parameters
    )


def test_a_large_answer_is_cut_and_every_token_resumes_right_after_its_message(
    rig, session, monkeypatch
) -> None:
    monkeypatch.setattr("spanner_simulator.server.change_messages._MESSAGE_BYTES_MAX", 900)
    start_us = rig.now_us
    for key in range(1, 8):
        rig.insert(session, key)
    request = bounded(rig, session, start_us)
    messages = run(rig, request)
    everything = rows_of(messages)
    seen = 0
    assert len(messages) > 2
    assert [bool(message.metadata.row_type.fields) for message in messages[:2]] == [True, False]
    assert len({message.resume_token for message in messages}) == len(messages)
    for message in messages[:-1]:
        seen += len(rows_of([message]))
        request.resume_token = message.resume_token
        again = run(rig, request)
        assert rows_of(again) == everything[seen:]
        assert again[0].metadata.row_type.fields


def test_a_resume_token_that_is_foreign_or_from_ahead_is_refused(rig, session) -> None:
    request = bounded(rig, session, rig.now_us)
    (message,) = run(rig, request)
    ahead = b"cs.%s.9.0.9.0" % message.resume_token.split(b".")[1]
    for token in (b"nonsense", b"cs.1.0.0.0.0", b"cs.x.0.0.0.0", ahead):
        request.resume_token = token
        words = ": it is ahead" if token == ahead else ""
        with pytest.raises(SpannerError, match=f"Invalid resume_token{words}") as caught:
            run(rig, request)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_waiting_query_hears_of_commits_and_of_its_end(rig, session) -> None:
    token = first_token(rig)
    found: list[bytes] = []

    async def scenario() -> None:
        task = await waiting(rig, rig.change_query(session, token), found)
        rig.now_us += 5
        write = Write("insert", "Accounts", ("Id",), (["5"],))
        rig.database.commit(rig.database.begin(), [write], now_us=rig.now_us)
        await rig.until(lambda: found)
        rig.database.streams.split("Bank", now_us=rig.now_us, token=token)
        await asyncio.wait_for(task, 20)
        assert rig.host.database("bank").readers == {}

    asyncio.run(scenario())
    messages = [spanner.PartialResultSet.pb().FromString(one) for one in found]
    assert [kind for kind, _ in rows_of(messages)] == ["data", "children"]


def test_a_bad_argument_is_reported_before_a_bad_transaction(rig, session) -> None:
    request = rig.change_query(session, "zzz", heartbeat="99")
    request.transaction.id = b"x"
    with pytest.raises(SpannerError, match="heartbeat_milliseconds must be within"):
        run(rig, request)

    request.params.update({"heartbeat": "1000"})
    with pytest.raises(SpannerError) as caught:
        run(rig, request)
    assert "are not supported for multi use transactions" in caught.value.message
    request.transaction.Clear()
    with pytest.raises(SpannerError, match="Received partition_token: zzz"):
        run(rig, request)


async def next_rows(serving: AsyncIterator[bytes]) -> list[tuple[str, Any]]:
    return rows_of([spanner.PartialResultSet.pb().FromString(await anext(serving))])


@pytest.fixture
def serving(rig, session, monkeypatch) -> AsyncIterator[bytes]:
    """Three records, each of which fills a message."""
    monkeypatch.setattr("spanner_simulator.server.change_messages._MESSAGE_BYTES_MAX", 400)
    start = format_us(rig.now_us)
    for key in (1, 2, 3):
        rig.insert(session, key)
    return serve(rig, rig.change_query(session, first_token(rig), start=start))


def test_what_expires_while_a_client_is_slow_is_never_left_out_in_silence(rig, serving) -> None:
    async def scenario() -> None:
        assert len(await next_rows(serving)) == 1
        rig.now_us += 8 * 86_400_000_000
        rig.database.streams.expire(rig.now_us)
        await next_rows(serving)

    with pytest.raises(SpannerError, match="too far in the past") as caught:
        asyncio.run(scenario())
    assert caught.value.code is Code.OUT_OF_RANGE


def test_a_longer_retention_does_not_hide_what_a_query_lacks(rig, session) -> None:
    start_us = rig.now_us
    for retention in ("1d", "7d"):
        statement = f"ALTER CHANGE STREAM Bank SET OPTIONS (retention_period = '{retention}')"
        rig.database.apply_ddl([statement], now_us=rig.now_us)
        rig.now_us += 2 * 86_400_000_000
        rig.database.streams.expire(rig.now_us)

    for token in (None, first_token(rig)):
        with pytest.raises(SpannerError, match="too far in the past"):
            run(rig, rig.change_query(session, token, start=format_us(start_us)))


def test_a_hold_and_an_interruption_come_between_two_messages(rig, serving) -> None:
    token = first_token(rig)

    async def scenario() -> None:
        await next_rows(serving)
        rig.host.holds.hold([token])
        silent = asyncio.create_task(next_rows(serving))
        await asyncio.sleep(0.01)
        assert not silent.done()
        rig.host.holds.release()
        assert [kind for kind, _ in await silent] == ["data"]
        rig.host.database("bank").interrupt([token], SpannerError(Code.ABORTED, "enough"))
        await next_rows(serving)

    with pytest.raises(SpannerError, match="enough"):
        asyncio.run(scenario())


def test_what_was_active_at_the_start_of_an_initial_query_turns_only_later(rig, session) -> None:
    start = format_us(rig.now_us).replace("Z", "001Z")
    (message,) = run(rig, rig.change_query(session, None, start=start))
    token = rows_of([message])[0][1][2][0][0]
    rig.database.streams.split("Bank", now_us=rig.now_us, token=token)
    rig.now_us += 10
    assert [kind for kind, _ in rows_of(run(rig, rig.change_query(session, token, start=start)))]


@pytest.mark.parametrize("how", ["drop", "drop all", "expire"])
def test_an_initial_query_that_waits_for_its_start_looks_again_then(rig, session, how: str) -> None:
    request = rig.change_query(session, None, start=format_us(rig.now_us + 1_000_000))

    async def scenario() -> None:
        task = asyncio.create_task(anext(serve(rig, request)))
        await asyncio.sleep(0.01)
        assert not task.done()
        if how == "drop":
            rig.database.apply_ddl(["DROP CHANGE STREAM Bank"], now_us=rig.now_us)
        elif how == "drop all":
            rig.host.drop_database(rig.database.name)
        rig.host.clock.advance(8 * 86_400_000_000)
        await asyncio.wait_for(task, 20)

    with pytest.raises(SpannerError) as caught:
        asyncio.run(scenario())
    assert caught.value.code is (Code.OUT_OF_RANGE if how == "expire" else Code.NOT_FOUND)


def test_the_initial_query_can_be_resumed_too(rig, session) -> None:
    request = rig.change_query(session, None)
    (message,) = run(rig, request)
    request.resume_token = message.resume_token
    (again,) = run(rig, request)
    assert rows_of([again]) == []
    assert again.metadata.row_type.fields


@pytest.mark.parametrize("how", ["interrupt", "drop"])
def test_a_waiting_query_ends_with_a_fault_or_when_its_stream_goes(rig, session, how: str) -> None:
    token = first_token(rig)

    async def scenario() -> None:
        task = await waiting(rig, rig.change_query(session, token), [])
        if how == "interrupt":
            error = SpannerError(Code.UNAVAILABLE, "gone")
            rig.host.database("bank").interrupt([token], error)
        else:
            rig.database.apply_ddl(["DROP CHANGE STREAM Bank"], now_us=rig.now_us)
        await asyncio.wait_for(task, 20)

    with pytest.raises(SpannerError) as caught:
        asyncio.run(scenario())
    assert caught.value.code is (Code.UNAVAILABLE if how == "interrupt" else Code.NOT_FOUND)
