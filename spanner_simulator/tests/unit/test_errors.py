from __future__ import annotations

import pickle

import grpc
import pytest

from spanner_simulator.errors import (
    BrokenInvariantError,
    Code,
    SpannerError,
    invariant,
)


@pytest.mark.parametrize("code", list(Code))
def test_codes_have_the_names_and_numbers_of_grpc(code: Code) -> None:
    assert grpc.StatusCode[code.name].value[0] == code.value


def test_an_error_survives_pickling_with_its_retry_delay() -> None:
    error = pickle.loads(pickle.dumps(SpannerError(Code.ABORTED, "again", retry_delay_ms=7)))

    assert (error.code, error.message, error.retry_delay_ms) == (Code.ABORTED, "again", 7)
    assert str(error) == "ABORTED: again"


def test_an_invariant_raises_only_when_broken() -> None:
    invariant(condition=True, message="fine")

    with pytest.raises(BrokenInvariantError, match="not fine"):
        invariant(condition=False, message="not fine")


def test_half_a_surrogate_pair_in_a_text_can_still_be_sent() -> None:
    error = SpannerError(Code.INVALID_ARGUMENT, "not \ud800")

    assert error.message == r"not \ud800"
    assert str(error).encode()
