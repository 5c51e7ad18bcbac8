from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.values import Plain, ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server import results
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.results import (
    Reply,
    ResumePoint,
    count_stats,
    reply_messages,
    reply_result_set,
)

TEXT = ValueType("STRING")
TOKEN = spanner.MultiplexedSessionPrecommitToken.pb()(precommit_token=b"p", seq_num=1)


def messages(rows: list[list[Plain]], *, sent: int = 0, read_us: int = 5, stats=None, token=None):
    reply = Reply([("a", TEXT)], rows, stats)
    point = ResumePoint(read_us, sent)
    written = reply_messages(reply, begun=None, token=token, digest=7, resume=point)
    return [spanner.PartialResultSet.pb().FromString(one) for one in written]


def values(parsed) -> list[Plain]:
    return [plain_of(value) for one in parsed for value in one.values]


def test_messages_are_cut_numbered_and_carry_metadata_once(monkeypatch) -> None:
    monkeypatch.setattr(results, "_MESSAGE_BYTES_MAX", 14)
    parsed = messages([["aaaaaa"], ["b"], ["c"]], token=TOKEN, stats=count_stats(3))
    assert values(parsed) == ["aaaaaa", "b", "c"]
    assert [one.resume_token for one in parsed] == [b"rd.7.5.1", b"rd.7.5.2"]
    assert [one.HasField("metadata") for one in parsed] == [True, False]
    assert [one.HasField("precommit_token") for one in parsed] == [False, True]
    assert [one.HasField("stats") for one in parsed] == [False, True]
    assert not any(one.last or one.chunked_value for one in parsed)


@pytest.mark.parametrize("sent", range(5))
def test_a_stream_goes_on_after_what_was_sent(monkeypatch, sent: int) -> None:
    monkeypatch.setattr(results, "_MESSAGE_BYTES_MAX", 20)
    rows: list[list[Plain]] = [["x"], ["y" * 50], ["z"]]
    whole = messages(rows)
    resumed = messages(rows, sent=sent)
    assert values(resumed) == values(whole[sent:])
    assert resumed[0].HasField("metadata")
    assert resumed[-1].resume_token == whole[-1].resume_token


def test_a_token_serves_the_request_that_it_was_made_for() -> None:
    point = ResumePoint(123, 4)
    assert ResumePoint.parse(point.token(9), 9) == point
    for token in (point.token(8), b"", b"rd.9.1", b"rd.9.1.x", b"cs.9.1.1", b"rd.9.1." + b"9" * 40):
        with pytest.raises(SpannerError, match="Invalid resume_token") as caught:
            ResumePoint.parse(token, 9)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_result_set_has_a_largest_size(monkeypatch) -> None:
    monkeypatch.setattr(results, "_RESULT_SET_BYTES_MAX", 100)
    with pytest.raises(SpannerError, match="Result set too large") as caught:
        reply_result_set(Reply([("a", TEXT)], [["x" * 100]]), begun=None, token=None)
    assert caught.value.code is Code.FAILED_PRECONDITION
