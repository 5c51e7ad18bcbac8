"""Stream partitions are followed from their announcement until a release passes their end."""

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.spark_consumer.core.marker_news import MarkerChunk, MarkerNews
from tidegate.spark_consumer.core.origin_ledger import (
    NOTHING_FOLLOWED,
    Followed,
    OriginLedger,
    fault_of,
)
from tidegate.spark_consumer.core.origin_sums import OriginSum, signed_origin, sum_by_origin
from tidegate.spark_consumer.core.proof import Fault

A, B = "bank.a", "bank.b"
TWO, ONE = OriginSum(2, 20, 7), OriginSum(1, 10, 3)


def marker(token="t", *totals, end_us=50, **changes):
    chunk = MarkerChunk(token, end_us, 0, True, 0, 1, totals or ((A, TWO),))
    return replace(chunk, **changes)


def following(*tokens, start_us=10, since_us=-1):
    ledger = OriginLedger(since_us)
    return ledger.taken(MarkerNews(tuple((token, start_us) for token in tokens or ("t",))))


def released(one=TWO, *, token="t", topic=A):
    return {(signed_origin(token), topic): one}


def settled(ledger, through_us=60, *, complete_from_us=-1, **changes):
    return ledger.settled(through_us, complete_from_us=complete_from_us, **changes)


def ended(ledger, *markers):
    return ledger.taken(MarkerNews(finished=markers or (marker(),)))


def test_what_agrees_is_forgotten_and_nothing_is_said():
    ledger = ended(following()).added(released(), through_us=40)
    assert settled(ledger) == (NOTHING_FOLLOWED, ())


def test_sums_of_several_releases_add_up():
    ledger = following().added(released(ONE), through_us=20)
    ledger = ended(ledger, marker("t", (A, ONE + ONE))).added(released(ONE), through_us=60)
    assert settled(ledger) == (NOTHING_FOLLOWED, ())


def test_what_is_missing_names_the_stream_partition_and_the_topic():
    ledger = ended(following(), marker("t", (A, TWO), (B, ONE))).added(released(), through_us=60)
    left, (one,) = settled(ledger)
    assert (left, one.fault) == (NOTHING_FOLLOWED, Fault.MISSING)
    assert one.subject == {"topic": B, "origin": signed_origin("t"), "token": "t"}
    assert one.expected == {"mods": 1, "value_bytes": 10, "checksum": "0000000000000003"}
    assert one.found == {"mods": 0, "value_bytes": 0, "checksum": "0" * 16}
    kept, again = settled(ledger, keeps_faulty=True)
    assert (kept, again) == (ledger, (one,))


def test_changes_of_a_topic_that_the_marker_does_not_name_are_too_many():
    ledger = ended(following()).added({**released(), **released(topic=B)}, through_us=60)
    assert [one.fault for one in settled(ledger)[1]] == [Fault.TOO_MANY]


@pytest.mark.parametrize(
    ("chunks", "through_us"),
    [((), 60), ((marker(chunks=2),), 60), ((marker(),), 49)],
    ids=["no marker", "a chunk is missing", "not released"],
)
def test_it_is_not_judged_before_everything_of_it_is_released(chunks, through_us):
    ledger = following().taken(MarkerNews(finished=chunks))
    assert settled(ledger, through_us) == (ledger, ())


def test_a_marker_in_chunks_is_their_sum_and_a_repeated_chunk_counts_once():
    first, last = marker("t", (A, ONE), chunks=2), marker("t", (B, ONE), chunks=2, chunk=1)
    ledger = ended(ended(following(), first), first, last)
    ledger = ledger.added({**released(ONE), **released(ONE, topic=B)}, through_us=60)
    assert settled(ledger) == (NOTHING_FOLLOWED, ())


@pytest.mark.parametrize("start_us", [9, 10])
def test_what_began_before_the_output_was_complete_is_not_judged(start_us):
    ledger = ended(following(start_us=start_us))
    assert settled(ledger, complete_from_us=10) == (NOTHING_FOLLOWED, ())
    assert settled(ledger, complete_from_us=8)[1]


