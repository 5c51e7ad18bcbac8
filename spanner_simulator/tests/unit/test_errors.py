from __future__ import annotations

import pickle

from spanner_simulator.errors import Code, SpannerError


def test_an_error_survives_pickling_with_its_retry_delay() -> None:
    error = pickle.loads(pickle.dumps(SpannerError(Code.ABORTED, "again", retry_delay_ms=7)))
    assert (error.code, error.message, error.retry_delay_ms) == (Code.ABORTED, "again", 7)
    assert str(error) == "ABORTED: again"


def test_half_a_surrogate_pair_in_a_text_can_still_be_sent() -> None:
    error = SpannerError(Code.INVALID_ARGUMENT, "not \ud800")
    assert error.message == r"not \ud800"
    assert str(error).encode()
