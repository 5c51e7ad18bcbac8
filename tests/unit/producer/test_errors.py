"""The fleet's errors: what a retry policy and an operator read from them."""

import pickle

from tidegate.producer.errors import (
    DeliveryDenied,
    MessageTooLarge,
    PositionExpired,
    ProducerFencedError,
    ProgressLost,
    QueryError,
    QueryInterrupted,
    QueryRefused,
    RedriveFailed,
    StreamChangedError,
    TableChanged,
    TooManyParkedKeys,
)
from tidegate.schemas.errors import ProducerError


def test_only_interruptions_are_retriable():
    kinds = {QueryError, QueryRefused, PositionExpired, ProducerFencedError, TableChanged}
    assert not any(kind.retriable for kind in kinds)
    assert QueryInterrupted.retriable
    assert all(issubclass(kind, ProducerError) for kind in kinds)


def test_a_query_error_names_its_code():
    assert QueryInterrupted("m", code="ABORTED").code == "ABORTED"
    assert QueryError("m").code == "UNKNOWN"


def test_errors_with_their_own_arguments_say_what_to_do_and_survive_pickling():
    changed = StreamChangedError(["slots: 16, now 8", "group"])
    lost = ProgressLost("a slot moved backwards", slot=3, was=7, now=0)
    full = TooManyParkedKeys("p1", keys=1_000)
    failed = RedriveFailed("the transaction was aborted")
    for error in (ProducerFencedError("w1"), changed, lost, full, failed):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert error.hint
    assert "slots: 16, now 8; group" in str(changed)
    assert "a slot moved backwards (slot=3, was=7, now=0)" in str(lost)


def test_a_refused_record_is_named_with_a_bounded_key():
    error = MessageTooLarge.of("t", key="k" * 5_000, size_bytes=9, limit_bytes=None)
    again = pickle.loads(pickle.dumps(error))

    assert str(again) == str(error)
    assert error.fields == {"topic": "t", "key": "k" * 100 + "…", "size_bytes": 9}
    assert (error.exit_code, DeliveryDenied.exit_code) == (1, 2)


def test_table_changed_names_the_table():
    assert pickle.loads(pickle.dumps(TableChanged("m", table="t"))).table == "t"
