from __future__ import annotations

import asyncio

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server import open_transactions
from spanner_simulator.server.messages import timestamp_message
from spanner_simulator.server.open_transactions import OpenTransaction, OpenTransactions
from spanner_simulator.server.transaction_selection import select_transaction, selected_transaction


def select(rig, selector, *, multiplexed: bool = False):
    session = rig.host.session(rig.session(multiplexed=multiplexed))
    return rig.run(select_transaction(rig.host, session, selector))


def selector(**fields):
    return spanner.TransactionSelector.pb()(**fields)


def test_no_selector_is_a_strong_single_use_read_that_closes_its_time(rig) -> None:
    selected = select(rig, selector())
    assert (selected.transaction, selected.read_us) == (None, rig.now_us)
    assert rig.database.clock.closed_us == rig.now_us


def waiting(rig, meanwhile):
    """What a read of a time to come gets; something happens while it waits."""
    one = selector()
    one.single_use.read_only.read_timestamp.CopyFrom(timestamp_message(rig.now_us + 2_000))
    session = rig.host.session(rig.session())

    async def wait():
        task = asyncio.create_task(select_transaction(rig.host, session, one))
        await asyncio.sleep(0)
        assert not task.done()
        meanwhile()
        rig.host.clock.advance(2_000)
        return await task

    return rig.run(wait())


def test_a_time_to_come_is_waited_for(rig) -> None:
    ahead_us = rig.now_us + 2_000
    assert waiting(rig, lambda: None).read_us == ahead_us
    rig.insert(rig.session(), 1)
    assert rig.database.clock.last_commit_us > ahead_us


def test_a_session_may_go_while_its_read_waits(rig) -> None:
    with pytest.raises(SpannerError, match="Database not found"):
        waiting(rig, lambda: rig.host.drop_database(rig.database.name))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"single_use": {"read_write": {}}}, "should be read_only"),
        ({"single_use": {"partitioned_dml": {}}}, "should be read_only"),
        ({"begin": {}}, "TransactionOptions|mode"),
        (
            {"begin": {"read_only": {"strong": True}, "exclude_txn_from_change_streams": True}},
            "only for read-write and partitioned",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(rig, fields, words: str) -> None:
    with pytest.raises(SpannerError, match=words) as caught:
        select(rig, selector(**fields))
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("bound", ["min_read_timestamp", "max_staleness"])
def test_a_bounded_staleness_reads_the_newest_state_and_only_once(rig, bound: str) -> None:
    one = selector()
    getattr(one.single_use.read_only, bound).seconds = 1
    assert select(rig, one).read_us == rig.now_us

    begin = selector()
    getattr(begin.begin.read_only, bound).seconds = 1
    with pytest.raises(SpannerError, match=f"{bound} for read can be only be used for a single"):
        select(rig, begin)


def test_a_transaction_that_a_failed_request_began_is_over(rig) -> None:
    one = selector()
    one.begin.read_write.SetInParent()
    session = rig.host.session(rig.session())

    async def fail():
        async with selected_transaction(rig.host, session, one) as selected:
            seen.append(selected.transaction)
            raise SpannerError(Code.INVALID_ARGUMENT, "no")

    seen = []
    with pytest.raises(SpannerError, match="no"):
        rig.run(fail())
    assert seen[0].state == "ROLLED_BACK"


def opened(name: bytes = b"t", *, mode: str = "read_write", multiplexed: bool = False):
    core = Transaction(name, 0)
    return OpenTransaction(core, "s", mode, multiplexed)


def test_a_transaction_is_found_by_its_session_only_unless_it_only_reads() -> None:
    known = OpenTransactions()
    writer, reader = opened(b"w"), opened(b"r", mode="read_only")
    known.add(writer)
    known.add(reader)
    assert known.find(b"w", session="s") is writer
    assert known.find(b"r", session="other") is reader
    for name, session in ((b"w", "other"), (b"\xff", "s")):
        with pytest.raises(SpannerError, match="Transaction not found") as caught:
            known.find(name, session=session)
        assert caught.value.code is Code.NOT_FOUND


def test_precommit_tokens_count_up_and_are_checked() -> None:
    one = opened(multiplexed=True)
    first, second = one.next_precommit_token(), one.next_precommit_token()
    assert (first.seq_num, second.seq_num) == (1, 2)
    one.check_precommit_token(first)
    one.check_precommit_token(second)
    forged = spanner.MultiplexedSessionPrecommitToken.pb()(
        precommit_token=second.precommit_token, seq_num=3
    )
    for token in (forged, spanner.MultiplexedSessionPrecommitToken.pb()(precommit_token=b"x")):
        with pytest.raises(SpannerError, match="does not belong"):
            one.check_precommit_token(token)
    with pytest.raises(SpannerError, match="multiplexed session"):
        opened().check_precommit_token(first)


def test_the_oldest_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(open_transactions, "_TRANSACTIONS_MAX", 2)
    known = OpenTransactions()
    for number in range(3):
        known.add(opened(b"%d" % number))
    with pytest.raises(SpannerError):
        known.find(b"0", session="s")
    assert known.find(b"1", session="s")
    assert [one.transaction_id for one in known.forget_session("s")] == [b"1", b"2"]
