"""What Tidegate leans on in a broker, as cases that hold for the real one and for the model alike.

Each case states one rule and why it matters, and speaks to a stage: one data topic, one topic of
slots and one consumer group over them.  `contract_model` puts the model behind it, with what each
call means, and `tests/integration/test_contracts.py` a real broker; expectations are the same for
both.  A case waits for what the broker does later (a marker, a round) with `until`; what it asserts
without waiting holds at once.

What only one of them can show stays outside: the model writes markers of one transaction in any
order (a real one does too, and has no setting for it); the model has no tombstones, no time-out by
itself, and one refusal where the broker has several codes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

SLOTS = 4
DATA_NUMBERS = 2
UNSTABLE = "an open transaction holds it back"
Place = tuple[str, int]  # ("data" or "slots", topic partition)
Seen = tuple[list[tuple[int, bytes]], int]
"""(offset, value) of each record that a `read_committed` reader gets, and its position then."""
CASES: list[Callable[[Any], None]] = []


class Answer(Enum):
    OK = "done"
    REFUSED = "an error after which the transaction can only be aborted"
    FENCED = "the producer is finished; only a new one can go on"


def _alone(stage, name):
    member = stage.member(name)
    stage.until(lambda: len(member.slots) == SLOTS, member)
    return member


def _fence(producer, offsets, metadata, expected=Answer.OK):
    producer.begin()
    assert producer.send_offsets(offsets, metadata) is expected
    end = producer.commit if expected is Answer.OK else producer.abort
    assert end() is Answer.OK


def _tries(member):
    return {
        "produce": lambda one: one.produce(("data", 0), b"k", b"more"),
        "send": lambda one: one.send_offsets({0: 1}, member.metadata()),
        "commit": lambda one: one.commit(),
        "abort": lambda one: one.abort(),
    }


def _publish(producer, *records):
    producer.begin()
    for place, key, value in records:
        assert producer.produce(place, key, value) is Answer.OK


def _committed(producer, *records):
    _publish(producer, *records)
    assert producer.commit() is Answer.OK


def _until_read(stage, place, expected):
    stage.until(lambda: stage.stable_end(place) >= expected[1])
    assert stage.read(place) == expected


@CASES.append
def open_transaction_hides_what_follows(stage):
    """A slot's new owner has to look at the uncommitted end: its own reader stops before it."""
    first, second = ("data", 0), ("data", 1)
    one = stage.producer("one")
    _publish(one, (first, b"k", b"open"))
    stage.append(first, b"k", b"plain")
    _committed(stage.producer("two"), (first, b"k", b"behind"), (second, b"k", b"elsewhere"))
    _until_read(stage, second, ([(0, b"elsewhere")], 2))

    assert stage.read(first) == ([], 0)
    assert stage.stable_end(first) == 0
    assert stage.uncommitted_end(first) >= 3
    assert one.commit() is Answer.OK
    _until_read(stage, first, ([(0, b"open"), (1, b"plain"), (2, b"behind")], 5))


@CASES.append
def aborted_records_are_never_read(stage):
    """Offsets have holes, and a reader's position passes markers: "reached" counts on both."""
    place = ("data", 0)
    producer = stage.producer("one")
    _committed(producer, (place, b"k", b"1"), (place, b"k", b"2"))
    _publish(producer, (place, b"k", b"void"))
    assert producer.abort() is Answer.OK
    _until_read(stage, place, ([(0, b"1"), (1, b"2")], 5))

    _committed(producer, (place, b"k", b"3"))
    _until_read(stage, place, ([(0, b"1"), (1, b"2"), (5, b"3")], 7))


@CASES.append
def next_transaction_waits_for_the_markers_of_the_last(stage):
    """So one producer's transactions show in their order, in every topic partition."""
    first, second = ("data", 0), ("data", 1)
    producer = stage.producer("one")
    for number in range(5):
        _committed(producer, (first, b"k", b"1"), (second, b"k", b"1"))
        _publish(producer, (first, b"k", b"2"))
        assert stage.stable_end(second) == 2 * (number + 1)
        assert producer.commit() is Answer.OK


@CASES.append
def taking_over_ends_what_the_former_left(stage):
    """A restarted worker finds nothing of its predecessor open when its producer is ready."""
    place = ("data", 0)
    _publish(stage.producer("one"), (place, b"k", b"left"))
    heir = stage.producer("one")
    assert stage.stable_end(place) == stage.uncommitted_end(place) == 2
    assert stage.read(place) == ([], 2)
    _committed(heir, (place, b"k", b"heir"))
    _until_read(stage, place, ([(2, b"heir")], 4))


@CASES.append
def former_can_do_nothing(stage):
    """Whatever it tries first, it learns that it is finished, and nothing of it is ever read."""
    place = ("data", 0)
    member = _alone(stage, "worker")
    for name, attempt in _tries(member).items():
        former = stage.producer(name)
        _publish(former, (place, b"k", b"former"))
        stage.producer(name)
        assert attempt(former) is Answer.FENCED, name
        assert former.commit() is Answer.FENCED, name
    assert stage.read(place)[0] == []
    assert stage.committed(0) is None


@CASES.append
def former_that_sends_nothing_learns_nothing(stage):
    """The client asks the broker only for what is in the transaction: no offset, no fence."""
    member = _alone(stage, "worker")
    former = stage.producer("one")
    stage.producer("one")
    former.begin()
    assert former.send_offsets({}, member.metadata()) is Answer.OK
    assert former.commit() is Answer.OK


@CASES.append
def time_out_fences_like_a_successor(stage):
    """A worker that stood still cannot tell from its producer alone that nobody replaced it."""
    place = ("data", 0)
    member = _alone(stage, "worker")
    tries = _tries(member)
    producers = {name: stage.impatient_producer(name) for name in tries}
    for producer in producers.values():
        _publish(producer, (place, b"k", b"late"))
    for name in tries:
        stage.time_out(name)
    stage.until(lambda: stage.stable_end(place) == 8)
    for name, attempt in tries.items():
        assert attempt(producers[name]) is Answer.FENCED, name
    assert stage.read(place) == ([], 8)
    _committed(stage.producer("produce"), (place, b"k", b"made again"))
    _until_read(stage, place, ([(8, b"made again")], 10))


@CASES.append
def idle_producer_is_not_timed_out(stage):
    """Begun is not open: a transaction begins at the broker with its first record or offset."""
    place = ("data", 0)
    idle, busy = stage.impatient_producer("idle"), stage.impatient_producer("busy")
    idle.begin()
    _publish(busy, (place, b"k", b"late"))
    stage.time_out("busy")
    assert idle.produce(place, b"k", b"1") is Answer.OK
    assert idle.commit() is Answer.OK


@CASES.append
def fence_knows_generations_and_not_slots(stage):
    """So the metadata must be those of the moment when the transaction began."""
    first = _alone(stage, "first")
    before = first.metadata()
    second = stage.member("second")
    _until_shared(stage, first, second)
    producer = stage.producer("one")
    moved = min(second.slots)

    _fence(producer, {moved: 5}, before, Answer.REFUSED)
    _fence(producer, {moved: 6}, first.metadata())
    stage.until(lambda: stage.committed(moved) == 6, first, second)


@CASES.append
def fence_without_an_offset_checks_nothing(stage):
    first = _alone(stage, "first")
    before = first.metadata()
    second = stage.member("second")
    _until_shared(stage, first, second)
    place = ("data", 0)
    producer = stage.producer("one")

    _publish(producer, (place, b"k", b"1"))
    assert producer.send_offsets({}, before) is Answer.OK
    assert producer.commit() is Answer.OK
    _until_read(stage, place, ([(0, b"1")], 2))


@CASES.append
def fence_of_a_nameless_stranger_checks_nothing(stage):
    """Without generation, member id and a fixed name there is nothing to compare."""
    member = _alone(stage, "worker")
    producer = stage.producer("one")

    _fence(producer, {0: 7}, stage.strange_metadata())
    stage.until(lambda: stage.committed(0) == 7, member)


@CASES.append
def fence_of_a_worker_that_has_not_joined_is_refused(stage):
    """A static member's name travels in the metadata, and is compared even without a generation."""
    member = _alone(stage, "worker")
    producer = stage.producer("one")

    for name in ("worker", "nobody"):
        _fence(producer, {0: 8}, stage.strange_metadata(name), Answer.REFUSED)
    stage.until(lambda: stage.committed(0) is None, member)


