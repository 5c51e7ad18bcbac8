from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server import open_transactions
from spanner_simulator.server.open_transactions import OpenTransaction, OpenTransactions


def opened(name: bytes = b"t", *, mode: str = "read_write", multiplexed: bool = False):
    core = Transaction(name, 0)
    return OpenTransaction(core, "s", mode, multiplexed)  # type: ignore[arg-type]


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
