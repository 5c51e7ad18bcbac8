"""A heartbeat's reason is taken apart into kind and text, whichever version wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lineage.stop_reason import is_expired, read_stop, stop_text
from tidegate.producer.errors import PositionExpired, SourceFileError
from tidegate.schemas.errors import SchemaError


@given(st.text(max_size=40), st.text(max_size=40))
def test_kind_and_text_come_back(message, hint):
    error = SchemaError(message, hint=hint, token="t: u")
    assert read_stop(stop_text(error)) == ("SchemaError", str(error))


@pytest.mark.parametrize(
    "text", ["", "expired (lost_from='x'). Accept: it", "a value: is it?", "Two words: x"]
)
def test_a_text_without_a_kind_is_kept_whole(text):
    assert read_stop(text) == (None, text)


def test_only_an_expired_position_is_one():
    assert is_expired(stop_text(PositionExpired("too old", lost_from="x", lost_until="y")))
    assert is_expired("too old (lost_from='x', lost_until='y')")
    assert not is_expired(None)
    assert not is_expired("no such token")


def test_an_error_that_names_a_file_is_not_one_whatever_the_files_path():
    error = SourceFileError("no Avro", file="bank_ledger/2026/lost_from=1/rows.avro")
    assert "lost_from=" in stop_text(error)
    assert not is_expired(stop_text(error))
