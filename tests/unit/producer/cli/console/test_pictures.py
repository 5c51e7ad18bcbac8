"""Charts and the picture of the lineage: what is where, and how much is drawn."""

import re
from itertools import pairwise

import pytest

from tests.unit.producer.cli.console.conftest import FLEET, NOW_US, SECOND_US, life
from tidegate.lineage.fleet_status import PartitionCondition
from tidegate.lineage.lineage_graph import LineageGraph, Relative
from tidegate.producer.cli.console.charts import (
    HEIGHT,
    WIDTH,
    bar_chart,
    line_chart,
    quantity,
    time_ticks,
)
from tidegate.producer.cli.console.history import KEPT_US, History, Sample
from tidegate.producer.cli.console.lineage_picture import (
    SINGLE_MAX,
    Change,
    lineage_picture,
)
from tidegate.producer.cli.console.lives import Kind, lives

FROM_US = NOW_US - 100 * SECOND_US


def picture(*shown, slots=None, from_us=FROM_US):
    return lineage_picture(shown, from_us=from_us, now_us=NOW_US, slots=slots)


def numbers(path):
    return [float(text) for text in re.findall(r"-?[0-9.]+", path)]


# ---------------------------------------------------------------- charts


def test_a_line_goes_from_left_to_right_below_the_top():
    chart = line_chart([(FROM_US, 0.0), (NOW_US, 3.0)], from_us=FROM_US, until_us=NOW_US, unit="s")
    (path,) = chart.paths
    assert numbers(path) == [56.0, 158.0, 708.0, 47.0]
    assert [tick.label for tick in chart.y_ticks] == ["0", "1", "2", "3", "4"]
    assert chart.summary == "now 3 s, at most 3 s"


def test_an_unknown_value_is_a_gap_and_ends_the_line():
    points = [(FROM_US, 1.0), (FROM_US + 1, None), (NOW_US, 2.0)]
    chart = line_chart(points, from_us=FROM_US, until_us=NOW_US, unit="s")
    assert chart.paths[-1].startswith("M708.0")
    assert chart.summary == "now 2 s, at most 2 s"
    gone = line_chart([*points, (NOW_US + 1, None)], from_us=FROM_US, until_us=NOW_US, unit="s")
    assert gone.summary == "now unknown, at most 2 s"


def test_no_value_at_all_is_no_line():
    chart = line_chart([], from_us=FROM_US, until_us=NOW_US, unit="s")
    assert (chart.paths, chart.summary) == ((), "no values yet")


def test_of_many_points_the_highest_stay():
    points = [(FROM_US + n * 10_000, 7.0 if n == 5_003 else 1.0) for n in range(10_000)]
    chart = line_chart(points, from_us=FROM_US, until_us=NOW_US, unit="s")
    heights = numbers(chart.paths[0])[1::2]
    assert len(heights) <= 240
    assert min(heights) == pytest.approx(10 + (1 - 7 / 8) * 148, abs=0.1)


def test_bars_are_in_the_picture_and_as_high_as_their_amounts():
    chart = bar_chart([("a", 2.0), ("b", 0.0), ("c", 4.0)])
    assert [bar.height for bar in chart.bars] == [74.0, 0.0, 148.0]
    assert all(0 <= bar.x and bar.x + bar.width <= WIDTH for bar in chart.bars)
    assert all(0 <= bar.y and bar.y + bar.height <= HEIGHT for bar in chart.bars)
    assert chart.summary == "a: 2, c: 4"
    assert bar_chart([]).summary == "nothing yet"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.25, "0.25"), (3.14159, "3.14"), (123.4, "123"), (9_999, "9999"),
        (12_345, "12.3 k"), (2e6, "2 M"), (5e9, "5 G"),
    ],
)  # fmt: skip
def test_amounts_are_short(value, text):
    assert quantity(value) == text


@pytest.mark.parametrize(
    ("span_s", "label"), [(60, "22:13:20"), (7_200, "22:13"), (172_800, "11-14 22:13")]
)
def test_times_are_written_as_the_span_needs(span_s, label):
    ticks = time_ticks(NOW_US, NOW_US + span_s * SECOND_US, left=0, right=100)
    assert (ticks[0].label, ticks[0].at, ticks[-1].at) == (label, 0, 100)


# ---------------------------------------------------------------- the last hour


def test_the_history_drops_what_is_older_than_an_hour_or_of_another_epoch():
    history = History()
    for at_us in (0, KEPT_US - 1, KEPT_US):
        history.add(Sample(at_us, 1.0, None), epoch="a")
    assert [sample.at_us for sample in history.samples] == [KEPT_US - 1, KEPT_US]
    history.add(Sample(KEPT_US + 1, 1.0, None), epoch="b")
    assert [sample.at_us for sample in history.samples] == [KEPT_US + 1]


# ---------------------------------------------------------------- lives


def relative(token, behind_s, condition=PartitionCondition.OPEN):
    mark_us = NOW_US - round(behind_s * SECOND_US)
    return Relative(token, 0, (), condition, NOW_US - 99, None, mark_us)


def test_slow_is_what_is_far_behind_and_further_than_the_others():
    partitions = (*(relative(f"t{n}", 1) for n in range(5)), relative("late", 11))
    kinds = {found.token: found.kind for found in found_lives(partitions)}
    assert kinds["late"] is Kind.SLOW
    assert kinds["t0"] is Kind.OPEN


