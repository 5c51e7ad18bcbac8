"""What a position contains, and what comes after it."""

from __future__ import annotations

import pytest

from tidegate.producer.core.position import Position
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import PartitionEventRecord, PartitionStartRecord
from tidegate.schemas.progress import MOVE_OUTS, STARTS


def record(at_us, transaction="t", sequence="00000000"):
    """Return a record without messages: only its place matters here."""
    return PublishableRecord(at_us, transaction, sequence, ())


class TestPosition:
    """What a position contains."""

    @pytest.mark.rule("spanner-heartbeat-meaning")
    def test_a_record_leaves_its_instant_open(self):
        position = Position(0).with_record(record(10, "a"))

        assert position == Position(9, {"a": "00000000"})
        assert position.covers(record(10, "a"))
        assert not position.covers(record(10, "b"))
        assert not position.covers(record(10, "a", "00000001"))

    def test_the_boundary_goes_with_its_instant(self):
        position = Position(0).with_record(record(10, "a")).with_record(record(11, "b"))

        assert position == Position(10, {"b": "00000000"})

    @pytest.mark.rule("spanner-heartbeat-meaning")
    def test_a_heartbeat_at_the_boundarys_instant_proves_nothing_new(self):
        position = Position(0).with_record(record(10, "a"))

        assert position.with_heartbeat(10) is position
        assert position.with_heartbeat(11) == Position(10)

    @pytest.mark.rule("spanner-equal-timestamps")
    def test_a_transactions_id_means_nothing_at_another_instant(self):
        assert not Position(9, {"a": "00000005"}).covers(record(11, "a", "00000000"))

    @pytest.mark.rule("spanner-record-sequence")
    @pytest.mark.parametrize(
        ("lower", "higher"),
        [
            ("9", "00000010"),
            ("00000009", "10"),
            ("99999999", "100000000"),
            ("f-00000001", "10-00000000"),
            ("963d1af435fb3e79-9", "963d1af435fb3e79-0000000a"),
        ],
    )
    def test_sequences_of_any_width_are_compared_as_numbers(self, lower, higher):
        assert Position(9, {"a": higher}).covers(record(10, "a", lower))
        assert not Position(9, {"a": lower}).covers(record(10, "a", higher))

    def test_a_start_is_contained_by_its_sequence(self):
        first, second = (PartitionStartRecord(10_000, f"a-{n}", ("x",)) for n in range(2))
        position = Position(0).with_record(record(10, "a")).with_start(first)

        assert position == Position(9, {"a": "00000000", STARTS: "a-0"})
        assert position.covers_start(first)
        assert not position.covers_start(second)
        assert Position(10).covers_start(second)

    def test_a_move_out_is_held_and_a_move_in_met_again(self):
        out = PartitionEventRecord(10_000, "a-1", (), ("y",))
        both = PartitionEventRecord(10_000, "a-1", ("x",), ("y",))
        only_in = PartitionEventRecord(10_000, "a-1", ("x",))

        assert Position(0).with_move(out) == Position(9, {MOVE_OUTS: "a-1"})
        assert Position(0).with_move(both) == Position(9, {MOVE_OUTS: "a-1"})
        assert Position(0).with_move(only_in) == Position(9)

    def test_a_move_out_that_is_read_again_changes_nothing(self):
        first, second = (PartitionEventRecord(10_000, f"a-{n}", (), ("y",)) for n in range(2))
        position = Position(0).with_move(first).with_move(second)

        assert position.with_move(first) is position
        assert position.with_move(second) is position
