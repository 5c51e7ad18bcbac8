"""Events come once at least, out of order, twice and late; in the folder of their minute."""

from __future__ import annotations

from collections import Counter

from tidegate.local_stack.demo.files.delivery import DeliveredFile, Delivery


def run(seed: int, *, events: int = 400) -> list[tuple[float, DeliveredFile[int]]]:
    delivery: Delivery[int] = Delivery(seed, hold_s=20.0)
    found, now_s = [], 600.0
    for number in range(events):
        delivery.add("ab"[number % 2], number, now_s=now_s)
        now_s += 0.25
        if number % 4 == 3:
            found += [(now_s, one) for one in delivery.files(now_s=now_s)]
    while not delivery.is_empty:
        now_s += 1
        found += [(now_s, one) for one in delivery.files(now_s=now_s)]
    return found


def test_every_event_comes_some_twice_and_out_of_order():
    files = run(3)
    counts = Counter(event for _, one in files for event in one.events)

    assert set(counts) == set(range(400))
    assert max(counts.values()) > 1
    assert {event % 2 for _, one in files for event in one.events if one.folder == "a"} == {0}
    in_order = [event for _, one in files for event in one.events]
    assert in_order != sorted(in_order)


def test_some_files_are_late_and_stay_in_the_folder_of_their_minute():
    files = run(3)
    # A change every quarter of a second from second 600 on.
    late = [one for at_s, one in files if max(one.events) / 4 + 600 + 20 < at_s]

    assert late
    assert all(
        one.minute in {int(600 + event / 4) // 60, int(600 + event / 4 + 11) // 60}
        for one in late
        for event in one.events
    )


def test_a_seed_gives_the_same_files():
    assert run(4) == run(4) != run(5)


def test_the_next_files_are_held_back_if_asked_for():
    for seed in range(20):
        delivery: Delivery[int] = Delivery(seed, hold_s=20.0)
        delivery.add("a", 0, now_s=0.0)
        delivery.files(now_s=1.0)
        delivery.hold_next()
        for number in range(1, 9):
            delivery.add("a", number, now_s=100.0)
        delivery.files(now_s=101.0)
        early = [event for one in delivery.files(now_s=120.9) for event in one.events]
        late = [event for one in delivery.files(now_s=140.0) for event in one.events]

        assert len(set(early) - {0}) < 8, "copies, at most"
        assert set(range(1, 9)) <= set(late)
