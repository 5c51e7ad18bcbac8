"""Only a search that begins after the record must have been committed proves that it is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.producer.core import stream_start_search
from tidegate.producer.core.effects import FindStreamStart
from tidegate.producer.core.stream_start_search import StreamStartSearch

PATIENCE_US = stream_start_search._PATIENCE_US
NEW, KNOWN = (SimpleNamespace(proves_stream_start=known) for known in (False, True))


@pytest.fixture
def search():
    """A search that has begun."""
    made = StreamStartSearch()
    assert made.begin() == [FindStreamStart(1)]
    return made


def test_there_is_one_first_search(search):
    assert search.begin() == []


def test_new_slots_prove_nothing(search):
    assert search.poll([NEW], now_us=0) == []
    assert search.poll([NEW], now_us=10 * PATIENCE_US) == []
    assert not search.is_decided_by(1)


def test_a_slot_that_had_an_owner_starts_a_search_that_decides(search):
    assert search.poll([NEW, KNOWN], now_us=7) == []
    assert search.poll([NEW], now_us=6 + PATIENCE_US) == []
    assert search.poll([NEW], now_us=7 + PATIENCE_US) == [FindStreamStart(2)]

    assert search.is_decided_by(2)
    assert not search.is_decided_by(1), "the record may stand behind what it had read"
    assert search.poll([KNOWN], now_us=10 * PATIENCE_US) == []
