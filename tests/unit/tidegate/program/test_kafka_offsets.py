"""An answer without an offset is no offset."""

from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from tidegate.program.kafka_offsets import listed_offset


@pytest.mark.parametrize("offset", [0, 7, -1])
def test_what_kafka_answers_is_returned(offset):
    assert listed_offset(SimpleNamespace(offset=offset)) == offset


def test_an_answer_without_an_offset_is_an_error_that_may_be_retried():
    with pytest.raises(KafkaException) as caught:
        listed_offset(SimpleNamespace(offset=OFFSET_INVALID))
    assert caught.value.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE
