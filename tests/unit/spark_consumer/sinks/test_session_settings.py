"""Settings within a block."""

from types import SimpleNamespace

from tidegate.spark_consumer.sinks.session_settings import NOT_COMPILED, for_rows, session_settings


def test_session_settings_are_put_back():
    class Conf(dict):
        set = dict.__setitem__
        unset = dict.__delitem__

    conf = Conf(kept="1")
    spark = SimpleNamespace(conf=conf)
    with session_settings(spark, {"kept": "2", "new": "3"}):
        assert dict(conf) == {"kept": "2", "new": "3"}
    assert dict(conf) == {"kept": "1"}


def test_statements_over_a_few_rows_are_not_compiled():
    assert for_rows(0) == for_rows(1_000) == NOT_COMPILED
    assert for_rows(1_001) == {}