def test_what_began_before_the_sums_is_not_followed_and_its_marker_has_no_effect():
    ledger = ended(following(since_us=10)).added(released(), through_us=60)
    assert ledger == OriginLedger(10)


def test_what_has_not_been_released_by_the_sums_is_not_counted():
    assert following().added(released(token="other"), through_us=20) == following()


def test_stream_partitions_with_one_origin_are_judged_together(monkeypatch):
    module = "tidegate.spark_consumer.core.origin_ledger.signed_origin"
    monkeypatch.setattr(module, lambda _token: 5)
    sums = {(5, A): ONE + ONE}
    ledger = ended(following("t", "u"), marker("t", (A, ONE))).added(sums, through_us=60)
    assert settled(ledger) == (ledger, ())
    assert settled(ended(ledger, marker("u", (A, ONE)))) == (NOTHING_FOLLOWED, ())


def test_stream_partitions_with_one_origin_are_forgotten_together(monkeypatch):
    module = "tidegate.spark_consumer.core.origin_ledger.signed_origin"
    monkeypatch.setattr(module, lambda _token: 5)
    ledger = following("t").taken(MarkerNews((("u", 30),))).added({(5, A): ONE}, through_us=40)
    assert ledger.forgotten(10) == OriginLedger(10)


def test_changes_that_do_not_say_where_they_come_from_leave_only_what_begins_later():
    ledger = following("t").taken(MarkerNews((("u", 30),)))
    unnamed = {(None, A): ONE, **released(ONE, token="u")}
    later = OriginLedger(20, {"u": Followed(30)}, released(ONE, token="u"))
    assert ledger.added(unnamed, through_us=20) == later


def test_a_ledger_that_is_too_large_begins_again():
    ledger = following("t", "u").added(released(), through_us=20)
    assert (ledger.size, ledger.within(3)) == (3, ledger)
    assert ledger.within(2) == OriginLedger(10)


@pytest.mark.parametrize(
    ("found", "parked", "has_checksum", "fault"),
    [
        (TWO, 0, True, None),
        (OriginSum(1, 20, 7), 0, True, Fault.MISSING),
        (OriginSum(1, 20, 7), 5, False, Fault.MISSING),
        (OriginSum(3, 20, 7), 0, True, Fault.TOO_MANY),
        (OriginSum(3, 30, 9), 1, True, None),
        (OriginSum(4, 30, 9), 1, True, Fault.TOO_MANY),
        (OriginSum(2, 20, 8), 0, True, Fault.OTHER_CHANGES),
        (OriginSum(2, 20, 8), 0, False, None),
        (OriginSum(2, 21, 7), 0, True, Fault.OTHER_VALUES),
        (OriginSum(2, 21, 8), 0, False, Fault.OTHER_VALUES),
    ],
)
def test_the_rules_of_an_audit(found, parked, has_checksum, fault):
    assert fault_of(TWO, found, parked=parked, has_checksum=has_checksum) is fault
    chunk = marker(parked=parked, has_checksum=has_checksum)
    ledger = ended(following(), chunk).added(released(found), through_us=60)
    assert [one.fault for one in settled(ledger)[1]] == ([fault] if fault else [])


def test_a_ledger_and_news_are_restored_from_json():
    news = MarkerNews((("t", 10),), (marker(parked=3),), 4)
    stored = json.loads(json.dumps(asdict(news)))
    assert MarkerNews.restore(stored) == news
    ledger = NOTHING_FOLLOWED.taken(news).added(released(), through_us=20)
    assert OriginLedger.restore(json.loads(json.dumps(ledger.snapshot()))) == ledger


@given(st.lists(st.binary(min_size=1, max_size=4), unique=True, max_size=8), st.integers(0, 8))
def test_sums_do_not_depend_on_how_releases_are_cut(keys, place):
    changes = [(signed_origin("t"), A, key, len(key)) for key in keys]
    whole = following().added(sum_by_origin(changes), through_us=20)
    parts = following().added(sum_by_origin(changes[:place]), through_us=15)
    assert parts.added(sum_by_origin(changes[place:]), through_us=20) == whole
