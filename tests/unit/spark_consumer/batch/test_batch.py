"""The batch function, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.metrics import consumer_metrics


def test_it_says_how_long_the_running_batch_has_taken(monkeypatch):
    now_s, found = 100.0, []
    batch = Batch(
        SimpleNamespace(sinks=()),
        rows_of=lambda _: None,
        end_offsets=lambda _: {},
        log=SimpleNamespace(),
        metrics=consumer_metrics(),
        monotonic=lambda: now_s,
    )

    def run(_self, _frame, number):
        nonlocal now_s
        now_s += 40.0
        found.append(batch.batch_s)
        if number:
            raise ZeroDivisionError

    monkeypatch.setattr(Batch, "_run", run)
    assert batch.batch_s is None
    batch(None, 0)
    assert batch.batch_s is None
    with pytest.raises(ZeroDivisionError):
        batch(None, 1)
    assert (found, batch.batch_s) == ([40.0, 40.0], None)
