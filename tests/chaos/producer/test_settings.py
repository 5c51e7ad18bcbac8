"""Settings of the workers, as they are typed."""

from __future__ import annotations

import pytest
import typer

from tests.chaos.producer.__main__ import settings_of


def test_settings_are_names_and_values():
    assert settings_of(["open_queries_max=2", "start=a=b"]) == {
        "open_queries_max": "2",
        "start": "a=b",
    }


@pytest.mark.parametrize("text", ["open_queries_max", "=2"])
def test_another_text_is_refused(text):
    with pytest.raises(typer.BadParameter, match="not NAME=VALUE"):
        settings_of([text])
