"""One topic partition: what a reader sees of transactions, compaction and retention."""

from __future__ import annotations

from tidegate.producer.memory.log import Log, Outcome, ProducerHandle, Transaction


def transaction():
    return Transaction(ProducerHandle("w", 1))


def values(log, *bounds):
    return [entry.value for entry in log.read(*bounds)]


def test_a_reader_stops_at_the_first_open_transaction():
    log, one = Log(("t", 0)), transaction()
    log.append(b"k", "before", None)
    log.append(b"k", "inside", one)
    log.append(b"k", "behind", None)

    assert values(log) == ["before"]
    assert (log.stable_end, log.uncommitted_end) == (1, 3)

    one.outcome = Outcome.COMMITTED
    log.mark(one)
    assert values(log) == ["before", "inside", "behind"]
    assert log.stable_end == 4


def test_aborted_records_are_not_read_and_keep_their_offsets():
    log, one = Log(("t", 0)), transaction()
    log.append(b"k", "void", one)
    one.outcome = Outcome.ABORTED
    log.mark(one)
    log.append(b"k", "next", None)

    assert [(entry.offset, entry.value) for entry in log.read()] == [(2, "next")]


def test_reading_has_bounds():
    log = Log(("t", 0))
    for number in range(5):
        log.append(b"k", number, None)

    assert values(log, 1, 3) == [1, 2]


def test_compaction_keeps_the_newest_of_each_key_and_returns_the_rest():
    log = Log(("t", 0))
    for key, value in ((b"a", 1), (b"b", 2), (b"a", 3), (b"a", 4)):
        log.append(key, value, None)

    assert [entry.value for entry in log.compact(3)] == [1]
    assert values(log) == [2, 3, 4]


def test_compaction_stops_before_an_open_transaction():
    log = Log(("t", 0))
    log.append(b"a", 1, None)
    log.append(b"b", 2, transaction())
    log.append(b"a", 3, None)

    assert log.compact(3) == []


def test_retention_deletes_from_the_beginning_and_spares_what_is_open():
    log = Log(("t", 0))
    for number in range(3):
        log.append(b"k", number, None)
    log.append(b"k", "open", transaction())
    log.expire(2)
    assert (log.begin, values(log)) == (2, [2])

    log.expire(9)
    assert (log.begin, log.end) == (3, 4)
    assert [entry.value for entry in log.entries] == ["open"]
