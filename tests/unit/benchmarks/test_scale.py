"""What is measured by the number of stream partitions, on a few of them."""

from __future__ import annotations

import json

import pytest

from benchmarks.producer import __main__ as program
from benchmarks.producer import scale
from benchmarks.producer.scale import SCALE, bound_bytes, formula
from benchmarks.producer.virtual_fleet import VirtualFleet


@pytest.fixture
def fleet():
    with VirtualFleet(40) as fleet:
        fleet.run(2)
        fleet.rest()
        yield fleet


def test_what_moves_is_what_the_slots_say(fleet):
    commits = fleet.move(fleet.tokens[:7], lambda _token: fleet.heartbeat())

    assert sum(sum(one.moved.values()) for one in commits) == 7
    assert all(one.messages.keys() == one.size_bytes.keys() for one in commits)


def test_each_stream_partition_has_a_heartbeat_each_second(monkeypatch):
    with VirtualFleet(40) as fleet:
        fleet.run(2)
        fleet.commits.clear()
        delivered = []
        deliver = fleet.deliver
        monkeypatch.setattr(
            fleet, "deliver", lambda token, item: (delivered.append(token), deliver(token, item))
        )
        fleet.run(3)

    assert sorted(delivered) == sorted(fleet.tokens * 3)
    assert len(fleet.commits) == pytest.approx(12, abs=2)


def test_the_formula_and_the_bound_are_those_of_the_documentation():
    # docs/reference/topics.md, what is written into the progress topic
    assert formula(10) == pytest.approx((10 + 32 / 60 + 10 / 1_600, 200 * (10 + 32 / 60) + 600))
    assert formula(10_000) == pytest.approx((64 + 32 / 60 + 6.25, 200 * (64 + 32 / 60) + 600_000))
    assert formula(50_000).messages_per_s == pytest.approx(2 * (64 + 16 / 60) + 16 / 60 + 31.25)
    assert bound_bytes(0) == 4_096
    assert bound_bytes(10) == 6_096


def test_ten_stream_partitions_stay_within_the_formula():
    found = SCALE["scale, 10 stream partitions"]()

    assert found["messages_of_formula"] <= 1.1
    assert found["bytes_of_formula"] <= 1.1


def test_a_transaction_stays_within_its_bound(monkeypatch):
    monkeypatch.setattr(scale, "_MANY", 100)
    found = scale._moves(30)

    assert 0 < found["heartbeats_of_bound"] <= found["changes_of_bound"] <= 1


def test_an_own_record_is_passed_over(monkeypatch):
    monkeypatch.setattr(scale, "_ECHO_ROUNDS", 1)
    found = SCALE["echo"]()

    assert 0 < found["skip_us"] < found["decode_us"]


def test_the_program_ends_with_1_after_a_miss(capsys, monkeypatch):
    monkeypatch.setitem(program._ALONE, "echo", lambda: {"skip_us": 7.0})
    with pytest.raises(SystemExit) as caught:
        program.main(["--only", "echo", "--rounds", "1", "--json"])

    captured = capsys.readouterr()
    assert caught.value.code == 1
    assert "echo: skip_us is 7.0 (the median), and the aim is at most 5.0" in captured.err
    assert json.loads(captured.out)["measured"][0]["this"]["skip_us"]["median"] == 7.0