@CASES.append
def fence_of_a_removed_member_is_refused(stage):
    """Also by an empty group, which accepts only a fence without a generation."""
    member = _alone(stage, "worker")
    before = member.metadata()
    stage.expire("worker")
    producer = stage.producer("one")

    _fence(producer, {0: 8}, before, Answer.REFUSED)
    for metadata in (stage.strange_metadata(), stage.strange_metadata("worker")):
        _fence(producer, {0: 9}, metadata)
    stage.until(lambda: stage.committed(0) == 9)


@CASES.append
def replaced_member_is_refused_in_the_same_generation(stage):
    """Its name comes back with another member id; that ends a zombie, and costs nobody a round."""
    former, other = stage.member("worker"), stage.member("other")
    _until_shared(stage, former, other)
    kept, generation, before = former.slots, former.generation, former.metadata()
    heir = stage.member("worker")
    stage.until(lambda: heir.slots == kept, heir, other)
    producer = stage.producer("one")

    assert heir.generation == other.generation == generation
    _fence(producer, {0: 1}, before, Answer.REFUSED)
    for member in (heir, other):
        _fence(producer, {0: 2}, member.metadata())
    stage.until(lambda: former.is_locked_out, former, heir, other)
    # It keeps what it believes: an error tells it, and no callback.
    assert former.slots == kept
    assert former.metadata() == before


@CASES.append
def fence_holds_while_a_round_is_prepared(stage):
    """Only the round's end makes a generation former: its members may still finish what they do."""
    first = _alone(stage, "first")
    alone = first.generation
    second = stage.member("second")
    stage.until(lambda: second.generation == first.generation > alone, second)
    third = stage.member("third")
    stage.until(lambda: stage.assigned() is None, second, third)
    producer = stage.producer("one")

    _fence(producer, {0: 3}, first.metadata())
    stage.until(lambda: stage.committed(0) == 3, second, third)
    assert stage.assigned() is None


@CASES.append
def offsets_count_from_the_commit(stage):
    """A slot's new owner waits for its predecessor's open transaction, and only in that slot."""
    member = _alone(stage, "worker")
    producer = stage.producer("one")

    producer.begin()
    assert producer.send_offsets({0: 5}, member.metadata()) is Answer.OK
    assert stage.committed(0) == UNSTABLE
    assert stage.committed(1) is None
    assert producer.commit() is Answer.OK
    stage.until(lambda: stage.committed(0) == 5, member)
    producer.begin()
    assert producer.send_offsets({0: 6}, member.metadata()) is Answer.OK
    assert producer.abort() is Answer.OK
    stage.until(lambda: stage.committed(0) != UNSTABLE, member)
    assert stage.committed(0) == 5


@CASES.append
def slot_is_released_before_it_is_reassigned(stage):
    """The fence keeps two writers apart only because of this order, and of growing generations."""
    first = _alone(stage, "first")
    alone = first.generation
    second = stage.member("second")
    stage.until(lambda: second.generation > alone, second)
    stage.linger(second)
    assert second.slots == frozenset(), "a slot was reassigned before its owner released it"
    assert first.slots == frozenset(range(SLOTS))

    seen = len(second.events)
    _until_shared(stage, first, second)
    revoked = {slot: generation for kind, slots, generation in first.events for slot in slots
               if kind == "revoked"}  # fmt: skip
    given = {slot: generation for kind, slots, generation in second.events[seen:] for slot in slots
             if kind == "assigned"}  # fmt: skip
    assert second.slots <= set(given)
    assert all(slot in revoked and revoked[slot] < given[slot] for slot in second.slots)
    assert first.generation == second.generation > alone + 1


@CASES.append
def slots_taken_from_the_dead_are_orphans(stage):
    """A round takes slots from a static member that dies before it releases them and comes back."""
    heir, other = _with_orphans(stage)
    other.begin_round()
    _until_shared(stage, heir, other)


@CASES.append
def orphans_have_an_owner_after_any_member_joins_again(stage):
    """Also who came back under the name: it leaves before it joins, so that a round begins."""
    heir, other = _with_orphans(stage)
    heir.begin_round()
    _until_shared(stage, heir, other)
    assert [kind for kind, slots, _ in heir.events if slots] == ["assigned", "revoked", "assigned"]


