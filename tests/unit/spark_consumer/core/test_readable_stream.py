"""A stream is known by the record that opened it, in whatever portion that is read."""

from __future__ import annotations

import pytest

from tests.unit.spark_consumer.core.test_gate import opening, row
from tidegate.schemas.progress import StreamStarted
from tidegate.spark_consumer.core.readable_stream import require_readable
from tidegate.spark_consumer.errors import UnreadableEnvelope


def started(*filters):
    return StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (), filters=filters)


def test_other_records_and_other_settings_are_read():
    require_readable(opening())
    require_readable([row(0, started("exclude_delete=true", "producer.tables=a"))])


@pytest.mark.parametrize("envelope", ["flat", "debezium", "datastream", "later"])
def test_a_stream_of_another_envelope_is_named(envelope):
    with pytest.raises(UnreadableEnvelope, match=f"the envelope '{envelope}'") as caught:
        require_readable([*opening(), row(2, started(f"producer.envelope={envelope}"))])
    assert caught.value.fields == {"stream": "s", "envelope": envelope}
    assert caught.value.exit_code == 2
