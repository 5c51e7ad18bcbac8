"""What the comparison with a peer counts as lost, twice, reordered and torn."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from benchmarks.peers.lake import faults
from benchmarks.peers.steady import Arrivals, debezium_json, transaction_of


def test_a_record_that_comes_again_is_repeated_and_an_older_one_reordered():
    arrivals = Arrivals()
    for at_us, change in enumerate([(1, 10), (2, 10), (1, 11), (1, 10), None, (2, 12), (2, 11)]):
        arrivals.add(change, at_us)

    assert (arrivals.repeated, arrivals.reordered) == (1, 1)
    assert arrivals.late_us == {(1, 10): 0, (2, 10): 1, (1, 11): 2, (2, 12): 5, (2, 11): 6}


def test_a_change_of_debezium_is_read_and_a_watermark_left_out():
    after = {"Id": 7, "Updated": "2026-01-01T00:01:40.250000000Z"}
    value = {"op": "u", "after": after}
    message = SimpleNamespace(value=lambda: json.dumps(value).encode())
    assert debezium_json(message) == (7, 100_250)
    value = {"op": "m", "after": None}
    assert debezium_json(message) is None


@pytest.mark.parametrize("text", ["2026-01-01T00:00:01.5Z", "2026-01-01T00:00:01.500000+00:00"])
def test_a_row_says_which_transaction_wrote_it(text):
    assert transaction_of(text) == 1_500


def test_what_is_wrong_in_an_output_is_counted(monkeypatch):
    monkeypatch.setattr("benchmarks.peers.lake.ROWS_AT_ONCE", 2)
    committed_us = {1: 100, 2: 200, 3: 300}
    right = [(0, key, number) for number in committed_us for key in (7, 8)]
    none = {"missing": 0, "twice": 0, "out_of_order": 0, "torn": 0}
    assert faults(iter(right), committed_us) == none
    # One is there again in a later batch, after a later commit; one is not there.
    wrong = [*right[:-1], (1, 7, 2)]
    assert faults(iter(wrong), committed_us) == {
        "missing": 1, "twice": 1, "out_of_order": 1, "torn": 1,
    }  # fmt: skip