def _with_orphans(stage):
    """Return the two members of a group at rest, half of whose slots are nobody's."""
    first = _alone(stage, "worker")
    alone = first.generation
    other = stage.member("other")
    stage.until(lambda: other.generation == first.generation > alone, other)
    # Members know their generation before the broker calls the round complete.
    stage.until(lambda: stage.assigned() is not None, other)
    taken = (stage.assigned() or {})["worker"]
    assert len(taken) == SLOTS // 2
    heir = stage.member("worker")
    stage.until(lambda: heir.slots == taken, heir, other)
    stage.linger(heir, other)
    assert stage.assigned() == {"worker": taken, "other": frozenset()}
    return heir, other


def _until_shared(stage, one, other):
    def is_shared() -> bool:
        return (
            stage.assigned() is not None
            and set((stage.assigned() or {}).values()) == {one.slots, other.slots}
            and len(one.slots) == len(other.slots) == SLOTS // 2
            and one.generation == other.generation
        )

    stage.until(is_shared, one, other)


_KEY = b"key"
_OF_2000_BYTES = b"v" * 1_927


@CASES.append
def message_beyond_its_topics_limit_is_refused(stage):
    """Nothing of its transaction is read, so a producer that repeats it never gets past it."""
    place, other = ("data", 0), ("slots", 0)
    stage.limit(2_000, "data")
    producer = stage.producer("one")
    producer.begin()
    assert producer.produce(other, _KEY, _OF_2000_BYTES + b"v") is Answer.OK
    assert producer.produce(place, _KEY, _OF_2000_BYTES + b"v") is Answer.REFUSED
    assert producer.commit() is Answer.REFUSED
    assert producer.abort() is Answer.OK

    _committed(stage.producer("one"), (place, _KEY, _OF_2000_BYTES))
    stage.until(lambda: [value for _, value in stage.read(place)[0]] == [_OF_2000_BYTES])
    assert stage.read(other)[0] == []


@CASES.append
def limit_that_is_raised_holds_for_the_next_message(stage):
    """An operator can let a message through that stopped its producer."""
    place, message = ("data", 0), _OF_2000_BYTES + b"v"
    stage.limit(2_000, "data")
    former = stage.producer("one")
    former.begin()
    assert former.produce(place, _KEY, message) is Answer.REFUSED
    stage.limit(2_001, "data")
    _committed(stage.producer("one"), (place, _KEY, message))

    stage.until(lambda: [value for _, value in stage.read(place)[0]] == [message])


@CASES.append
def topics_own_limit_holds_and_not_the_brokers(stage):
    """So a worker has to look at each topic: the brokers' limit may be above or below."""
    stage.limit(5_000)
    stage.limit(10_000, "data")
    producer = stage.producer("one")
    producer.begin()
    assert producer.produce(("data", 0), _KEY, b"v" * 8_000) is Answer.OK
    assert producer.produce(("slots", 0), _KEY, b"v" * 8_000) is Answer.REFUSED


@CASES.append
def compaction_keeps_the_newest_and_the_open(stage):
    """Offsets stay; nothing behind the first open transaction replaces anything before it."""
    place = ("slots", 0)
    producer, holder = stage.producer("one"), stage.producer("two")
    _committed(producer, (place, b"a", b"a1"), (place, b"b", b"b1"))
    _committed(producer, (place, b"a", b"a2"))
    _publish(producer, (place, b"b", b"void"))
    assert producer.abort() is Answer.OK
    _committed(producer, (place, b"b", b"b3"))
    # What is there by now is not read: a busy broker may have closed a segment and compacted it.
    stage.until(lambda: stage.stable_end(place) == 9)
    stage.roll()
    _publish(holder, (place, b"c", b"open"))
    _committed(producer, (place, b"a", b"a4"))
    stage.compact(place)

    assert stage.read(place) == ([(3, b"a2"), (7, b"b3")], 9)
    assert holder.commit() is Answer.OK
    stage.until(lambda: b"a4" in [value for _, value in stage.read(place)[0]])
    kept = [value for _, value in stage.read(place)[0] if value != b"a2"]
    assert kept[:3] == [b"b3", b"open", b"a4"]
