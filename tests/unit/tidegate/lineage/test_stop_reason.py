"""A heartbeat's reason is taken apart into kind and text, whichever version wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.lineage.stop_reason import read_stop, stop_text
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