def test_nothing_is_slow_where_all_are_equally_far_behind():
    partitions = tuple(relative(f"t{n}", 500) for n in range(5))
    assert {found.kind for found in found_lives(partitions)} == {Kind.OPEN}


def test_what_is_stopped_has_its_reason():
    (found,) = found_lives((relative("slow", 500, PartitionCondition.STOPPED),))
    assert (found.kind, found.worker) == (Kind.STOPPED, "w1")


def found_lives(partitions):
    return lives(LineageGraph("s", partitions, 0), FLEET, now_us=NOW_US)


# ---------------------------------------------------------------- the lineage


def test_a_split_is_drawn_from_the_parent_to_both_children():
    parent = life("p", start_s=-80, end_s=-40)
    found = picture(parent, *(life(t, start_s=-40, parents="p") for t in ("a", "b")))
    assert {arrow.change for arrow in found.arrows} == {Change.SPLIT}
    assert len(found.arrows) == 2
    assert found.summary == "2 open, 1 finished"
    assert [box.look for box in found.boxes] == [
        "finished", "open", "open behind", "open", "open behind",
    ]  # fmt: skip


def test_a_merge_and_a_move_have_looks_of_their_own():
    parents = [life(t, start_s=-80, end_s=-40) for t in ("a", "b")]
    merged = life("m", start_s=-40, end_s=-20, parents=("a", "b"))
    moved = life("n", start_s=-20, parents=("m",))
    found = picture(*parents, merged, moved)
    assert sorted(arrow.change for arrow in found.arrows) == ["merge", "merge", "move"]


def test_a_child_takes_the_row_of_its_parent():
    parent, other = life("p", start_s=-80, end_s=-40), life("o", start_s=-90)
    found = picture(parent, other, life("c", start_s=-40, parents="p"))
    rows = {box.title.partition(",")[0]: box.y for box in found.boxes}
    assert rows["c"] == rows["p"] != rows["o"]
    assert found.height == 22 + 2 * 18 + 6


def test_nothing_overlaps_in_a_row():
    shown = [
        life(f"t{n}", start_s=-90 + n, end_s=-90 + n + 7 if n % 3 else None) for n in range(60)
    ]
    spans = {}
    for box in picture(*shown).boxes:
        spans.setdefault(box.y, []).append((box.x, box.x + box.width))
    for row in spans.values():
        row.sort()
        assert all(left[1] <= right[0] + 1.6 for left, right in pairwise(row))


def test_what_ended_before_the_time_is_not_drawn():
    found = picture(life("old", start_s=-300, end_s=-200), life("now"))
    assert (found.shown, found.left_out) == (1, 0)


def test_a_stopped_one_shows_what_is_not_published():
    found = picture(life("s", kind=Kind.STOPPED, start_s=-50, mark_s=-30))
    done, behind = found.boxes
    assert (done.look, behind.look) == ("stopped", "stopped behind")
    assert behind.width == pytest.approx(0.3 * 982, abs=1)


def test_many_are_summed_up_by_slot_and_a_slot_shows_them():
    shown = [life(f"t{n}", slot=n % 4) for n in range(SINGLE_MAX + 1)]
    shown.append(life("bad", slot=2, kind=Kind.STOPPED))
    found = picture(*shown)
    assert found.is_summary
    assert [row.label for row in found.rows] == ["slot 0", "slot 1", "slot 2 (1 stopped)", "slot 3"]
    assert [row.slots for row in found.rows] == ["0-0", "1-1", "2-2", "3-3"]
    assert found.rows[2].look == "stopped"
    one_slot = picture(*shown, slots=(2, 2))
    assert not one_slot.is_summary
    assert one_slot.shown == sum(life.slot == 2 for life in shown)


def test_a_slot_with_too_many_draws_the_worst_and_says_how_many_it_leaves_out():
    shown = [life(f"t{n}", start_s=-100 + n / 10, end_s=-50) for n in range(300)]
    shown += [life("bad", kind=Kind.STOPPED), life("now")]
    found = picture(*shown, slots=(0, 0))
    assert (found.shown, found.left_out) == (SINGLE_MAX, 302 - SINGLE_MAX)
    assert any(box.look == "stopped" for box in found.boxes)


def test_many_slots_are_summed_up_in_groups():
    shown = [life(f"t{n}", slot=n) for n in range(1_000)]
    found = picture(*shown)
    assert len(found.rows) == 63
    assert (found.rows[0].label, found.rows[0].slots) == ("0 to 15", "0-15")
    assert (found.rows[-1].label, found.rows[-1].slots) == ("992 to 999", "992-999")
    group = picture(*shown * 10, slots=(0, 15))
    assert [row.slots for row in group.rows] == [f"{n}-{n}" for n in range(16)]


def test_cells_count_what_is_open_in_them():
    shown = [life(f"t{n}", start_s=-50) for n in range(SINGLE_MAX + 1)]
    (box,) = picture(*shown).boxes
    assert box.title == f"slot 0: {SINGLE_MAX + 1} open"
    assert box.x == pytest.approx(124 + 433, abs=12)


def test_ten_thousand_stay_a_small_picture():
    shown = [
        life(f"token-{n:05}", slot=n % 16, start_s=-3_600 + n / 3, end_s=-3_000 + n / 3)
        for n in range(10_000)
    ]
    found = picture(*shown, from_us=NOW_US - 3_600 * SECOND_US)
    assert len(found.boxes) <= 16 * 80
    assert found.shown == 10_000
