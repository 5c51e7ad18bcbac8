"""Which files are read next, which leave the position, and the watermark."""

import sys

import pytest

from tidegate.producer.datastream.errors import FileNamesCollide
from tidegate.producer.datastream_source import file_ledger
from tidegate.producer.datastream_source.file_ledger import FileLedger
from tidegate.producer.datastream_source.found_file import FoundFile
from tidegate.producer.datastream_source.limits import US_PER_MINUTE, SourceLimits

FIRST = 1_000
LIMITS = SourceLimits(open_minutes=10, lateness_us=2 * US_PER_MINUTE, late_hours=1)


def file(minute, number=0, *, after_minutes=0):
    name = f"{minute << 36 | number:016x}"
    return FoundFile(
        f"{minute}/{number}", minute, name, (minute + 1 + after_minutes) * US_PER_MINUTE
    )


def ledger(resumption=None):
    return FileLedger(resumption or {}, first_minute=FIRST, limits=LIMITS)


def read(one, found, records=1):
    one.add_record(found, records)
    one.complete(found, records=1)


def test_files_are_read_by_minute_and_those_of_the_position_first():
    known = file(FIRST + 5)
    one = ledger({known.name: "3/1"})
    one.add([file(FIRST + 2), file(FIRST + 1, 2), file(FIRST + 1, 1), known])
    assert one.next_file() == known
    assert one.is_unseen(known)
    assert one.published(known) == 3
    one.seen(known)
    order = []
    while (found := one.next_file()) is not None:
        order.append((found.minute, found.path))
        one.complete(found, records=1)
    assert order == sorted(order)


def test_files_of_the_position_are_read_in_the_order_of_their_turns():
    early, late = file(FIRST), file(FIRST + 5)
    one = ledger({late.name: "3/1", early.name: "1/2"})
    one.add([early, late])
    assert one.next_file() == late
    assert one.add_record(file(FIRST + 6), 1) == 3


def test_a_file_has_a_turn_for_each_part_that_others_were_read_before():
    one, grows, other = ledger({file(FIRST).name: "3/1"}), file(FIRST), file(FIRST + 1)
    assert [one.add_record(grows, record) for record in (4, 5)] == [1, 1]
    assert one.add_record(other, 1) == 2
    assert [one.add_record(grows, record) for record in (6, 7)] == [3, 3]
    assert one.refuse_from(grows, 8) == 3
    assert one.refuse_from(other, 2) == 4


def test_parts_of_files_are_read_again_in_the_order_of_their_turns():
    grows, other = file(FIRST), file(FIRST + 1)
    one = ledger({grows.name: "2/1,5/3,6/4", f"{grows.name}!": "7/6", other.name: "9/2,12/5"})
    one.add([other, grows])
    read_again = []
    while one.is_unseen(found := one.next_file()):
        read_again.append((found, one.through(found)))
        one.seen(found)
    assert read_again == [(grows, 2), (other, 9), (grows, 5), (grows, 6), (other, 12)]
    assert (one.published(grows), one.published(other)) == (6, 12)
    assert one.through(grows) is None
    assert one.add_record(grows, 7) == 6  # the refusal had the last turn
    assert one.add_record(other, 13) == 7


def test_of_a_file_that_ends_before_its_published_records_no_part_is_left():
    shorter, other = file(FIRST), file(FIRST + 1)
    one = ledger({shorter.name: "2/1,5/3", other.name: "9/2"})
    one.add([shorter, other])
    assert one.next_file() == shorter
    one.complete(shorter, records=1)
    assert one.next_file() == other
    one.seen(other)
    assert not one.is_unseen(shorter)
    assert one.next_file() == other


def test_an_event_is_taken_once():
    one, found = ledger(), file(FIRST)
    assert [record for record in (1, 2, 1, 2, 3) if one.meet(found, record)] == [1, 2, 3]
    read(one, found, records=3)
    one.close((FIRST + 12) * US_PER_MINUTE)
    assert one.meet(found, 1)


def test_a_minute_is_closed_after_its_time_and_a_tolerance_for_clocks():
    one, found = ledger(), file(FIRST)
    one.add([found])
    read(one, found)
    assert one.close((FIRST + 11) * US_PER_MINUTE) is None
    closed = one.close((FIRST + 12) * US_PER_MINUTE)
    assert (closed.first_open_minute, closed.files) == (FIRST + 1, (found.name,))
    assert one.add([found]) == []
    assert one.next_file() is None


