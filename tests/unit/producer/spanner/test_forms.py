"""The query of each dialect."""

import pytest

from tidegate.producer.description import GOOGLE_SQL
from tidegate.producer.spanner.forms import form_of
from tidegate.schemas.errors import ConfigError

DIALECTS = [GOOGLE_SQL]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["", "a-b", "a`) --", 'a"(', "1a", "x" * 119])
def test_an_invalid_name_is_refused(dialect, name):
    with pytest.raises(ConfigError, match="change_stream"):
        form_of(dialect, name)


def test_an_unknown_dialect_is_refused():
    with pytest.raises(ConfigError, match="dialect ORACLE") as caught:
        form_of("ORACLE", "Feed")
    assert GOOGLE_SQL in caught.value.hint


def test_each_query_has_a_decoder_of_its_own():
    form = form_of(GOOGLE_SQL, "Feed")
    assert form.decoder() is not form.decoder()