def test_what_is_not_read_keeps_the_minutes_before_it_open():
    one, early, late = ledger(), file(FIRST), file(FIRST + 15)
    one.add([early, late])
    read(one, early)
    closed = one.close((FIRST + 1_000) * US_PER_MINUTE)
    assert (closed.first_open_minute, closed.files) == (FIRST + 5, (early.name,))
    postponed = ledger()
    postponed.add([early])
    postponed.postpone(early)
    assert postponed.next_file() is None
    assert postponed.close((FIRST + 1_000) * US_PER_MINUTE) is None
    postponed.add([early])
    assert postponed.next_file() == early


def test_the_watermark_is_behind_the_first_file_that_was_not_read():
    one = ledger()
    one.add([file(FIRST + 3), file(FIRST + 7)])
    now_us = (FIRST + 9) * US_PER_MINUTE + 5
    assert one.watermark_us(now_us) == (FIRST + 1) * US_PER_MINUTE
    one.complete(file(FIRST + 3), records=1)
    assert one.watermark_us(now_us) == (FIRST + 5) * US_PER_MINUTE
    one.complete(file(FIRST + 7), records=1)
    assert one.watermark_us(now_us) == now_us - LIMITS.lateness_us


def test_a_file_of_a_closed_minute_is_read_only_if_it_was_written_late():
    one = ledger({":closed": str(FIRST + 50)})
    in_time, late = file(FIRST + 20, 1), file(FIRST + 20, 2, after_minutes=11)
    assert one.add([in_time, late]) == [late]
    assert one.next_file() == late


def test_a_late_file_stays_in_the_position_as_long_as_late_files_are_looked_for():
    one, late = ledger({":closed": str(FIRST + 50)}), file(FIRST + 20, after_minutes=11)
    one.add([late])
    read(one, late)
    closed = one.close((FIRST + 70) * US_PER_MINUTE)
    assert closed.files == ()
    assert one.add([late]) == []
    closed = one.close((FIRST + 200) * US_PER_MINUTE)
    assert closed.files == (late.name,)
    assert one.add([late]) == []


def test_a_refusal_is_kept_beside_the_records_and_leaves_the_position_with_them():
    cut, empty = file(FIRST + 2), file(FIRST + 3)
    one = ledger({cut.name: "3/1", f"{cut.name}!": "4/1", f"{empty.name}!": "1/2"})
    one.add([cut, empty])
    assert (one.published(cut), one.refused_from(cut)) == (3, 4)
    assert (one.published(empty), one.refused_from(empty)) == (0, 1)
    assert one.refuse_from(file(FIRST + 4), 1) == 3
    for found in (cut, empty):
        one.complete(found, records=0)
    closed = one.close((FIRST + 30) * US_PER_MINUTE)
    gone = {cut.name, f"{cut.name}!", empty.name, f"{empty.name}!"}
    assert gone <= set(closed.files)
    assert one.refused_from(cut) == 0


def test_a_file_that_is_gone_leaves_the_position_with_its_minute():
    gone = file(FIRST + 2)
    one = ledger({gone.name: "3/1"})
    one.add([])
    assert one.close((FIRST + 12) * US_PER_MINUTE).files == ()
    assert one.close((FIRST + 30) * US_PER_MINUTE).files == (gone.name,)


def test_two_files_with_one_name_are_refused():
    one = ledger()
    one.add([FoundFile("a", FIRST, "1", 0)])
    with pytest.raises(FileNamesCollide):
        one.add([FoundFile("b", FIRST, "1", 0)])


def test_it_knows_how_much_is_left_and_what_was_new():
    known, new = file(FIRST + 2), file(FIRST + 4)
    one = ledger({known.name: "3/1"})
    assert (one.unread, one.open_since_us) == (0, FIRST * US_PER_MINUTE)
    one.add([known, new])
    assert (one.unread, one.open_since_us) == (2, (FIRST + 2) * US_PER_MINUTE)
    assert not one.complete(known, records=3)  # all of it was published before
    assert one.complete(new, records=0)
    assert (one.unread, one.open_since_us) == (0, FIRST * US_PER_MINUTE)
    longer = ledger({known.name: "3/1"})
    longer.add([known])
    assert longer.complete(known, records=4)


def lines_of_a_backlog(count):
    """Return how many lines of the ledger are run to read so many files, one a minute."""
    one, lines = ledger(), 0
    files = [file(FIRST + number) for number in range(count)]

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != file_ledger.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        one.add(files)
        while (found := one.next_file()) is not None:
            read(one, found)
            one.close((FIRST + count) * US_PER_MINUTE)
            one.watermark_us((FIRST + count) * US_PER_MINUTE)
    finally:
        sys.settrace(before)
    assert one.unread == 0
    return lines


def test_the_work_for_each_file_does_not_grow_with_the_backlog():
    assert lines_of_a_backlog(800) < 5 * lines_of_a_backlog(200)
